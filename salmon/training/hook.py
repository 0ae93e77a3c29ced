"""A communication hook for torch's DistributedDataParallel that compresses gradients, for groups that never change."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed import GradBucket  # pyright: ignore[reportPrivateImportUsage] - where torch documents it

from salmon.training.compression import Compression


def compression_hook(compression: Compression, *, seed: int = 0, group: Any = None) -> Callable[[Any, Any], Any]:
    """Return a hook for `model.register_comm_hook(None, hook)`: ranks gather all compressed gradients and average them.

    `group` is a process group; None is the default one. Each bucket of each step uses different random numbers.
    """
    calls = 0

    # torch checks these two annotations and refuses others.
    def hook(state: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        nonlocal calls
        del state
        calls += 1
        gradients = bucket.gradients()
        shapes = [tuple(each.shape) for each in gradients]
        flat = torch.cat([each.detach().reshape(-1) for each in gradients]).float().cpu().numpy()
        rank, size = dist.get_rank(group), dist.get_world_size(group)
        payload = compression.compress(flat, shapes, np.random.default_rng([seed, calls, rank]))

        def all_gather(parts: list[torch.Tensor], own: torch.Tensor) -> None:
            dist.all_gather(parts, own, group=group)

        payloads = gather_bytes(payload, size, all_gather)
        total = np.stack([compression.expand(each, shapes) for each in payloads]).sum(axis=0, dtype=np.float32)
        start = 0
        for each in gradients:
            part = torch.from_numpy(total[start : start + each.numel()] / size)
            each.copy_(part.view_as(each))
            start += each.numel()
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    return hook


def gather_bytes(
    payload: bytes, size: int, all_gather: Callable[[list[torch.Tensor], torch.Tensor], Any]
) -> list[bytes]:
    """Gather the payloads of all ranks in rank order: first their lengths, then their bytes, padded to the longest."""
    own = torch.tensor([len(payload)])
    lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(size)]
    all_gather(lengths, own)
    longest = max(int(each) for each in lengths)
    padded = torch.zeros(longest, dtype=torch.uint8)
    padded[: len(payload)] = torch.frombuffer(bytearray(payload), dtype=torch.uint8)
    parts = [torch.empty(longest, dtype=torch.uint8) for _ in range(size)]
    all_gather(parts, padded)
    return [part[: int(length)].numpy().tobytes() for part, length in zip(parts, lengths, strict=True)]
