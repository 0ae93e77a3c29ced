"""Benchmarks on human answers: how files are read and divided, and a search that is limited to recorded queries."""

import gzip

import numpy as np
import pytest

from benchmarks.human_answers import divide, present, read_human
from benchmarks.limited_replay import Pool, choose
from salmon.estimator import triple_groups
from salmon.noise import TSTE
from salmon.samplers.adaptive import Adaptive
from salmon.simulate import egg_world, stream


def test_counts_become_answers(tmp_path):
    path = tmp_path / "counts.csv.gz"
    path.write_bytes(gzip.compress(b"head,first,second,chose_first,chose_second\n3,1,2,2,1\n0,1,3,0,2\n"))
    n, triplets = read_human(path)
    assert n == 4
    assert sorted(map(tuple, triplets.tolist())) == [(0, 3, 1), (0, 3, 1), (3, 1, 2), (3, 1, 2), (3, 2, 1)]


def test_a_test_set_is_left_out_of_single_answers(tmp_path):
    path = tmp_path / "answers.csv"
    path.write_text("head,left,right,winner,sampler\n0,1,2,1,Random\n1,0,2,2,Test\n2,0,1,0,Random\n")
    assert read_human(path)[1].tolist() == [[0, 1, 2], [2, 0, 1]]


def test_a_missing_file_is_named_and_skipped(tmp_path, capsys):
    assert present([tmp_path / "none.csv"]) == []
    assert "Skipped" in capsys.readouterr().out


def test_answers_about_the_same_three_targets_stay_on_one_side():
    world = egg_world(30)
    rows = world.answer(world.random_queries(3000, stream(0, "queries")), stream(0, "answers"))
    fitted, judged = divide(rows, 1)
    assert len(fitted) + len(judged) == 3000
    together = triple_groups(np.concatenate([fitted, judged]))
    assert not set(together[: len(fitted)]) & set(together[len(fitted) :])


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_limited_search_asks_recorded_queries_of_every_head_in_turn(share):
    world = egg_world(30)
    rows = world.answer(world.random_queries(900, stream(0, "queries")), stream(0, "answers"))
    pool = Pool.of(rows, 30)
    sampler = Adaptive(random_share=share)
    asked = choose(
        pool, np.random.default_rng(0).normal(size=(30, 2)), rows, TSTE(lapse=0.05), sampler, np.random.default_rng(1)
    )
    assert len(asked) == 30
    assert (len(set(pool.queries[asked][:, 0])) == 30) == (share == 0)
    answered = pool.answer(asked, np.random.default_rng(2))
    np.testing.assert_array_equal(np.sort(answered[:, 1:], axis=1), pool.queries[asked][:, 1:])
