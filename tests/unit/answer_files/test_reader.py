"""Files of answers in every form that users have."""

import gzip

import numpy as np
import pytest

from salmon.answer_files.answer_table import read_answers, read_bytes
from salmon.answer_files.recorded_answers import read_recorded, survey
from salmon.answer_files.rows import AnswersFileError
from salmon.errors import TripletError
from tests.archives import write_zip

MODERN = """head,left,right,winner,sampler,score,puid,response_time,network_latency,time_received,loser,\
left_html,right_html,head_html,winner_html,loser_html,\
left_filename,right_filename,head_filename,winner_filename,loser_filename,\
time_received_since_start,datetime_received,start_time,puid_num_responses,num_responses
0,1,2,1,ARR,0.31,p1,1.2,0.01,1700000000.123,2,<b>one</b>,<i>two</i>,zero,<b>one</b>,<i>two</i>,\
one.png,two.png,zero.png,one.png,two.png,3.2,2023-11-14T22:13:20.123000,1700000000.0,1,1
1,3,0,0,ARR,-9999,p2,0.9,0.01,1700000001.123,3,three,zero,<b>one</b>,zero,three,\
three.png,zero.png,one.png,zero.png,three.png,4.2,2023-11-14T22:13:21.123000,1700000000.0,1,2
2,3,1,3,RandomSampling,-9999,p2,0.9,0.01,1700000002.123,1,three,<b>one</b>,<i>two</i>,three,<b>one</b>,\
three.png,one.png,two.png,three.png,one.png,5.2,2023-11-14T22:13:22.123000,1700000000.0,2,3
"""
ROWS = [[0, 1, 2], [1, 0, 3], [2, 3, 1]]
#: The same rows in every form in which tables of indices are kept.
FORMS = [
    "head,winner,loser\n0,1,2\n1,0,3\n2,3,1\n",
    "0,1,2\n1,0,3\n2,3,1\n",
    "0.0 1.0 2.0\n  1.0 0.0 3.0\n2.0 3.0 1.0",
    "0\t1\t2\r\n1\t0\t3\r\n2\t3\t1\r\n",
    "head;winner;loser\n0;1;2\n\n1;0;3\n2;3;1\n",
    '"head","winner","loser"\n"1",0,1,2\n"2",1,0,3\n"3",2,3,1\n',
    '[{"head":0,"winner":1,"loser":2},{"head":1,"winner":0,"loser":3},{"head":2,"winner":3,"loser":1}]',
    '{"head":0,"left":2,"right":1,"winner":1}\n{"head":1,"left":3,"right":0,"winner":0}\n{"head":2,"left":3,"right":1,"winner":3}',
]


def test_the_responses_of_the_old_program_are_read_with_their_names():
    table = read_answers(MODERN)
    assert (table.triplets.tolist(), table.triplets.dtype) == (ROWS, np.int32)
    assert table.labels == ("zero", "one", "two", "three")
    assert (table.html, table.participants) == (("zero", "<b>one</b>", "<i>two</i>", "three"), ("p1", "p2", "p2"))


def test_unranked_answers_of_an_active_sampler_count_as_random():
    assert read_answers(MODERN).random.tolist() == [False, True, True]


def test_older_files_with_alg_ident_objects_and_an_index_column_are_the_same():
    old = MODERN.replace("sampler", "alg_ident", 1).replace("_html", "_object")
    numbered = "\n".join(
        f"{'' if line < 0 else line},{row}" for line, row in enumerate(old.strip().split("\n"), start=-1)
    )
    for text in (old, numbered):
        table = read_answers(text)
        assert (table.triplets.tolist(), table.samplers) == (ROWS, ("ARR", "ARR", "RandomSampling"))
        assert table.labels == ("zero", "one", "two", "three")


@pytest.mark.parametrize("text", FORMS)
def test_rows_of_head_winner_loser_are_read_in_every_form(text):
    table = read_answers(text)
    assert table.triplets.tolist() == ROWS
    assert any("taken to be random" in note for note in table.notes)


def test_tables_of_labels_are_numbered_in_alphabetical_order():
    table = read_answers("Center,Left,Right,Answer,puid\nb,a,c,a,7\nc,d,b,b,7\n")
    assert (table.labels, table.triplets.tolist()) == (("a", "b", "c", "d"), [[1, 0, 2], [2, 1, 3]])
    other = read_answers("Target,Option1,Option2,Answer,session_id\nb,a,c,left,7\nc,d,b,right,7\n")
    assert other.triplets.tolist() == table.triplets.tolist()


def test_an_answer_may_lack_the_extension_that_its_foot_has():
    table = read_answers("Center,Left,Right,Answer\nx/b.png,x/a.png,x/c.png,c\n")
    assert (table.html[table.triplets[0, 1]], table.labels) == ("x/c.png", ("a", "b", "c"))


def test_indices_beside_labels_win_and_checks_are_left_out():
    table = read_answers(
        "head,winner,loser,worker_id,rt,Center,Left,Right,Answer,sampleAlg,sampleSet\n"
        "0,1,2,w1,900,ant,bee,cat,bee,random,train\n"
        "2,2,1,w1,800,cat,bee,cat,cat,check,\n"
        "2,0,1,w2,700,cat,bee,ant,ant,validation,train\n"
        "2,1,0,w2,700,cat,bee,ant,bee,random,test\n"
    )
    assert (table.triplets.tolist(), table.labels) == ([[0, 1, 2], [2, 0, 1], [2, 1, 0]], ("ant", "bee", "cat"))
    assert table.random.tolist() == [True, False, True]
    assert table.repeatable.all()
    assert table.test.tolist() == [False, False, True]
    assert "Left out: catch and practice trials (1)." in table.notes


def test_our_own_trial_types_say_what_is_random_and_what_is_no_triplet():
    kinds = ["active", "random", "fallback", "validation", "catch", "repeat", "shared", "fixed", "practice"]
    text = "head,winner,loser,sampler,trial_type,excluded\n" + "".join(
        f"{0 if kind != 'catch' else 1},1,2,Adaptive,{kind},false\n" for kind in kinds
    )
    table = read_answers(text + "0,1,2,Adaptive,active,true\n")
    assert (len(table.triplets), table.random.tolist()) == (6, [False, True, True, False, False, False])
    assert table.test.tolist() == [False, False, False, False, True, False]
    assert table.repeatable.tolist() == [False, True, True, True, True, False]
    assert (table.second.tolist(), len(table.for_ceiling)) == ([[0, 1, 2]], 5)
    assert "Used only for the noise ceiling: repeated queries (1)." in table.notes
    assert "Left out: answers marked as excluded (1)." in table.notes


def test_targets_without_answers_leave_no_gap_and_the_others_keep_their_index():
    table = read_answers("head,winner,loser,head_html\n9,4,100,nine\n4,9,100,four\n")
    assert (table.ids, table.n, table.triplets.tolist()) == ((4, 9, 100), 3, [[1, 0, 2], [0, 1, 2]])
    assert table.labels == ("four", "nine", "100")
    assert "Left out: targets without any answer (98 of 101)." in table.notes


def test_a_sampler_can_be_named_random_or_held_back():
    text = "head,winner,loser,sampler\n0,1,2,mine\n1,0,2,ARR\n2,0,1,exam\n"
    table = read_answers(text).with_samplers(random=("mine",), test=("exam",))
    assert (table.random.tolist(), table.test.tolist()) == ([True, False, True], [False, False, True])
    with pytest.raises(TripletError, match="ARR, exam, mine"):
        read_answers(text).with_samplers(random=("min",))


def test_compressed_files_and_marks_at_the_beginning_are_read(tmp_path):
    plain = ("\ufeff" + MODERN).encode()
    archive = write_zip(tmp_path / "a.zip", [("responses.csv", plain), ("__MACOSX/._responses.csv", b"x")])
    for data in (plain, gzip.compress(plain), archive.read_bytes()):
        assert read_bytes(data).triplets.tolist() == ROWS


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('head,winner,loser,head_html,winner_html\n0,1,2,"a, ""b""\nc",x\n0,2,2,d,y\n', 4),
        (
            '[\n  {\n    "head": 0,\n    "winner": 1,\n    "loser": 2\n  },\n  {"head": 0, "winner": 0, "loser": 2}\n]',
            7,
        ),
    ],
    ids=["after a target with commas, quotes and line ends", "in an indented array"],
)
def test_a_faulty_row_is_reported_at_its_own_line(text, line):
    with pytest.raises(AnswersFileError) as caught:
        read_answers(text)
    assert [problem.line for problem in caught.value.problems] == [line]


def test_everything_wrong_with_a_file_is_said_at_once_with_line_and_column():
    text = "head,left,right,winner\n0,1,2,1\n0,1\n0,x,2,2\n1,1,2,2\n0,1,2,3\n,1,2,1\n0,-4,2,2\n"
    with pytest.raises(AnswersFileError) as caught:
        read_answers(text, name="bad.csv")
    lines = str(caught.value).split("\n")
    assert [line.split(":")[1] for line in lines] == ["3", "4", "5", "6", "7", "8"]
    for line, words in zip(
        lines,
        (
            "2 cells but the table has 4 columns",
            "'x', which is not the index of a target",
            "the head itself",
            "bad.csv:6:4: In column 'winner': The winner is '3' but the feet are '1' and '2'.",
            "The head is missing",
            "-4, below 0",
        ),
        strict=True,
    ):
        assert words in line


def test_hundreds_of_problems_are_counted_not_written_out():
    with pytest.raises(AnswersFileError) as caught:
        read_answers("head,winner,loser\n" + "0,0,1\n" * 500)
    assert len(caught.value.problems) == 500
    assert str(caught.value).endswith("and 480 more problems.")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "no answers"),
        ("head,winner,loser\n", "no answers"),
        ("a,b,c\nx,y,z\n", "no column head or center or target, winner or answer, loser; the columns are a, b, c"),
        ("head,left,right\n0,1,2\n", "no column winner or answer"),
        ('[{"head": 0,]', "not JSON"),
        ('{"head": 0}\n{"head": \n', "not JSON"),
        ("[1, 2]", "Record 1 is not an object"),
        ("{}", "the columns are none"),
        ("head,winner,loser,trial_type\n0,1,2,catch\n", "all are catch, practice or excluded"),
        ("head,winner,loser,left,right\n0,1,1,1,2\n", "the foot that did not win is '2'"),
        ("0,1,99999999999\n", "too large"),
        ("0,1,1\n", "The winner and the loser are both '1'"),
        ('head,winner,loser\n0,1,"' + "x" * 200_000 + '"\n', "breaks off"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(text, sentence):
    with pytest.raises(AnswersFileError, match=sentence):
        read_answers(text)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (gzip.compress(b"0,1,2\n" * 99)[:-9], "cut off"),
        (b"PK\x03\x04 nothing", "damaged"),
        (b"head,winner,loser\n0,1,\xff\xfe\n", ":2: The file is not UTF-8"),
    ],
)
def test_a_damaged_container_says_so(data, sentence):
    with pytest.raises(AnswersFileError, match=sentence):
        read_bytes(data, name="answers")


def test_a_zip_with_several_tables_and_no_responses_is_refused(tmp_path):
    archive = write_zip(tmp_path / "a.zip", [("a.csv", b"0,1,2"), ("b.csv", b"0,1,2")])
    with pytest.raises(AnswersFileError, match="holds 2 files"):
        read_bytes(archive.read_bytes())


def test_an_import_reads_the_same_rows_as_a_fit_in_every_form(tmp_path):
    path = tmp_path / "answers"
    for text in FORMS:
        path.write_text(text)
        rows = [[int(target) for target in answer.targets] for answer in read_recorded(survey(path))]
        assert rows == read_answers(text).triplets.tolist() == ROWS


def test_an_import_reports_rows_of_the_wrong_length_with_everything_else(tmp_path):
    path = tmp_path / "answers.csv"
    path.write_text("\n\nhead,left,right,winner,time_received\n0,1,2,1,5\n0,1\n1,1,2,2,5\n0,1,2,1,soon\n")
    with pytest.raises(AnswersFileError) as caught:
        survey(path, name="a.csv")
    assert [problem.line for problem in caught.value.problems] == [5, 6, 7]


def test_a_table_of_labels_may_begin_with_labels_that_are_numbers():
    table = read_answers("Center,Left,Right,Answer\n7,1,2,1\nant,bee,cat,bee\nbee,ant,cat,cat\n")
    assert table.labels == ("1", "2", "7", "ant", "bee", "cat")


def test_of_columns_with_the_same_name_the_first_counts():
    assert read_answers("head,winner,loser,winner\n0,1,2,9\n").triplets.tolist() == [[0, 1, 2]]
