"""The bytes in the history are those that the kernel counts on the sockets between the ranks."""

import numpy as np
import pytest
import torch

from benchmarks.training.compression import wide
from benchmarks.training.traffic import GATHERED, SHORT, SHORT_ENTRIES, measure
from salmon.training import CPSGD, QSGD, AdaDamp, Crossbow
from salmon.training.groups import count_all_reduce, count_exchange
from tests.unit.training.problems import train

pytestmark = pytest.mark.slow

ENTRIES = sum(each.numel() for each in wide().parameters())
# What gloo adds to a message: it is offered, requested and sent with a header each.
MESSAGE = 3 * 48


SIZES = (2, 4, 8, 16)


@pytest.fixture(scope="module")
def traffic():
    """The bytes of each number of ranks, of which one process starts all."""
    rng = np.random.default_rng(0)
    gradient = (rng.standard_normal(ENTRIES) * rng.exponential(size=ENTRIES)).astype(np.float32)
    names = ["none", SHORT, "QSGD, 1 bits", "QSGD, 4 bits", GATHERED]
    return dict(zip(SIZES, measure(SIZES, names, gradient), strict=True))


@pytest.mark.parametrize("size", SIZES)
def test_the_history_counts_what_the_sockets_carry(traffic, size):
    found = traffic[size]
    for name, (sockets, history) in found.items():
        # The last headers of an exchange may be sent after it has ended.
        assert sockets == pytest.approx(history, rel=0.01, abs=MESSAGE * size), name
    # Each of 2 n segments is sent by all ranks but one, to be added and to be spread.
    assert found["none"][1] == 2 * (size - 1) * (4 * ENTRIES + 2 * size * MESSAGE)
    assert found[GATHERED][1] == size * (size - 1) * (4 * ENTRIES + 8 + 4 * MESSAGE)
    # Each rank passes on the vectors of all others but one, in two halves.
    assert found[SHORT][1] == size * (size - 1) * (4 * SHORT_ENTRIES + 2 * MESSAGE)


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


@pytest.mark.parametrize("hidden", [8, 4000], ids=["gathered", "reduced"])
def test_virtual_ranks_count_every_exchange(hidden):
    def module():
        return torch.nn.Sequential(torch.nn.Linear(6, hidden), torch.nn.Linear(hidden, 1))

    per_vector = count_exchange(3, torch.zeros(8 * hidden + 1 + 5))
    full, averaged, central = (
        train(3, module=module(), rate=1e-4, epochs=1, **options).history["bytes_sent"]
        for options in ({}, {"averaging": CPSGD(3)}, {"averaging": Crossbow(1), "batch_size": 7})
    )
    assert np.diff(full).tolist() == [per_vector] * 5
    # The first step shares a loss only if it does not average. The variance of replicas that were gathered is known to
    # all; otherwise a float32 follows.
    of_variance = 0 if hidden == 8 else count_exchange(3, torch.zeros(1))
    assert np.diff(averaged).tolist() == [0, 0, per_vector + of_variance, 0, 0]
    assert set(np.diff(central)) == {per_vector}


def test_evaluating_the_training_set_is_counted_too():
    plain, adaptive = (train(2, epochs=1, batch_size=rule).history.rows[0]["bytes_sent"] for rule in (8, AdaDamp(8)))
    assert adaptive == plain + count_exchange(2, torch.zeros(1, dtype=torch.float64))
