"""The problems on which training is measured; none needs a download."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

from salmon.noise import PowerTSTE

CROSS_ENTROPY = nn.CrossEntropyLoss(reduction="none")
SQUARED = nn.MSELoss(reduction="none")


@dataclass(frozen=True)
class Problem:
    """Training and test tensors of one seed, a module with a fixed initialisation, and its loss for each example."""

    train: tuple[torch.Tensor, ...]
    test: tuple[torch.Tensor, ...]
    module: Any
    loss: Any
    #: Training and test loss of the best linear function, if there is one.
    least: tuple[float, float] = (0.0, 0.0)

    def fresh(self) -> nn.Module:
        """Return the untrained module."""
        return self.module()

    def judge(self, module: nn.Module) -> dict[str, float]:
        """Return the loss on the test set and, for classes, the accuracy."""
        output = module(*self.test[:-1])
        found = {"test_loss": float(self.loss(output, self.test[-1]).mean())}
        if self.loss is CROSS_ENTROPY:
            found["test_accuracy"] = float((output.argmax(dim=1) == self.test[-1]).float().mean())
        return found


def judge_on_clock(problem: Problem) -> Callable[[nn.Module], dict[str, float]]:
    """Return a function for `watch` that judges a module and adds `cpu_s`: seconds of processor time since
    now, without those of judging.

    Other work on the machine changes them far less than time on the wall.
    """
    start, judged = time.process_time(), 0.0

    def judge(module: nn.Module) -> dict[str, float]:
        nonlocal judged
        before = time.process_time()
        found = {**problem.judge(module), "cpu_s": before - start - judged}
        judged += time.process_time() - before
        return found

    return judge


def build_seeded(make: Any, seed: int) -> nn.Module:
    """Build a module whose parameters are initialised from a seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def linear_network(seed: int, d: int = 100, n: int = 10_000, held_out: int = 2_000) -> Problem:
    """Return Y = ⟨x, w*⟩ + N(0, d/100) to be learned by three linear layers (Sievert 2021, 3.1.4.1)."""
    rng = np.random.default_rng(seed)
    inputs = rng.standard_normal((n, d))
    labels = inputs @ rng.standard_normal(d) + rng.normal(0, (d / 100) ** 0.5, n)
    cut = n - held_out
    best = np.linalg.lstsq(inputs[:cut], labels[:cut], rcond=None)[0]
    errors = (labels - inputs @ best) ** 2
    tensors = torch.from_numpy(inputs).float(), torch.from_numpy(labels[:, None]).float()
    layers = partial(
        build_seeded, lambda: nn.Sequential(nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False), nn.Linear(d, 1, bias=False)),
        seed,
    )  # fmt: skip
    return Problem(
        tuple(each[:cut] for each in tensors), tuple(each[cut:] for each in tensors), layers, SQUARED,
        (float(errors[:cut].mean()), float(errors[cut:].mean())),
    )  # fmt: skip


def digits(seed: int, *, convolutions: bool = False, held_out: int = 360) -> Problem:
    """Return scikit-learn's 1,797 digits with a small network, or a convolutional one of about 20,000 parameters."""
    inputs, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(inputs))
    shape = (-1, 1, 8, 8) if convolutions else (-1, 64)
    tensors = torch.from_numpy(inputs[order] / 16).float().view(*shape), torch.from_numpy(labels[order]).long()

    def network() -> nn.Module:
        if not convolutions:
            return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        return nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 10),
        )  # fmt: skip

    cut = len(inputs) - held_out
    return Problem(
        tuple(each[:cut] for each in tensors), tuple(each[cut:] for each in tensors), partial(build_seeded, network, seed),
        CROSS_ENTROPY,
    )  # fmt: skip


def scattered_digits(seed: int, *, copies: int = 5, rows: int = 6_400, field: int = 12, noise: float = 0.3) -> Problem:
    """Return the digits, each at five random positions of a larger noisy field, so that
    they cannot be memorised at once.
    """
    rng = np.random.default_rng(seed)
    plain = digits(seed, convolutions=True)

    def scattered(images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        images, labels = images.repeat_interleave(copies, dim=0), labels.repeat_interleave(copies)
        placed = rng.normal(0, noise, (len(images), 1, field, field)).astype(np.float32)
        for image, at, (row, column) in zip(
            images.numpy(), placed, rng.integers(0, field - 7, (len(images), 2)), strict=True
        ):
            at[0, row : row + 8, column : column + 8] += image[0]
        order = rng.permutation(len(images))[:rows]
        return torch.from_numpy(placed[order]), labels[order]

    def network() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(288, 32), nn.ReLU(), nn.Linear(32, 10),
        )  # fmt: skip

    return Problem(scattered(*plain.train), scattered(*plain.test), partial(build_seeded, network, seed), CROSS_ENTROPY)


#: The noise model of the simulated answers and of the embeddings fitted to them.
NOISE = PowerTSTE(k=2.0, lapse=0.03)


def answers(seed: int, n: int, m: int, d: int = 2) -> np.ndarray:
    """Return (m, 3) int32 answers to random queries about n targets with N(0, 1) coordinates in d dimensions."""
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((n, d))
    heads = rng.integers(n, size=m)
    left = (heads + rng.integers(1, n, size=m)) % n
    right = (heads + rng.integers(1, n, size=m)) % n
    same = left == right
    while same.any():
        right[same] = (heads[same] + rng.integers(1, n, size=int(same.sum()))) % n
        same = left == right
    near = ((truth[heads] - truth[left]) ** 2).sum(axis=1)
    far = ((truth[heads] - truth[right]) ** 2).sum(axis=1)
    swap = rng.random(m) > NOISE.probability(near, far)
    return np.stack([heads, np.where(swap, right, left), np.where(swap, left, right)], axis=1).astype(np.int32)
