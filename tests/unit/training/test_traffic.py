"""The bytes in the history are those that the kernel counts on the sockets between the ranks."""

import numpy as np
import pytest
import torch

from benchmarks.training.compression import wide
from benchmarks.training.traffic import GATHERED, measure
from salmon.training import CPSGD, QSGD, AdaDamp, Crossbow
from salmon.training.groups import count_all_reduce
from tests.unit.training.problems import train

pytestmark = pytest.mark.slow

ENTRIES = sum(each.numel() for each in wide().parameters())
# What gloo adds to a message: it is offered, requested and sent with a header each.
MESSAGE = 3 * 48


@pytest.mark.parametrize("size", [2, 4, 8, 16])
def test_the_history_counts_what_the_sockets_carry(size):
    rng = np.random.default_rng(0)
    gradient = (rng.standard_normal(ENTRIES) * rng.exponential(size=ENTRIES)).astype(np.float32)
    found = measure(size, ["none", "QSGD, 1 bits", "QSGD, 4 bits", GATHERED], gradient)
    for name, (sockets, history) in found.items():
        # The last headers of an exchange may be sent after it has ended.
        assert sockets == pytest.approx(history, rel=0.01, abs=MESSAGE * size), name
    # Each of 2 n segments is sent by all ranks but one, to be added and to be spread.
    assert found["none"][1] == 2 * (size - 1) * (4 * ENTRIES + 2 * size * MESSAGE)
    assert found[GATHERED][1] == size * (size - 1) * (4 * ENTRIES + 8 + 4 * MESSAGE)


@pytest.mark.parametrize("entries", [1, 5, 37, 1000, 3 << 20])
@pytest.mark.parametrize("size", [2, 3, 16])
def test_vectors_of_any_length_are_counted(entries, size):
    counted = count_all_reduce(size, torch.zeros(entries))
    messages, rest = divmod(counted - 2 * (size - 1) * 4 * entries, MESSAGE)
    assert rest == 0
    segments = messages / (2 * (size - 1))
    assert segments == min(entries, segments) <= max(2 * size, 2 * -(-4 * entries >> 20))


def test_a_single_rank_sends_nothing():
    assert train(1).history["bytes_sent"].tolist() == [0.0] * 24
    assert train(1, compression=QSGD(4)).history.rows[-1]["bytes_sent"] == 0


def test_virtual_ranks_count_every_exchange():
    entries = 6 * 8 + 8 + 8 + 1
    per_vector = count_all_reduce(3, torch.zeros(entries + 5))
    full, averaged, central = (
        train(3, epochs=1, **options).history["bytes_sent"]
        for options in ({}, {"averaging": CPSGD(3)}, {"averaging": Crossbow(1), "batch_size": 7})
    )
    assert np.diff(full).tolist() == [per_vector] * 5
    # The first step shares a loss only if it does not average; each average is followed by its variance, a float32.
    assert np.diff(averaged).tolist() == [0, 0, per_vector + count_all_reduce(3, torch.zeros(1)), 0, 0]
    assert set(np.diff(central)) == {per_vector}


def test_evaluating_the_training_set_is_counted_too():
    plain, adaptive = (train(2, epochs=1, batch_size=rule).history.rows[0]["bytes_sent"] for rule in (8, AdaDamp(8)))
    assert adaptive == plain + count_all_reduce(2, torch.zeros(1, dtype=torch.float64))
