"""What the web process knows about its own speed."""

from frontend.metrics import Latency, Metrics


def test_quantiles_are_upper_bounds_of_what_was_measured() -> None:
    metrics = Metrics()
    for milliseconds in [3] * 98 + [40] * 2:
        metrics.seconds.labels("/e/{slug}/query").observe(milliseconds / 1000)
    metrics.seconds.labels("/elsewhere").observe(4.0)
    assert metrics.latency("/e/{slug}/query") == Latency("/e/{slug}/query", 100, 5.0, 50.0)


def test_nothing_measured_has_no_quantiles() -> None:
    assert Metrics().latency("/e/{slug}/query") == Latency("/e/{slug}/query", 0, None, None)


def test_what_takes_longer_than_any_bucket_is_unknown() -> None:
    metrics = Metrics()
    metrics.seconds.labels("/slow").observe(60.0)
    assert metrics.latency("/slow") == Latency("/slow", 1, None, None)
