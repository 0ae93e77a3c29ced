"""What the monitored values change between steps: batch, learning rate, workers (after Mai et al. 2019, listing 1).

A policy is any function of the step's figures and the plan so far that gives the plan to carry out. It sees the figures
of the whole group, so every worker decides the same.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import ceil, isnan, nan

from salmon.errors import SalmonError


@dataclass(frozen=True)
class Plan:
    """The next step: examples, the factor of the learning rate, and workers (None: as many as there are)."""

    batch_size: int
    rate_factor: float = 1.0
    workers: int | None = None


#: (figures, plan) -> plan. The figures are the last row of the history, with `step` and `epoch` of the step to come.
Policy = Callable[[Mapping[str, float], Plan], Plan]


@dataclass(frozen=True)
class FollowNoiseScale:
    """The batch follows the measured noise scale between two bounds; it starts at the smaller one.

    Where noise outweighs signal, a larger batch makes better steps; where it does not, examples would be wasted.
    `share` of the noise scale is taken. With `grow_only` the batch never shrinks again.
    """

    minimum: int = 128
    maximum: int = 4096
    share: float = 1.0
    grow_only: bool = True
    monitor: str = "noise_scale"

    def __post_init__(self) -> None:
        if not 1 <= self.minimum <= self.maximum:
            raise SalmonError(
                f"No batch lies between {self.minimum} and {self.maximum}.", hint="Give 1 ≤ minimum ≤ maximum."
            )

    def __call__(self, figures: Mapping[str, float], plan: Plan) -> Plan:
        """The plan with the batch replaced."""
        wanted = self.share * figures.get(self.monitor, nan)
        before = figures.get("planned_batch_size", self.minimum) if self.grow_only else self.minimum
        known = self.minimum if isnan(wanted) else wanted
        return replace(plan, batch_size=int(min(self.maximum, max(self.minimum, before, known))))


@dataclass(frozen=True)
class InverseStep:
    """The learning rate falls as scale / step (Robbins and Monro 1951), and is never above `largest` times itself."""

    scale: float = 10.0
    largest: float = 1.0

    def __call__(self, figures: Mapping[str, float], plan: Plan) -> Plan:
        """The plan with its learning rate damped."""
        factor = min(self.largest, self.scale / (figures["step"] + 1))
        return replace(plan, rate_factor=plan.rate_factor * factor)


@dataclass(frozen=True)
class StepsAt:
    """The learning rate falls by `factor` at each of these epochs."""

    epochs: tuple[float, ...]
    factor: float = 0.1

    def __call__(self, figures: Mapping[str, float], plan: Plan) -> Plan:
        """The plan with its learning rate annealed."""
        passed = sum(figures["epoch"] >= epoch for epoch in self.epochs)
        return replace(plan, rate_factor=plan.rate_factor * self.factor**passed)


@dataclass(frozen=True)
class WorkersFollow:
    """One worker for every so many examples of the batch, between two bounds."""

    examples_per_worker: int
    minimum: int = 1
    maximum: int = 1 << 30

    def __call__(self, figures: Mapping[str, float], plan: Plan) -> Plan:
        """The plan with the workers that its batch is worth."""
        del figures
        wanted = ceil(plan.batch_size / self.examples_per_worker)
        return replace(plan, workers=min(self.maximum, max(self.minimum, wanted)))
