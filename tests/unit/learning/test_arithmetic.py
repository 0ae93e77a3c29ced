"""Which arithmetic a refit uses, and what it leaves alone."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from salmon.learning.objective import TENSORS_FROM, NumpyArithmetic, TorchArithmetic, arithmetic_for

PLACES = np.array([2, 0, 2, 2])


@pytest.fixture(params=[0, TENSORS_FROM], ids=["arrays", "tensors"])
def use(request):
    with arithmetic_for(request.param) as chosen:
        yield chosen


def test_small_blocks_are_left_to_numpy_and_large_ones_to_torch():
    with arithmetic_for(TENSORS_FROM - 1) as small, arithmetic_for(TENSORS_FROM) as large:
        assert isinstance(small, NumpyArithmetic)
        assert isinstance(large, TorchArithmetic)


def test_a_place_that_recurs_gets_every_value(use):
    total = np.array([1.0, 1.0, 1.0])
    use.add_at(use.of(total), use.of(PLACES), use.of(np.array([1.0, 2.0, 4.0, 8.0])))
    np.testing.assert_array_equal(total, [3.0, 1.0, 14.0])


def test_what_is_gathered_is_new_memory_and_what_is_shared_is_not(use):
    values = np.array([5.0, 6.0, 7.0])
    gathered = use.gather(use.of(values), use.of(PLACES))
    gathered += 1
    np.testing.assert_array_equal(use.array(gathered), [8.0, 6.0, 8.0, 8.0])
    np.testing.assert_array_equal(values, [5.0, 6.0, 7.0])
    assert np.shares_memory(use.array(use.of(values)), values)


def test_the_callers_threads_and_autograd_are_as_before():
    threads = torch.get_num_threads()
    with arithmetic_for(TENSORS_FROM):
        assert torch.get_num_threads() == 1
        assert not torch.is_grad_enabled()
    assert torch.get_num_threads() == threads
    assert torch.is_grad_enabled()


def test_a_small_fit_does_not_load_torch():
    story = "import sys; from salmon.learning import fit; fit([[0, 1, 2], [1, 0, 2]], 3, 2); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", story], check=False).returncode == 0
