"""A network clock: how long a recorded run would have taken on a given network.

    seconds of a step = examples of the slowest worker · seconds per example + exchange + overhead

A ring all-reduce sends and receives 2(w − 1)/w times the gradient in 2(w − 1) messages. A parameter server receives the
gradient of each worker and sends the model back, one after the other over its own link.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from salmon.errors import SalmonError
from salmon.training.batch_size import BatchSize, BatchSizeInputs, BatchSizeMemory


@dataclass(frozen=True)
class Network:
    """A network: bandwidth of each link, latency of a message, and any further overhead of each update."""

    bandwidth_gbit_s: float
    latency_us: float
    centralised: bool = False
    overhead_ms: float = 0.0

    def __post_init__(self) -> None:
        if not (self.bandwidth_gbit_s > 0 and self.latency_us >= 0):
            raise SalmonError(
                f"{self} is impossible.", hint="Give a bandwidth above 0 and a latency that is not negative."
            )

    def exchange_s(self, gradient_bytes: float, workers: int) -> float:
        """Return the seconds in which this many workers exchange a gradient of this size."""
        per_byte_s = 8 / (self.bandwidth_gbit_s * 1e9)
        latency_s = self.latency_us * 1e-6
        if self.centralised:
            return 2 * workers * (gradient_bytes * per_byte_s + latency_s)
        hops = 2 * (workers - 1)
        return hops * (gradient_bytes / workers * per_byte_s + latency_s)

    def step_s(self, batch_size: float, workers: int, *, example_s: float, gradient_bytes: float) -> float:
        """Return the seconds of one update."""
        slowest = ceil(batch_size / workers)
        return slowest * example_s + self.exchange_s(gradient_bytes, workers) + self.overhead_ms / 1e3


#: The three networks of Sievert (2021), appendix C.2.2.
CENTRALISED = Network(54, 0.05, centralised=True)
MODERATE = Network(54, 0.05)
HIGH = Network(800, 0.025)


def replay_seconds(
    batch_sizes: Iterable[float], network: Network, *, example_s: float, gradient_bytes: float,
    examples_per_worker: int | None = None, workers: int | None = None,
) -> NDArray[np.float64]:  # fmt: skip
    """Return the time (steps,) on the network's clock after each step of a recorded run.

    `batch_sizes` is a column of the history. There is either one worker for every `examples_per_worker` examples of the
    batch, or a constant number of `workers`.
    """
    if (workers is None) == (examples_per_worker is None):
        raise SalmonError("Give either workers or examples_per_worker, not both.", where="replay_seconds")
    sizes, counts = np.unique(np.asarray(list(batch_sizes), dtype=np.float64), return_inverse=True)
    each = np.array(
        [
            network.step_s(
                size,
                workers or ceil(size / (examples_per_worker or 1)),
                example_s=example_s,
                gradient_bytes=gradient_bytes,
            )
            for size in sizes
        ]
    )
    return np.cumsum(each[counts])


def plan_batches(rule: BatchSize, examples: int, epochs: int) -> NDArray[np.int64]:
    """Return the batches (steps,) of a rule that depends only on epochs and steps; the last
    one of an epoch may be smaller.
    """
    if rule.needs:
        raise SalmonError(f"{type(rule).__name__} depends on the loss: run it and replay its history.", where="rule")
    sizes: list[int] = []
    memory = BatchSizeMemory()
    for epoch in range(epochs):
        position = 0
        while position < examples:
            memory = rule.remember(memory, BatchSizeInputs(step=len(sizes), epoch=epoch + position / examples))
            sizes.append(min(rule.batch_and_rate(memory.growth)[0], examples - position))
            position += sizes[-1]
    return np.array(sizes)
