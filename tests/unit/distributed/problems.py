"""Small problems that the tests of distributed training share."""

from functools import partial

import torch

from salmon.distributed import VirtualGroup, fit

ROWS, FEATURES = 120, 6


def regression(seed=0):
    """(X, y) of a noisy linear function."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(ROWS, FEATURES, generator=generator)
    truth = torch.randn(FEATURES, 1, generator=generator)
    return inputs, inputs @ truth + 0.1 * torch.randn(ROWS, 1, generator=generator)


def network(seed=1):
    """A small network, always the same."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return torch.nn.Sequential(torch.nn.Linear(FEATURES, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))


def train(ranks=1, *, module=None, rate=0.02, momentum=0.9, group=None, **options):
    """A run of a few epochs on the regression."""
    options = {"epochs": 4, "batch_size": 20, "loss": torch.nn.MSELoss(reduction="none"), **options}
    optimizer = partial(torch.optim.SGD, lr=rate, momentum=momentum)
    return fit(module or network(), regression(), optimizer, group or VirtualGroup(ranks), **options)


def losses(trained):
    """The losses of a run's steps."""
    return trained.history["loss"]
