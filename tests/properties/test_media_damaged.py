"""A ZIP that was damaged, by chance or on purpose, is read or refused; nothing else happens."""

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from salmon.spec import check_archive
from salmon.spec.svg import SvgReader
from tests.archives import WAV, picture, write_zip


@pytest.mark.parametrize("method", [0, 8, 12, 14], ids=["stored", "deflate", "bzip2", "lzma"])
def test_a_thousand_damaged_archives_are_read_or_refused_in_sentences(tmp_path: Path, method: int):
    files = [
        ("1.png", picture()),
        ("b/2.jpg", picture(kind="JPEG")),
        ("é.wav", WAV),
        ("4.svg", b"<svg viewBox='0 0 1 1'/>"),
    ]
    whole = write_zip(tmp_path / "t.zip", files, method).read_bytes()
    rows = write_zip(tmp_path / "t.zip", [("t.csv", b'a\n"b, c"\n')], method).read_bytes()
    chance = random.Random(method)
    refused = 0
    for _ in range(1000):
        damaged = bytearray(chance.choice([whole, rows]))
        for _ in range(chance.randint(1, 8)):
            damaged[chance.randrange(len(damaged))] = chance.choice([0, 1, 0x7F, 0xFF, chance.randrange(256)])
        if chance.random() < 0.2:
            del damaged[chance.randrange(len(damaged)) :]
        (tmp_path / "t.zip").write_bytes(bytes(damaged))
        manifest, problems = check_archive(tmp_path / "t.zip")
        refused += manifest is None
        assert (manifest is None) == any(not problem.warning for problem in problems)
        assert all(problem.message.endswith(".") and problem.hint for problem in problems), problems
    assert refused > 500, "most of these archives are damaged where it matters"


@settings(max_examples=300)
@given(
    st.lists(
        st.binary(max_size=30)
        | st.sampled_from([b"<svg>", b"</svg>", b"<a ", b"style='", b"'", b"url(", b">", b"&#x6a;", b"<![CDATA["]),
        max_size=12,
    )
)
def test_any_bytes_are_a_drawing_or_have_findings(pieces: list[bytes]):
    reader = SvgReader()
    for piece in pieces:
        reader.feed(piece)
    assert all(reader.findings())
