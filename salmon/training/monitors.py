"""What is measured while training, from numbers that the exchange of gradients carries anyway.

A monitor is pure: a memory before the first step, a new memory from each measured step, and the value it shows. Those that need norms of
gradients measure every second step, so that they cost less than a fiftieth of a step also where a step takes less than a millisecond.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan, nan
from typing import Protocol

from salmon.errors import SalmonError

Remembered = Mapping[str, float]


@dataclass(frozen=True)
class Measured:
    """One step: `local_norm2` is the mean of |gradient|² over workers of `local_batch` examples each, `norm2` that of the average.

    All are NaN where no average gradient was formed.
    """

    step: int
    batch_size: float
    local_batch: float
    loss: float
    local_norm2: float = nan
    norm2: float = nan

    @property
    def signal_and_noise(self) -> tuple[float, float]:
        """(|G|², S) from the norms at two batch sizes, b a worker and B together.

        |G|² = (B|g_B|² − b|g_b|²) / (B − b),  S = (|g_b|² − |g_B|²) / (1/b − 1/B);  NaN where b = B.
        """
        b, whole = self.local_batch, self.batch_size
        if not whole > b > 0:
            return nan, nan
        signal = (whole * self.norm2 - b * self.local_norm2) / (whole - b)
        return signal, (self.local_norm2 - self.norm2) / (1 / b - 1 / whole)


class Monitor(Protocol):
    """Something worth watching; `name` is its column in the history."""

    @property
    def name(self) -> str:
        """The column in the history."""
        ...

    @property
    def needs_gradients(self) -> bool:
        """Whether the norms of the workers' gradients must be measured."""
        ...

    @property
    def every(self) -> int:
        """Steps from one measurement to the next; between them the value stays."""
        ...

    def update(self, memory: Remembered, measured: Measured) -> Remembered:
        """The memory after a step; it is empty before the first."""
        ...

    def value(self, memory: Remembered) -> float:
        """What the history shows."""
        ...


@dataclass(frozen=True)
class SmoothedLoss:
    """The loss of the batches, as an exponential average."""

    smoothing: float = 0.95
    name: str = "smoothed_loss"
    needs_gradients: bool = False
    every: int = 1

    def update(self, memory: Remembered, measured: Measured) -> Remembered:
        """One more batch."""
        return _smoothed(memory, self.smoothing, loss=measured.loss)

    def value(self, memory: Remembered) -> float:
        """In the units of the loss."""
        return _unbiased(memory, "loss")


@dataclass(frozen=True)
class GradientVariance:
    """S = (|g_b|² − |g_B|²) / (1/b − 1/B): the variance of one example's gradient, summed over parameters and smoothed."""

    smoothing: float = 0.95
    name: str = "gradient_variance"
    needs_gradients: bool = True
    every: int = 2

    def update(self, memory: Remembered, measured: Measured) -> Remembered:
        """One more step."""
        return _smoothed(memory, self.smoothing, variance=measured.signal_and_noise[1])

    def value(self, memory: Remembered) -> float:
        """Never below 0, which the estimate of a single step can be."""
        return max(0.0, _unbiased(memory, "variance"))


@dataclass(frozen=True)
class NoiseScale:
    """S / |G|²: the batch at which noise and signal of the gradient weigh the same (McCandlish et al. 2018, appendix A).

    Both are unbiased in every step and smoothed before they are divided. Two workers at least have to share the step.
    """

    smoothing: float = 0.95
    name: str = "noise_scale"
    needs_gradients: bool = True
    every: int = 2

    def update(self, memory: Remembered, measured: Measured) -> Remembered:
        """One more step."""
        signal, noise = measured.signal_and_noise
        return _smoothed(memory, self.smoothing, signal=signal, noise=noise)

    def value(self, memory: Remembered) -> float:
        """In examples; NaN while the smoothed signal is not above 0."""
        signal = _unbiased(memory, "signal")
        return max(0.0, _unbiased(memory, "noise")) / signal if signal > 0 else nan


def check_monitors(monitors: tuple[Monitor, ...]) -> None:
    """Refuse two monitors that would write one column, and one that never measures."""
    for monitor in monitors:
        if monitor.every < 1:
            raise SalmonError(
                f"The monitor {monitor.name} measures every {monitor.every} steps.",
                hint="Give a whole number from 1.",
                where="every",
            )
    names = [monitor.name for monitor in monitors]
    for name in names:
        if names.count(name) > 1:
            raise SalmonError(f"Two monitors are called {name!r}.", hint="Give one of them another name.", where=name)


def _smoothed(memory: Remembered, smoothing: float, **seen: float) -> Remembered:
    """Exponential averages from 0, with the weight that they have gathered; a NaN leaves all as it was."""
    averaged = {"weight": smoothing * memory.get("weight", 0.0) + 1 - smoothing}
    for name, value in seen.items():
        if isnan(value):
            return memory
        averaged[name] = smoothing * memory.get(name, 0.0) + (1 - smoothing) * value
    return averaged


def _unbiased(memory: Remembered, name: str) -> float:
    return memory[name] / memory["weight"] if memory else nan
