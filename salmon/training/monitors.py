"""Monitors: quantities measured during training from numbers that are exchanged with the gradients anyway.

A monitor is pure: it starts with an empty memory, returns a new memory for each measured step, and computes its value
from it. Monitors that need norms of gradients measure every second step, so that they cost less than 2 % of a step even
if a step takes less than a millisecond.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan, nan
from typing import Protocol

from salmon.errors import SalmonError

MonitorMemory = Mapping[str, float]


@dataclass(frozen=True)
class StepMeasurement:
    """Loss and gradient norms of one step.

    `local_norm2` is the mean of |gradient|² over workers with `local_batch` examples each, `norm2` that of the averaged
    gradient before compression. Both are NaN if no average gradient was formed.
    """

    step: int
    batch_size: float
    local_batch: float
    loss: float
    local_norm2: float = nan
    norm2: float = nan

    @property
    def signal_and_noise(self) -> tuple[float, float]:
        """(|G|², S) from the norms at two batch sizes: b for each worker and B for all together.

        |G|² = (B|g_B|² − b|g_b|²) / (B − b),  S = (|g_b|² − |g_B|²) / (1/b − 1/B);  NaN if b = B.
        """
        b, whole = self.local_batch, self.batch_size
        if not whole > b > 0:
            return nan, nan
        signal = (whole * self.norm2 - b * self.local_norm2) / (whole - b)
        return signal, (self.local_norm2 - self.norm2) / (1 / b - 1 / whole)


class Monitor(Protocol):
    """A quantity that is measured during training; `name` is its column in the history."""

    @property
    def name(self) -> str:
        """Return the column in the history."""
        ...

    @property
    def needs_gradients(self) -> bool:
        """Whether the norms of the workers' gradients must be measured."""
        ...

    @property
    def every(self) -> int:
        """Return the number of steps between two measurements; the value stays the same in between."""
        ...

    def update(self, memory: MonitorMemory, measurement: StepMeasurement) -> MonitorMemory:
        """Return the memory after a step; it is empty before the first."""
        ...

    def value(self, memory: MonitorMemory) -> float:
        """Return the value shown in the history."""
        ...


@dataclass(frozen=True)
class SmoothedLoss:
    """Exponential moving average of the loss of the batches."""

    smoothing: float = 0.95
    name: str = "smoothed_loss"
    needs_gradients: bool = False
    every: int = 1

    def update(self, memory: MonitorMemory, measurement: StepMeasurement) -> MonitorMemory:
        """Add the loss of one batch."""
        return _smooth(memory, self.smoothing, loss=measurement.loss)

    def value(self, memory: MonitorMemory) -> float:
        """Return the average loss."""
        return _unbias(memory, "loss")


@dataclass(frozen=True)
class GradientVariance:
    """Smoothed variance of one example's gradient, summed over parameters: S = (|g_b|² − |g_B|²) / (1/b − 1/B)."""

    smoothing: float = 0.95
    name: str = "gradient_variance"
    needs_gradients: bool = True
    every: int = 2

    def update(self, memory: MonitorMemory, measurement: StepMeasurement) -> MonitorMemory:
        """Add the estimate of one step."""
        return _smooth(memory, self.smoothing, variance=measurement.signal_and_noise[1])

    def value(self, memory: MonitorMemory) -> float:
        """Return the variance; a negative estimate becomes 0."""
        return max(0.0, _unbias(memory, "variance"))


@dataclass(frozen=True)
class NoiseScale:
    """Gradient noise scale S / |G|²: the batch at which noise equals signal (McCandlish et al. 2018, appendix A).

    Numerator and denominator are unbiased in every step and smoothed before the division. At least two workers must
    share the step.
    """

    smoothing: float = 0.95
    name: str = "noise_scale"
    needs_gradients: bool = True
    every: int = 2

    def update(self, memory: MonitorMemory, measurement: StepMeasurement) -> MonitorMemory:
        """Add the estimates of one step."""
        signal, noise = measurement.signal_and_noise
        return _smooth(memory, self.smoothing, signal=signal, noise=noise)

    def value(self, memory: MonitorMemory) -> float:
        """Return the noise scale in examples; NaN until the smoothed signal is positive."""
        signal = _unbias(memory, "signal")
        return max(0.0, _unbias(memory, "noise")) / signal if signal > 0 else nan


def check_monitors(monitors: tuple[Monitor, ...]) -> None:
    """Refuse two monitors with the same column, and a monitor that never measures."""
    for monitor in monitors:
        if monitor.every < 1:
            raise SalmonError(
                f"The monitor {monitor.name} measures every {monitor.every} steps.",
                hint="Give a whole number of at least 1.",
                where="every",
            )
    names = [monitor.name for monitor in monitors]
    for name in names:
        if names.count(name) > 1:
            raise SalmonError(f"Two monitors are called {name!r}.", hint="Give one of them another name.", where=name)


def _smooth(memory: MonitorMemory, smoothing: float, **values: float) -> MonitorMemory:
    """Return exponential averages that start at 0, with their accumulated weight; a NaN leaves the memory unchanged."""
    averages = {"weight": smoothing * memory.get("weight", 0.0) + 1 - smoothing}
    for name, value in values.items():
        if isnan(value):
            return memory
        averages[name] = smoothing * memory.get(name, 0.0) + (1 - smoothing) * value
    return averages


def _unbias(memory: MonitorMemory, name: str) -> float:
    """Divide an average by its accumulated weight; NaN before the first measurement."""
    return memory[name] / memory["weight"] if memory else nan
