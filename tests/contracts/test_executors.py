"""What every executor promises: this process, a Dask cluster of threads, and one of processes."""

import operator
import os
import socket
from dataclasses import replace

import numpy as np
import pytest

from salmon.errors import SalmonError, StartError
from salmon.learning import fit, objective
from salmon.parallel import SerialExecutor
from salmon.parallel.dask import join_cluster, local_cluster
from salmon.samplers.adaptive import Adaptive
from salmon.samplers.state import random_queries
from salmon.search import exact_search, information_gain, ranking
from salmon.simulate import random_world


@pytest.fixture(scope="module", params=["serial", "threads", "processes"])
def executor(request):
    if request.param == "serial":
        with SerialExecutor() as serial:
            yield serial
        return
    with local_cluster(2, processes=request.param == "processes") as cluster:
        yield cluster


def test_map_keeps_the_order(executor):
    assert executor.map(operator.mul, [1, 2, 3], [10, 20, 30], priority=1) == [10, 40, 90]


def test_submitted_work_brings_its_value(executor):
    task = executor.submit(operator.add, 2, 3, priority=5)
    assert task.result() == 5
    assert task.done()


def test_every_task_completes_once(executor):
    tasks = [executor.submit(operator.neg, number, priority=number) for number in range(6)]
    assert sorted(task.result() for task in executor.as_completed(tasks)) == [-5, -4, -3, -2, -1, 0]


def test_what_the_work_raises_is_raised_by_its_result(executor):
    task = executor.submit(operator.truediv, 1, 0)
    with pytest.raises(ZeroDivisionError):
        task.result()


def test_a_failed_task_is_among_the_completed(executor):
    tasks = [executor.submit(operator.truediv, 1, divisor) for divisor in (0, 1)]
    assert sum(1 for _ in executor.as_completed(tasks)) == 2


def test_a_scattered_value_stands_in_for_itself(executor):
    pair = executor.scatter((1, 2))
    assert executor.submit(np.sum, executor.scatter(np.arange(5.0))).result() == 10.0
    assert executor.map(operator.itemgetter(1), [pair, pair]) == [2, 2]


def test_work_can_be_pinned_to_the_first_worker(executor):
    assert isinstance(executor.submit(os.getpid, on=0).result(), int)


def test_a_cancelled_task_leaves_the_others_alone(executor):
    tasks = [executor.submit(operator.neg, number) for number in range(3)]
    tasks[1].cancel()
    assert tasks[2].result() == -2


def test_there_is_always_a_worker_and_none_is_refused(executor):
    assert executor.workers >= 1
    executor.scale(executor.workers)
    with pytest.raises(SalmonError, match="0 workers"):
        executor.scale(0)


def test_a_fit_of_many_answers_is_the_same_everywhere(executor, monkeypatch):
    monkeypatch.setattr(objective, "_WORTH_SENDING", 1)
    generator = np.random.default_rng(0)
    rows = random_world(30, 2, 0).answer(random_queries(30, 70_000, generator), generator)
    here, there = (fit(rows, 30, 2, noise="CKL", n_starts=1, max_iter=30, executor=each) for each in (None, executor))
    np.testing.assert_allclose(there.coordinates, here.coordinates, rtol=1e-6, atol=1e-6)


def test_a_search_finds_the_same_everywhere(executor, monkeypatch):
    monkeypatch.setattr(ranking, "_WORTH_SENDING", 1)
    generator = np.random.default_rng(1)
    coordinates, rows = generator.normal(size=(25, 2)), random_queries(25, 200, generator)
    here, there = exact_search(coordinates, rows, keep=2), exact_search(coordinates, rows, keep=2, executor=executor)
    np.testing.assert_allclose(there.scores, here.scores, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(information_gain(there.queries, coordinates, rows), here.scores, atol=1e-6)
    assert there.complete


def test_a_search_can_be_cut_short_everywhere_and_the_executor_goes_on(executor, monkeypatch):
    monkeypatch.setattr(ranking, "_WORTH_SENDING", 1)
    generator = np.random.default_rng(1)
    coordinates, rows = generator.normal(size=(120, 2)), random_queries(120, 200, generator)
    ranked = exact_search(coordinates, rows, executor=executor, stop=lambda: True)
    assert not ranked.complete
    np.testing.assert_allclose(information_gain(ranked.queries, coordinates, rows), ranked.scores, atol=1e-5)
    assert executor.map(operator.neg, [1]) == [-1]


def test_a_round_of_adaptive_is_the_same_everywhere(executor):
    n = 300
    generator = np.random.default_rng(2)
    sampler = Adaptive()
    state, rows = sampler.start(n, 0), random_queries(n, 2 * n, generator)
    state = replace(state, coordinates=generator.normal(size=(n, 2)))
    here, there = (sampler.search(state, rows, rows[:5], 30, each) for each in (None, executor))
    np.testing.assert_array_equal(there.queries, here.queries)
    np.testing.assert_allclose(there.scores, here.scores, rtol=1e-4)


def test_serial_work_completes_by_falling_priority():
    executor = SerialExecutor()
    tasks = [executor.submit(operator.neg, number, priority=number) for number in (1, 3, 2)]
    assert [task.result() for task in executor.as_completed(tasks)] == [-3, -2, -1]


def test_serial_work_that_was_cancelled_is_never_done():
    seen = []
    task = SerialExecutor().submit(seen.append, 1)
    task.cancel()
    with pytest.raises(SalmonError, match="cancelled"):
        task.result()
    assert seen == []


def test_a_cluster_that_is_not_there_is_named(unused_address):
    with pytest.raises(StartError, match=unused_address):
        join_cluster(unused_address, timeout_s=0.2)


@pytest.fixture
def unused_address():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return "tcp://{}:{}".format(*listener.getsockname())


def test_work_can_stand_on_earlier_work(executor):
    assert executor.submit(operator.mul, executor.submit(operator.add, 2, 3), 10).result() == 50
