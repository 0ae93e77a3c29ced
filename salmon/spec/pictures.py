"""Width and height of pictures, read from the first bytes of their files.

Each reader knows one format as its specification lays it out; what it cannot find is (0, 0), which means unknown.
"""

from __future__ import annotations

import re
import struct

HEAD_BYTES = 262_144  # photographs carry previews and colour profiles in front of their size


def picture_size(extension: str, head: bytes) -> tuple[int, int]:
    """(width, height) in pixels; `head` is the beginning of the file, up to HEAD_BYTES."""
    readers = {"png": _png, "gif": _gif, "bmp": _bmp, "jpg": _jpeg, "webp": _webp, "avif": _avif}
    try:
        return readers[extension](head) if extension in readers else (0, 0)
    except (struct.error, IndexError):
        return 0, 0


def _png(head: bytes) -> tuple[int, int]:
    width, height = struct.unpack_from(">II", head, 16)
    return width, height


def _gif(head: bytes) -> tuple[int, int]:
    width, height = struct.unpack_from("<HH", head, 6)
    return width, height


def _bmp(head: bytes) -> tuple[int, int]:
    if struct.unpack_from("<I", head, 14)[0] == 12:  # the header of OS/2 1.x has 16-bit sizes
        width, height = struct.unpack_from("<HH", head, 18)
    else:
        width, height = struct.unpack_from("<ii", head, 18)
    return abs(width), abs(height)  # a negative height means: rows from the top


def _jpeg(head: bytes) -> tuple[int, int]:
    """Walks from segment to segment to the frame header (SOF0 … SOF15 without DHT, JPG and DAC)."""
    offset = 2
    while True:
        while head[offset] == 0xFF and head[offset + 1] == 0xFF:
            offset += 1
        marker = head[offset + 1]
        if head[offset] != 0xFF:
            return 0, 0
        if 0xC0 <= marker <= 0xCF and marker not in {0xC4, 0xC8, 0xCC}:
            height, width = struct.unpack_from(">HH", head, offset + 5)
            return width, height
        stands_alone = marker == 0x01 or 0xD0 <= marker <= 0xD8
        offset += 2 if stands_alone else 2 + struct.unpack_from(">H", head, offset + 2)[0]


def _webp(head: bytes) -> tuple[int, int]:
    kind = head[12:16]
    if kind == b"VP8X":
        return int.from_bytes(head[24:27], "little") + 1, int.from_bytes(head[27:30], "little") + 1
    if kind == b"VP8L":
        bits = struct.unpack_from("<I", head, 21)[0]
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    width, height = struct.unpack_from("<HH", head, 26)
    return width & 0x3FFF, height & 0x3FFF


def _avif(head: bytes) -> tuple[int, int]:
    """The largest `ispe` property: an AVIF may hold a small preview or tiles beside its picture."""
    sizes = [struct.unpack_from(">II", head, match.end() + 4) for match in re.finditer(b"ispe", head)]
    return max(sizes, key=lambda size: size[0] * size[1], default=(0, 0))
