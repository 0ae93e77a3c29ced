"""What carries vectors and payloads between the ranks of a group of processes."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol

import torch
from torch.distributed import ProcessGroupGloo  # pyright: ignore[reportPrivateImportUsage] - where torch documents it

from salmon.distributed.hook import gather_bytes
from salmon.distributed.ring import Ring
from salmon.errors import SalmonError


class Links(Protocol):
    """The ways from one rank to the others. What is lost raises a RuntimeError."""

    def all_reduce(self, vector: torch.Tensor) -> None:
        """Write the sum of all ranks' vectors (K,) into this one."""
        ...

    def all_gather(self, payload: bytes) -> list[bytes]:
        """The payloads of all ranks, in their order."""
        ...

    def close(self) -> None:
        """Leave: whoever still waits for this rank hears at once that it is gone."""
        ...


class GlooLinks:
    """Torch's own library for processors, which works in threads of its own."""

    def __init__(self, group: Any, size: int) -> None:
        self._group, self._size = group, size

    @classmethod
    def meet(cls, store: Any, rank: int, size: int, *, host: str, timeout_s: float) -> "GlooLinks":
        """A group of gloo's; it finds the network by itself."""
        del host
        return cls(ProcessGroupGloo(store, rank, size, timedelta(seconds=timeout_s)), size)

    def all_reduce(self, vector: torch.Tensor) -> None:
        """Its all-reduce."""
        self._group.allreduce([vector]).wait()

    def all_gather(self, payload: bytes) -> list[bytes]:
        """Its all-gather, of tensors of one length."""
        return gather_bytes(payload, self._size, lambda parts, own: self._group.allgather([parts], [own]).wait())

    def close(self) -> None:
        """Give up what is under way."""
        self._group.abort()


#: What `TorchGroup(links=…)` may be.
LINKS: dict[str, Callable[..., Links]] = {"ring": Ring.meet, "gloo": GlooLinks.meet}


def check_links(name: str) -> None:
    """Refuse a name that stands for nothing."""
    if name not in LINKS:
        raise SalmonError(
            f"There are no links called {name!r}.", hint=f"Take one of: {', '.join(LINKS)}.", where="links"
        )
