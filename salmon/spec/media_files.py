"""Files of targets that pages can show: their extensions and MIME types, recognised by their
first bytes; sizes of pictures.
"""

import re
import struct
from typing import Literal

MediaKind = Literal["image", "video", "audio"]
MEDIA_TYPES = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "gif": "image/gif",
    "bmp": "image/bmp",
    "svg": "image/svg+xml",
    "webp": "image/webp",
    "avif": "image/avif",
    "mp4": "video/mp4",
    "mov": "video/quicktime",
    "webm": "video/webm",
    "mp3": "audio/mpeg",
    "wav": "audio/wav",
    "ogg": "audio/ogg",
}
#: Extension as it is stored -> what it shows.
KIND_OF: dict[str, MediaKind] = {
    **dict.fromkeys(("png", "jpg", "gif", "bmp", "svg", "webp", "avif"), "image"),
    **dict.fromkeys(("mp4", "mov", "webm"), "video"),
    **dict.fromkeys(("mp3", "wav", "ogg"), "audio"),
}
_SPELLINGS = {"jpeg": "jpg"}
#: Extensions as they may be written.
EXTENSIONS = (*KIND_OF, *_SPELLINGS)


def extension_of(name: str) -> str | None:
    """Return the extension under which a file is stored, from its name; None for a kind that pages cannot show."""
    suffix = name.rpartition(".")[2].lower()
    suffix = _SPELLINGS.get(suffix, suffix)
    return suffix if suffix in KIND_OF and "." in name else None


def detect_extension(head: bytes) -> str | None:
    """Return the extension that the first bytes stand for, `zip` for an archive; None if they are of no known kind."""
    for start, extension in (
        (b"\x89PNG\r\n\x1a\n", "png"),
        (b"\xff\xd8\xff", "jpg"),
        (b"GIF87a", "gif"),
        (b"GIF89a", "gif"),
        (b"BM", "bmp"),
        (b"\x1aE\xdf\xa3", "webm"),
        (b"ID3", "mp3"),
        (b"OggS", "ogg"),
        (b"PK\x03\x04", "zip"),
    ):
        if head.startswith(start):
            return extension
    if head[:4] == b"RIFF":
        return {b"WEBP": "webp", b"WAVE": "wav"}.get(head[8:12])
    if head[4:8] in {b"ftyp", b"moov", b"wide", b"mdat", b"free", b"skip"}:
        return _detect_boxed(head)
    if len(head) > 1 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0:  # an MPEG audio frame without a tag
        return "mp3"
    return "svg" if _begins_as_markup(head) else None


def _detect_boxed(head: bytes) -> str:
    """Recognise ISO base media files by their `ftyp` box; QuickTime files may have none."""
    brand = head[8:12] if head[4:8] == b"ftyp" else b"qt  "
    if {b"avif", b"avis"} & {head[offset : offset + 4] for offset in range(8, 64, 4)}:
        return "avif"
    if brand in {b"heic", b"heix", b"mif1", b"msf1"}:
        return "heic"
    return "mov" if brand == b"qt  " else "mp4"


def _begins_as_markup(head: bytes) -> bool:
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    return text.startswith((b"<?xml", b"<svg", b"<!--", b"<!DOCTYPE svg")) and b"<svg" in head


def extension_fits(extension: str, told: str | None) -> bool:
    """Return whether the content fits the extension. Players of mp4 play mov too, and cameras mix up the two names."""
    return told == extension or {told, extension} <= {"mp4", "mov"}


HEAD_BYTES = 262_144  # photographs carry previews and colour profiles in front of their size


def picture_size(extension: str, head: bytes) -> tuple[int, int]:
    """Return (width, height) in pixels; `head` is the beginning of the file, up to HEAD_BYTES."""
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
    """Follow the segments to the frame header (SOF0 … SOF15 without DHT, JPG and DAC)."""
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
    """Return the largest `ispe` property: an AVIF may hold a small preview or tiles beside its picture."""
    sizes = [struct.unpack_from(">II", head, match.end() + 4) for match in re.finditer(b"ispe", head)]
    return max(sizes, key=lambda size: size[0] * size[1], default=(0, 0))
