"""The loop of learning on a real store: answers in, better queries out, each with its provenance."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from backend import workers
from backend.learner import to_entry
from backend.store import Store as BackendStore
from backend.workers import WorkerPool
from frontend.store import Store
from salmon.estimator.cross_validation import cross_validate
from salmon.parallel import SerialExecutor
from salmon.wire import Keys
from tests.bundles import read_answers
from tests.job_requests import answer_and_absorb
from tests.living import absorbed, run_until
from tests.program import poll


async def test_answers_become_a_model_and_better_queries(learning: Callable[..., Any], probe: BackendStore) -> None:
    crowd, experiment, service = await learning("loop")
    assert probe.count_queries(experiment, "Adaptive") >= 30  # random draws are there before any answer
    for _ in range(2):
        await answer_and_absorb(crowd, service, experiment, 20)
    queries = Keys(experiment).queries("Adaptive")
    run_until(service, lambda: any("|active|" in item for item in probe._client.lrange(queries, 0, -1)))
    await crowd.answer(20)
    assert [query for queries in crowd.asked.values() for query in queries if query["score"] > 0], (
        "nothing was chosen by its score"
    )
    assert all(query["score"] != -9999 for queries in crowd.asked.values() for query in queries)


async def test_nobody_is_asked_the_same_twice_nor_the_same_head_twice_in_a_row(
    learning: Callable[..., Any],
) -> None:
    crowd, experiment, service = await learning("unrepeated")
    for _ in range(6):
        await answer_and_absorb(crowd, service, experiment, 20, participants=2)
    for queries in crowd.asked.values():
        keys = [(query["head"], *sorted((query["left"], query["right"]))) for query in queries]
        assert len(set(keys)) == len(keys)
        heads = [query["head"] for query in queries]
        assert all(first != second for first, second in pairwise(heads))


async def test_every_answer_carries_how_it_was_chosen(learning: Callable[..., Any], store: Store) -> None:
    crowd, experiment, service = await learning("provenance")
    for _ in range(5):
        await answer_and_absorb(crowd, service, experiment, 20)
    answers = await read_answers(store, experiment)
    assert {answer.served.trial_type for answer in answers} == {"active", "random"}
    for answer in answers:
        served = answer.served
        if served.trial_type == "active":
            assert served.generation > 0
            assert served.score > 0
        else:
            assert 0 < served.probability <= 1 / (30 * 29 * 28 / 2)
        assert 0 < served.published_ms <= served.served_ms
        assert served.sampler_probability == 1.0


async def test_a_failing_learner_is_loud_and_tries_again(
    learning: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    crowd, experiment, service = await learning("failing")
    broken = True
    refit = workers.refit

    def fail(*arguments: Any) -> Any:
        if broken:
            raise FloatingPointError("the embedding blew up")
        return refit(*arguments)

    monkeypatch.setattr(workers, "refit", fail)
    await crowd.answer(31)
    run_until(service, lambda: bool(service.report().errors))
    assert service.report().errors == ("Adaptive: the refit failed (FloatingPointError: the embedding blew up)",)
    broken = False
    run_until(service, lambda: absorbed(service, experiment) == 31)
    assert service.report().errors == ()


async def test_the_held_out_accuracy_of_the_random_share_is_honest(
    learning: Callable[..., Any], store: Store, probe: BackendStore
) -> None:
    crowd, experiment, service = await learning("honest")
    for _ in range(25):
        await answer_and_absorb(crowd, service, experiment, 20)
    run_until(service, lambda: int(probe.read_model(experiment, "Adaptive").numbers["absorbed"]) == 500)  # type: ignore[union-attr]
    numbers = probe.read_model(experiment, "Adaptive").numbers  # type: ignore[union-attr]
    assert int(numbers["held_total"]) == sum(
        answer.served.trial_type == "random" for answer in await read_answers(store, experiment)
    )
    recent = numbers["held_recent"][-70:]  # the first ones were predicted by a model of hardly any answers
    # About .75 of these are right; fewer than .5 or more than .98 are four standard errors away.
    assert 0.5 < recent.count("r") / len(recent) < 0.98
    line = probe._binary.xrevrange(Keys(experiment).history("Adaptive"), count=1)[0][1]
    assert float(line[b"accuracy_low"]) < float(line[b"accuracy"]) < float(line[b"accuracy_high"])


async def test_the_published_accuracy_is_the_cross_validation_of_all_answers(
    learning: Callable[..., Any], store: Store, probe: BackendStore
) -> None:
    crowd, experiment, service = await learning("evaluated")

    def published() -> dict[str, str]:
        return probe.read_model(experiment, "Adaptive").numbers  # type: ignore[union-attr]

    for _ in range(5):
        await answer_and_absorb(crowd, service, experiment, 20)
    run_until(service, lambda: int(published().get("evaluated", 0)) == 100)
    entries = [to_entry("1-1", answer, tests=frozenset()) for answer in await read_answers(store, experiment)]
    random = np.array([entry is not None and entry.random for entry in entries])
    triplets = np.array([entry.triplet for entry in entries if entry is not None], dtype=np.int32)
    found = cross_validate(triplets, random, 30, 2, None, seed=probe.read_spec(experiment, 1)[0].seed)
    assert found is not None
    assert float(published()["held_out"]) == pytest.approx(found.accuracy.value)
    assert float(published()["held_out_low"]) == pytest.approx(found.accuracy.low)
    assert int(published()["held_out_judged"]) == random.sum()


def test_a_workshop_opens_its_cluster_again_after_it_was_lost() -> None:
    opened: list[SerialExecutor] = []

    class Lost(SerialExecutor):
        def submit(self, *arguments: Any, **options: Any) -> Any:
            raise OSError("the scheduler is gone")

    def open_executor() -> SerialExecutor:
        opened.append(Lost() if not opened else SerialExecutor())
        return opened[-1]

    from backend.learner import AnswerLog, LearningTask
    from salmon.samplers.registry import active_sampler

    class Some:
        n, sampler, answers = 5, active_sampler("Adaptive"), AnswerLog()

    outcomes: list[Any] = []
    workshop = WorkerPool(open_executor, lambda piece, outcome, seconds: outcomes.append(outcome))
    piece = LearningTask("refit", Some(), Some.sampler.start(5, 0))  # type: ignore[arg-type]
    for number in range(1, 5):
        workshop.take(piece)
        poll(lambda number=number: len(outcomes) >= number, "the outcome", seconds=20)
    workshop.close()
    assert [type(outcome).__name__ for outcome in outcomes[:3]] == ["OSError"] * 3
    assert len(opened) == 2
