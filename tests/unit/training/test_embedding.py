"""Embeddings as torch modules have the losses and gradients of the noise models, and fits agree with L-BFGS."""

import numpy as np
import pytest
import torch
from sklearn.base import clone

from salmon import OrdinalEmbedding
from salmon.errors import SalmonError
from salmon.geometry import align
from salmon.learning import log_loss
from salmon.learning.objective import block_of, loss_and_gradient
from salmon.noise import CKL, GNMDS, SOE, STE, TSTE, Logistic, PowerTSTE
from salmon.training import CPSGD, QSGD, Crossbow, GeoDamp, VirtualGroup
from salmon.training.embedding import TripletLosses

MODELS = [CKL(), GNMDS(), SOE(), STE(), TSTE(), Logistic(slope=2.0), PowerTSTE(k=0.85, lapse=0.07)]


def answers(n=25, m=1500, seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((n, 2))
    rows = np.array([rng.choice(n, 3, replace=False) for _ in range(m)])
    d2 = ((truth[rows[:, :1]] - truth[rows[:, 1:]]) ** 2).sum(axis=2)
    swap = rng.random(m) > PowerTSTE(k=2).probability(d2[:, 0], d2[:, 1])
    rows[swap] = rows[swap][:, [0, 2, 1]]
    return rows.astype(np.int32), truth


@pytest.mark.parametrize("noise", MODELS, ids=lambda noise: type(noise).__name__)
def test_losses_and_gradient_are_those_of_the_noise_model(noise):
    rows, truth = answers(m=300)
    module = TripletLosses(truth, noise)
    losses = module(torch.from_numpy(rows))
    losses.sum().backward()
    loss, gradient = loss_and_gradient(noise, truth, (block_of(rows),))
    assert float(losses.detach().sum()) == pytest.approx(loss, rel=1e-4)
    assert module.coordinates.grad.numpy() == pytest.approx(gradient, rel=1e-3, abs=1e-3)


WAYS = [
    {"batch_size": 100},
    {"batch_size": GeoDamp(50, delay=5, factor=2)},
    {"batch_size": 100, "executor": VirtualGroup(4), "averaging": CPSGD(4)},
    {"batch_size": 25, "executor": VirtualGroup(2), "averaging": Crossbow(2)},
    {"batch_size": 100, "executor": VirtualGroup(2), "compression": QSGD(8)},
]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_fit_in_batches_finds_the_same_embedding_as_a_fit_to_all_answers(way):
    rows, _ = answers()
    batches = OrdinalEmbedding(random_state=0, epochs=25, **way).fit(rows)
    # Fits in batches keep the usual noise, where fits to all answers learn it.
    whole = OrdinalEmbedding(noise=batches.noise_, random_state=0).fit(rows)
    assert log_loss(batches.embedding_, rows, noise=batches.noise_) < whole.log_loss(rows) + 0.01
    assert align(batches.embedding_, whole.embedding_, scale=True).residual < 0.2
    assert batches.objective_ == pytest.approx(whole.objective_, abs=0.02)
    assert batches.n_iter_ == len(batches.history_) > 100


def test_a_cluster_fits_in_batches_and_to_all_answers(cluster):
    rows, _ = answers()
    alone = OrdinalEmbedding(random_state=0, batch_size=100, epochs=5).fit(rows)
    estimator = OrdinalEmbedding(random_state=0, batch_size=100, epochs=5, executor=cluster.client)
    assert clone(estimator).executor is cluster.client
    assert estimator.fit(rows).embedding_ == pytest.approx(alone.embedding_, abs=0.05)
    assert estimator.history_[-1]["workers"] == 2
    assert OrdinalEmbedding(random_state=0, executor=cluster.client).fit(rows).embedding_ == pytest.approx(
        OrdinalEmbedding(random_state=0).fit(rows).embedding_
    )


def test_partial_fit_continues_in_batches():
    rows, _ = answers()
    estimator = OrdinalEmbedding(random_state=0, batch_size=100, epochs=5, n_targets=25).fit(rows[:800])
    before = log_loss(estimator.embedding_, rows, noise=estimator.noise_)
    assert log_loss(estimator.partial_fit(rows[800:]).embedding_, rows, noise=estimator.noise_) < before + 0.005


def test_early_stopping_is_refused_for_batches():
    with pytest.raises(SalmonError, match="early_stopping"):
        OrdinalEmbedding(batch_size=10, early_stopping=True).fit(answers()[0])
