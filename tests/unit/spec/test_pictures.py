"""Pictures that texts show are no targets: they are told apart, kept, merged and addressed."""

from pathlib import Path

import pytest

from salmon.errors import MediaError, Problem, SpecError
from salmon.spec import Manifest, check_archive, examine_spec, merge_manifests, parse_spec, targets_of
from tests.archives import picture, write_zip

INSTRUCTIONS = "instructions: [{text: Look., image: how.png}]\n"


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    return zipped(tmp_path, "a.png", "b.png", "c.png", "d.png", "how.png")


def zipped(folder: Path, *names: str, begin: int = 0) -> Manifest:
    files = [(name, picture(begin + place)) for place, name in enumerate(names)]
    manifest, problems = check_archive(write_zip(folder / "targets.zip", files))
    assert manifest is not None, problems
    return manifest


def names(manifest: Manifest | None) -> tuple[list[str], list[str]]:
    assert manifest is not None
    return [entry.name for entry in manifest.entries], [picture.name for picture in manifest.pictures]


def test_a_picture_of_the_instructions_is_no_target(manifest: Manifest):
    parsed = parse_spec(INSTRUCTIONS, manifest=manifest)
    assert names(parsed.manifest) == (["a.png", "b.png", "c.png", "d.png"], ["how.png"])
    assert [target.index for target in targets_of(parsed.spec, parsed.manifest)] == [0, 1, 2, 3]
    assert parse_spec(INSTRUCTIONS, unpack=lambda _: manifest).manifest == parsed.manifest


@pytest.mark.parametrize(
    "text",
    [
        "consent: {text: 'Read <img src=\"how.png\"> first'}",
        "questions: [{name: a, text: '<img alt=x src=how.png> What is it?'}]",
        "comprehension: {questions: [{text: \"<img src='how.png'>\", options: [a, b], answer: a}]}",
        "instructions: [{text: '<video src=\"how.png\"></video>'}]",
    ],
)
def test_what_html_of_any_step_shows_is_no_target(manifest: Manifest, text: str):
    assert names(parse_spec(text, manifest=manifest).manifest)[1] == ["how.png"]


def test_an_address_elsewhere_is_no_file_of_the_zip(manifest: Manifest):
    text = 'consent: {text: \'<img src="https://example.org/how.png"> <img src="/how.png">\'}'
    assert names(parse_spec(text, manifest=manifest).manifest)[1] == []


def test_html_is_given_the_addresses_of_the_files_that_it_shows(manifest: Manifest):
    split = manifest.with_pictures({"how.png"})
    medium = split.pictures[0].media
    assert (
        split.address_files('<img src="how.png"> <img src=no.png>') == f'<img src="/media/{medium}"> <img src=no.png>'
    )


def test_pictures_survive_being_stored(manifest: Manifest):
    split = manifest.with_pictures({"how.png"})
    assert Manifest.load(split.dump()) == split
    assert "pictures" not in manifest.dump()


def test_targets_that_have_answers_stay_targets(manifest: Manifest):
    parsed = parse_spec(INSTRUCTIONS, manifest=manifest, fixed_targets=len(manifest))
    assert names(parsed.manifest) == (["a.png", "b.png", "c.png", "d.png", "how.png"], [])


def test_a_picture_that_no_text_shows_any_more_is_the_last_target(manifest: Manifest):
    split = manifest.with_pictures({"a.png"})
    parsed = parse_spec(INSTRUCTIONS, manifest=split, fixed_targets=4)
    assert names(parsed.manifest) == (["b.png", "c.png", "d.png", "how.png", "a.png"], [])
    assert parsed.manifest is not None
    assert [entry.index for entry in parsed.manifest.entries] == [0, 1, 2, 3, 4]


def test_a_second_zip_may_change_a_picture_but_no_target(manifest: Manifest, tmp_path: Path):
    old = manifest.with_pictures({"how.png"})
    merge = merge_manifests(old, zipped(tmp_path, "how.png", "e.png", begin=50))
    assert (merge.changed, merge.added) == ((), ("e.png",))
    assert names(merge.manifest) == (["a.png", "b.png", "c.png", "d.png", "e.png"], ["how.png"])
    assert merge.manifest.pictures[0].sha256 != old.pictures[0].sha256


def test_what_is_left_is_counted(tmp_path: Path):
    few = zipped(tmp_path, "a.png", "b.png", "how.png")
    with pytest.raises(SpecError, match=r"2 targets beside pictures of texts \(how.png\)"):
        parse_spec(INSTRUCTIONS, manifest=few)


def test_a_mistake_in_the_zip_does_not_hide_those_of_the_file():
    def unpack(_: bool) -> Manifest:
        raise MediaError((Problem("'a.png' is empty.", path="a.png"),), name="targets.zip")

    with pytest.raises(SpecError) as caught:
        parse_spec("seed: soon\n", unpack=unpack)
    assert [problem.path for problem in caught.value.problems] == ["a.png", "seed"]
    with pytest.raises(MediaError):
        parse_spec("seed: 1\n", unpack=unpack)


def test_practice_names_targets_by_file_or_number(manifest: Manifest):
    parsed = parse_spec("practice: {queries: [[a.png, b.png, 2, b.png]]}", manifest=manifest)
    assert parsed.spec.practice is not None
    assert parsed.spec.practice.queries == ((0, 1, 2, 1),)
    texts = parse_spec("targets: [red, green, blue]\npractice: {queries: [[red, green, blue, green]]}").spec.practice
    assert texts is not None
    assert texts.queries == ((0, 1, 2, 1),)


def test_a_practice_trial_with_a_target_that_is_not_there_is_marked_at_its_line(manifest: Manifest):
    examined = examine_spec(
        "practice:\n  queries:\n    - [a.png, bb.png, 2, 2]\n    - [0, 1, 9, 1]\n", manifest=manifest
    )
    assert examined.spec is None
    assert [(problem.line, problem.suggestion) for problem in examined.problems] == [(3, "b.png"), (4, "")]
    assert "9" in examined.problems[1].message


def test_the_hint_of_a_practice_trial_uses_the_names_as_they_are_written(manifest: Manifest):
    (problem,) = examine_spec("practice: {queries: [[a.png, b.png, 2, a.png]]}", manifest=manifest).problems
    assert "neither of its two comparisons is nearer" in problem.message
    assert problem.hint == "Write b.png or 2 last."


def test_names_are_no_mistake_before_the_zip_was_read():
    assert examine_spec("practice: {queries: [[a.png, b.png, c.png, b.png]]}", zip_follows=True).problems == ()
