"""Who takes part: ranks that share every step, in this process or in many.

`reduce` is the only way in which gradients meet: dense ones are added up, coded ones are gathered, expanded and added up.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from salmon.distributed.state import Job, Outcome, TrainingState
from salmon.distributed.steps import Limits, run_steps
from salmon.errors import SalmonError
from salmon.parallel import SerialExecutor


class Group(Protocol):
    """Ranks that can carry a run forward."""

    @property
    def size(self) -> int:
        """Ranks that would take part now."""
        ...

    def run(self, job: Job, data: tuple[Any, ...], state: TrainingState, limits: Limits) -> Outcome:
        """Carry the run from this state to its limits, or to where something else ends it."""
        ...

    def resized(self, workers: int) -> "Group":
        """A group of so many ranks."""
        ...

    def close(self) -> None:
        """Give back what the group took."""
        ...


@dataclass(frozen=True)
class VirtualRanks:
    """All ranks of a group in one process: `reduce` is a sum."""

    size: int
    largest: int

    @property
    def local(self) -> range:
        """The ranks that live here: all."""
        return range(self.size)

    def reduce(self, vectors: torch.Tensor) -> torch.Tensor:
        """(K,) the sum of a vector of each local rank (r, K), over all ranks of the group."""
        return vectors.sum(dim=0)

    def reduce_coded(
        self, payloads: Sequence[bytes], expand: Callable[[bytes], NDArray[np.float32]]
    ) -> NDArray[np.float32]:
        """(K,) the sum of what every rank's payload stands for."""
        return np.stack([expand(payload) for payload in payloads]).sum(axis=0, dtype=np.float32)

    def asked_to_regroup(self) -> bool:
        """Never: who takes part is decided here."""
        return False

    def report(self, row: dict[str, float]) -> None:
        """Nobody watches from elsewhere."""


@dataclass(frozen=True)
class VirtualGroup:
    """So many ranks in this process, by the same code as on a cluster: for tests, and for 16 workers on a laptop.

    Policies may raise the number of ranks to `largest`.
    """

    size: int = 1
    largest: int = 1 << 10

    def __post_init__(self) -> None:
        if not 1 <= self.size <= self.largest:
            raise SalmonError(
                f"A group of {self.size} ranks (at most {self.largest}) cannot train.", hint="Give at least one rank."
            )

    def run(self, job: Job, data: tuple[Any, ...], state: TrainingState, limits: Limits) -> Outcome:
        """Carry the run forward here."""
        return run_steps(job, data, state, VirtualRanks(self.size, self.largest), limits)

    def resized(self, workers: int) -> "VirtualGroup":
        """Another number of ranks."""
        return VirtualGroup(min(workers, self.largest), self.largest)

    def close(self) -> None:
        """Nothing was taken."""


def group_on(executor: Any) -> Group:
    """A group as it is; for a Dask client or executor one rank in each worker; for None this process."""
    if executor is None or isinstance(executor, SerialExecutor):
        return VirtualGroup(1)
    if hasattr(executor, "resized"):
        return executor
    from salmon.distributed.torch_group import TorchGroup

    return TorchGroup(executor)
