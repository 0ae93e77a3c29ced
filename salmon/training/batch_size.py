"""Rules for the number of examples in each step: constant, or growing as the model improves.

Every rule computes a *growth* that is 1, or close to 1, at the first step. The batch has ⌈initial · growth⌉ examples;
once it would exceed its maximum, the learning rate is lowered by the remaining factor instead. The variant whose name
ends in LR keeps the batch constant and divides the learning rate by the growth: both reduce the noise of a step alike
(Smith et al. 2018).
"""

from dataclasses import dataclass, replace
from math import ceil, floor, inf, isfinite, isnan, nan
from typing import ClassVar

from salmon.errors import SalmonError

# Rounding error tolerated in a product that is a whole number in exact arithmetic.
_ROUNDING = 1e-9
_SMALLEST_GAP = 1e-12


@dataclass(frozen=True)
class BatchSizeInputs:
    """The figures that a rule may use to choose the next batch.

    `step` counts finished steps and `epoch` passes over the data, fractions included. `loss` and `gradient_norm2` are
    those of the previous batch (NaN before the first step); `full_loss` and `full_gradient_norm2` are those of the
    whole training set, if the rule needs them.
    """

    step: int = 0
    epoch: float = 0.0
    loss: float = nan
    gradient_norm2: float = nan
    full_loss: float = nan
    full_gradient_norm2: float = nan


@dataclass(frozen=True)
class BatchSizeMemory:
    """What a rule keeps between steps: its first measurement, the rolling average, and the last growth.

    Rules that compare epochs keep the epoch, the sum and number of its losses, the least mean of an
    earlier one, and when they last grew.
    """

    first: float = nan
    rolling: float = nan
    growth: float = 1.0
    epoch: int = 0
    total: float = 0.0
    count: int = 0
    least: float = inf
    grown_at: int = 0


@dataclass(frozen=True)
class BatchSize:
    """A rule for the batch size: `initial` examples at first, never more than
    `maximum`, updated every `dwell` steps.
    """

    initial: int = 32
    maximum: int | None = None
    dwell: int = 1

    #: Whether growth divides the learning rate (the LR variants) instead of multiplying the batch.
    damps_rate: ClassVar[bool] = False

    def __post_init__(self) -> None:
        problems = [
            f"{name} is {value!r}, which is not a whole number of at least 1."
            for name, value in (("initial", self.initial), ("maximum", self.maximum), ("dwell", self.dwell))
            if value is not None and not (float(value).is_integer() and value >= 1)
        ]
        if self.maximum is not None and self.maximum < self.initial:
            problems.append(f"The maximum {self.maximum} is smaller than the initial batch {self.initial}.")
        problems += self._problems()
        if problems:
            raise SalmonError(" ".join(problems), hint="Correct the batch size.", where=type(self).__name__)

    @property
    def needs(self) -> str:
        """What must be computed over the whole training set before an update: "", "loss" or "gradient"."""
        return ""

    def remember(self, memory: BatchSizeMemory, inputs: BatchSizeInputs) -> BatchSizeMemory:
        """Return the memory before step `inputs.step`; the growth is updated every `dwell` steps."""
        noted = self._note(memory, inputs)
        return noted if inputs.step % self.dwell else replace(noted, growth=self._growth(noted, inputs))

    def batch_and_rate(self, growth: float) -> tuple[int, float]:
        """Return (examples of the next step, factor of the learning rate) for a growth."""
        if self.damps_rate:
            return self.initial, 1 / growth if growth > 0 else 1.0
        wanted = max(1.0, ceil(self.initial * growth - _ROUNDING) if isfinite(growth) else inf)
        if self.maximum is not None and wanted > self.maximum:
            return self.maximum, self.maximum / wanted if isfinite(wanted) else 0.0
        return int(wanted) if isfinite(wanted) else 1 << 62, 1.0

    def _note(self, memory: BatchSizeMemory, inputs: BatchSizeInputs) -> BatchSizeMemory:
        del inputs
        return memory

    def _growth(self, memory: BatchSizeMemory, inputs: BatchSizeInputs) -> float:
        del memory, inputs
        return 1.0

    def _problems(self) -> list[str]:
        return []


@dataclass(frozen=True)
class ConstantBatch(BatchSize):
    """The same number of examples in every step."""


@dataclass(frozen=True)
class GeoDamp(BatchSize):
    """growth = factor^⌊epoch / delay⌋: the batch is multiplied by `factor` every `delay` epochs (Smith et al. 2018)."""

    delay: float = 60.0
    factor: float = 5.0

    def _growth(self, memory: BatchSizeMemory, inputs: BatchSizeInputs) -> float:
        del memory
        return self.factor ** floor(inputs.epoch / self.delay + _ROUNDING)

    def _problems(self) -> list[str]:
        return _check_positive(delay=self.delay, factor=self.factor)


@dataclass(frozen=True)
class PadaDamp(BatchSize):
    """B = initial + ⌈rate · step⌉: matches the fastest decrease of a convex loss (Sievert 2021, footnote 18)."""

    rate: float = 0.1

    def _growth(self, memory: BatchSizeMemory, inputs: BatchSizeInputs) -> float:
        del memory
        return (self.initial + ceil(self.rate * inputs.step - _ROUNDING)) / self.initial

    def _problems(self) -> list[str]:
        return _check_positive(rate=self.rate)


@dataclass(frozen=True)
class PlateauDamp(BatchSize):
    """Double the batch after an epoch whose mean loss is not `tolerance` below the least one
    before; the default rule of `fit`.

    While the loss falls, more updates are worth more than less noise; once it no longer does, noise is what keeps it up
    (Smith et al. 2018 reduce the learning rate then, or increase the batch). After growing g-fold the rule waits for g
    epochs, so that the batch grows no faster than the number of epochs even where the loss has a floor.
    """

    tolerance: float = 0.01

    def _note(self, memory: BatchSizeMemory, inputs: BatchSizeInputs) -> BatchSizeMemory:
        if inputs.step and not isnan(inputs.loss):
            memory = replace(memory, total=memory.total + inputs.loss, count=memory.count + 1)
        epoch = floor(inputs.epoch + _ROUNDING)
        if epoch == memory.epoch or not memory.count:
            return replace(memory, epoch=epoch)
        mean, least = memory.total / memory.count, memory.least
        ended = replace(memory, epoch=epoch, total=0.0, count=0, least=min(mean, least))
        if not isfinite(least) or epoch - memory.grown_at < memory.growth:
            return ended
        # A loss may be negative: what counts is how far it falls.
        if mean < least - self.tolerance * abs(least):
            return ended
        return replace(ended, rolling=2 * memory.growth, grown_at=epoch)

    def _growth(self, memory: BatchSizeMemory, inputs: BatchSizeInputs) -> float:
        del inputs
        return memory.growth if isnan(memory.rolling) else memory.rolling

    def _problems(self) -> list[str]:
        return [] if 0 <= self.tolerance < 1 else [f"tolerance is {self.tolerance}, which is not in [0, 1)."]


@dataclass(frozen=True)
class AdaDamp(BatchSize):
    """B = ⌈c / (F(w) − optimum)⌉, where F is the loss over the whole training set (Sievert 2021, equation 3.3).

    With `gradient`, B = ⌈c / |∇F(w)|²⌉ (equation 3.4). If `c` is None, it is chosen so that the first batch is
    `initial`. The rule is exact, but every update costs a pass over the data: raise `dwell`, or use `RadaDamp`.
    """

    optimum: float = 0.0
    c: float | None = None
    gradient: bool = False

    @property
    def needs(self) -> str:
        """The loss or the gradient of the whole training set."""
        return "gradient" if self.gradient else "loss"

    def _note(self, memory: BatchSizeMemory, inputs: BatchSizeInputs) -> BatchSizeMemory:
        gap = self._gap(inputs)
        return replace(memory, first=gap) if isnan(memory.first) and not isnan(gap) else memory

    def _growth(self, memory: BatchSizeMemory, inputs: BatchSizeInputs) -> float:
        c = self.initial * memory.first if self.c is None else self.c
        return c / (self.initial * max(self._gap(inputs), _SMALLEST_GAP))

    def _gap(self, inputs: BatchSizeInputs) -> float:
        return inputs.full_gradient_norm2 if self.gradient else inputs.full_loss - self.optimum

    def _problems(self) -> list[str]:
        return [] if self.c is None else _check_positive(c=self.c)


@dataclass(frozen=True)
class RadaDamp(BatchSize):
    """B = ⌈initial · (d₀ − optimum) / (d − optimum)⌉ with d ← memory·d + (1 − memory)·t, t = loss
    + regularization · |gradient|².

    The rolling average approximates the loss over all data (Sievert 2021, Algorithm 1, whose optimum is 0). Where the
    loss has a floor, as with noisy labels, the batch stops growing near d₀ / floor: give a value slightly below the
    floor as `optimum`, or use `PadaDamp`.
    """

    memory: float = 0.999
    regularization: float = 1e-3
    optimum: float = 0.0

    def _note(self, memory: BatchSizeMemory, inputs: BatchSizeInputs) -> BatchSizeMemory:
        if inputs.step == 0 or isnan(inputs.loss):
            return memory
        # Methods that average parameters never form an average gradient: use the loss alone.
        norm2 = 0.0 if isnan(inputs.gradient_norm2) else inputs.gradient_norm2
        t = inputs.loss + self.regularization * norm2
        if isnan(memory.first):
            return replace(memory, first=t, rolling=t)
        return replace(memory, rolling=self.memory * memory.rolling + (1 - self.memory) * t)

    def _growth(self, memory: BatchSizeMemory, inputs: BatchSizeInputs) -> float:
        del inputs
        if isnan(memory.first):
            return 1.0
        return (memory.first - self.optimum) / max(memory.rolling - self.optimum, _SMALLEST_GAP)

    def _problems(self) -> list[str]:
        problems = [] if 0 <= self.memory < 1 else [f"memory is {self.memory}, which is not in [0, 1)."]
        return (
            problems if self.regularization >= 0 else [*problems, f"regularization {self.regularization} is below 0."]
        )


@dataclass(frozen=True)
class GeoDampLR(GeoDamp):
    """`GeoDamp` with a constant batch: its growth divides the learning rate."""

    damps_rate: ClassVar[bool] = True


@dataclass(frozen=True)
class PadaDampLR(PadaDamp):
    """`PadaDamp` with a constant batch: its growth divides the learning rate."""

    damps_rate: ClassVar[bool] = True


@dataclass(frozen=True)
class AdaDampLR(AdaDamp):
    """`AdaDamp` with a constant batch: its growth divides the learning rate."""

    damps_rate: ClassVar[bool] = True


@dataclass(frozen=True)
class RadaDampLR(RadaDamp):
    """`RadaDamp` with a constant batch: its growth divides the learning rate."""

    damps_rate: ClassVar[bool] = True


def as_batch_size(given: BatchSize | int) -> BatchSize:
    """Return a rule as it is, and a number as a constant batch."""
    return given if isinstance(given, BatchSize) else ConstantBatch(initial=given)


def _check_positive(**values: float) -> list[str]:
    return [f"{name} is {value}, which is not above 0." for name, value in values.items() if not value > 0]
