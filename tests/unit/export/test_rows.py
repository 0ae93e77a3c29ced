"""The rows and files of exports: what each column holds, in every form."""

import csv
import io
import json
import re
from dataclasses import fields, replace

import numpy as np
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontend.store.participants import Participant
from frontend.transfer.participant_tables import (
    PLATFORM_IDS,
    QUALITY,
    Conduct,
    participant_row,
    participants_table,
    platform_row,
    quality_row,
)
from salmon.export import FILES, FIRST_COLUMNS, RESPONSES, Responses, RevisionRecord, Row, Table, TargetNames
from salmon.export.notebooks import notebook, r_script
from salmon.export.other_programs import (
    CBLEARN,
    PSIZ,
    STACKS,
    TRIPLETTOOLS_TRIPLETS,
    Labels,
    Translator,
    triplettools_embedding_rows,
    triplettools_embeddings_table,
)
from salmon.export.readme import readme
from salmon.export.table import KINDS, Cell, Column, CsvFile, NpzFile
from salmon.export.targets_models import (
    EVENTS,
    MODELS,
    TARGETS,
    Generation,
    embedding_history_rows,
    embedding_history_table,
    embedding_rows,
    embeddings_table,
    event_row,
    model_row,
    target_rows,
)
from salmon.quality import Decision, Figures, Flag, Verdict
from salmon.records import Answer, Served, Timing, TrialType
from salmon.spec import TargetSpec
from salmon.wire.answer_pages import columns_of
from tests.bundles import page_of

NAMES = [TargetNames(f"<b>{name}</b>", name) for name in ("z/pear.png", "apple.png", "fig.jpg")]
SERVED = Served("e", 1, "p", "s", 4, "Random", 0, 1, 2, -9999.0, "random", 0.5, 0.85, 0, 0, 1000, "nonce")
ANSWER = Answer(SERVED, 2, Timing(rt_ms=812.5, input="key", viewport_w=1280), 61_000)
VERDICT = Verdict(Figures(answers=3), (Flag("side", "Leans."), Flag("fit", "Differs.", excludes=False)))
PERSON = Participant.parse(
    "p",
    {
        "puid": "P1",
        "source": "prolific",
        "status": "completed",
        "first_ms": "1000",
        "last_ms": "61000",
        "consent:ab": '{"agreed_ms":2000,"version":"ab"}',
        "arrived:STUDY_ID": "S9",
        "question:age": "41",
    },
)
GENERATION = Generation(
    "S", {"generation": "7", "absorbed": "90", "published_ms": "1000"}, np.arange(6.0).reshape(3, 2)
)


def test_the_first_columns_are_those_that_old_scripts_read() -> None:
    assert ",".join(FIRST_COLUMNS) == (
        "head,left,right,winner,sampler,score,puid,response_time,network_latency,time_received,loser,left_html,right_html,"
        "head_html,winner_html,loser_html,left_filename,right_filename,head_filename,winner_filename,loser_filename,"
        "time_received_since_start,datetime_received,start_time,puid_num_responses,num_responses"
    )


def made(**options: object) -> Responses:
    return Responses(NAMES, 1000, {"p": "P1"}, revisions={1: RevisionRecord(0, 3, "cafe", "2.0")}, **options)  # type: ignore[arg-type]


def rows_of(responses: Responses, *answers: tuple[str, Answer]) -> list[list[Cell]]:
    return [row for columns in columns_of("e", page_of(*answers)) for row in responses.rows(columns)]


def response(
    answer: Answer = ANSWER, stream_id: str = "61000-0", responses: Responses | None = None
) -> dict[str, object]:
    return dict(zip(RESPONSES.names, rows_of(responses or made(), (stream_id, answer))[0], strict=True))


def test_a_response_has_the_old_units_and_ours() -> None:
    row = response()
    assert (row["response_time"], row["rt_ms"]) == (0.8125, 812.5)
    assert (row["network_latency"], row["query_wait_ms"]) == (-1, None)
    assert (row["winner"], row["loser"], row["winner_side"], row["winner_filename"]) == (2, 1, "right", "fig.jpg")
    assert (row["time_received"], row["start_time"], row["time_received_since_start"]) == (61.0, 1.0, 60.0)
    assert row["datetime_received"] == "1970-01-01T00:01:01.000"
    assert (row["rng_seed"], row["config_hash"], row["app_version"], row["phase"]) == (3, "cafe", "2.0", "main")
    assert (row["puid"], row["participant"], row["viewport_w"], row["viewport_h"]) == ("P1", "p", 1280, None)


def test_a_late_answer_and_one_of_somebody_who_is_left_out_are_marked() -> None:
    late = replace(ANSWER, received_ms=SERVED.served_ms + 600_001)
    row = response(late, responses=made(excluded={"p": "Excluded by hand."}))
    assert (row["received_late"], row["excluded"], row["exclusion_reason"]) == (True, True, "Excluded by hand.")
    assert (response()["received_late"], response()["excluded"], response()["exclusion_reason"]) == (False, False, "")


def test_a_repeat_names_the_answer_that_it_repeats_whichever_way_round_it_was_shown() -> None:
    responses = made()
    again = replace(ANSWER, served=replace(SERVED, left=2, right=1, trial_type="repeat"))
    by_chance = replace(ANSWER, served=replace(SERVED, left=2, right=1))
    somebody_else = replace(again, served=replace(again.served, participant="q"))
    found = [
        response(answer, stream_id, responses)["repeat_of"]
        for answer, stream_id in (
            (ANSWER, "1760000000000-3"),
            (by_chance, "5-0"),
            (again, "6-0"),
            (somebody_else, "7-0"),
        )
    ]
    assert found == ["", "", "1760000000000-3", ""]


def tables() -> list[tuple[Table, list[Row]]]:
    """Every table with a row or two."""
    labels = Labels.of(NAMES)
    translator = Translator(labels, {"p": "P1"}, {"p": "Why."}, frozenset())
    decision = Decision(VERDICT, "keep", 'a "fine"\nnote', "ada", 5000)
    conduct = Conduct()
    for event, client_ms, detail in (
        ("opened", 0, "1280x800 2"),
        ("blur", 10, ""),
        ("focus", 1510, ""),
        ("skip", 1, ""),
    ):
        conduct.note({"event": event, "client_ms": str(client_ms), "detail": detail})
    person = participant_row(PERSON, conduct=conduct, decision=decision, duplicate_of="", questions=("age", "sex"))
    targets = [
        TargetSpec(0, "text", "pear", "pear"),
        TargetSpec(1, "image", "<img>", "a.png", media="m.png", width_px=3),
    ]
    event = event_row(
        "1-0", {"participant": "p", "event": "blur", "client_ms": "2.5", "received_ms": "9", "trial": "1"}
    )
    return [
        (RESPONSES, [*rows_of(made(), ("1-0", ANSWER)), *rows_of(made(excluded={"p": "x"}), ("1-0", ANSWER))]),
        (participants_table(("age", "sex")), [person]),
        (PLATFORM_IDS, [platform_row(PERSON)]),
        (QUALITY, [quality_row("p", VERDICT, decision)]),
        (EVENTS, [event]),
        (TARGETS, list(target_rows(targets, None))),
        (MODELS, [model_row(GENERATION, kept=True)]),
        (embeddings_table(3), list(embedding_rows(GENERATION, NAMES, 3))),
        (embedding_history_table(2), list(embedding_history_rows(GENERATION, NAMES, 2))),
        (TRIPLETTOOLS_TRIPLETS, [translator.triplettools(ANSWER) or []]),
        (triplettools_embeddings_table(2), list(triplettools_embedding_rows(GENERATION, labels, 2))),
        (CBLEARN, [translator.cblearn(ANSWER) or []]),
        (PSIZ, [translator.psiz(ANSWER) or []]),
    ]


def file_of(form: str, table: Table, rows: list[Row]) -> bytes:
    file = FILES[form](table)
    return file.begin() + file.rows(rows) + file.end()


def as_text(value: object) -> str:
    """A value of JSON or Parquet as CSV writes it."""
    if value is None:
        return ""
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)


@pytest.mark.parametrize(("table", "rows"), tables(), ids=lambda value: getattr(value, "name", ""))
def test_a_table_holds_the_same_values_in_every_form(table: Table, rows: list[Row]) -> None:
    assert rows
    assert all(len(row) == len(table.columns) for row in rows)
    written = list(csv.DictReader(io.StringIO(file_of("csv", table, rows).decode(), newline="")))
    lines = [json.loads(line) for line in file_of("jsonl", table, rows).decode().splitlines()]
    assert lines == pyarrow.parquet.read_table(io.BytesIO(file_of("parquet", table, rows))).to_pylist()
    assert [{column: as_text(value) for column, value in line.items()} for line in lines] == written


@pytest.mark.parametrize(("table", "rows"), tables(), ids=lambda value: getattr(value, "name", ""))
def test_every_cell_is_of_the_kind_that_its_column_says(table: Table, rows: list[Row]) -> None:
    python = {"integer": int, "number": (int, float), "text": str, "written": str, "truth": bool, "moment": str}
    for row in rows:
        for column, cell in zip(table.columns, row, strict=True):
            assert cell is None or isinstance(cell, python[column.kind]), (column.name, cell)
            if column.kind == "moment" and cell is not None:
                assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", str(cell))


cells = st.one_of(st.none(), st.text(st.characters(codec="utf-8", exclude_characters="\r\x00"), max_size=20))


@given(st.lists(st.tuples(cells, st.one_of(st.none(), st.booleans()), st.floats(allow_nan=False)), max_size=20))
def test_any_text_comes_back_from_csv(rows: list[tuple[str | None, bool | None, float]]) -> None:
    table = Table("t", "r", (Column("a", "text", ""), Column("b", "truth", ""), Column("c", "number", "")))
    found = list(csv.reader(io.StringIO(file_of("csv", table, [list(row) for row in rows]).decode(), newline="")))[1:]
    assert [(a, b, float(c)) for a, b, c in found] == [(a or "", as_text(b), c) for a, b, c in rows]


def test_names_are_plain_and_every_column_is_explained() -> None:
    for table, _ in tables():
        assert len(set(table.names)) == len(table.names)
        for column in table.columns:
            assert column.meaning, (table.name, column.name)
            if not table.name.startswith(("triplettools", "embeddings")):
                assert re.fullmatch(r"[a-z][a-z0-9_]*", column.name), (table.name, column.name)


def test_the_data_dictionary_has_every_column_of_every_table_and_nothing_else() -> None:
    every = [(table, ("csv", "parquet")) for table, _ in tables()]
    text = readme(title="A\ntitle", slug="s", exported="now", tables=every, whole=True)
    assert list(dict.fromkeys(re.findall(r"^## (\w+)$", text, re.MULTILINE))) == [table.name for table, _ in every]
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        table = next(table for table, _ in every if section.startswith(f"{table.name}\n"))
        assert re.findall(r"^\| `([^`]+)` \| ([^|]+) \| ([^|]+) \|$", section, re.MULTILINE) == [
            (column.name, KINDS[column.kind], column.meaning) for column in table.columns
        ]
        assert f"`{table.name}.parquet`" in text


def test_quality_shows_every_figure() -> None:
    assert {field.name for field in fields(Figures)} <= set(QUALITY.names)


def test_what_a_participant_did_is_told_by_the_events() -> None:
    row = dict(zip(tables()[1][0].names, tables()[1][1][0], strict=True))
    assert (row["blur_count"], row["blur_s"], row["skipped"]) == (1, 1.5, 1)
    assert (row["viewport_w"], row["viewport_h"], row["pixel_ratio"]) == (1280, 800, 2.0)
    assert (row["consent_version"], row["consent_time"]) == ("ab", "1970-01-01T00:00:02.000Z")
    assert (row["question_age"], row["question_sex"]) == ("41", None)
    assert (row["keep_auto"], row["keep_manual"], row["keep"], row["decided_by"]) == (False, "keep", True, "ada")
    assert "P1" not in row.values()


@pytest.mark.parametrize(
    ("fields", "verdict", "keep", "reason"),
    [
        ({}, VERDICT, False, "Leans."),
        ({"keep": "auto"}, VERDICT, False, "Leans."),
        ({"keep": "keep"}, VERDICT, True, ""),
        ({"keep": "exclude", "keep_note": "Slept."}, None, False, "Excluded by hand: Slept."),
    ],
)
def test_the_word_of_the_experimenter_counts_more_than_the_proposal(
    fields: dict[str, str], verdict: Verdict | None, keep: bool, reason: str
) -> None:
    decision = Participant.parse("p", fields).decision(verdict)
    assert (decision.keep, decision.reason) == (keep, reason)


def test_labels_are_numbered_in_the_order_of_the_alphabet_and_stay_apart() -> None:
    assert Labels.of(NAMES) == Labels(("pear", "apple", "fig"), (2, 0, 1))
    for filenames, labels in ((("a.png", "a.jpg"), ("a.png", "a.jpg")), (("same", "same"), ("same (0)", "same (1)"))):
        assert Labels.of([TargetNames("", filename) for filename in filenames]).names == labels


TRANSLATOR = Translator(Labels.of(NAMES), {}, {}, tests=frozenset({"Test"}))


@pytest.mark.parametrize(
    ("kind", "sampler", "words"),
    [
        ("active", "S", ("adaptive", "train")),
        ("fallback", "S", ("random", "train")),
        ("validation", "S", ("validation", "test")),
        ("random", "Test", ("random", "test")),
        ("catch", "S", ("check", "")),
    ],
)
def test_other_programs_get_their_own_words(kind: str, sampler: str, words: tuple[str, str]) -> None:
    served = replace(SERVED, trial_type=kind, sampler=sampler)  # type: ignore[arg-type]
    row = TRANSLATOR.triplettools(replace(ANSWER, served=served)) or []
    named = dict(zip(TRIPLETTOOLS_TRIPLETS.names, row, strict=True))
    assert (named["sampleAlg"], named["sampleSet"]) == words


@pytest.mark.parametrize("kind", ["catch", "repeat", "shared"])
def test_checks_are_not_fitted_by_other_programs(kind: TrialType) -> None:
    check = replace(ANSWER, served=replace(SERVED, trial_type=kind))
    assert (TRANSLATOR.cblearn(check), TRANSLATOR.psiz(check)) == (None, None)


def test_triplettools_tests_with_shared_queries_and_does_not_get_a_second_showing() -> None:
    assert TRANSLATOR.triplettools(replace(ANSWER, served=replace(SERVED, trial_type="repeat"))) is None
    shared = TRANSLATOR.triplettools(replace(ANSWER, served=replace(SERVED, trial_type="shared"))) or []
    assert dict(zip(TRIPLETTOOLS_TRIPLETS.names, shared, strict=True))["sampleSet"] == "test"


@pytest.mark.parametrize("table", [CBLEARN, PSIZ], ids=lambda table: table.name)
def test_arrays_hold_the_rows_and_no_pickle(table: Table) -> None:
    rows = {made.name: row for made, row in tables()}[table.name] * 3
    file = NpzFile(table, STACKS[table.name], [name.filename for name in NAMES])
    assert file.begin() + file.rows(rows[:2]) + file.rows(rows[2:]) == b""
    arrays = np.load(io.BytesIO(file.end()), allow_pickle=False)
    for place, column in enumerate(table.columns):
        found = arrays[column.name]
        if column.kind in {"text", "written"}:
            found = arrays[f"{column.name}_names"][found]
        assert found.tolist() == [row[place] for row in rows]
    for name, parts in STACKS[table.name].items():
        assert arrays[name].tolist() == [[row[table.names.index(part)] for part in parts] for row in rows]
    assert arrays["labels"].tolist() == [name.filename for name in NAMES]


def test_no_answers_make_empty_files_with_columns() -> None:
    file = NpzFile(CBLEARN, STACKS["cblearn"], [])
    assert np.load(io.BytesIO(file.end()), allow_pickle=False)["triplets"].shape == (0, 3)
    assert file_of("csv", QUALITY, []).decode().strip().split(",") == list(QUALITY.names)
    assert pyarrow.parquet.read_table(io.BytesIO(file_of("parquet", QUALITY, []))).column_names == list(QUALITY.names)


def test_the_notebook_is_one_and_the_r_script_closes_what_it_opens() -> None:
    content = json.loads(notebook("my-study"))
    assert (content["nbformat"], {cell["cell_type"] for cell in content["cells"]}) == (4, {"markdown", "code"})
    assert "my-study" in "".join(content["cells"][0]["source"])
    script = re.sub(r'"[^"]*"|#.*', "", r_script("my-study"))
    assert [script.count(one) for one in "([{"] == [script.count(other) for other in ")]}"]
    assert set(re.findall(r"(\w+)::|library\((\w+)\)", script)) == set()


@given(
    st.lists(
        st.tuples(
            st.none() | st.text(st.sampled_from('ab",\r\n é')),
            st.none() | st.floats(allow_nan=False),
            st.none() | st.integers(),
            st.text(st.sampled_from('ab",;')),
        ),
        max_size=6,
    )
)
def test_csv_is_what_the_csv_module_would_write(rows: list[tuple[Cell, ...]]) -> None:
    table = Table("t", "a row", tuple(Column(kind, kind, "") for kind in ("text", "number", "integer", "written")))
    expected = io.StringIO(newline="")
    csv.writer(expected, lineterminator="\r\n").writerows([table.names, *rows])
    file = CsvFile(table)
    assert file.begin() + file.rows([list(row) for row in rows]) == expected.getvalue().encode()
