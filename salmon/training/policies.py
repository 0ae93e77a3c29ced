"""Policies that adjust batch size, learning rate and number of workers between steps
(after Mai et al. 2019, listing 1).

A policy is any function (figures of the last step, plan so far) → plan of the next step. The figures are those that all
workers share, so that every worker reaches the same decision: with averaged parameters, they change only when the
workers agree.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import ceil, isnan, nan
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from salmon.errors import SalmonError


@dataclass(frozen=True)
class StepPlan:
    """The next step: its number of examples, the factor of the learning rate, and the workers
    (None: leave them as they are).
    """

    batch_size: int
    rate_factor: float = 1.0
    workers: int | None = None


class SharedFigures(dict[str, float]):
    """The figures of a step that are equal on all workers; `seconds` and watched figures, which
    only one has, are not among them.
    """

    def __missing__(self, name: str) -> float:
        raise SalmonError(
            f"A policy reads {name!r}, which the workers do not share.",
            hint=f"They share {', '.join(self)}. Use get() for a figure that is missing in the first step.",
            where="policies",
        )


#: (figures, plan) -> plan. The figures are the last row of the history, with `step` and `epoch` of the upcoming step.
Policy = Callable[[Mapping[str, float], StepPlan], StepPlan]


@dataclass(frozen=True)
class FollowNoiseScale:
    """Let the batch grow to the measured noise scale, within two bounds; it starts at the smaller one.

    If noise outweighs signal, a larger batch makes better steps; otherwise it would waste examples. The batch tends to
    `share` times the noise scale, but grows by no more than the factor `growth` in a step, so that a few wrong
    measurements do little, and never shrinks, as the noise of a smaller batch would drive the parameters away from
    where they are.
    """

    minimum: int = 128
    maximum: int = 4096
    share: float = 1.0
    growth: float = 1.05
    monitor: str = "noise_scale"

    def __post_init__(self) -> None:
        if not 1 <= self.minimum <= self.maximum:
            raise SalmonError(
                f"No batch lies between {self.minimum} and {self.maximum}.", hint="Give 1 ≤ minimum ≤ maximum."
            )
        if not self.growth > 1:
            raise SalmonError(f"With a growth of {self.growth} the batch never grows.", hint="Give more than 1.")

    def __call__(self, figures: Mapping[str, float], plan: StepPlan) -> StepPlan:
        """Return the plan with the batch replaced."""
        wanted = self.share * figures.get(self.monitor, nan)
        before = max(self.minimum, figures.get("planned_batch_size", self.minimum))
        if isnan(wanted) or wanted <= before:
            return replace(plan, batch_size=int(min(self.maximum, before)))
        return replace(plan, batch_size=int(min(self.maximum, wanted, ceil(before * self.growth))))


@dataclass(frozen=True)
class InverseStep:
    """Multiply the learning rate by scale / step, but by no more than `largest` (Robbins and Monro 1951)."""

    scale: float = 10.0
    largest: float = 1.0

    def __call__(self, figures: Mapping[str, float], plan: StepPlan) -> StepPlan:
        """Return the plan with its learning rate reduced."""
        return replace(plan, rate_factor=plan.rate_factor * min(self.largest, self.scale / (figures["step"] + 1)))


@dataclass(frozen=True)
class StepsAt:
    """Multiply the learning rate by `factor` at each of these epochs."""

    epochs: tuple[float, ...]
    factor: float = 0.1

    def __call__(self, figures: Mapping[str, float], plan: StepPlan) -> StepPlan:
        """Return the plan with its learning rate reduced."""
        passed = sum(figures["epoch"] >= epoch for epoch in self.epochs)
        return replace(plan, rate_factor=plan.rate_factor * self.factor**passed)


@dataclass(frozen=True)
class RateSchedule:
    """Multiply the learning rate as a scheduler of torch does, in units of epochs or steps.

    `scheduler` makes it from an optimiser: `RateSchedule(partial(torch.optim.lr_scheduler.StepLR, step_size=30))`. It
    sees an optimiser with a learning rate of 1, so that its learning rate is the factor.
    """

    scheduler: Callable[[Any], Any]
    unit: str = "epoch"
    # Factors computed so far: they follow from the scheduler.
    _factors: list[float] = field(default_factory=list[float], init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        made = self.scheduler(_unit_optimizer())
        if not isinstance(made, LRScheduler) or isinstance(made, ReduceLROnPlateau):
            raise SalmonError(
                f"{type(made).__name__} does not follow from the number of {self.unit}s alone.",
                hint="Give a scheduler of torch that does, or a policy of your own that reads the loss.",
                where="scheduler",
            )
        if self.unit not in {"epoch", "step"}:
            raise SalmonError(f"unit is {self.unit!r}.", hint="Give 'epoch' or 'step'.", where="unit")

    def __call__(self, figures: Mapping[str, float], plan: StepPlan) -> StepPlan:
        """Return the plan with its learning rate multiplied by the scheduled factor."""
        passed = int(figures[self.unit] + 1e-9)
        if passed >= len(self._factors):
            self._compute(2 * passed + 2)
        if passed >= len(self._factors):
            raise SalmonError(
                f"The scheduler ends before {self.unit} {passed}.", hint="Let it last longer.", where="scheduler"
            )
        return replace(plan, rate_factor=plan.rate_factor * self._factors[passed])

    def _compute(self, count: int) -> None:
        """Compute this many factors, or fewer if the scheduler ends before."""
        optimizer = _unit_optimizer()
        scheduler = self.scheduler(optimizer)
        self._factors[:] = [optimizer.param_groups[0]["lr"]]
        while len(self._factors) < count:
            optimizer.step()
            try:
                scheduler.step()
            except ValueError:
                return
            self._factors.append(float(optimizer.param_groups[0]["lr"]))


def _unit_optimizer() -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)


@dataclass(frozen=True)
class WorkersFollow:
    """Request one worker for every `examples_per_worker` examples of the batch, within two bounds."""

    examples_per_worker: int
    minimum: int = 1
    maximum: int = 1 << 30

    def __call__(self, figures: Mapping[str, float], plan: StepPlan) -> StepPlan:
        """Return the plan with the number of workers for its batch."""
        del figures
        return replace(
            plan, workers=min(self.maximum, max(self.minimum, ceil(plan.batch_size / self.examples_per_worker)))
        )
