"""A clock for a network that is not here: what a recorded run would have taken on it.

    seconds of a step = slowest worker's examples · seconds an example + exchange + overhead

All-reduce in a ring sends and receives 2(w − 1)/w times the gradient in 2(w − 1) messages; a parameter server moves the
gradient of each worker in and the model out, one after the other through its own link.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from salmon.distributed.batch_size import BatchSize, Memory, Seen
from salmon.errors import SalmonError


@dataclass(frozen=True)
class Network:
    """A network: the bandwidth of each link, the latency of a message, and what else each update costs."""

    bandwidth_gbit_s: float
    latency_us: float
    centralised: bool = False
    overhead_ms: float = 0.0

    def __post_init__(self) -> None:
        if not (self.bandwidth_gbit_s > 0 and self.latency_us >= 0):
            raise SalmonError(f"{self} carries nothing.", hint="Give a bandwidth above 0 and a latency from 0.")

    def exchange_s(self, gradient_bytes: float, workers: int) -> float:
        """Seconds in which so many workers exchange a gradient of so many bytes."""
        per_byte_s = 8 / (self.bandwidth_gbit_s * 1e9)
        latency_s = self.latency_us * 1e-6
        if self.centralised:
            return 2 * workers * (gradient_bytes * per_byte_s + latency_s)
        hops = 2 * (workers - 1)
        return hops * (gradient_bytes / workers * per_byte_s + latency_s)

    def step_s(self, batch_size: float, workers: int, *, example_s: float, gradient_bytes: float) -> float:
        """Seconds of one update."""
        slowest = ceil(batch_size / workers)
        return slowest * example_s + self.exchange_s(gradient_bytes, workers) + self.overhead_ms / 1e3


#: The three networks of Sievert (2021), appendix C.2.2.
CENTRALISED = Network(54, 0.05, centralised=True)
MODERATE = Network(54, 0.05)
HIGH = Network(800, 0.025)


def replayed_s(
    batch_sizes: Iterable[float], network: Network, *, example_s: float, gradient_bytes: float,
    examples_per_worker: int | None = None, workers: int | None = None,
) -> NDArray[np.float64]:  # fmt: skip
    """(steps,) the time on the network's clock after each step of a recorded run.

    `batch_sizes` is a column of the history. The workers follow the batch, one for every `examples_per_worker`, or are
    so many throughout.
    """
    if (workers is None) == (examples_per_worker is None):
        raise SalmonError("Either the workers or the examples of each must be given, and not both.", where="replayed_s")
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


def planned_batches(rule: BatchSize, examples: int, epochs: int) -> NDArray[np.int64]:
    """(steps,) the batches that a rule which only looks at epochs and steps takes; the last of an epoch is what is left."""
    if rule.needs:
        raise SalmonError(f"{type(rule).__name__} looks at the loss: run it and replay its history.", where="rule")
    sizes: list[int] = []
    memory = Memory()
    for epoch in range(epochs):
        position = 0
        while position < examples:
            memory = rule.remember(memory, Seen(step=len(sizes), epoch=epoch + position / examples))
            sizes.append(min(rule.batch_and_rate(memory.growth)[0], examples - position))
            position += sizes[-1]
    return np.array(sizes)


def fitted_overhead_ms(reported_s: float, modelled_s: float, updates: int) -> float:
    """The overhead of each update that explains what a run took beyond the model, in milliseconds."""
    return 1e3 * (reported_s - modelled_s) / updates
