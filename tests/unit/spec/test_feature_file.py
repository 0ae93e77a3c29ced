"""Files of features: rows by name or in order, and every mistake a sentence at its line."""

import io
from pathlib import Path

import numpy as np
import pytest

from salmon.errors import SpecError
from salmon.spec import Manifest, check_archive, merge_manifests, parse_spec, read_archive
from salmon.spec.feature_file import decode_row, encode_row, read_features, rows_of_targets
from tests.archives import picture, write_zip

PICTURES = [(f"{name}.png", picture(place)) for place, name in enumerate(("apple", "beech", "cedar", "dill"))]
BY_NAME = b"target,round,red\ndill.png,4,0.5\ncedar,3,-1e-3\nbeech.png,2,0\napple,1,7\n"


def zipped(tmp_path: Path, *files: tuple[str, bytes]) -> Path:
    return write_zip(tmp_path / "targets.zip", [*PICTURES, *files])


def messages(path: Path) -> list[str]:
    return [problem.sentence() for problem in check_archive(path)[1]]


def array(values: object) -> bytes:
    file = io.BytesIO()
    np.save(file, np.asarray(values))
    return file.getvalue()


def test_rows_are_found_by_name_and_the_file_is_no_target(tmp_path: Path):
    manifest = read_archive(zipped(tmp_path, ("more/Features.CSV", BY_NAME)))
    assert [entry.name for entry in manifest.entries] == [name for name, _ in PICTURES]
    np.testing.assert_allclose(manifest.features(), [[1, 7], [2, 0], [3, -1e-3], [4, 0.5]], rtol=1e-6)


@pytest.mark.parametrize(
    "content",
    [
        b"1,2\n3,4\n5,6\n7,8\n",
        b"round,red\n1,2\n3,4\n\n5,6\n7,8\n",
        "\ufeffround;red\r\n1;2\r\n3;4\r\n5;6\r\n7;8\r\n".encode(),
        b"round\tred\n1\t2\n3\t4\n5\t6\n7\t8\n",
    ],
)
def test_rows_without_names_are_in_the_order_of_the_targets(tmp_path: Path, content: bytes):
    manifest = read_archive(zipped(tmp_path, ("features.csv", content)))
    assert manifest.features() == ((1, 2), (3, 4), (5, 6), (7, 8))


def test_an_array_is_read_and_a_manifest_is_stored_with_its_features(tmp_path: Path):
    manifest = read_archive(zipped(tmp_path, ("features.npy", array(np.arange(12).reshape(4, 3)))))
    assert manifest.features()[1] == (3, 4, 5)
    assert Manifest.load(manifest.dump()) == manifest
    plain = read_archive(zipped(tmp_path))
    assert plain.features() == ()
    assert "features" not in plain.dump()


def test_targets_that_are_texts_have_features_too(tmp_path: Path):
    path = write_zip(
        tmp_path / "t.zip",
        [("targets.csv", b"red wine\n7\ntea\n"), ("features.csv", b"name,sweet\n7,2\ntea,3\nred wine,1\n")],
    )
    assert read_archive(path).features() == ((1,), (2,), (3,))


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("features.csv", b"target,x\napple,1\nbeech,two\ncedar,3\ndill,4\n", "Feature 'x' is 'two'"),
        ("features.csv", b"target,x\napple,1\nbeech,\ncedar,3\ndill,4\n", "Feature 'x' is empty"),
        ("features.csv", b"target,x\napple,1\nbeech,nan\ncedar,3\ndill,4\n", "Feature 'x' is 'nan'"),
        (
            "features.csv",
            b"target,x\napple,1\nbeach,2\ncedar,3\ndill,4\n",
            "There is no target 'beach'. Did you mean beech?",
        ),
        ("features.csv", b"target,x\napple,1\napple.png,2\ncedar,3\ndill,4\n", "'apple.png' has a second row"),
        (
            "features.csv",
            b"target,x\napple,1\nbeech,2,3\ncedar,3\ndill,4\n",
            "has 2 features here and 1 in its first row",
        ),
        ("features.csv", b"1\n2\n3\n", "has 3 rows, but there are 4 targets"),
        ("features.csv", b"target\napple\nbeech\ncedar\ndill\n", "has no features"),
        ("features.csv", b"x,y\n", "has no features"),
        ("features.csv", b"target,x\napple,1\n\xff,2\n", "is not UTF-8 on line 3"),
        ("features.npy", b"not an array", "is no NumPy array"),
        ("features.npy", array(["a", "b"]), "is not a table of numbers"),
        ("features.npy", array([[1.0], [np.inf], [2], [3]]), "Row 1 holds a value that is not a finite number"),
        ("features.parquet", b"PAR1", "is a Parquet file, which experiments do not read"),
    ],
)
def test_what_is_wrong_is_a_sentence(tmp_path: Path, name: str, content: bytes, sentence: str):
    found = messages(zipped(tmp_path, (name, content)))
    assert any(sentence in message for message in found), found


def test_problems_name_the_line_of_the_file(tmp_path: Path):
    _, problems = check_archive(zipped(tmp_path, ("features.csv", b"target,x\napple,1\nbeech,?\ncedar,?\ndill,4\n")))
    assert [(problem.path, problem.line) for problem in problems] == [("features.csv", 3), ("features.csv", 4)]


def test_two_files_of_features_are_one_too_many(tmp_path: Path):
    both = zipped(tmp_path, ("features.csv", BY_NAME), ("features.npy", array(np.eye(4))))
    assert "The ZIP holds features.csv and features.npy. Keep one file of features." in messages(both)


def test_an_array_is_never_unpickled():
    file = io.BytesIO()
    np.save(file, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    assert "no NumPy array" in read_features(file.getvalue(), "features.npy").problems[0].message


def test_a_target_without_a_row_is_named(tmp_path: Path):
    manifest = read_archive(zipped(tmp_path, ("features.csv", b"target,x\napple,1\nbeech,2\ncedar,3\n")))
    with pytest.raises(SpecError, match=r"'dill.png' has no row among the features"):
        parse_spec("title: x\n", manifest=manifest)


def test_features_that_tell_nothing_apart_are_refused(tmp_path: Path):
    manifest = read_archive(zipped(tmp_path, ("features.csv", b"x\n1\n1\n1\n1\n")))
    with pytest.raises(SpecError, match="The features of all targets are the same"):
        parse_spec("title: x\n", manifest=manifest)


def test_features_that_no_sampler_uses_are_said(tmp_path: Path):
    manifest = read_archive(zipped(tmp_path, ("features.csv", BY_NAME)))
    warnings = [problem.message for problem in parse_spec("samplers: {Random: {}}\n", manifest=manifest).warnings]
    assert "The ZIP holds features of the targets, but no sampler uses them." in warnings
    assert not parse_spec("title: x\n", manifest=manifest).warnings


def test_features_follow_their_targets_when_a_zip_is_uploaded_again(tmp_path: Path):
    old = read_archive(zipped(tmp_path, ("features.csv", BY_NAME)))
    more = [
        ("aspen.png", picture(9)),
        ("features.csv", b"target,a,b\naspen,9,9\napple,8,8\nbeech,2,0\ncedar,3,0\ndill,4,0\n"),
    ]
    new = read_archive(write_zip(tmp_path / "again.zip", [*PICTURES, *more]))
    merged = merge_manifests(old, new).manifest
    assert [entry.name for entry in merged.entries][-1] == "aspen.png"
    assert merged.features() == ((8, 8), (2, 0), (3, 0), (4, 0), (9, 9))


def test_a_row_comes_back():
    row = (1.5, -2.25, 1e30)
    assert decode_row(encode_row(row)) == pytest.approx(row)
    assert decode_row("") == ()


def test_other_targets_may_be_in_a_file_of_a_fit():
    table = read_features(BY_NAME, "features.csv")
    problems = []
    assert rows_of_targets(table, [["cedar"], ["apple"]], "features.csv", problems, others=True) == [
        (3, -0.001),
        (1, 7),
    ]
    assert not problems
