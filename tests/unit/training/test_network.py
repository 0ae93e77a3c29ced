"""The network clock of the benchmarks."""

import pytest

from benchmarks.training.network import MODERATE, Network, plan_batches, replay_seconds
from salmon.errors import SalmonError
from salmon.training import AdaDamp, GeoDamp

#: (initial, maximum) -> updates of 200 epochs of 50,000 examples, as reported by the source.
UPDATES = {(128, 128): 78_200, (128, 640): 34_520, (128, 16_000): 29_240, (128, 3_200): 29_480, (256, 5_120): 14_960}


@pytest.mark.parametrize(("sizes", "updates"), UPDATES.items())
def test_schedules_take_the_number_of_updates_reported_by_the_source(sizes, updates):
    initial, maximum = sizes
    assert len(plan_batches(GeoDamp(initial, delay=60, factor=5, maximum=maximum), 50_000, 200)) == updates


@pytest.mark.parametrize(
    ("network", "size", "workers", "seconds"),
    [
        pytest.param(MODERATE, 1e7, 1, 0, id="one worker exchanges nothing"),
        pytest.param(Network(8, 0), 1e9, 2, pytest.approx(1), id="two workers in a ring send the gradient once"),
        pytest.param(Network(8, 0), 1e9, 1000, pytest.approx(2, rel=0.01), id="many in a ring send it twice"),
        pytest.param(Network(8, 10), 0, 5, pytest.approx(8 * 10e-6), id="each hop of a ring takes its latency"),
        pytest.param(
            Network(8, 0, centralised=True), 1e9, 3, pytest.approx(6), id="three exchange six gradients with a server"
        ),
    ],
)
def test_an_exchange_takes_the_time_of_its_bytes_and_hops(network, size, workers, seconds):
    assert network.exchange_s(size, workers) == seconds


def test_the_clock_adds_up_examples_exchange_and_overhead():
    network = Network(8, 0, overhead_ms=100)
    times = replay_seconds([10, 20, 20], network, example_s=0.01, gradient_bytes=1e9, examples_per_worker=10)
    assert times == pytest.approx([0.2, 1.4, 2.6])
    assert replay_seconds([10], network, example_s=0.01, gradient_bytes=0, workers=2) == pytest.approx([0.15])


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Network(0, 1),
        lambda: plan_batches(AdaDamp(), 10, 1),
        lambda: replay_seconds([1], MODERATE, example_s=1, gradient_bytes=1),
        lambda: replay_seconds([1], MODERATE, example_s=1, gradient_bytes=1, workers=1, examples_per_worker=1),
    ],
)
def test_impossible_clocks_are_refused(wrong):
    with pytest.raises(SalmonError):
        wrong()
