"""Methods that decide when and how replicas are synchronised: every step, periodically, adaptively, or by corrections.

The decisions are pure functions of a small state; `salmon.training.replicas` carries them out.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from salmon.errors import SalmonError


@dataclass(frozen=True)
class AveragingState:
    """A method's period, the steps since the last synchronisation, and the running average C2 of variance / rate."""

    period: int = 1
    count: int = 0
    c2: float = 0.0
    samples: int = 0


@dataclass(frozen=True)
class Averaging:
    """How replicas are synchronised."""

    #: Whether replicas have different parameters between two synchronisations.
    differ: ClassVar[bool] = True

    @property
    def replicas(self) -> int:
        """Replicas that each worker trains side by side; 0 means as many as raise throughput."""
        return 1

    def step_batch(self, batch_size: int, replicas: int) -> int:
        """Return the number of examples in a step of this many replicas together."""
        del replicas
        return batch_size

    def start(self) -> AveragingState:
        """Return the state before the first step."""
        return AveragingState()

    def decide(self, state: AveragingState, step: int) -> tuple[AveragingState, bool]:
        """Return the next state, and whether replicas are synchronised after local step
        `step` (from 0): by default, always.
        """
        del step
        return state, True

    def learn(self, state: AveragingState, step: int, variance: float, rate: float) -> AveragingState:
        """Return the state after a synchronisation at which the replicas had this variance."""
        del step, variance, rate
        return state


@dataclass(frozen=True)
class FullSync(Averaging):
    """Average gradients in every step, so that replicas never differ."""

    differ: ClassVar[bool] = False


@dataclass(frozen=True)
class CPSGD(Averaging):
    """Average parameters in steps that are multiples of a constant period (Jiang and Agrawal 2020, Algorithm 1)."""

    period: int = 8

    def __post_init__(self) -> None:
        _check_at_least_one(period=self.period)

    def start(self) -> AveragingState:
        """Return a state with the constant period."""
        return AveragingState(period=self.period)

    def decide(self, state: AveragingState, step: int) -> tuple[AveragingState, bool]:
        """Synchronise if the step is a multiple of the period."""
        return state, step % self.period == 0


@dataclass(frozen=True)
class ADPSGD(Averaging):
    """Average parameters with a period that follows the variance of the replicas (Jiang and Agrawal 2020, Algorithm 2).

    Replicas are synchronised in every one of the first `warmup_steps`. Until step `sampling_steps` (the authors use a
    quarter of all steps) the period is `initial_period`, and C2 is the running average of variance / learning rate.
    From then on the period rises by one if the variance is below 0.7 · rate · C2, and falls by one if it is above 1.3 ·
    rate · C2.
    """

    sampling_steps: int = 1000
    initial_period: int = 4
    warmup_steps: int = 0

    def __post_init__(self) -> None:
        _check_at_least_one(initial_period=self.initial_period, sampling_steps=self.sampling_steps)
        if self.warmup_steps >= self.sampling_steps:
            raise SalmonError(
                f"A warm-up of {self.warmup_steps} steps leaves none of the {self.sampling_steps} sampling steps.",
                hint="Make sampling_steps larger.",
                where="ADPSGD",
            )

    def start(self) -> AveragingState:
        """Return a state with the initial period."""
        return AveragingState(period=self.initial_period)

    def decide(self, state: AveragingState, step: int) -> tuple[AveragingState, bool]:
        """Synchronise if a whole period has passed since the last time."""
        count = state.count + 1
        due = step < self.warmup_steps or count >= state.period
        return replace(state, count=0 if due else count), due

    def learn(self, state: AveragingState, step: int, variance: float, rate: float) -> AveragingState:
        """Sample C2; after the sampling steps, change the period by at most one."""
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
    """Train m independent replicas in each worker, corrected towards a central average in
    every step (Mai et al. 2019, 3.1).

    cᵢ = α(wᵢ − z);  wᵢ ← wᵢ − γgᵢ − cᵢ;  z ← z + Σcᵢ + μ(z − z_before).  `correction` is α, by default one over the
    number of all replicas; `momentum` is μ. If `count` is 0, replicas are added as long as each raises the measured
    examples per second by more than 5 %. The batch size given to `fit` is that of each replica.
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
                f"Crossbow(count={self.count}, correction={self.correction}, momentum={self.momentum}) is impossible.",
                hint="Give count ≥ 0, 0 < correction ≤ 1 and 0 ≤ momentum < 1.",
                where="Crossbow",
            )

    @property
    def replicas(self) -> int:
        """Replicas of each worker; 0 until the number has been chosen."""
        return self.count

    def step_batch(self, batch_size: int, replicas: int) -> int:
        """Return the examples of all replicas: each has a batch of its own."""
        return batch_size * replicas

    def strength(self, replicas: int) -> float:
        """Return α, the share of its distance from the central average by which each replica is corrected."""
        return 1 / replicas if self.correction is None else self.correction


def _check_at_least_one(**values: int) -> None:
    for name, value in values.items():
        if value < 1:
            raise SalmonError(f"{name} is {value}.", hint="Give a whole number of at least 1.", where=name)
