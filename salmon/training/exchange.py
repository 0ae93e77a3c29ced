"""What a step exchanges with the other ranks of its group, and when: a large gradient in
parts, during the backward pass.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from salmon.training.state import HistoryRow

#: Numbers that travel with every exchange: summed loss, examples, squared norm of a rank's gradient, request to
#: regroup, request to finish.
NOTES = 5
# Entries of the parts in which a large gradient is exchanged while the backward pass goes on: 1 MB in float32.
_PART = 1 << 18


class Ranks(Protocol):
    """What a step knows about its group."""

    @property
    def size(self) -> int:
        """Return the number of ranks in the group."""
        ...

    @property
    def largest(self) -> int:
        """Return the number of ranks to which the group could grow."""
        ...

    @property
    def local(self) -> range:
        """Return the ranks that run in this process."""
        ...

    @property
    def bytes_sent(self) -> int:
        """Return the bytes that all ranks together have sent to each other so far."""
        ...

    def reduce(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return the sum (K,) over all ranks of the group, given one vector for each local rank (r, K)."""
        ...

    def reduce_coded(
        self, payloads: Sequence[bytes], expand: Callable[[bytes], NDArray[np.float32]]
    ) -> NDArray[np.float32]:
        """Return the sum (K,) of the expanded payloads of all ranks."""
        ...

    def gather(self, vectors: torch.Tensor) -> torch.Tensor | None:
        """Return the vectors of all ranks (n, K) in rank order, or None if they are too long to be gathered."""
        ...

    def begin_reduce(self, vectors: torch.Tensor) -> Callable[[], torch.Tensor]:
        """Begin to add up vectors (r, K), which may be changed; return a function that waits
        for the sum (K,) and returns it.
        """
        ...

    def while_waiting(self, task: Callable[[], None] | None) -> None:
        """Call a function once, while the next exchange is under way; never if exchanges do not
        wait. None takes the last one back.
        """
        ...

    def asked_to_regroup(self) -> bool:
        """Whether the driver wants to change which workers take part."""
        ...

    def report(self, row: HistoryRow) -> None:
        """Publish a row for observers."""
        ...


class LayerExchange:
    """Add up gradients over all ranks, in parts of whole layers that are sent as soon as the
    backward pass has computed them.

    All ranks send the parts in the same order, the last layers first. Gradients that a backward pass does not announce,
    such as those of layers that a batch does not use, follow at its end. Notes travel with the last part.
    """

    def __init__(self, sizes: Sequence[int], ranks: Ranks, dtype: torch.dtype) -> None:
        self._ranks = ranks
        ends = np.cumsum([NOTES, *sizes]).tolist()
        self._columns = [slice(start, stop) for start, stop in pairwise(ends)]
        self._parts = divide_layers(sizes)
        self._sum = torch.empty(len(ranks.local), ends[-1], dtype=dtype)
        self._batch_size = 1
        self._announced: set[int] = set()
        self._under_way: list[Callable[[], torch.Tensor]] = []

    def begin(self, batch_size: int) -> Callable[[int, torch.Tensor | None], None]:
        """Return what takes the gradient of each layer, summed over examples; it is divided
        by the batch size of all ranks.
        """
        self._batch_size, self._under_way = batch_size, []
        self._announced.clear()
        return self._add

    def finish(self, gradients: torch.Tensor, notes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Send what is left of the gradients (r, P), and the notes; return (sum of the
        gradients (P,), sum of the notes).
        """
        for part in self._parts[len(self._under_way) :]:
            for layer in part:
                columns = self._columns[layer]
                own = gradients[:, columns.start - NOTES : columns.stop - NOTES]
                torch.div(own, self._batch_size, out=self._sum[:, columns])
            if part is self._parts[-1]:
                self._sum[:, :NOTES] = notes
            self._send(part)
        sums = [wait() for wait in self._under_way]
        # Parts are in the order in which they were sent.
        total = torch.cat(sums[::-1])
        return total[NOTES:], total[:NOTES]

    def _add(self, layer: int, gradient: torch.Tensor | None) -> None:
        own = self._sum[0, self._columns[layer]]
        if gradient is None:  # torch says so of a layer that the batch has not used
            own.zero_()
        else:
            torch.div(gradient, self._batch_size, out=own)
        self._announced.add(layer)
        # The last part waits for the notes.
        while len(self._under_way) < len(self._parts) - 1:
            part = self._parts[len(self._under_way)]
            if not self._announced.issuperset(part):
                break
            self._send(part)

    def _send(self, part: range) -> None:
        first = 0 if part is self._parts[-1] else self._columns[part[0]].start
        self._under_way.append(self._ranks.begin_reduce(self._sum[:, first : self._columns[part[-1]].stop]))


def divide_layers(sizes: Sequence[int]) -> list[range]:
    """Return neighbouring layers that are exchanged together, the last ones first: as few
    as have the entries of one part.
    """
    parts: list[range] = []
    stop, entries = len(sizes), 0
    for layer in reversed(range(len(sizes))):
        entries += sizes[layer]
        if entries >= _PART or layer == 0:
            parts.append(range(layer, stop))
            stop, entries = layer, 0
    return parts
