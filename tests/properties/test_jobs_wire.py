"""Requests in the store: what was encoded decodes to the same, and what earlier versions wrote still decodes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from salmon.wire import REQUEST_STATES, JobStatus, Request
from tests.program import REPOSITORY

GOLDEN = sorted((REPOSITORY / "tests" / "golden" / "requests").glob("*.json"))

names = st.text("abcXYZ019_-", min_size=1, max_size=40)
sentences = st.text(max_size=200)
numbers = st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | numbers | sentences,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=20,
)
arguments = st.dictionaries(names, values, max_size=5)
kinds = names.filter(lambda name: name != "experiment")
moments = st.integers(0, 2**53)
requests = st.builds(Request, request=names, kind=kinds, experiment=names, arguments=arguments)
standings = st.builds(
    JobStatus,
    kind=kinds,
    experiment=names,
    arguments=arguments,
    asked_ms=moments,
    asked_by=names,
    state=st.sampled_from(REQUEST_STATES),
    progress=st.floats(0, 1),
    note=sentences,
    result=values,
    error=sentences,
    cancel=st.booleans(),
    tries=st.integers(0, 100),
    backend=names,
    began_ms=moments,
    ended_ms=moments,
)


@pytest.mark.parametrize("kind", [requests, standings], ids=["requests", "standings"])
@given(data=st.data())
def test_what_is_stored_decodes_to_itself_from_a_mapping_of_strings(
    kind: st.SearchStrategy[Request | JobStatus], data: st.DataObject
) -> None:
    item = data.draw(kind)
    written = item.encode()
    assert all(isinstance(value, str) for value in written.values())
    assert type(item).decode(written) == item


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_requests_of_earlier_versions_still_decode(path: object) -> None:
    written = json.loads((REPOSITORY / str(path)).read_text())
    asked = Request.decode(written["entry"])
    assert asked is not None
    assert (asked.request, asked.arguments["exclude"]) == ("r1a2b3c4d5e6", ["abcdefghijkl"])
    standing = JobStatus.decode(written["standing"])
    assert standing is not None
    assert (standing.state, standing.progress, standing.cancel, standing.tries) == ("running", 0.25, True, 2)
    assert standing.result == {"loss": 0.5}


def test_an_announced_experiment_is_no_request() -> None:
    assert Request.decode({"kind": "experiment", "experiment": "ab12cd34ef"}) is None


def test_a_standing_with_fields_of_a_newer_version_is_understood_and_an_expired_one_is_none() -> None:
    standing = JobStatus.decode({"kind": "fit", "experiment": "e", "mood": "good"})
    assert standing is not None
    assert (standing.state, standing.ended) == ("waiting", False)
    assert (JobStatus.decode({}), JobStatus.decode({"progress": "0.5"})) == (None, None)
