"""Atoms of a gradient and the chances with which they are sent: the least variance that a budget allows.

A gradient is a sum of atoms λᵢaᵢ with |aᵢ| = 1. Atom i is sent with chance pᵢ and then stretched by 1/pᵢ, so that what arrives is
right on average; its squared norm is Σ λᵢ²/pᵢ on average where the atoms are orthogonal.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]


def atomic_probabilities(magnitudes: Floats, budget: float) -> NDArray[np.float64]:
    """(k,) chances p that make Σ λ²/p smallest under Σ p = budget and p ≤ 1 (Wang et al. 2018, Algorithm 2).

    p = budget · |λ| / Σ|λ|; where that is more than 1 for the largest atom, it is surely sent and the rest share
    what is left of the budget. A budget of k or more sends everything; atoms of magnitude 0 are sent with chance 0.
    """
    sizes = np.abs(magnitudes).astype(np.float64)
    chances = np.zeros(len(sizes))
    present = int(np.count_nonzero(sizes))
    if budget >= present:
        chances[sizes > 0] = 1
        return chances
    order = np.argsort(-sizes, kind="stable")
    ordered = sizes[order][:present]
    # What is left for atom i and all smaller ones, and their sum, if every larger one is surely sent.
    left = budget - np.arange(present)
    remainder = np.cumsum(ordered[::-1])[::-1]
    balanced = np.flatnonzero((ordered * left <= remainder) & (left > 0))
    sure = int(balanced[0]) if len(balanced) else int(budget)
    chances[order[:sure]] = 1
    if left[sure] > 0:
        chances[order[sure:present]] = np.minimum(1, ordered[sure:] * left[sure] / remainder[sure])
    return chances


def atomic_variance(magnitudes: Floats, chances: Floats) -> float:
    """E|ĝ − g|² = Σ λ²(1/p − 1) for orthogonal atoms sent with these chances."""
    sent = chances > 0
    return float((magnitudes[sent].astype(np.float64) ** 2 * (1 / chances[sent] - 1)).sum())


def atoms_of(matrix: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """(rows, k) and (columns, k) vectors whose products of columns sum to the matrix: singular vectors, the longer ones times σ.

    From the eigenvectors of the smaller of M'M and MM', in a quarter of the time of a decomposition of M. That squares singular
    values, and the smallest are lost in rounding; but for any orthonormal v the sum of (Mv)v' is M, so nothing is missing.
    """
    if matrix.shape[0] < matrix.shape[1]:
        right, left = atoms_of(np.ascontiguousarray(matrix.T))
        return left, right
    given = torch.from_numpy(matrix)
    # Entries of up to 1, whose squares have room in float32.
    scaled = given / given.abs().max().clamp(min=torch.finfo(torch.float32).tiny)
    try:
        right = torch.linalg.eigh(scaled.T @ scaled)[1]
    except torch.linalg.LinAlgError:  # pyright: ignore[reportPrivateImportUsage] - where torch documents it
        # Rarely, with entries of very different size. The decomposition of M itself is slower and stands more.
        right = torch.linalg.svd(given, full_matrices=False)[2].T
    return (given @ right).numpy(), right.numpy()


def matrix_of(layer: Floats) -> Floats | None:
    """A layer's gradient as the matrix whose singular vectors are its atoms, None where it is a vector.

    Convolutions (x, y, k, k) become (xy/2, 2k²), as Sievert (2021, 3.3.5) has it, where xy is even.
    """
    if layer.ndim < 2:
        return None
    if layer.ndim == 4 and layer.shape[0] * layer.shape[1] % 2 == 0:
        return layer.reshape(layer.shape[0] * layer.shape[1] // 2, -1)
    return layer.reshape(layer.shape[0], -1)
