"""Laws of reading files of answers."""

import gzip
import json
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from salmon.answer_files.answer_table import read_answers, read_bytes
from salmon.answer_files.rows import AnswersFileError

triplet = st.permutations(range(6)).map(lambda order: order[:3])


def as_written(table):
    """The triplets in the file's own numbers."""
    return [[table.ids[target] for target in row] for row in table.triplets.tolist()]


@given(st.lists(triplet, min_size=1, max_size=20))
def test_what_is_written_as_csv_or_json_is_read_back(rows):
    records = [dict(zip(("head", "winner", "loser"), row, strict=True)) for row in rows]
    as_csv = "head,winner,loser\n" + "".join(",".join(map(str, row)) + "\n" for row in rows)
    for text in (as_csv, json.dumps(records), "\n".join(map(json.dumps, records))):
        assert as_written(read_answers(text)) == [list(row) for row in rows]


@given(st.text(alphabet='0129-.,;"\n\r\t head{}[]:xé', max_size=80))
def test_no_text_ends_in_anything_but_columns_or_sentences(text):
    with suppress(AnswersFileError):
        assert read_answers(text).triplets.shape[1] == 3


@given(st.binary(max_size=60))
def test_no_file_ends_in_anything_but_columns_or_sentences(data):
    for packed in (data, gzip.compress(data), b"\x1f\x8b" + data, b"PK\x03\x04" + data):
        with suppress(AnswersFileError):
            read_bytes(packed)


@given(st.lists(triplet, min_size=1, max_size=20), st.lists(st.booleans(), min_size=20, max_size=20))
def test_sides_and_winner_say_the_same_as_winner_and_loser(rows, left):
    sides = "head,left,right,winner\n"
    for (head, winner, loser), won_left in zip(rows, left, strict=False):
        first, second = (winner, loser) if won_left else (loser, winner)
        sides += f"{head},{first},{second},{winner}\n"
    assert as_written(read_answers(sides)) == [list(row) for row in rows]
