"""An index means the same target for ever, however often the ZIP is uploaded."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from salmon.errors import MediaError, SpecError
from salmon.spec import Manifest, ManifestEntry, check, dump_spec, merge_manifests, parse_spec, targets_of


def manifest_of(*files: tuple[str, str]) -> Manifest:
    return Manifest(
        tuple(
            ManifestEntry(index, name, "image", hashlib.sha256(content.encode()).hexdigest(), len(content), "png", 4, 3)
            for index, (name, content) in enumerate(files)
        )
    )


FILES = st.lists(
    st.tuples(st.sampled_from([f"{k}.png" for k in range(8)]), st.sampled_from("abcdef")),
    max_size=8,
    unique_by=lambda file: file[0],
)
MANIFESTS = FILES.map(lambda files: manifest_of(*files))


def test_new_files_go_to_the_end_even_where_they_sort_first():
    merge = merge_manifests(
        manifest_of(("b.png", "b"), ("c.png", "c")), manifest_of(("a.png", "a"), ("b.png", "b"), ("c.png", "c"))
    )
    assert [entry.name for entry in merge.manifest.entries] == ["b.png", "c.png", "a.png"]
    assert (merge.kept, merge.added, merge.safe) == (("b.png", "c.png"), ("a.png",), True)


def test_what_changed_was_renamed_or_is_missing_is_said():
    old = manifest_of(("a.png", "a"), ("b.png", "b"), ("c.png", "c"), ("d.png", "d"))
    merge = merge_manifests(old, manifest_of(("a.png", "new"), ("b.png", "b"), ("see.png", "c")))
    assert (merge.kept, merge.changed, merge.renamed, merge.missing) == (
        ("b.png",),
        ("a.png",),
        (("c.png", "see.png"),),
        ("d.png",),
    )
    assert [entry.name for entry in merge.manifest.entries] == ["a.png", "b.png", "see.png", "d.png"]
    assert merge.manifest.entries[0].sha256 == hashlib.sha256(b"new").hexdigest()
    assert not merge.safe


def test_two_files_that_swap_their_names_are_both_changed():
    merge = merge_manifests(manifest_of(("a.png", "a"), ("b.png", "b")), manifest_of(("a.png", "b"), ("b.png", "a")))
    assert merge.changed == ("a.png", "b.png")


@given(MANIFESTS, MANIFESTS)
def test_no_index_is_lost_or_given_away(old: Manifest, new: Manifest):
    merge = merge_manifests(old, new)
    merged = merge.manifest.entries
    assert [entry.index for entry in merged] == list(range(len(merged)))
    renamed = dict(merge.renamed)
    assert [entry.name for entry in merged[: len(old)]] == [
        renamed.get(entry.name, entry.name) for entry in old.entries
    ]
    assert {(entry.name, entry.sha256) for entry in new.entries} <= {(entry.name, entry.sha256) for entry in merged}
    assert len(merge.kept) + len(merge.changed) + len(merge.renamed) + len(merge.missing) == len(old)
    assert len(merge.added) == len(merged) - len(old)


@given(MANIFESTS)
def test_the_same_zip_again_changes_nothing(manifest: Manifest):
    merge = merge_manifests(manifest, manifest)
    assert (merge.manifest, merge.safe, merge.added) == (manifest, True, ())


@given(MANIFESTS)
def test_a_manifest_that_is_stored_and_read_is_the_same(manifest: Manifest):
    assert Manifest.load(manifest.dump()) == manifest


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"entries": [{}]}',
        '{"entries": 5}',
        manifest_of(("a", "a")).dump().replace('"index": 0', '"index": 1'),
    ],
)
def test_what_is_no_manifest_is_refused_in_a_sentence(text: str):
    with pytest.raises(MediaError, match="This is not a manifest of targets"):
        Manifest.load(text)


def test_the_zip_replaces_the_targets_of_the_file_and_gives_the_numbers():
    manifest = manifest_of(*((f"{k}.png", str(k)) for k in range(4)))
    text = "targets: [a, b]\nsampling: {details: {1: {sampler: Adaptive, query: [0, 1, 4]}}}\npage: {alt: {1.png: red, 9.png: x}}"
    assert [problem.sentence() for problem in check(text, manifest=manifest)] == [
        "1:1: warning: The 4 targets of the ZIP replace the targets written here. Remove targets: from the file.",
        "2:59: sampling.details.1.query, item 3 must be a target from 0 to 3 (there are 4, counted from 0), not '4'.",
        "3:26: The ZIP has no file '9.png'. Did you mean 3.png?",
    ]
    spec = parse_spec("page: {alt: {1.png: a red one}}", manifest=manifest).spec
    assert [target.alt for target in targets_of(spec, manifest)] == ["", "a red one", "", ""]
    assert parse_spec(dump_spec(spec), manifest=manifest).spec == spec


def test_an_empty_file_is_enough_beside_a_zip_but_two_targets_are_not():
    assert targets_of(parse_spec("", manifest=manifest_of(("a", "a"), ("b", "b"), ("c", "c"))).spec, None) == ()
    with pytest.raises(SpecError, match="The ZIP holds 2 targets; a triplet needs at least three"):
        parse_spec("", manifest=manifest_of(("a", "a"), ("b", "b")))


def test_rows_of_a_csv_are_looked_at_like_targets_of_the_file():
    rows = ("red", "blue", "red", "<script>x</script>")
    manifest = Manifest(tuple(ManifestEntry(index, row, "html", "", 3, html=row) for index, row in enumerate(rows)))
    assert [problem.message for problem in check("title: x", manifest=manifest)] == [
        "The target 'red' is listed twice: as number 0 and 2, counted from 0.",
        "The target '<script>x</script>' contains active HTML, which is removed.",
    ]
