"""Hyperband: exact brackets, decisions that follow from scores, and searches that find good parameters."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import loguniform
from sklearn.linear_model import SGDClassifier

from benchmarks.training.replay import replay_search
from salmon.errors import SalmonError
from salmon.training import HyperbandSearch
from salmon.training.hyperband import hyperband_brackets, new_search, random_search, rule_of_thumb, select_chunk

pytestmark = pytest.mark.slow


def table(search):
    """Return a score for every model and number of calls: model k scores k, and slightly more with each call."""
    return {
        (number, calls): number + calls / 1000
        for number, model in search.models.items()
        for calls in range(1, search.brackets[model.bracket].rungs[-1][1] + 1)
    }


def test_brackets_of_81_are_those_of_the_paper_and_start_143_models():
    brackets = hyperband_brackets(81)
    assert [bracket.rungs[0] for bracket in brackets] == [(81, 1), (34, 3), (15, 9), (8, 27), (5, 81)]
    assert brackets[0].rungs == ((81, 1), (27, 3), (9, 9), (3, 27), (1, 81))
    assert sum(bracket.models for bracket in brackets) == 143


def test_exact_arithmetic_gives_243_six_brackets():
    assert [bracket.models for bracket in hyperband_brackets(243)] == [243, 98, 41, 18, 9, 6]


@given(max_iter=st.integers(1, 500), aggressiveness=st.integers(2, 6))
def test_every_bracket_ends_with_models_trained_for_max_iter_calls(max_iter, aggressiveness):
    for bracket in hyperband_brackets(max_iter, aggressiveness):
        models, calls = zip(*bracket.rungs, strict=True)
        assert list(models) == sorted(models, reverse=True)
        assert list(calls) == sorted(calls)
        assert calls[-1] == max_iter
        assert bracket.calls <= 2 * max(each.calls for each in hyperband_brackets(max_iter, aggressiveness))


@given(workers=st.integers(1, 40), priorities=st.booleans(), seed=st.integers(0, 99))
def test_workers_and_priorities_change_when_scores_arrive_but_not_the_scores(workers, priorities, seed):
    plain = new_search(hyperband_brackets(27), priorities=priorities)
    scores = np.random.default_rng(seed).permutation(len(plain.models))
    recorded = {key: float(scores[key[0]]) + key[1] / 1000 for key in table(plain)}
    found, alone = (replay_search(plain, recorded, workers=number) for number in (workers, 1))
    assert {(each.model, each.score) for each in found} == {(each.model, each.score) for each in alone}
    assert found[-1].calls == sum(bracket.calls for bracket in plain.brackets)
    assert found[-1].seconds <= alone[-1].seconds


def test_one_worker_takes_the_time_of_all_calls_and_scores():
    search = new_search(hyperband_brackets(9))
    found = replay_search(search, table(search), workers=1, call_s=1, score_s=1.5)
    assert found[-1].seconds == found[-1].calls + 1.5 * len(found)


def test_only_the_best_third_is_promoted():
    search = new_search(hyperband_brackets(9)[:1])
    assert [each.model for each in replay_search(search, table(search), workers=1)[9:]] == [8, 7, 6, 8]


def test_the_worst_models_share_the_median_of_their_scores_as_priority():
    search = new_search(random_search(5, 10), patience=3, tolerance=-10, workers=3)
    for work, score in zip(search.begin(), (0.5, 0.1, 0.9, 0.2, 0.3), strict=True):
        search, _ = search.absorb(work, score)
    assert [search.work(number).priority for number in range(5)] == [0.5, 0.2, 0.9, 0.2, 0.2]


def test_only_a_model_that_no_longer_improves_is_stopped():
    search = new_search(random_search(2, 30), patience=6, tolerance=0.01)
    scores = {0: lambda calls: 0.5, 1: lambda calls: calls / 30}
    pending = search.begin()
    while pending:
        work = pending.pop()
        search, more = search.absorb(work, scores[work.model](work.calls))
        pending += more
    assert search.models[0].stopped
    assert search.models[0].calls < 10
    assert (search.best(), search.models[1].calls) == (1, 30)


def test_the_rule_of_thumb_divides_examples_among_calls():
    assert rule_of_thumb(299, 50 * 50_000) == (299, 8361)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: rule_of_thumb(10, 5), "5 examples cannot be divided into 10 calls"),
        (lambda: hyperband_brackets(0, 1), "max_iter"),
        (lambda: HyperbandSearch(SGDClassifier(), {"alpha": [-1.0]}, max_iter=3).fit(*problem()), "No model"),
    ],
)
def test_a_search_that_cannot_be_is_refused_in_a_sentence(wrong, words):
    with pytest.raises(SalmonError, match=words):
        wrong()


@given(examples=st.integers(1, 50), seed=st.integers(0, 5), data=st.data())
def test_chunks_of_a_pass_cover_every_example_once(examples, seed, data):
    size = data.draw(st.integers(1, examples))
    seen = np.concatenate([select_chunk(examples, size, call, seed) for call in range(2 * examples)])
    for start in (0, examples):
        assert sorted(seen[start : start + examples]) == list(range(examples))


def problem():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 5))
    return X, (X @ rng.standard_normal(5) > 0).astype(int)


SPACE = {"alpha": loguniform(1e-6, 1e4), "average": [True, False]}


def search(**options):
    return HyperbandSearch(SGDClassifier(), SPACE, **{"max_iter": 9, "chunk_size": 50, "random_state": 3, **options})


def test_a_search_finds_good_parameters_in_the_number_of_calls_of_its_metadata():
    X, y = problem()
    before = search()
    assert before.metadata["n_models"] == 17
    found = before.fit(X, y)
    assert found.best_score_ > 0.9
    assert found.score(X, y) > 0.9
    assert found.metadata_["partial_fit_calls"] == before.metadata["partial_fit_calls"]
    assert found.history_[-1]["total_calls"] == found.metadata_["partial_fit_calls"]
    assert found.best_params_["alpha"] < 1


def test_a_cluster_finds_the_same_as_this_process(cluster):
    there, here = (search(executor=executor).fit(*problem()) for executor in (cluster, None))
    scores = [{(row["model"], row["partial_fit_calls"]): row["score"] for row in one.history_} for one in (there, here)]
    assert scores[0] == scores[1]
    assert there.best_params_ == here.best_params_


def test_random_search_takes_the_same_work_and_stops_no_model():
    passive = search(passive=True)
    assert (passive.metadata["n_models"], passive.metadata["partial_fit_calls"]) == (8, 72)
    assert {row["partial_fit_calls"] for row in passive.fit(*problem()).history_} == {9}


def test_patience_scores_models_along_the_way():
    assert len(search(patience=True).fit(*problem()).history_) > len(search().fit(*problem()).history_)


def test_a_given_test_set_is_used():
    X, y = problem()
    assert search().fit(X, y, test=(X[:50], 1 - y[:50])).best_score_ < 0.6


def test_models_that_cannot_be_trained_score_lowest():
    found = HyperbandSearch(SGDClassifier(), {"alpha": [-1.0, 1e-4]}, max_iter=3, random_state=0).fit(*problem())
    assert found.best_params_ == {"alpha": 1e-4}


class Fragile(SGDClassifier):
    """A classifier that fails in the way that its parameter says."""

    def __init__(self, way="", random_state=None):
        self.way = way
        super().__init__(random_state=random_state)

    def set_params(self, **parameters):
        if parameters.get("way") == "made":
            raise ValueError("cannot be made")
        return super().set_params(**parameters)

    def partial_fit(self, X, y, classes=None):
        if self.way == "trained":
            raise TypeError("cannot be trained")
        return super().partial_fit(X, y, classes)

    def score(self, X, y):
        if self.way == "scored":
            raise RuntimeError("cannot be scored")
        return super().score(X, y)


def noisy_line():
    X = np.random.default_rng(0).normal(size=(200, 3))
    return X, (X[:, 0] > 0).astype(int)


def test_models_that_fail_do_not_end_the_search_and_are_listed():
    X, y = noisy_line()
    search = HyperbandSearch(Fragile(), {"way": ["", "made", "trained", "scored"]}, max_iter=9, random_state=0).fit(
        X, y
    )
    results = search.cv_results_
    ways, scores = results["param_way"], results["mean_test_score"]
    assert search.best_params_ == {"way": ""}
    assert results["params"][search.best_index_] == search.best_params_
    assert results["rank_test_score"][search.best_index_] == 1
    assert scores[search.best_index_] == search.best_score_
    assert np.isnan(scores[ways != ""]).all()
    for way, error in zip(ways, results["error"], strict=True):
        assert (f"cannot be {way}" in error) if way else error == ""
    assert results["partial_fit_calls"].max() == 9


def test_a_search_in_which_every_model_fails_says_why():
    with pytest.raises(SalmonError, match="TypeError: cannot be trained"):
        HyperbandSearch(Fragile(), {"way": ["trained"]}, max_iter=3, random_state=0).fit(*noisy_line())
