"""One file on standard output: `python -m frontend.writer ORDER`, with the settings of the web process.

What goes wrong is one line of JSON on standard error and an exit code of 1: before the first byte the web process makes
a reply of it, later it breaks the connection, so that nobody keeps half a file believing it whole.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import BinaryIO

#: Participants come first: whoever answers is served before the file goes on.
_NICENESS = 10
#: Rows live for a page and hold no circles: looking for those after every seven hundred objects finds none.
_YOUNG_OBJECTS = 100_000


def main(arguments: list[str], output: BinaryIO) -> int:
    """Write what was ordered."""
    os.nice(_NICENESS)
    gc.set_threshold(_YOUNG_OBJECTS)
    # Only now, because loading all of this is work too.
    import asyncio

    from frontend.errors import body_of, status_of
    from frontend.writer.delivery import deliver
    from frontend.writer.order import Order
    from salmon.errors import SalmonError
    from salmon.wire import encode_json

    try:
        asyncio.run(deliver(Order.decode(arguments[0]), output))
        output.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), output.fileno())  # the interpreter flushes once more at its end
        return 1
    except SalmonError as error:
        print(encode_json({"status": status_of(error), **body_of(error)}), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:], sys.stdout.buffer))
