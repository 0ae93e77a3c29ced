"""The kinds of file that a ZIP of targets may hold, and how the first bytes tell them."""

from __future__ import annotations

from salmon.spec.manifest import TargetKind

#: Extension as it is stored -> what it shows.
KIND_OF: dict[str, TargetKind] = {
    **dict.fromkeys(("png", "jpg", "gif", "bmp", "svg", "webp", "avif"), "image"),
    **dict.fromkeys(("mp4", "mov", "webm"), "video"),
    **dict.fromkeys(("mp3", "wav", "ogg"), "audio"),
}
_SPELLINGS = {"jpeg": "jpg"}
#: Extensions as they may be written.
EXTENSIONS = (*KIND_OF, *_SPELLINGS)


def extension_of(name: str) -> str | None:
    """How a file is stored, from its name; None for a kind that pages cannot show."""
    suffix = name.rpartition(".")[2].lower()
    suffix = _SPELLINGS.get(suffix, suffix)
    return suffix if suffix in KIND_OF and "." in name else None


def told_by_content(head: bytes) -> str | None:
    """The extension that the first bytes stand for, `zip` for an archive; None where they tell nothing."""
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
        return _boxed(head)
    if len(head) > 1 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0:  # an MPEG audio frame without a tag
        return "mp3"
    return "svg" if _begins_as_markup(head) else None


def _boxed(head: bytes) -> str:
    """ISO base media files say in `ftyp` what they are; QuickTime files may have none."""
    brand = head[8:12] if head[4:8] == b"ftyp" else b"qt  "
    if {b"avif", b"avis"} & {head[offset : offset + 4] for offset in range(8, 64, 4)}:
        return "avif"
    if brand in {b"heic", b"heix", b"mif1", b"msf1"}:
        return "heic"
    return "mov" if brand == b"qt  " else "mp4"


def _begins_as_markup(head: bytes) -> bool:
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    return text.startswith((b"<?xml", b"<svg", b"<!--", b"<!DOCTYPE svg")) and b"<svg" in head


def fits(extension: str, told: str | None) -> bool:
    """Whether the content is what the extension says; what plays mp4 plays mov, and cameras mix their names."""
    return told == extension or {told, extension} <= {"mp4", "mov"}
