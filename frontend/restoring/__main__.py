"""Imports one bundle: `python -m frontend.restoring BUNDLE NAME OWNER`, with the settings of the web process.

What was made is JSON on standard output; what goes wrong is a line of JSON on standard error.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

#: Participants come first.
_NICENESS = 10


def main(arguments: list[str]) -> int:
    """Import what was uploaded."""
    os.nice(_NICENESS)
    # Only now, because loading all of this is work too.
    import asyncio
    from dataclasses import asdict

    from frontend.errors import body_of, status_of
    from frontend.restoring.restoration import restore_here
    from salmon.errors import SalmonError
    from salmon.wire import encode_json

    path, name, owner = arguments
    try:
        made = asyncio.run(restore_here(Path(path), name=name, owner=owner))
    except SalmonError as error:
        print(encode_json({"status": status_of(error), **body_of(error)}), file=sys.stderr)
        return 1
    print(encode_json({**asdict(made), "message": made.sentence}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
