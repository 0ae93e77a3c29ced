"""Two ranks of torch's own DistributedDataParallel with a compressing hook, in the workers of a cluster."""

from copy import deepcopy
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist

from salmon.distributed import QSGD, compression_hook
from tests.unit.distributed.problems import network, regression

#: Models of ranks that are done: torch now and then hangs where it takes a model with a hook of Python's apart.
KEPT = []


def one_rank(host, port, rank):
    """The parameters after a few steps of one rank, each on its half of the batch."""
    store = dist.TCPStore(host, port, is_master=False, timeout=timedelta(seconds=60))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    try:
        model = torch.nn.parallel.DistributedDataParallel(network())
        KEPT.append(model)
        model.register_comm_hook(None, compression_hook(QSGD(16)))
        return descend(model, slice(rank, None, 2))
    finally:
        dist.destroy_process_group()


def descend(model, rows):
    """Ten steps of gradient descent on some rows; the parameters after them."""
    inputs, labels = regression()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for _ in range(10):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs[rows]), labels[rows]).backward()
        optimizer.step()
    return np.concatenate([each.detach().numpy().ravel() for each in model.parameters()])


def trained_with_hook(executor):
    """The parameters of both ranks, and those of plain gradient descent on all rows."""
    store = dist.TCPStore(executor.host, 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=60))
    tasks = [
        executor.submit_at(address, one_rank, executor.host, store.port, rank, name=f"ddp-{rank}")
        for rank, address in enumerate(executor.addresses()[:2])
    ]
    first, second = (task.result() for task in tasks)
    return first, second, descend(deepcopy(network()), slice(None))
