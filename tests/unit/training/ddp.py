"""Two ranks of torch's DistributedDataParallel with a compression hook, in two separate processes for each hook.

    python -m tests.unit.training.ddp STORE_PORT FOLDER

torch occasionally hangs while it destroys a model with a Python hook. These ranks therefore exit without destroying
anything, and the parent process kills both if they do not exit in time.
"""

import os
import signal
import subprocess
import sys
from copy import deepcopy
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from salmon.training import QSGD, compression_hook, rounding_hook
from tests.program import REPOSITORY
from tests.unit.training.problems import network, regression

_TIMEOUT = timedelta(seconds=60)


#: name -> hook.
HOOKS = {
    "QSGD, 16 bits": lambda: compression_hook(QSGD(16)),
    "rounded to 8 bits": lambda: rounding_hook(8, bucket_size=16),
}


def train_with_hooks(folder):
    """Return for each hook the parameters of both ranks, and those of plain gradient descent on all rows."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=_TIMEOUT)
    running = subprocess.Popen(
        (sys.executable, "-m", "tests.unit.training.ddp", str(store.port), str(folder)),
        cwd=REPOSITORY, env={**os.environ, "OMP_NUM_THREADS": "1"}, start_new_session=True,
    )  # fmt: skip
    with running:
        try:
            assert running.wait(timeout=_TIMEOUT.total_seconds()) == 0
        finally:
            if running.returncode is None:
                os.killpg(running.pid, signal.SIGKILL)
    alone = descend(deepcopy(network()), slice(None))
    return {hook: (*(np.load(folder / f"{hook} {rank}.npy") for rank in (0, 1)), alone) for hook in HOOKS}


def descend(model, rows):
    """Take ten steps of gradient descent on some rows and return the parameters."""
    inputs, labels = regression()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for _ in range(10):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs[rows]), labels[rows]).backward()
        optimizer.step()
    return np.concatenate([each.detach().numpy().ravel() for each in model.parameters()])


def one_rank(port, rank, folder, hook):
    """Train one rank on its half of the batch and save its parameters."""
    store = dist.PrefixStore(hook, dist.TCPStore("127.0.0.1", port, is_master=False, timeout=_TIMEOUT))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=_TIMEOUT)
    model = torch.nn.parallel.DistributedDataParallel(network())
    model.register_comm_hook(None, HOOKS[hook]())
    np.save(folder / f"{hook} {rank}.npy", descend(model, slice(rank, None, 2)))
    dist.barrier()
    os._exit(0)


def main():
    port, folder = int(sys.argv[1]), Path(sys.argv[2])
    torch.set_num_threads(1)
    # torch is imported only once; forking is safe because this process never starts a thread.
    children = []
    for hook in HOOKS:
        for rank in (0, 1):
            if not (child := os.fork()):
                one_rank(port, rank, folder, hook)
            children.append(child)
    sys.exit(max([os.waitpid(child, 0)[1] for child in children]) > 0)


if __name__ == "__main__":
    main()
