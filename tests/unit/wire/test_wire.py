"""The bytes in the store: what was encoded decodes to the same, and what earlier versions wrote still decodes."""

import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from salmon.records import TRIAL_TYPES, Answer, Query, Served, Timing
from salmon.wire import (
    Heartbeat,
    Keys,
    decode_answer,
    decode_query,
    decode_served,
    encode_answer,
    encode_query,
    encode_served,
    is_intact,
)
from salmon.wire.answer_pages import columns_of, damaged_in, without
from tests.program import REPOSITORY

GOLDEN = REPOSITORY / "tests" / "golden"

indices = st.integers(0, 100_000)
numbers = st.floats(allow_nan=False, allow_infinity=False)
moments = st.integers(0, 2**53)
names = st.text("abcXYZ019_-", min_size=1, max_size=40)
queries = st.builds(
    Query,
    head=indices,
    feet=st.lists(indices, min_size=2, max_size=2, unique=True).map(lambda feet: tuple(sorted(feet))),
    score=numbers,
    trial_type=st.sampled_from(TRIAL_TYPES),
    probability=st.floats(0, 1),
    generation=moments,
    published_ms=moments,
)
served = st.builds(
    Served,
    experiment=names,
    revision=st.integers(1, 1000),
    participant=names,
    session=names,
    trial=st.integers(1, 100_000),
    sampler=names,
    head=indices,
    left=indices,
    right=indices,
    score=numbers,
    trial_type=st.sampled_from(TRIAL_TYPES),
    probability=st.floats(0, 1),
    sampler_probability=st.floats(0, 1),
    generation=moments,
    published_ms=moments,
    served_ms=moments,
    nonce=names,
)
timings = st.builds(
    Timing,
    rt_ms=numbers,
    query_wait_ms=numbers,
    onset_client_ms=numbers,
    network_latency_ms=numbers,
    input=st.sampled_from(["mouse", "touch", "key", "script", ""]),
    sent_attempts=st.integers(1, 1000),
    blur_during_trial=st.booleans(),
    viewport_w=st.integers(0, 10_000),
    viewport_h=st.integers(0, 10_000),
)
answers = st.builds(Answer, served=served, winner=indices, timing=timings, received_ms=moments, signed=st.booleans())


@given(queries)
def test_a_query_decodes_to_itself(query: Query) -> None:
    assert decode_query(encode_query(query)) == query


@given(served)
def test_a_token_decodes_to_itself_through_json(item: Served) -> None:
    assert decode_served(json.loads(json.dumps(encode_served(item)))) == item


@given(answers)
def test_an_answer_decodes_to_itself_from_a_stream_of_strings(answer: Answer) -> None:
    entry = encode_answer(answer)
    assert all(isinstance(value, str) for value in entry.values())
    assert decode_answer(answer.served.experiment, entry) == answer


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.json")), ids=lambda path: path.stem)
def test_what_earlier_versions_wrote_still_decodes(path: object) -> None:
    written = json.loads((GOLDEN / str(path)).read_text())
    for entry in written["answers"]:
        answer = decode_answer("golden", entry)
        assert (answer.served.head, answer.winner, answer.loser) == tuple(written["triplet"])
    for element in written["queries"]:
        assert decode_query(element).key == written["key"]
    assert decode_served(written["token"]).nonce == written["nonce"]
    assert Heartbeat.decode(json.dumps(written["heartbeat"])).experiments == written["heartbeat"]["experiments"]


@given(st.lists(answers, min_size=1, max_size=5), st.randoms(use_true_random=False), st.booleans())
def test_columns_of_a_page_hold_what_decoding_each_entry_does(
    found: list[Answer], random: Random, shuffled: bool
) -> None:
    lines: list[str] = []
    expected: list[Answer] = []
    for place, answer in enumerate(found):
        entry = [item for item in encode_answer(answer).items() if item[0] != "crc32"]
        if shuffled:
            random.shuffle(entry)
        # What another version wrote: a field more, and one less that has a default.
        for fields in (entry, [*entry, ("later", "1")], [item for item in entry if item[0] != "signed"]):
            lines.append("\x1f".join([f"{place}-0", *(part for item in fields for part in item)]))
            expected.append(decode_answer("e", dict(fields)))
    text = "\x1e".join(lines)
    assert damaged_in(text) == []
    pages = columns_of("e", text)
    assert [answer for columns in pages for answer in columns.answers()] == expected
    assert [stream_id for columns in pages for stream_id in columns.stream_ids] == [
        f"{place}-0" for place in range(len(found)) for _ in range(3)
    ]


def test_an_answer_written_before_a_field_existed_gets_its_default() -> None:
    entry = json.loads((GOLDEN / "version-1.json").read_text())["answers"][0]
    for name in ("viewport_w", "viewport_h", "signed", "blur_during_trial"):
        entry.pop(name)
    answer = decode_answer("golden", entry)
    assert (answer.timing.viewport_w, answer.timing.blur_during_trial, answer.signed) == (0, False, True)


def test_the_keys_of_an_experiment_share_one_hash_tag() -> None:
    keys = Keys("ab12cd34ef")
    everything = [keys.spec, keys.state, keys.arrivals, keys.answers, keys.events, keys.fence]
    everything += [keys.participant("p"), keys.asked("p"), keys.answered("p")]
    everything += [keys.queries("S"), keys.pending("S"), keys.model("S"), keys.history("S")]
    assert len(set(everything)) == len(everything)
    assert all(key.startswith("salmon:{ab12cd34ef}:") for key in everything)


def test_a_heartbeat_of_a_newer_version_is_understood() -> None:
    assert Heartbeat.decode('{"started_ms": 1, "beat_ms": 2, "errors": ["x"], "mood": "good"}').errors == ("x",)


@given(answers, st.data())
def test_one_flipped_bit_of_an_answer_is_noticed(answer: Answer, data: st.DataObject) -> None:
    entry = [part for item in encode_answer(answer).items() for part in item]
    assert is_intact(entry)
    place = data.draw(st.integers(0, len(entry) - 3).filter(lambda place: entry[place] != ""))
    at = data.draw(st.integers(0, len(entry[place].encode()) - 1))
    content = bytearray(entry[place].encode())
    content[at] ^= 1 << data.draw(st.integers(0, 7))
    flipped = [*entry[:place], content.decode(errors="replace"), *entry[place + 1 :]]
    assert not is_intact(flipped)
    page = "\x1e".join(
        "\x1f".join((name, *fields)) for name, fields in (("1-0", entry), ("2-0", flipped), ("3-0", entry))
    )
    assert damaged_in(page) == ["2-0"]
    assert [stream_id for columns in columns_of("e", without(page, ["2-0"])) for stream_id in columns.stream_ids] == [
        "1-0",
        "3-0",
    ]


def test_answers_without_a_checksum_are_taken_as_they_are() -> None:
    for entry in json.loads((GOLDEN / "version-1.json").read_text())["answers"]:
        assert is_intact([part for item in entry.items() for part in item])
