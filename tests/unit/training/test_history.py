"""The history of a run, and progress on the terminal."""

import sys
from types import SimpleNamespace

import pytest

from salmon.errors import SalmonError
from salmon.training import VirtualGroup
from salmon.training.loop import describe_row
from tests.unit.training.problems import train


@pytest.fixture(scope="module")
def history():
    return train(2, watch=lambda module: {"seen": 1.0}, watch_every=5).history


def test_the_history_has_one_row_per_step_and_the_documented_columns(history):
    documented = "step epoch examples batch_size learning_rate workers loss bytes_sent seconds"
    assert len(history) == 24
    assert set(documented.split()) <= set(history.columns)
    assert history["epoch"][[5, 11, 23]].tolist() == [1, 2, 4]
    assert (history["seconds"][1:] > history["seconds"][:-1]).all()


def test_a_csv_has_one_line_per_row(history):
    assert history.csv().startswith("step,epoch,examples,batch_size")
    assert len(history.csv().splitlines()) == 25


def test_a_chart_is_svg_and_the_same_every_time(history):
    drawn = history.chart(("loss", "seen"))
    assert drawn.lstrip().startswith(b"<?xml")
    assert drawn == history.chart(("loss", "seen"))


def test_an_unknown_column_is_refused_with_a_list_of_columns(history):
    with pytest.raises(SalmonError, match="batch_size"):
        history["nothing"]


def test_a_frame_without_pandas_is_refused(history, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(SalmonError, match="Install pandas"):
        history.frame()


def test_a_frame_has_the_rows_and_columns(history, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=lambda rows, columns: (rows, columns)))
    assert history.frame() == (list(history.rows), history.columns)


def test_progress_is_shown_on_the_terminal(capsys):
    train(1, progress=True, group=VirtualGroup(1))
    shown = capsys.readouterr().out
    assert "epoch 4.00" in shown
    assert "1 worker" in shown


def test_progress_uses_the_plural_for_several_workers(history):
    assert "2 workers" in describe_row(history.rows[-1])
