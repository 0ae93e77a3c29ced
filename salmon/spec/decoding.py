"""Decode pictures once when they are uploaded, so that no participant meets one that cannot be shown."""

import struct
import zlib
from collections.abc import Callable
from typing import IO, Literal

#: Larger pictures are not decoded here: that takes four bytes of memory for each pixel.
MOST_PIXELS = 50_000_000


def try_picture(extension: str, open_file: Callable[[], IO[bytes]]) -> Literal["whole", "damaged", "too large"]:
    """Return whether the file is a whole picture of its format; of an animation, whether its first frame is.

    The size counts that the decoder would make room for, because it is not always among the first bytes of a file.
    """
    from PIL import Image, features

    if extension == "avif" and not features.check("avif"):
        return "whole"  # nothing here can tell
    try:
        with open_file() as file, Image.open(file) as picture:
            if picture.width * picture.height > MOST_PIXELS:
                return "too large"
            # A JPEG is read to its end as usual, but its pixels are made at an eighth of the size.
            picture.draft("RGB", (1, 1))
            picture.load()
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        return "too large"
    except (OSError, SyntaxError, ValueError, struct.error, zlib.error, EOFError, IndexError, OverflowError):
        return "damaged"
    return "whole"
