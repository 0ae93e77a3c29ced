"""What a run leaves to look at."""

import sys
from types import SimpleNamespace

import pytest

from salmon.distributed import History, VirtualGroup
from salmon.distributed.progress import sentence
from salmon.errors import SalmonError
from tests.unit.distributed.problems import train


@pytest.fixture(scope="module")
def history():
    return train(2, watch=lambda module: {"seen": 1.0}, watch_every=5).history


def test_the_history_has_a_row_a_step_and_the_columns_that_were_promised(history):
    assert len(history) == 24
    promised = {"step", "epoch", "examples", "batch_size", "learning_rate", "workers", "loss", "bytes_sent", "seconds"}
    assert promised <= set(history.columns)
    assert history["epoch"][[5, 11, 23]].tolist() == [1, 2, 4]
    assert (history["seconds"][1:] > history["seconds"][:-1]).all()


def test_a_csv_has_a_line_a_row(history):
    lines = history.csv().splitlines()
    assert len(lines) == 25
    assert lines[0].startswith("step,epoch,examples,batch_size")


def test_a_chart_is_svg_and_the_same_every_time(history):
    drawn = history.chart(("loss", "seen"))
    assert drawn.lstrip().startswith(b"<?xml")
    assert drawn == history.chart(("loss", "seen"))


def test_columns_that_are_not_there_are_named(history):
    with pytest.raises(SalmonError, match="batch_size"):
        history["nothing"]


def test_without_pandas_a_frame_is_refused_with_a_sentence(history, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(SalmonError, match="Install pandas"):
        history.frame()


def test_with_pandas_a_frame_has_the_rows_and_columns(history, monkeypatch):
    made = SimpleNamespace(DataFrame=lambda rows, columns: (rows, columns))
    monkeypatch.setitem(sys.modules, "pandas", made)
    assert history.frame() == (list(history.rows), history.columns)


def test_the_first_row_below_a_loss_is_found(history):
    loss = history["loss"]
    assert history.first("loss", at_most=loss[4])["loss"] <= loss[4]
    assert History().first("loss", at_most=1) is None


def test_progress_is_shown_on_the_terminal(capsys):
    train(1, progress=True, group=VirtualGroup(1))
    shown = capsys.readouterr().out
    assert "epoch 4.00" in shown
    assert "1 worker" in shown


def test_progress_counts_workers_in_words(history):
    assert "2 workers" in sentence(history.rows[-1])
