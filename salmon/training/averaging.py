"""When replicas agree, and how: every step, every so many steps, when they have drifted apart, or by correction.

The decisions are pure functions of a small state; the loop carries out what they say.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from salmon.errors import SalmonError


@dataclass(frozen=True)
class AveragingState:
    """Where a method stands: its period, steps since replicas agreed, and the running average C2 of variance/rate."""

    period: int = 1
    count: int = 0
    c2: float = 0.0
    samples: int = 0


@dataclass(frozen=True)
class Averaging:
    """How replicas agree. `replicas` are trained side by side by each worker."""

    #: Whether replicas have parameters of their own between two agreements.
    differ: ClassVar[bool] = True

    @property
    def replicas(self) -> int:
        """Replicas that each worker trains; 0 asks for as many as pay."""
        return 1

    def step_batch(self, batch_size: int, replicas: int) -> int:
        """Examples of a step of so many replicas, all together."""
        del replicas
        return batch_size

    def start(self) -> AveragingState:
        """The state before the first step."""
        return AveragingState()

    def due(self, state: AveragingState, step: int) -> tuple[AveragingState, bool]:
        """Whether replicas agree after local step `step` (from 0)."""
        raise NotImplementedError

    def learn(self, state: AveragingState, step: int, variance: float, rate: float) -> AveragingState:
        """The state after an agreement at which the replicas' variance was measured."""
        del step, variance, rate
        return state


@dataclass(frozen=True)
class FullSync(Averaging):
    """Gradients are averaged in every step, so that replicas never differ."""

    differ: ClassVar[bool] = False

    def due(self, state: AveragingState, step: int) -> tuple[AveragingState, bool]:
        """Always."""
        del step
        return state, True


@dataclass(frozen=True)
class CPSGD(Averaging):
    """Parameters are averaged where the period divides the step (Jiang and Agrawal 2020, Algorithm 1)."""

    period: int = 8

    def __post_init__(self) -> None:
        _at_least_one(period=self.period)

    def start(self) -> AveragingState:
        """The constant period."""
        return AveragingState(period=self.period)

    def due(self, state: AveragingState, step: int) -> tuple[AveragingState, bool]:
        """Where the period divides the step."""
        return state, step % self.period == 0


@dataclass(frozen=True)
class ADPSGD(Averaging):
    """The period follows the variance of the replicas (Jiang and Agrawal 2020, Algorithm 2).

    For `warmup_steps` replicas agree in every step. Until step `sampling_steps` (a quarter of all, as the authors have it) the
    period is `initial_period` and C2 the running average of variance / learning rate. From then on the period rises by one
    where the variance is below .7 · rate · C2, and falls by one where it is above 1.3 · rate · C2.
    """

    sampling_steps: int = 1000
    initial_period: int = 4
    warmup_steps: int = 0

    def __post_init__(self) -> None:
        _at_least_one(initial_period=self.initial_period, sampling_steps=self.sampling_steps)
        if self.warmup_steps >= self.sampling_steps:
            raise SalmonError(
                f"A warm-up of {self.warmup_steps} steps leaves nothing of {self.sampling_steps} sampling steps.",
                hint="Make sampling_steps larger.",
                where="ADPSGD",
            )

    def start(self) -> AveragingState:
        """The initial period."""
        return AveragingState(period=self.initial_period)

    def due(self, state: AveragingState, step: int) -> tuple[AveragingState, bool]:
        """Where as many steps as the period have passed since the last agreement."""
        count = state.count + 1
        agree = step < self.warmup_steps or count >= state.period
        return replace(state, count=0 if agree else count), agree

    def learn(self, state: AveragingState, step: int, variance: float, rate: float) -> AveragingState:
        """Sample C2, and later move the period by at most one."""
        if step < self.warmup_steps or rate <= 0:
            return state
        if step < self.sampling_steps:
            samples = state.samples + 1
            return replace(state, samples=samples, c2=state.c2 + (variance / rate - state.c2) / samples)
        if variance < 0.7 * rate * state.c2:
            return replace(state, period=state.period + 1)
        if variance > 1.3 * rate * state.c2:
            return replace(state, period=max(1, state.period - 1))
        return state


@dataclass(frozen=True)
class Crossbow(Averaging):
    """m independent replicas a worker, each corrected towards a central average in every step (Mai et al. 2019, 3.1).

    cᵢ = α(wᵢ − z);  wᵢ ← wᵢ − γgᵢ − cᵢ;  z ← z + Σcᵢ + μ(z − z_before).  `correction` α is one over the number of all
    replicas unless given, `momentum` is μ. With `count` 0 replicas are added while the measured examples per second
    rise by more than 5 % each. The batch size of `fit` is that of each replica.
    """

    count: int = 0
    correction: float | None = None
    momentum: float = 0.0

    def __post_init__(self) -> None:
        if (
            self.count < 0
            or not 0 <= self.momentum < 1
            or (self.correction is not None and not 0 < self.correction <= 1)
        ):
            raise SalmonError(
                f"Crossbow(count={self.count}, correction={self.correction}, momentum={self.momentum}) cannot run.",
                hint="Give count ≥ 0, 0 < correction ≤ 1 and 0 ≤ momentum < 1.",
                where="Crossbow",
            )

    @property
    def replicas(self) -> int:
        """Replicas of each worker; 0 until they are chosen."""
        return self.count

    def due(self, state: AveragingState, step: int) -> tuple[AveragingState, bool]:
        """Corrections flow in every step."""
        del step
        return state, True

    def step_batch(self, batch_size: int, replicas: int) -> int:
        """Each replica has a batch of its own."""
        return batch_size * replicas

    def strength(self, replicas: int) -> float:
        """The share α of its distance from the centre by which each of so many replicas is corrected."""
        return 1 / replicas if self.correction is None else self.correction


def _at_least_one(**values: int) -> None:
    for name, value in values.items():
        if value < 1:
            raise SalmonError(f"{name} is {value}.", hint="Give a whole number from 1.", where=name)
