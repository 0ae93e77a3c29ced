"""The size of a picture is read from its header, whatever else the header holds."""

import io
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from salmon.spec.media_files import detect_extension, picture_size


def _saved(kind: str, size: tuple[int, int], **options: object) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size, (200, 10, 30)).save(file, kind, **options)
    return file.getvalue()


@pytest.mark.parametrize(
    ("extension", "kind", "options"),
    [
        ("png", "PNG", {}),
        ("gif", "GIF", {}),
        ("bmp", "BMP", {}),
        ("jpg", "JPEG", {}),
        ("jpg", "JPEG", {"progressive": True}),
        ("jpg", "JPEG", {"icc_profile": bytes(70_000), "exif": Image.Exif().tobytes() + bytes(20_000)}),
        ("webp", "WEBP", {}),
        ("webp", "WEBP", {"lossless": True}),
        ("webp", "WEBP", {"icc_profile": bytes(500)}),
        ("avif", "AVIF", {}),
    ],
)
@pytest.mark.parametrize("size", [(1, 1), (640, 480), (301, 997)])
def test_the_size_is_what_the_picture_was_saved_with(
    extension: str, kind: str, options: dict[str, object], size: tuple[int, int]
):
    content = _saved(kind, size, **options)
    assert (detect_extension(content), picture_size(extension, content)) == (extension, size)


def test_a_bitmap_can_run_from_top_to_bottom_or_be_of_the_old_kind():
    for header in (struct.pack("<Iii", 40, 20, -30), struct.pack("<IHH", 12, 20, 30)):
        assert picture_size("bmp", b"BM" + bytes(12) + header) == (20, 30)


@settings(max_examples=400)
@given(st.sampled_from(["PNG", "GIF", "BMP", "JPEG", "WEBP"]), st.data())
def test_a_broken_header_means_that_the_size_is_unknown_or_some_number(kind: str, data: st.DataObject):
    content = bytearray(_saved(kind, (5, 6)))
    for at in data.draw(st.lists(st.integers(0, len(content) - 1), max_size=6)):
        content[at] = data.draw(st.integers(0, 255))
    broken = bytes(content[: data.draw(st.integers(0, len(content)))])
    for extension in ("png", "gif", "bmp", "jpg", "webp", "avif"):
        assert min(picture_size(extension, broken)) >= 0


@pytest.mark.parametrize(
    ("head", "told"),
    [
        (b"", None),
        (b"<html>", None),
        (b"\x00\x00\x00\x18ftypheic" + bytes(30), "heic"),
        (b"\x00\x00\x00\x18ftypmif1\0\0\0\0mif1avif", "avif"),
        (b"\x00\x00\x00\x08wide\x00\x00", "mov"),
        (b"\xef\xbb\xbf  <svg>", "svg"),
        (b"<?xml version='1.0'?><html>", None),
        (b"RIFF\0\0\0\0AVI ", None),
    ],
)
def test_content_tells_its_kind(head: bytes, told: str | None):
    assert detect_extension(head) == told
