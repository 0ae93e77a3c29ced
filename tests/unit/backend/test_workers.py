"""What a learner shows of its embedding."""

import numpy as np
import pytest

from backend import workers
from salmon.samplers.registry import ActiveSampler, active_sampler
from salmon.samplers.state import random_queries

N = 8


@pytest.mark.parametrize(
    "sampler",
    [
        active_sampler("Adaptive", {}),
        active_sampler("Adaptive", {"noise": "CKL"}),
        active_sampler("ARR", {}),
        active_sampler("ARR", {"noise": "GNMDS"}),
    ],
)
def test_the_shown_embedding_knows_how_sure_it_is_of_each_target(sampler: ActiveSampler) -> None:
    generator = np.random.default_rng(5)
    truth = generator.standard_normal((N, 2))
    asked = random_queries(N, 400, generator)
    asked = asked[(asked != 0).all(axis=1)]  # nobody was ever asked about the first target
    d2_feet = ((truth[asked[:, :1]] - truth[asked[:, 1:]]) ** 2).sum(axis=2)
    rows = np.where((d2_feet[:, 0] <= d2_feet[:, 1])[:, None], asked, asked[:, [0, 2, 1]])
    shown = workers.report(sampler, sampler.refit(sampler.start(N, 1), rows), (), rows, rows[:0])
    assert (shown.coordinates.shape, shown.spread.shape) == ((N, 2), (N, 2, 2))
    area = np.linalg.det(shown.spread)
    assert np.isfinite(shown.spread).all()
    assert area[0] > 2 * area[1:].max()
