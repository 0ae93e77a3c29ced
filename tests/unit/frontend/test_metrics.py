"""What the web process knows about its own speed."""

from __future__ import annotations

from frontend.metrics import Latency, Measures


def test_quantiles_are_upper_bounds_of_what_was_measured() -> None:
    measures = Measures()
    for milliseconds in [3] * 98 + [40] * 2:
        measures.seconds.labels("/e/{slug}/query").observe(milliseconds / 1000)
    measures.seconds.labels("/elsewhere").observe(4.0)
    assert measures.latency("/e/{slug}/query") == Latency("/e/{slug}/query", 100, 5.0, 50.0)


def test_nothing_measured_has_no_quantiles() -> None:
    assert Measures().latency("/e/{slug}/query") == Latency("/e/{slug}/query", 0, None, None)


def test_what_takes_longer_than_any_bucket_is_unknown() -> None:
    measures = Measures()
    measures.seconds.labels("/slow").observe(60.0)
    assert measures.latency("/slow") == Latency("/slow", 1, None, None)
