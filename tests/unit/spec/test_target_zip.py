"""A ZIP of targets is taken whole or refused with everything that is wrong with it."""

import io
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from salmon.errors import MediaError
from salmon.spec import check_archive, decoding, read_archive, target_zip
from salmon.spec.media_files import EXTENSIONS
from tests.archives import WAV, picture, write_zip

MP4 = struct.pack(">I", 24) + b"ftypisom" + bytes(12) + b"mdat"
MOV = struct.pack(">I", 20) + b"ftypqt  " + bytes(8)
SVG = b"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 20 10'><circle r='4'/></svg>"


def _sentences(path: Path, *, trusted: bool = False) -> list[str]:
    return [problem.message for problem in check_archive(path, trusted=trusted)[1]]


def test_numbers_come_first_by_value_then_names(tmp_path: Path):
    names = ["b.png", "10.png", "2.final.png", "Z.png", "pictures/1.png", "a.png", "007.png"]
    manifest = read_archive(write_zip(tmp_path / "t.zip", [(name, picture(k)) for k, name in enumerate(names)]))
    assert [entry.name for entry in manifest.entries] == [
        "1.png",
        "2.final.png",
        "007.png",
        "10.png",
        "Z.png",
        "a.png",
        "b.png",
    ]
    assert [entry.index for entry in manifest.entries] == list(range(7))


def test_what_operating_systems_leave_behind_is_passed_over(tmp_path: Path):
    left = ["__MACOSX/._a.png", ".DS_Store", "x/.hidden.png", "x/", "Thumbs.db", "x/desktop.ini"]
    path = write_zip(tmp_path / "t.zip", [*((name, b"?") for name in left), ("x/a.png", picture())])
    assert [entry.name for entry in read_archive(path).entries] == ["a.png"]


def test_every_kind_of_file_is_shown_by_its_own_element(tmp_path: Path):
    files = [
        *(
            ("1.png", picture()),
            ("2.JPG", picture(kind="JPEG")),
            ("3.jpeg", picture(1, kind="JPEG")),
            ("4.gif", picture(kind="GIF")),
        ),
        *(
            ("5.bmp", picture(kind="BMP")),
            ("6.webp", picture(kind="WEBP")),
            ("7.avif", picture(kind="AVIF")),
            ("8.svg", SVG),
        ),
        *(("9.mp4", MP4), ("10.mov", MOV), ("11.webm", b"\x1aE\xdf\xa3" + bytes(9)), ("12.mp3", b"ID3" + bytes(9))),
        *(("13.wav", WAV), ("14.ogg", b"OggS" + bytes(9)), ("15.mp3", b"\xff\xfb\x90\x00" + bytes(9))),
    ]
    targets = read_archive(write_zip(tmp_path / "t.zip", files)).targets()
    assert [target.kind for target in targets] == ["image"] * 8 + ["video"] * 3 + ["audio"] * 4
    assert [(target.width_px, target.height_px) for target in targets[:8]] == [(4, 3)] * 7 + [(20, 10)]
    assert targets[1].html == f"<img src='/media/{targets[1].media}' alt='' />"
    assert targets[1].media.endswith(".jpg")
    assert "type='video/mp4'" in targets[8].html
    assert targets[12].html.startswith("<audio controls src='/media/")
    assert {name.rpartition(".")[2].lower() for name, _ in files} == set(EXTENSIONS)


def test_rows_of_a_csv_are_targets_whatever_they_hold(tmp_path: Path):
    content = '\ufeffNA\r\nnull\r\n"a, b"\r\n\r\n""\r\n<b>x</b>\r\n'.encode()
    targets = read_archive(write_zip(tmp_path / "t.zip", [("folder/Targets.CSV", content)])).targets()
    assert [(target.kind, target.html, target.filename) for target in targets] == [
        ("text", "NA", "NA"),
        ("text", "null", "null"),
        ("text", "a, b", "a, b"),
        ("text", "", ""),
        ("html", "<b>x</b>", "<b>x</b>"),
    ]


def test_all_that_is_wrong_is_said_at_once_with_the_names_of_the_files(tmp_path: Path):
    link = zipfile.ZipInfo("link.png")
    link.external_attr = 0o120777 << 16
    path = write_zip(
        tmp_path / "t.zip",
        [
            *(("ok.png", picture()), ("../up.png", picture()), ("/root.png", picture()), ("C:\\disk.png", picture())),
            *(
                (link, b"/etc/passwd"),
                ("inner.zip", b"PK\x03\x04"),
                ("text.docx", b"x"),
                ("noextension", b"x"),
                ("empty.gif", b""),
            ),
            *(("jpeg.png", picture(kind="JPEG")), ("html.png", b"<html>"), ("zip.png", b"PK\x03\x04" + bytes(20))),
            *(
                ("a/same.png", picture(1)),
                ("b/same.png", picture(2)),
                ("OK.png", picture(3)),
                ("bad.svg", b"<svg><script/></svg>"),
            ),
        ],
    )
    with pytest.raises(MediaError) as caught:
        read_archive(path)
    said = {problem.path.rpartition("/")[2]: problem.message.split(" ", 1)[1] for problem in caught.value.problems}
    kinds = "is not a file type that pages can show."
    assert said == {
        "up.png": "points outside the ZIP with ...",
        "root.png": "has an absolute path.",
        "C:\\disk.png": "has an absolute path.",
        "link.png": "is a link to another file.",
        "inner.zip": "is a ZIP inside the ZIP.",
        "text.docx": kinds,
        "noextension": kinds,
        "empty.gif": "is empty.",
        "jpeg.png": "holds jpg, though its name ends in .png.",
        "html.png": "does not begin as png files do, though its name ends in .png.",
        "zip.png": "is a ZIP inside the ZIP, though its name ends in .png.",
        "same.png": "has the same name as 'a/same.png'; folders do not tell them apart.",
        "OK.png": "differs from 'ok.png' only by capital letters.",
        "bad.svg": "holds a <script>.",
    }
    assert [problem.path for problem in caught.value.problems if problem.warning] == ["OK.png"]


def test_names_that_differ_by_capitals_are_only_a_warning(tmp_path: Path):
    manifest = read_archive(write_zip(tmp_path / "t.zip", [("a.png", picture()), ("A.png", picture(1))]))
    assert len(manifest) == 2
    assert [problem.message for problem in manifest.warnings] in (
        ["'a.png' differs from 'A.png' only by capital letters."],
        ["'A.png' differs from 'a.png' only by capital letters."],
    )


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ([], "The ZIP holds no targets."),
        ([(".DS_Store", b"x")], "The ZIP holds no targets."),
        ([("a.csv", b"x"), ("b.png", picture())], "The ZIP holds the list of targets 'a.csv' and 1 other files."),
        ([("a.csv", b"x"), ("b.csv", b"y")], "The ZIP holds 2 CSV files: a.csv and b.csv."),
        ([("a.csv", b"x\ny,z\n")], "'a.csv' has 2 columns on line 2; a list of targets has one."),
        ([("a.csv", b"x\ncaf\xe9\n")], "'a.csv' is not UTF-8."),
        ([("a.csv", b"\n\n")], "'a.csv' holds no targets."),
        ([("a.csv", b'"' + b"x" * 200_000 + b'"')], "'a.csv' cannot be read on line 1: field larger than field limit (131072)."),
        ([("a" * 300 + ".png", picture())], f"'{'a' * 59}…' has a name of more than 200 characters."),
        ([("a\x07.png", picture())], "'a\\x07.png' has a control character in its name."),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)  # fmt: skip
def test_a_zip_that_cannot_be_used_is_refused_in_a_sentence(
    tmp_path: Path, files: list[tuple[str, bytes]], sentence: str
):
    assert _sentences(write_zip(tmp_path / "t.zip", files)) == [sentence]


def test_what_is_no_zip_is_refused_in_a_sentence(tmp_path: Path):
    path = tmp_path / "t.zip"
    whole = write_zip(path, [("a.png", picture())]).read_bytes()
    for broken in (b"", b"hello", whole[:-30], whole[40:], whole[: len(whole) // 2]):
        path.write_bytes(broken)
        assert _sentences(path), broken
        assert all(
            sentence.startswith(("The file is not a ZIP", "'a.png' is damaged")) for sentence in _sentences(path)
        )


def test_a_picture_that_was_damaged_on_its_way_is_named(tmp_path: Path):
    path = write_zip(tmp_path / "t.zip", [("a.png", picture()), ("b.png", picture(9))], zipfile.ZIP_STORED)
    content = bytearray(path.read_bytes())
    content[content.index(picture(9)) + 40] ^= 0xFF
    path.write_bytes(bytes(content))
    assert _sentences(path) == ["'b.png' is damaged in the ZIP."]


TWO_PICTURES = [("a.png", picture()), ("b.png", picture(1))]
CENTRAL, END = b"PK\x01\x02", b"PK\x05\x06"


@pytest.mark.parametrize(
    ("files", "record", "offset", "form", "value", "sentences"),
    [
        pytest.param(TWO_PICTURES, CENTRAL, 8, "<B", 1, ["'b.png' is encrypted."], id="an encrypted member"),
        pytest.param(
            [("a.bmp", b"BM" + bytes(3_000_000))], CENTRAL, 24, "<I", 1000, ["'a.bmp' is damaged in the ZIP."],
            id="a member that lies about its size and gives no more than it says",
        ),
        pytest.param(
            TWO_PICTURES, CENTRAL, 42, "<I", 1,
            ["'b.png' shares its bytes with another member.", "'b.png' is damaged in the ZIP."],
            id="a member whose header begins inside another",
        ),
        pytest.param(
            TWO_PICTURES, END, 12, "<I", 50_000_000,
            ["The ZIP's directory is too large: it lists more files than an experiment can have targets."],
            id="a directory larger than any set of targets, which is not even read",
        ),
    ],
)  # fmt: skip
def test_a_zip_with_a_changed_record_is_refused_in_a_sentence(
    tmp_path: Path,
    files: list[tuple[str, bytes]],
    record: bytes,
    offset: int,
    form: str,
    value: int,
    sentences: list[str],
):
    path = write_zip(tmp_path / "t.zip", files)
    content = bytearray(path.read_bytes())
    struct.pack_into(form, content, content.rindex(record) + offset, value)
    path.write_bytes(content)
    assert _sentences(path) == sentences


def test_a_bomb_is_refused_before_it_unpacks(tmp_path: Path):
    assert _sentences(write_zip(tmp_path / "t.zip", [("a.bmp", b"BM" + bytes(30_000_000))])) == [
        "'a.bmp' unpacks to more than 200 times its size."
    ]


def test_too_many_members_and_too_large_ones_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = write_zip(tmp_path / "t.zip", [(f"{k}.png", picture(k)) for k in range(5)])
    monkeypatch.setattr(target_zip, "MAX_MEMBERS", 4)
    assert _sentences(path) == ["The ZIP holds 5 files; 4 are possible."]
    monkeypatch.setattr(target_zip, "MAX_MEMBERS", 5)
    monkeypatch.setattr(target_zip, "MAX_TOTAL_BYTES", 100)
    assert _sentences(path)[0].startswith("The files of the ZIP have")
    monkeypatch.setattr(target_zip, "MAX_MEMBER_BYTES", 10)
    assert _sentences(path)[0] == "'0.png' has 0 MB."


def test_the_form_for_very_many_files_is_refused_because_its_directory_can_be_any_size(tmp_path: Path):
    path = write_zip(tmp_path / "t.zip", [("a.png", picture())])
    content = path.read_bytes()
    end = content.rindex(END)
    path.write_bytes(content[:end] + b"PK\x06\x07" + bytes(16) + content[end:])
    assert _sentences(path) == ["The ZIP uses the ZIP64 format, which is meant for more than 65,535 files or 4 GB."]


def test_names_in_another_alphabet_are_kept_or_refused_but_never_garbled(tmp_path: Path):
    def zip_with(name: bytes) -> Path:
        path = write_zip(tmp_path / "t.zip", [("x" * len(name) + ".png", picture())])
        path.write_bytes(path.read_bytes().replace(b"x" * len(name), name))
        return path

    assert [entry.name for entry in read_archive(zip_with("Ölgemälde".encode())).entries] == ["Ölgemälde.png"]
    assert _sentences(zip_with("Ölgemälde".encode("latin-1")))[0].endswith("has a name that is not UTF-8.")
    decomposed = write_zip(tmp_path / "t.zip", [("A\u0308.png", picture())])
    assert [entry.name for entry in read_archive(decomposed).entries] == ["Ä.png"]


@pytest.mark.parametrize(
    ("body", "finding"),
    [
        (b"<script>alert(1)</script>", "holds a <script>"),
        (b"<circle onclick='x()'/>", "reacts to events (onclick)"),
        (b"<a href='java\tscript:x()'/>", "holds a script in href"),
        (b"<image href='https://evil.org/x.png'/>", "refers to something outside itself (https://evil.org/x.png)"),
        (b"<use xmlns:xlink='http://www.w3.org/1999/xlink' xlink:href='other.svg#a'/>", "refers to something outside itself (other.svg#a)"),
        (b"<image href='data:image/svg+xml;base64,PHN2Zz4='/>", "refers to something outside itself (data:image/svg+xml;base64,PHN2Zz4=)"),
        (b"<foreignObject/>", "holds a <foreignObject>"),
        (b"<rect fill='url(https://evil.org/f)'/>", "refers to something outside itself (https://evil.org/f)"),
        (b"<style>rect {fill: url(//evil.org)}</style>", "refers to something outside itself (//evil.org)"),
        (b"<style><g/>@import 'x.css';</style>", "imports a style, or hides one behind a backslash"),
        (b"<style>@import 'x.css';</style>", "imports a style, or hides one behind a backslash"),
        (b"<style>rect {fill: u\\72l(x)}</style>", "imports a style, or hides one behind a backslash"),
        (b"<rect fill='u\\72l(https://evil.org)'/>", "imports a style, or hides one behind a backslash"),
        (b"<g xml:base='https://evil.org/'/>", "refers to something outside itself (https://evil.org/)"),
        (b"<set attributeName='xlink:href' to='x'/>", "changes an address or a reaction while it is shown"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)  # fmt: skip
def test_a_drawing_that_does_something_is_refused_unless_it_is_trusted(tmp_path: Path, body: bytes, finding: str):
    files = [("a.svg", b"<?xml version='1.0'?><svg xmlns='http://www.w3.org/2000/svg'>" + body + b"</svg>")]
    assert _sentences(write_zip(tmp_path / "t.zip", files)) == [f"'a.svg' {finding}."]
    assert _sentences(tmp_path / "t.zip", trusted=True) == []


@pytest.mark.parametrize("trusted", [False, True])
def test_a_drawing_that_no_browser_shows_is_refused_also_if_it_is_trusted(tmp_path: Path, *, trusted: bool):
    path = write_zip(
        tmp_path / "t.zip", [("a.svg", b"<?xml version='1.0'?><svg xmlns='http://www.w3.org/2000/svg'><g>")]
    )
    assert _sentences(path, trusted=trusted) == ["'a.svg' is not well-formed XML (line 1)."]


KINDS = {"png": "PNG", "jpg": "JPEG", "gif": "GIF", "bmp": "BMP", "webp": "WEBP", "avif": "AVIF"}


@pytest.mark.parametrize("extension", KINDS)
@pytest.mark.parametrize("damage", ["garbage", "cut"])
def test_a_picture_that_cannot_be_decoded_is_refused_with_its_name(tmp_path: Path, extension: str, damage: str):
    whole = noise(KINDS[extension])
    half = len(whole) // 2
    broken = whole[:half] + (np.random.default_rng(1).bytes(half) if damage == "garbage" else b"")
    files = [(f"good.{extension}", whole), (f"d.{extension}", broken)]
    damaged = (
        f"'d.{extension}' is damaged: it begins as {extension} files do, but cannot be decoded to its end, so participants"
        " would see a part of it or nothing."
    )
    expected = [] if (extension, damage) in UNNOTICED else [damaged]
    assert _sentences(write_zip(tmp_path / "t.zip", files)) == expected


#: What every browser shows, too, although it looks wrong: in these formats almost any bytes are pixels.
UNNOTICED = {("bmp", "garbage"), ("jpg", "garbage"), ("webp", "garbage")}


def noise(kind: str) -> bytes:
    file = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (60, 80, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def test_pictures_of_every_mode_that_browsers_show_are_taken(tmp_path: Path):
    saved = {
        "grey.png": ("L", {}),
        "deep.png": ("I;16", {}),
        "palette.png": ("P", {}),
        "clear.png": ("RGBA", {}),
        "one-bit.png": ("1", {}),
        "print.jpg": ("CMYK", {}),
        "slow.jpg": ("RGB", {"progressive": True}),
        "grey.jpg": ("L", {}),
        "clear.webp": ("RGBA", {"lossless": True}),
        "clear.avif": ("RGBA", {}),
    }
    files: list[tuple[str, bytes]] = []
    for name, (mode, options) in saved.items():
        file = io.BytesIO()
        Image.new(mode, (30, 20)).save(file, KINDS[name.rpartition(".")[2]], **options)
        files.append((name, file.getvalue()))
    for name, kind in (("moves.gif", "GIF"), ("moves.webp", "WEBP")):
        file = io.BytesIO()
        frames = [Image.new("RGB", (30, 20), (shade, 0, 0)) for shade in (0, 100, 200)]
        frames[0].save(file, kind, save_all=True, append_images=frames[1:])
        files.append((name, file.getvalue()))
    assert _sentences(write_zip(tmp_path / "t.zip", files)) == []


@pytest.mark.parametrize("limit", [(decoding, "MOST_PIXELS"), (Image, "MAX_IMAGE_PIXELS")], ids=["ours", "bomb"])
@pytest.mark.parametrize("profile", [0, 600_000], ids=["at the beginning", "far behind"])
def test_a_picture_too_large_to_be_tried_is_a_warning_wherever_its_size_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: tuple[Any, str], profile: int
):
    file = io.BytesIO()
    Image.new("RGB", (20, 20)).save(file, "JPEG", icc_profile=bytes(profile))
    monkeypatch.setattr(*limit, 100)
    manifest, problems = check_archive(write_zip(tmp_path / "t.zip", [("huge.jpg", file.getvalue())]))
    assert manifest is not None
    assert [(problem.warning, problem.path) for problem in problems] == [(True, "huge.jpg")]


def test_a_drawing_cannot_unfold_without_end(tmp_path: Path):
    entities = b"".join(b"<!ENTITY e%d '%s'>" % (k, b"&e%d;" % (k - 1) * 10) for k in range(1, 30))
    bomb = b"<?xml version='1.0'?><!DOCTYPE svg [<!ENTITY e0 'x'>" + entities + b"]><svg>&e29;</svg>"
    assert _sentences(write_zip(tmp_path / "t.zip", [("a.svg", bomb)])) == ["'a.svg' declares the entity e0."]


def test_an_ordinary_drawing_is_taken(tmp_path: Path):
    drawing = b"""<?xml version="1.0" encoding="UTF-8"?><!-- drawn by hand -->
<!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN" "http://www.w3.org/Graphics/SVG/1.1/DTD/svg11.dtd">
<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" xmlns:i="http://i" i:file="C:\\x" width="30px" height="20">
<style>.a {fill: url(#g)}</style><defs><linearGradient id="g"/></defs><use xlink:href="#g"/><rect class="a" style="fill: url('#g')"/>
<image href="data:image/png;base64,iVBORw0KGgo="/></svg>"""
    (entry,) = read_archive(write_zip(tmp_path / "t.zip", [("a.svg", drawing)])).entries
    assert (entry.width_px, entry.height_px) == (30, 20)
