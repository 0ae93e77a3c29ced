"""How many examples each step takes: constant, or growing as the model gets better.

Every rule is a *growth*, at least in spirit 1 at the first step: the batch becomes ⌈initial · growth⌉, and once it has
reached its maximum the learning rate falls by the factor that is missing. The twin whose name ends in LR leaves the
batch alone and divides the learning rate by the growth instead (Smith et al. 2018: it is the noise of a step that counts).
"""

from dataclasses import dataclass, replace
from math import ceil, floor, inf, isfinite, isnan, nan
from typing import ClassVar

from salmon.errors import SalmonError

# What rounding may add to a product that is a whole number in exact arithmetic.
_ROUNDING = 1e-9
_SMALLEST_GAP = 1e-12


@dataclass(frozen=True)
class Seen:
    """What a rule may look at before a step.

    `step` counts finished steps, `epoch` is a real number of passes over the data, `loss` and `gradient_norm2` belong to the batch
    of the step before (NaN at first); the `full_…` ones to the whole training set, where the rule asks for them.
    """

    step: int = 0
    epoch: float = 0.0
    loss: float = nan
    gradient_norm2: float = nan
    full_loss: float = nan
    full_gradient_norm2: float = nan


@dataclass(frozen=True)
class Memory:
    """What a rule remembers: its first measure, the rolling one, and the growth it decided last."""

    first: float = nan
    rolling: float = nan
    growth: float = 1.0


@dataclass(frozen=True)
class BatchSize:
    """A rule for the batch: `initial` examples, never more than `maximum`, decided every `dwell` steps."""

    initial: int = 32
    maximum: int | None = None
    dwell: int = 1

    #: What is divided or multiplied: the batch, or the learning rate in the LR twins.
    damps_rate: ClassVar[bool] = False

    def __post_init__(self) -> None:
        problems = [
            f"{name} is {value!r}, which is no whole number from 1."
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
        """What has to be computed over the whole training set before a decision: "", "loss" or "gradient"."""
        return ""

    def remember(self, memory: Memory, seen: Seen) -> Memory:
        """The memory before step `seen.step`, with a new growth where the dwell is over."""
        noted = self._note(memory, seen)
        return noted if seen.step % self.dwell else replace(noted, growth=self._growth(noted, seen))

    def batch_and_rate(self, growth: float) -> tuple[int, float]:
        """(examples of the next step, factor of the learning rate) under a growth."""
        if self.damps_rate:
            return self.initial, 1 / growth if growth > 0 else 1.0
        wanted = max(1.0, ceil(self.initial * growth - _ROUNDING) if isfinite(growth) else inf)
        if self.maximum is not None and wanted > self.maximum:
            return self.maximum, self.maximum / wanted if isfinite(wanted) else 0.0
        return int(wanted) if isfinite(wanted) else 1 << 62, 1.0

    def _note(self, memory: Memory, seen: Seen) -> Memory:
        del seen
        return memory

    def _growth(self, memory: Memory, seen: Seen) -> float:
        del memory, seen
        return 1.0

    def _problems(self) -> list[str]:
        return []


@dataclass(frozen=True)
class ConstantBatch(BatchSize):
    """The same number of examples in every step."""


@dataclass(frozen=True)
class GeoDamp(BatchSize):
    """growth = factor^⌊epoch / delay⌋: steps up every `delay` epochs (Smith et al. 2018)."""

    delay: float = 60.0
    factor: float = 5.0

    def _growth(self, memory: Memory, seen: Seen) -> float:
        del memory
        return self.factor ** floor(seen.epoch / self.delay + _ROUNDING)

    def _problems(self) -> list[str]:
        return _not_positive(delay=self.delay, factor=self.factor)


@dataclass(frozen=True)
class PadaDamp(BatchSize):
    """B = initial + ⌈rate · step⌉: grows as the loss of a convex function falls at best (Sievert 2021, footnote 18)."""

    rate: float = 0.1

    def _growth(self, memory: Memory, seen: Seen) -> float:
        del memory
        return (self.initial + ceil(self.rate * seen.step - _ROUNDING)) / self.initial

    def _problems(self) -> list[str]:
        return _not_positive(rate=self.rate)


@dataclass(frozen=True)
class AdaDamp(BatchSize):
    """B = ⌈c / (F(w) − optimum)⌉, F the loss over the whole training set (Sievert 2021, equation 3.3).

    With `gradient`, B = ⌈c / |∇F(w)|²⌉ (equation 3.4). Without `c` it is chosen so that the first batch is `initial`.
    Exact, and as dear as a pass over the data at every decision: raise `dwell`, or take `RadaDamp`.
    """

    optimum: float = 0.0
    c: float | None = None
    gradient: bool = False

    @property
    def needs(self) -> str:
        """The whole loss, or the whole gradient."""
        return "gradient" if self.gradient else "loss"

    def _note(self, memory: Memory, seen: Seen) -> Memory:
        gap = self._gap(seen)
        return replace(memory, first=gap) if isnan(memory.first) and not isnan(gap) else memory

    def _growth(self, memory: Memory, seen: Seen) -> float:
        c = self.initial * memory.first if self.c is None else self.c
        return c / (self.initial * max(self._gap(seen), _SMALLEST_GAP))

    def _gap(self, seen: Seen) -> float:
        return seen.full_gradient_norm2 if self.gradient else seen.full_loss - self.optimum

    def _problems(self) -> list[str]:
        return [] if self.c is None else _not_positive(c=self.c)


@dataclass(frozen=True)
class RadaDamp(BatchSize):
    """B = ⌈initial · d₀ / d⌉ with d ← memory·d + (1 − memory)·t, t = loss + regularization · |gradient|² of each batch.

    The rolling average stands for the loss over all data (Sievert 2021, Algorithm 1).
    """

    memory: float = 0.999
    regularization: float = 1e-3

    def _note(self, memory: Memory, seen: Seen) -> Memory:
        if seen.step == 0 or isnan(seen.loss):
            return memory
        # Where only parameters are averaged no average gradient is formed, and the loss has to do.
        norm2 = 0.0 if isnan(seen.gradient_norm2) else seen.gradient_norm2
        t = seen.loss + self.regularization * norm2
        if isnan(memory.first):
            return replace(memory, first=t, rolling=t)
        return replace(memory, rolling=self.memory * memory.rolling + (1 - self.memory) * t)

    def _growth(self, memory: Memory, seen: Seen) -> float:
        del seen
        return 1.0 if isnan(memory.first) else memory.first / max(memory.rolling, _SMALLEST_GAP)

    def _problems(self) -> list[str]:
        problems = [] if 0 <= self.memory < 1 else [f"memory is {self.memory}, which is not from 0 up to 1."]
        return (
            problems if self.regularization >= 0 else [*problems, f"regularization {self.regularization} is below 0."]
        )


@dataclass(frozen=True)
class GeoDampLR(GeoDamp):
    """The learning rate divided by what `GeoDamp` multiplies the batch by."""

    damps_rate: ClassVar[bool] = True


@dataclass(frozen=True)
class PadaDampLR(PadaDamp):
    """The learning rate divided by what `PadaDamp` multiplies the batch by."""

    damps_rate: ClassVar[bool] = True


@dataclass(frozen=True)
class AdaDampLR(AdaDamp):
    """The learning rate divided by what `AdaDamp` multiplies the batch by."""

    damps_rate: ClassVar[bool] = True


@dataclass(frozen=True)
class RadaDampLR(RadaDamp):
    """The learning rate divided by what `RadaDamp` multiplies the batch by."""

    damps_rate: ClassVar[bool] = True


def as_batch_size(given: BatchSize | int) -> BatchSize:
    """A rule; a number is a constant batch."""
    return given if isinstance(given, BatchSize) else ConstantBatch(initial=given)


def _not_positive(**values: float) -> list[str]:
    return [f"{name} is {value}, which is not above 0." for name, value in values.items() if not value > 0]
