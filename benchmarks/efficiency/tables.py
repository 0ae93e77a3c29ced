"""The tables that a run prints: answers to a level, and ratios to a baseline."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.efficiency.levels import Curves, answers_needed, needed_with_error, paired_ratio


@dataclass(frozen=True)
class Level:
    """A measure and a value of it to be reached; errors fall, accuracies rise."""

    measure: str
    value: float

    @property
    def falling(self) -> bool:
        """Whether smaller is better."""
        return self.measure == "rank_error"

    def __str__(self) -> str:
        return f"NN {self.value:g}" if self.falling else f"{self.value:.3f}".rstrip("0").replace("0.", ".", 1)


ACCURACIES = (0.75, 0.78, 0.80, 0.81, 0.82, 0.825)
RANK_ERRORS = {30: (2.0, 1.5, 1.0), 60: (3.0, 2.0), 90: (5.0, 3.0)}


def levels_for(world: str, n: int, ceiling: float) -> list[Level]:
    """The levels of a world: the eggs' own, elsewhere the same shares of what is between chance and the ceiling."""
    if world == "eggs":
        accuracies: Sequence[float] = ACCURACIES
    else:
        accuracies = [round(0.5 + share * (ceiling - 0.5), 3) for share in (0.6, 0.7, 0.8, 0.9)]
    return [Level("accuracy", value) for value in accuracies] + [
        Level("rank_error", value) for value in RANK_ERRORS.get(n, ())
    ]


def needed_table(title: str, rows: Mapping[str, Mapping[str, Curves]], levels: Sequence[Level]) -> Iterator[str]:
    """Answers to each level in multiples of n, with their standard errors."""
    yield f"\n{title}\n"
    yield _line("answers / n", [str(level) for level in levels])
    yield _line("---", ["---"] * len(levels))
    for name, curves in rows.items():
        yield _line(name, [_needed(curves, level) for level in levels])


def ratio_table(
    title: str, rows: Mapping[str, Mapping[str, Curves]], baseline: str, levels: Sequence[Level]
) -> Iterator[str]:
    """Answers to each level divided by the baseline's, with 95 % bootstrap intervals over paired seeds."""
    if baseline not in rows:
        return
    yield f"\n{title}\n"
    yield _line(f"/ {baseline}", [str(level) for level in levels])
    yield _line("---", ["---"] * len(levels))
    for name, curves in rows.items():
        if name != baseline:
            yield _line(name, [_ratio(curves, rows[baseline], level) for level in levels])


def _needed(curves: Mapping[str, Curves], level: Level) -> str:
    if level.measure not in curves:
        return ""
    value, error = needed_with_error(curves[level.measure], level.value, falling=level.falling)
    if not np.isfinite(value):
        return f"> {curves[level.measure].answers[-1]:.0f}"
    return f"{value:.1f} ± {error:.1f}" if np.isfinite(error) else f"{value:.1f}"


def _ratio(one: Mapping[str, Curves], other: Mapping[str, Curves], level: Level) -> str:
    if level.measure not in one or level.measure not in other:
        return ""
    value, low, high = paired_ratio(one[level.measure], other[level.measure], level.value, falling=level.falling)
    baseline = _needed_by(other[level.measure], level)
    if not np.isfinite(value):
        # The curve ends before the level: at least so much more than the baseline.
        return f"> {one[level.measure].answers[-1] / baseline:.2f}" if np.isfinite(baseline) else "neither"
    return f"{'' if np.isfinite(baseline) else '< '}{value:.2f} [{low:.2f}–{_bound(high)}]"


def _needed_by(curves: Curves, level: Level) -> float:
    return answers_needed(curves.answers, curves.values.mean(axis=0), level.value, falling=level.falling)


def _bound(high: float) -> str:
    return f"{high:.2f}" if np.isfinite(high) else "∞"


def _line(name: str, cells: Sequence[str]) -> str:
    return "| " + " | ".join([name, *cells]) + " |"
