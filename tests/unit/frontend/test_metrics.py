"""What the web process knows about its own speed."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from frontend import metrics
from frontend.metrics import DataDisk, Latency, Metrics


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
    measured = Metrics()
    for each in seconds:
        measured.seconds.labels("/e/{slug}/query").observe(each)
    measured.seconds.labels("/elsewhere").observe(4.0)
    assert measured.latency("/e/{slug}/query") == latency


def test_requests_of_scripts_count_with_those_of_the_page() -> None:
    measured = Metrics()
    for route, seconds in (("/e/{slug}/query", 0.003), ("/query", 0.04), ("/answer", 0.2)):
        measured.seconds.labels(route).observe(seconds)
    assert measured.latency("/e/{slug}/query", "/query") == Latency("/e/{slug}/query", 2, 5.0, 50.0)


def test_a_disk_that_fills_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def with_free(free: float) -> DataDisk:
        monkeypatch.setattr(metrics.shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
        return DataDisk(str(tmp_path), 500)

    assert (with_free(1e12).problem, with_free(1e12).full) == ("", False)
    assert "only 300 MB left" in with_free(300e6).problem
    assert not with_free(300e6).full
    assert "is full" in with_free(1000).problem
    assert with_free(1000).full
    assert DataDisk("s3://bucket", 500).problem == ""
