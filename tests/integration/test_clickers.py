"""People who click blindly leave the model while a study runs, and nothing else."""

from collections.abc import Callable
from typing import Any

import pytest

from frontend.store import Store
from tests.bundles import read_answers
from tests.living import SPEC, absorbed, run_until

# Chosen queries are the ones that the map can hardly predict: random ones show sooner that somebody does not look.
CLICKERS = SPEC.replace("random_share: 20%", "random_share: 60%")
EVERYBODY = SPEC.replace("random_share: 20%", "random_share: 60%, leave_out: nobody")


@pytest.mark.parametrize(("spec", "expected"), [(CLICKERS, 1), (EVERYBODY, 0)])
async def test_whoever_clicks_blindly_leaves_the_model_and_stays_in_the_data(
    learning: Callable[..., Any],
    owned: Callable[..., Any],
    store: Store,
    spec: str,
    expected: int,
) -> None:
    slug = f"left-out-{expected}"
    crowd, experiment, service = await learning(slug, spec)
    for batch in range(1, 9):
        await crowd.answer(72, participants=4)
        for _ in range(36):
            await crowd.answer_left("p9")
        run_until(service, lambda batch=batch: absorbed(service, experiment) == 108 * batch)
    reported = service.experiments[experiment].learners["Adaptive"]
    run_until(service, lambda: reported._reported_to == 864)
    model = await owned("GET", f"/api/experiments/{slug}/model", params={"sampler": "Adaptive"})
    assert model.raise_for_status().json()["numbers"]["left_out"] == expected
    assert len(await read_answers(store, experiment)) == 864
