"""Features in the ZIP of the targets reach the sampler, and travel with the experiment."""

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from backend.service import Service
from backend.store import Store as BackendStore
from frontend.context import Context
from frontend.errors import NotFoundError
from frontend.launching import launch
from salmon.errors import SpecError
from salmon.simulate import egg_world
from tests.archives import write_zip
from tests.bundles import bundle_of
from tests.integration.test_bundles import import_into
from tests.job_requests import answer_and_absorb
from tests.living import Crowd, absorbed, run_until

SPEC = b"html: {max_queries: 0}\nsamplers: {Adaptive: {random_share: 20%}}\nseed: 11\n"
PLACES = egg_world(30).coordinates[:, 0]


def archive(tmp_path: Path, rows: int = 30) -> Path:
    features = "target,smoothness\n" + "".join(f"egg {egg},{PLACES[egg]}\n" for egg in reversed(range(rows)))
    targets = "".join(f"egg {egg}\n" for egg in range(30))
    return write_zip(tmp_path / "eggs.zip", [("targets.csv", targets.encode()), ("features.csv", features.encode())])


async def begin(context: Context, path: Path, slug: str) -> str:
    made, warnings = await launch(
        context, SPEC, spec_name=Path("eggs.yaml"), archive=path, name=slug, owner="ada", state="open"
    )
    assert not warnings
    return made.experiment


async def test_the_sampler_learns_how_much_features_explain(
    context: Context, client: httpx.AsyncClient, open_service: Callable[..., Service], tmp_path: Path
) -> None:
    experiment = await begin(context, archive(tmp_path), "learned")
    service, crowd = open_service(), Crowd(client, "learned")
    for _ in range(6):
        await answer_and_absorb(crowd, service, experiment, 40)
    learner = service.experiments[experiment].learners["Adaptive"]
    run_until(service, lambda: absorbed(service, experiment) >= 240)
    assert learner.state.features is not None
    assert learner.state.feature_weight is not None
    assert learner.state.feature_weight > 0.2  # they are the truth


async def test_features_travel_in_a_bundle(
    context: Context, client: httpx.AsyncClient, elsewhere: Context, probe: BackendStore, tmp_path: Path
) -> None:
    experiment = await begin(context, archive(tmp_path), "carried")
    await Crowd(client, "carried").answer(3)
    bundle = await bundle_of(context.settings, context.store, "carried")
    there = await import_into(elsewhere, bundle, tmp_path / "b.zip")
    before, after = await context.catalogue.read(experiment), await elsewhere.catalogue.read(there)
    assert before.manifest is not None
    assert after.manifest is not None
    assert len(after.manifest.features()) == 30
    assert after.manifest == before.manifest
    features = probe.read_features(experiment, 1)
    assert features is not None
    assert features.n == 30


async def test_a_broken_file_of_features_makes_no_experiment(context: Context, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"'egg 28' and 'egg 29' have no row among the features"):
        await begin(context, archive(tmp_path, rows=28), "broken")
    with pytest.raises(NotFoundError):
        await context.catalogue.find("broken")
