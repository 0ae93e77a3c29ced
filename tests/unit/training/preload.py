"""Imports of a worker, which its parent process does once for all of them: also what torch imports
when it makes the first optimiser.
"""

import torch

import salmon.parallel.dask
import salmon.training.groups
from tests.unit.training import agreement, problems

__all__ = ["agreement", "problems", "salmon"]

torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
