"""The pieces of work that travel to the workers: plain functions of plain values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from backend.answer_log import Rows, join
from salmon.samplers.active import ActiveSampler, Round, State


def refit(sampler: ActiveSampler, state: State, blocks: Sequence[Rows], tail: Rows) -> State:
    """The state after all answers of the log."""
    return sampler.refit(state, join((*blocks, tail)))


def search(
    sampler: ActiveSampler, state: State, blocks: Sequence[Rows], tail: Rows, pending: Rows, count: int
) -> Round:
    """Queries to be asked next."""
    return sampler.search(state, join((*blocks, tail)), pending, count)


def report(
    sampler: ActiveSampler, state: State, blocks: Sequence[Rows], tail: Rows
) -> tuple[NDArray[np.float64], float]:
    """(the embedding that is shown, the noise ceiling; NaN where hardly a query was answered twice)."""
    rows = join((*blocks, tail))
    return sampler.report(state, rows), ceiling(rows)


def ceiling(rows: Rows) -> float:
    """How well any embedding could predict these answers."""
    from salmon.analysis.ceiling import noise_ceiling  # loads scikit-learn, which only the workers need

    found = noise_ceiling(rows)
    return found.ceiling.value if found else float("nan")
