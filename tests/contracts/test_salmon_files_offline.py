"""Offline scripts of the first Salmon: `salmon.triplets.offline` and `salmon.triplets.samplers` under their names."""

import sys
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from salmon.errors import SalmonError
from salmon.triplets import offline, samplers
from salmon.triplets.offline import OfflineEmbedding
from tests.contracts.salmon_rows import covers

N, D = 12, 2


def answers(count: int, seed: int, noise: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """(true positions, rows [head, winner, loser]) of people who are wrong with a chance of `noise`."""
    rng = np.random.default_rng(seed)
    truth = np.random.default_rng(7).standard_normal((N, D))
    rows = np.array([rng.choice(N, 3, replace=False) for _ in range(count)])
    near, far = (((truth[rows[:, 0]] - truth[rows[:, place]]) ** 2).sum(axis=1) for place in (1, 2))
    swap = (near > far) ^ (rng.random(count) < noise)
    rows[swap] = rows[swap][:, [0, 2, 1]]
    return truth, rows


ROWS = answers(50, 6)[1]


def test_a_published_script_fits_scores_and_looks_at_the_history() -> None:
    X_train, X_test = answers(900, 1, 0.05)[1], answers(300, 2)[1]
    model = OfflineEmbedding(n=N, d=D, max_epochs=20_000, verbose=100, random_state=0, optimizer__lr=0.1)
    assert model.fit(X_train, X_test) is model
    assert model.embedding_.shape == (N, D)
    last = model.history_[-1]
    assert 0.9 < model.score(X_test) <= 1  # an accuracy: larger is better
    assert model.score(X_test) == model.meta_["score__acc"] == last["score_test"]
    assert 0 < model.meta_["score__loss"] < np.log(2)
    assert last["loss_test"] <= model.history_[0]["loss_test"]
    assert {"score_train", "loss_train", "elapsed_time", "train_data", "max_epochs", "ident"} <= last.keys()
    assert last["num_grad_comps"] <= 20_000 * len(X_train)


def test_the_passes_are_bounded_by_max_epochs() -> None:
    rows = answers(300, 3)[1]
    assert len(OfflineEmbedding(n=N, d=D, max_epochs=3, random_state=1).fit(rows, rows).history_) == 1


def test_what_a_script_keeps_of_an_embedding_stays_as_it_was() -> None:
    """Scripts that stop early by themselves keep the best embedding while the fit goes on."""
    rows = answers(600, 4)[1]
    model = OfflineEmbedding(n=N, d=D, random_state=5).initialize(rows)
    kept, losses = model.embedding_, []
    before = kept.copy()
    for _ in range(5):
        model.partial_fit(rows)
        losses.append(model._score(rows)[1])
    assert np.array_equal(kept, before)
    assert not np.allclose(model.embedding_, kept)
    assert losses == sorted(losses, reverse=True)
    kept[:] = np.nan
    model.embedding_[:] = np.nan
    assert np.isfinite(model.embedding_).all()


def test_a_fit_begins_where_it_is_told_to() -> None:
    start = np.random.default_rng(8).uniform(size=(N, D))
    for given in (
        start,
        offline.join(start, list(range(N))),
        pd.DataFrame(start, columns=["0", "1"]).assign(alg="ARR"),
    ):
        assert np.allclose(OfflineEmbedding(n=N, d=D).initialize(ROWS, embedding=given).embedding_, start)
    first, second = (OfflineEmbedding(n=N, d=D, random_state=20).initialize(ROWS).embedding_ for _ in range(2))
    assert np.array_equal(first, second)


@pytest.mark.parametrize(
    ("use", "error", "words"),
    [
        (lambda: OfflineEmbedding(n=N, d=D).embedding_, NotFittedError, "call fit"),
        (lambda: OfflineEmbedding().fit(ROWS, ROWS), SalmonError, "how many targets"),
        (
            lambda: OfflineEmbedding(n=N, d=D).initialize(ROWS, embedding=np.zeros((3, 2))),
            SalmonError,
            r"shape \(3, 2\)",
        ),
        (lambda: OfflineEmbedding(n=5, d=D).fit(ROWS, ROWS), SalmonError, "names a target outside"),
        (lambda: offline.join(np.zeros((4, 2)), ["a", "b", "c"]), SalmonError, "a row for each of 3"),
    ],
)
def test_a_mistake_is_a_sentence(use: Callable[[], object], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        use()


def test_rows_that_name_a_target_twice_are_left_out_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="1 rows name a target twice"):
        OfflineEmbedding(n=N, d=D).partial_fit(np.vstack([ROWS, [3, 3, 5]]))


@covers("files", "join")
def test_join_puts_targets_beside_their_coordinates() -> None:
    for d, names in ((1, ["x"]), (2, ["x", "y"]), (3, ["x", "y", "z"]), (5, ["x", "y", "z", "dim4", "dim5"])):
        table = offline.join(np.arange(4 * d).reshape(4, d), ["a", "b", "c", "d"])
        assert isinstance(table, pd.DataFrame)
        assert (list(table.columns), table["target"].tolist()) == ([*names, "target"], ["a", "b", "c", "d"])


def test_without_pandas_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(SalmonError, match="pip install pandas"):
        offline.join([[0, 1]], ["a"])


@pytest.mark.parametrize("name", ["TSTE", "STE", "CKL", "GNMDS", "SOE", "Adaptive"])
def test_a_sampler_that_searches_learns_from_the_queries_it_gives(name: str) -> None:
    truth, X = answers(2000, 9)
    y = np.zeros(len(X))
    sampler = getattr(samplers, name)(n=N, d=D, R=1, random_state=3)
    before = sampler.score(X, y)
    for _ in range(12):
        queries, scores, _ = sampler.get_queries(num=200)
        assert queries.shape == (len(scores), 3)
        best = queries[np.argsort(scores)[-5:]]
        asked = [dict(zip(("head", "left", "right"), map(int, query), strict=True)) for query in best]
        near = [((truth[q["head"]] - truth[[q["left"], q["right"]]]) ** 2).sum(axis=1).argmin() for q in asked]
        sampler.process_answers(
            [{**q, "winner": q[("left", "right")[side]]} for q, side in zip(asked, near, strict=True)]
        )
    assert sampler.score(X, y) > before + 0.08
    assert sampler.get_model()["num_ans"] == 60
    assert isinstance(sampler.score(X, y), float)


def test_round_robin_samplers_give_a_query_for_every_head() -> None:
    sampler = samplers.ARR(n=N, d=D, random_state=1)
    given = [{"head": h, "left": w, "right": lo, "winner": w} for h, w, lo in answers(40, 10)[1].tolist()]
    sampler.process_answers(given)
    queries, scores, _ = sampler.get_queries()
    assert sorted(queries[:, 0].tolist()) == list(range(N))
    assert ((scores >= 10) & (scores <= 11)).all()
    assert sampler.get_query() == (None, -9999)
    synchronous = samplers.SRR(n=N, d=D, random_state=1)
    assert synchronous.get_query()[1] == -9999
    synchronous.process_answers(given)
    query, score = synchronous.get_query()
    assert query is not None
    assert len({query["head"], query["left"], query["right"]}) == 3
    assert score != -9999


def test_passive_samplers_keep_their_rules() -> None:
    queries, scores, _ = samplers.Random(n=N, targets=[1, 4, 6, 9], random_state=0).get_queries(num=50)
    assert set(queries.ravel().tolist()) == {1, 4, 6, 9}
    assert set(scores.tolist()) == {-9999.0}
    turns = samplers.RoundRobin(n=N, random_state=0)
    drawn = [turns.get_query(puid="p") for _ in range(N)]
    assert sorted(query["head"] for query, _ in drawn) == list(range(N))
    for query, score in drawn:
        assert score == max(abs(query["head"] - query["left"]), abs(query["head"] - query["right"]))
    fixed = samplers.Validation(n=N, queries=[[0, 1, 2], [3, 4, 5]], random_state=0)
    seen = [fixed.get_query() for _ in range(4)]
    assert sorted(query["head"] for query, _ in seen) == [0, 0, 3, 3]
    assert [score for _, score in seen] == [0, 1, 0, 1]
