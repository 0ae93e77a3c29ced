"""The benchmark of a round: it runs where the sampler takes its cheaper mode, too."""

import pytest

from benchmarks.report import Report
from benchmarks.round import COLUMNS, measure

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("n", "d", "full"), [(40, 2, True), (700, 3, False)])
def test_a_round_of_either_mode_is_measured(n, d, full):
    report = Report("round", COLUMNS)
    assert measure(n, d, report, None, cpu=False)[0] == n
    (row,) = report.rows
    assert row["round_ms"] > row["refit_ms"] > 0
    assert (row["design_ms"] is not None) == full
    assert row["arrange_ms"] < row["round_ms"]
