"""Imports what was uploaded: `python -m frontend.restoring ORDER`, with the settings of the web process.

ORDER is JSON: where the file lies (`answers`), what it was called (`name`), the `slug` (or what it is called `otherwise`)
and `owner` of the experiment, and perhaps where its `config` and `targets` lie. What was made is JSON on standard output; what goes wrong is a line of
JSON on standard error.
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
    from frontend.restoring.files import restore_here
    from frontend.restoring.recording import Recording
    from salmon.errors import SalmonError
    from salmon.wire import decode_json, encode_json

    order = decode_json(arguments[0])
    config, targets = (Path(order[name]) if order.get(name) else None for name in ("config", "targets"))
    files = Recording(Path(order["answers"]), order["name"], config, targets)
    try:
        made = asyncio.run(restore_here(files, slug=order["slug"], otherwise=order["otherwise"], owner=order["owner"]))
    except SalmonError as error:
        print(encode_json({"status": status_of(error), **body_of(error)}), file=sys.stderr)
        return 1
    print(encode_json({**asdict(made), "message": made.sentence}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
