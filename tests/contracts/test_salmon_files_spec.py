"""Descriptions and ZIPs written for the first Salmon mean the same today."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from salmon.errors import MediaError, SpecError
from salmon.samplers.registry import active_sampler
from salmon.spec import ParsedSpec, check_archive, parse_spec, read_archive, targets_of
from tests.archives import picture, write_zip
from tests.contracts.salmon_rows import covers

SIX = {"targets": 6}


def parsed(tree: dict[str, Any], **options: Any) -> ParsedSpec:
    return parse_spec(yaml.safe_dump(SIX | tree), default_sampler="Random", **options)


def sampler(tree: Any, name: str = "x", **sampling: Any) -> Any:
    return parsed({"samplers": {name: tree}, "sampling": sampling}).spec.samplers[name]


def refused(tree: dict[str, Any]) -> str:
    with pytest.raises(SpecError) as error:
        parsed(tree)
    return str(error.value)


@covers("file", "targets: list", "targets: number", "html: defaults", "html: max_queries without end")
def test_targets_and_texts_have_the_defaults_that_they_had() -> None:
    assert parsed({"targets": [1, "<b>x</b>", 2.5, "three"]}).spec.targets == ("1", "<b>x</b>", "2.5", "three")
    assert parsed({}).spec.targets == tuple("012345")
    html = parsed({}).spec.html
    assert (html.title, html.max_queries, html.skip_button, html.arrow_keys) == (
        "Similarity judgements",
        50,
        False,
        True,
    )
    assert (html.css, html.js, html.element_top, html.element_middle) == ("", "", "", "")
    assert (html.element_bottom, html.element_standalone, html.query_params) == ("", "", ("puid",))
    assert "<i>" in html.instructions
    assert "participant ID below" in html.debrief
    assert parsed({"html": {"max_queries": -1, "skip_button": True, "mine": [1]}}).spec.html.max_queries == -1
    assert parsed({"html": {"mine": "kept"}}).spec.html.model_dump()["mine"] == "kept"


@covers("file", "samplers: default", "samplers: class or name", "sampling.common", "lenient: samplers as a list")
def test_samplers_are_found_by_class_or_name_and_share_what_is_common() -> None:
    assert [(name, one.sampler_class) for name, one in parsed({}).spec.samplers.items()] == [("random", "Random")]
    assert sampler({"class": "TSTE"}).sampler_class == "TSTE"
    assert sampler({}, "ARR").sampler_class == "ARR"
    assert sampler({"class": "ARR"}).arguments["d"] == 2
    assert sampler({"class": "ARR"}, common={"R": 3}).arguments == {"d": 2, "R": 3}
    assert sampler({"class": "ARR", "d": 4}, common={"d": 3}).arguments["d"] == 4
    assert set(parsed({"samplers": ["ARR", {"v": {"class": "Validation"}}]}).spec.samplers) == {"ARR", "v"}


@covers("file", "lenient: common keys")
def test_common_arguments_that_a_passive_sampler_does_not_know_are_passed_over() -> None:
    common = {"random_state": 42, "initial_batch_size": 8}
    assert sampler({"class": "Random"}, common=common).arguments == {}
    assert sampler({"class": "ARR"}, common=common).arguments["random_state"] == 42


@covers("file", "sampling.probs: default", "sampling.probs: checked", "sampling.samplers_per_user", "sampling.details")
def test_probabilities_and_details_are_checked_as_they_were() -> None:
    three = {"samplers": {name: {"class": "Random"} for name in "abc"}}
    assert parsed(three).spec.probabilities == {"a": 34, "b": 33, "c": 33}
    sums = refused({**three, "sampling": {"probs": {"a": 40, "b": 40, "c": 0}}})
    assert "values in sampling.probs should add up to 100" in sums
    assert "80" in sums
    assert "has no probability for c" in refused({**three, "sampling": {"probs": {"a": 50, "b": 50}}})
    for met in (1, 2):  # more than one was not implemented
        assert parsed({**three, "sampling": {"samplers_per_user": met}}).spec.sampling.samplers_per_user == met
    details = {1: {"sampler": "a", "query": [0, 1, 2]}, 4: {"sampler": "b"}}
    found = parsed({**three, "sampling": {"details": details}}).spec.sampling.details
    assert (found[1].query, found[4].query) == ((0, 1, 2), None)
    for wrong in (
        {1: {"query": [0, 1, 2]}},
        {1: {"sampler": "a", "query": [0, 1, 6]}},
        {1: {"sampler": "a", "query": [0, 1]}},
        {0: {"sampler": "a"}},
    ):
        refused({**three, "sampling": {"details": wrong}})


@covers("file", "Random", "RoundRobin", "Validation", "RandomSampling")
def test_passive_samplers_take_their_arguments() -> None:
    for name in ("Random", "RoundRobin"):
        assert sampler({"class": name, "targets": [0, 2, 4]}).arguments["targets"] == (0, 2, 4)
    assert sampler({"class": "Validation", "n_queries": 7}).arguments["n_queries"] == 7
    queries = [[0, 1, 2], [3, 4, 5]]
    assert sampler({"class": "Validation", "queries": queries}).arguments["queries"] == ((0, 1, 2), (3, 4, 5))
    for wrong in ([0, 1], [0, 1, 6], "all"):
        refused({"samplers": {"x": {"class": "Random", "targets": wrong}}})
    old = parsed({"samplers": {"RandomSampling": {}}})
    assert old.spec.samplers["RandomSampling"].sampler_class == "Random"
    assert "now called Random" in old.warnings[0].message


ARGUMENTS = {
    "d": 3,
    "R": 2,
    "optimizer": "PadaDampG",
    "random_state": 1,
    "n_search": 500,
    "initial_batch_size": 16,
    "optimizer__lr": 0.1,
    "optimizer__momentum": 0.9,
}

OWN_ARGUMENTS: dict[str, dict[str, Any]] = {
    "ARR": {"n_top": 2, "priority": "approx", "module": "STE"},
    "SRR": {"module": "CKL", "module__mu": 0.1},
    "TSTE": {"alpha": 2},
    "CKL": {"mu": 0.5},
}


@covers("file", "ARR", "SRR", "named after noise models", "adaptive arguments")
@pytest.mark.parametrize("name", ["ARR", "SRR", "TSTE", "STE", "GNMDS", "CKL", "SOE"])
def test_active_samplers_take_all_their_arguments_and_can_be_made(name: str) -> None:
    own = ARGUMENTS | OWN_ARGUMENTS.get(name, {})
    found = sampler({"class": name, **own, "scorer": "uncertainty"})
    assert {key: found.arguments[key] for key in own} == own
    assert active_sampler(found.sampler_class, dict(found.arguments)).R == 2
    assert (1 if name in {"ARR", "SRR"} else 10) == active_sampler(name, {}).R


@covers("file", "top: other keys are errors", "top: html keys are moved")
def test_keys_at_the_wrong_place_are_told_where_they_belong() -> None:
    assert "Move max_queries under html" in refused({"max_queries": 3})
    assert "foo" in refused({"foo": 3})


@covers("zip", "hidden members", "folders are flattened", "order", "filenames")
def test_members_of_a_zip_are_found_ordered_and_named_as_they_were(tmp_path: Path) -> None:
    names = [
        "eggs/10.png",
        "eggs/2.final.png",
        "__MACOSX/eggs/._2.png",
        "eggs/.DS_Store",
        ".x.png",
        "eggs/b.png",
        "a.png",
    ]
    manifest = read_archive(write_zip(tmp_path / "t.zip", [(name, picture(k)) for k, name in enumerate(names)]))
    filenames = [target.filename for target in manifest.targets()]
    assert [entry.name for entry in manifest.entries] == filenames == ["2.final.png", "10.png", "a.png", "b.png"]
    clash = write_zip(tmp_path / "c.zip", [("x/a.png", picture(1)), ("y/a.png", picture(2)), ("b.png", picture(3))])
    assert check_archive(clash)[0] is None  # the first Salmon kept whichever came last


@covers("zip", "one csv", "csv: BOM and line ends", "csv: NA words")
def test_a_csv_in_the_zip_is_a_target_a_row(tmp_path: Path) -> None:
    rows = b'\xef\xbb\xbfNA\r\nnull\r\n"<b>a, b</b>"\r\n7\r\n'
    manifest = read_archive(write_zip(tmp_path / "t.zip", [("targets.csv", rows)]))
    assert [target.html for target in manifest.targets()] == ["NA", "null", "<b>a, b</b>", "7"]
    with pytest.raises(MediaError):
        read_archive(write_zip(tmp_path / "two.zip", [("targets.csv", b"a,b\nc,d\ne,f\n")]))


@covers("zip", "images", "videos", "other kinds are errors", "replaces targets")
def test_pictures_and_videos_become_elements_and_replace_what_is_written(tmp_path: Path) -> None:
    video = b"\x00\x00\x00\x18ftypisom" + bytes(12) + b"mdat"
    files = [
        ("1.PNG", picture(1)),
        ("2.jpeg", picture(2, "JPEG")),
        ("3.gif", picture(3, "GIF")),
        ("4.bmp", picture(4, "BMP")),
    ]
    manifest = read_archive(write_zip(tmp_path / "t.zip", [*files, ("5.mp4", video)]))
    found = targets_of(parsed({"targets": ["not", "these", "ones"]}, manifest=manifest).spec, manifest)
    assert ["<img" in target.html for target in found] == [True] * 4 + [False]
    assert "<video autoplay" in found[4].html
    assert "controls" in found[4].html
    with pytest.raises(MediaError, match="exe"):
        read_archive(write_zip(tmp_path / "x.zip", [*files, ("virus.exe", b"MZ")]))


def test_a_description_as_json_is_one_as_yaml() -> None:
    tree = {"targets": 6, "html": {"title": "T"}, "samplers": {"ARR": {}}}
    assert parse_spec(json.dumps(tree)).spec == parse_spec(yaml.safe_dump(tree)).spec
