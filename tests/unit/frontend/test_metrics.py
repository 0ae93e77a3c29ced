"""What the web process knows about its own speed."""

import pytest

from frontend.metrics import Latency, Metrics


@pytest.mark.parametrize(
    ("seconds", "latency"),
    [
        ([0.003] * 98 + [0.04] * 2, Latency("/e/{slug}/query", 100, 5.0, 50.0)),
        ([], Latency("/e/{slug}/query", 0, None, None)),
        ([60.0], Latency("/e/{slug}/query", 1, None, None)),
    ],
    ids=["upper bounds of what was measured", "nothing was measured", "longer than any bucket"],
)
def test_quantiles_are_those_of_the_route_alone(seconds: list[float], latency: Latency) -> None:
    metrics = Metrics()
    for each in seconds:
        metrics.seconds.labels("/e/{slug}/query").observe(each)
    metrics.seconds.labels("/elsewhere").observe(4.0)
    assert metrics.latency("/e/{slug}/query") == latency
