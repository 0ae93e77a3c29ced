"""How many dimensions, and which noise model: all candidates are judged on the same folds."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from salmon.analysis.held_out import HeldOut, Interval

Floats = NDArray[np.float64]
Candidate = TypeVar("Candidate", bound=Hashable)

#: Chance of calling a rise real when there is none, over all comparisons together.
LEVEL = 0.05


@dataclass(frozen=True)
class Choice(Generic[Candidate]):
    """The candidate chosen, every candidate's held-out accuracy and log-loss (nats), and the reason in a sentence."""

    chosen: Candidate
    accuracy: dict[Candidate, Interval]
    log_loss: dict[Candidate, float]
    reason: str


def choose_dimension(results: Mapping[int, HeldOut]) -> Choice[int]:
    """The smallest d whose held-out accuracy no larger d beats significantly."""
    dimensions = sorted(results)
    chosen = next(d for d in dimensions if not _beaten(results[d], [results[e] for e in dimensions if e > d]))
    larger = "no more were tried" if chosen == dimensions[-1] else "more are not significantly better"
    return Choice(chosen, *_figures(results), f"d = {chosen} is enough: {larger}.")


def choose_noise_by_accuracy(results: Mapping[str, HeldOut]) -> Choice[str]:
    """Among the noise models that none beats significantly in accuracy, the one with the smallest held-out log-loss."""
    equals = [
        name for name in results if not _beaten(results[name], [results[other] for other in results if other != name])
    ]
    chosen = min(equals, key=lambda name: results[name].log_loss)
    reason = f"{chosen} has the smallest log-loss of the {len(equals)} that none beats significantly in accuracy."
    return Choice(chosen, *_figures(results), reason)


def corrected_t_test(difference: Floats, fitted: float, judged: float) -> float:
    """One-sided p-value that a difference over folds (j,) has a mean above 0.

    t = mean / √((1/j + judged/fitted) · variance) with j − 1 degrees of freedom: the folds' fits share most of their
    answers, which the plain test forgets (Nadeau and Bengio 2003). 1 where nothing differs.
    """
    variance = float(difference.var(ddof=1)) if len(difference) > 1 else 0.0
    if variance == 0:
        return 0.0 if len(difference) > 1 and difference.mean() > 0 else 1.0
    scale = np.sqrt((1 / len(difference) + judged / fitted) * variance)
    return float(student.sf(difference.mean() / scale, len(difference) - 1))


def holm(p_values: list[float], level: float = LEVEL) -> list[bool]:
    """Which of several p-values are significant together (Holm 1979): the k-th smallest against level / (m − k + 1)."""
    significant = [False] * len(p_values)
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if p_values[place] > level / (len(p_values) - rank):
            break
        significant[place] = True
    return significant


def _beaten(one: HeldOut, others: list[HeldOut]) -> bool:
    own = one.by_fold(one.hits)
    judged = one.hits.shape[1] / (int(one.folds.max()) + 1)
    return any(holm([corrected_t_test(other.by_fold(other.hits) - own, one.fitted, judged) for other in others]))


def _figures(results: Mapping[Candidate, HeldOut]) -> tuple[dict[Candidate, Interval], dict[Candidate, float]]:
    accuracy = {candidate: found.accuracy for candidate, found in results.items()}
    return accuracy, {candidate: found.log_loss for candidate, found in results.items()}
