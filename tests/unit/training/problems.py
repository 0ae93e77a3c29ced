"""Small problems shared by the tests of training."""

import os
import signal
import sys
from functools import partial
from pathlib import Path

import torch

from salmon.training import VirtualGroup, fit

ROWS, FEATURES = 120, 6


def regression(seed=0):
    """Return (X, y) of a noisy linear function."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(ROWS, FEATURES, generator=generator)
    truth = torch.randn(FEATURES, 1, generator=generator)
    return inputs, inputs @ truth + 0.1 * torch.randn(ROWS, 1, generator=generator)


def network(seed=1):
    """Return a small network, always the same."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return torch.nn.Sequential(torch.nn.Linear(FEATURES, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))


def train(ranks=1, *, module=None, data=None, optimizer=None, rate=0.02, momentum=0.9, group=None, **options):
    """Train for a few epochs on the regression."""
    options = {"epochs": 4, "batch_size": 20, "loss": torch.nn.MSELoss(reduction="none"), **options}
    optimizer = optimizer or partial(torch.optim.SGD, lr=rate, momentum=momentum)
    return fit(module or network(), data or regression(), optimizer, group or VirtualGroup(ranks), **options)


def losses(trained):
    """Return the loss of each step."""
    return trained.history["loss"]


class DieOnce:
    """A policy that kills the first worker that reaches a step; a file records that it happened."""

    def __init__(self, path, step):
        self.path, self.step = str(path), step

    def __call__(self, figures, plan):
        if figures["step"] >= self.step:
            try:
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return plan
            os.kill(os.getpid(), signal.SIGKILL)
        return plan


class UntilRejoined:
    """End a run a few steps after a worker has died, when this many workers take part again."""

    def __init__(self, path, workers):
        self.path, self.workers = str(path), workers

    def __call__(self, row):
        return Path(self.path).exists() and row["workers"] == self.workers and row["step"] % 7 == 0


def print_step(module):
    """Write a line to the output at each step."""
    sys.stdout.write("step\n")
    sys.stdout.flush()
    return {}


def fails(output, target):
    """Raise an error."""
    raise ZeroDivisionError("the loss failed")
