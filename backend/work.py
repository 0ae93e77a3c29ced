"""The pieces of work that travel to the workers: plain functions of plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backend.answer_log import Rows, join
from salmon.learning import laplace
from salmon.parallel import Executor
from salmon.samplers.active import ActiveSampler, Round, State

#: The prior under which the certainty of the shown embedding is judged.
_SHOWN_RIDGE = 1.0


def refit(sampler: ActiveSampler, state: State, blocks: Sequence[Rows], tail: Rows) -> State:
    """The state after all answers of the log."""
    return sampler.refit(state, join((*blocks, tail)))


def search(
    sampler: ActiveSampler, state: State, blocks: Sequence[Rows], tail: Rows, pending: Rows, count: int
) -> Round:
    """Queries to be asked next."""
    return sampler.search(state, join((*blocks, tail)), pending, count)


@dataclass(frozen=True)
class Reported:
    """The embedding that is shown: `coordinates` (n, d), the covariance of each target `spread` (n, d, d), and how well
    any embedding could predict these answers: NaN where hardly a query was answered twice.
    """

    coordinates: NDArray[np.float64]
    spread: NDArray[np.float32]
    ceiling: float


def report(
    sampler: ActiveSampler,
    state: State,
    blocks: Sequence[Rows],
    tail: Rows,
    repeatable: Rows,
    executor: Executor | None = None,
) -> Reported:
    """The embedding that is shown, with what is known of its certainty."""
    rows = join((*blocks, tail))
    coordinates = sampler.report(state, rows, executor)
    # The prior of the search: without one, targets that were hardly asked about would fill the map.
    posterior = laplace(coordinates, rows, sampler.shown_model, ridge=_SHOWN_RIDGE)
    return Reported(coordinates, posterior.target_covariance().astype(np.float32), ceiling(repeatable))


def ceiling(rows: Rows) -> float:
    """How well any embedding could predict, from answers to queries that came again."""
    from salmon.analysis.ceiling import noise_ceiling  # loads scikit-learn, which only the workers need

    found = noise_ceiling(rows)
    return found.ceiling.value if found else float("nan")
