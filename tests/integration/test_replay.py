"""Many answers that are there when an experiment is opened: learning begins with the first of them, and misses none."""

from collections.abc import Callable
from random import Random
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend import experiment as experiments
from backend.learner import to_entries, to_entry
from backend.service import Service
from backend.store import Store as BackendStore
from frontend.settings import Settings
from frontend.store import Store
from salmon.records import TRIAL_TYPES, Answer, Served, Timing
from salmon.wire import Keys, encode_answer
from salmon.wire.answer_pages import columns_of
from tests.bundles import page_of
from tests.living import Crowd, absorbed, run_until, started

ANSWERS = 7300
SPEC = "targets: 12\nsamplers: {Adaptive: {}}\nhtml: {max_queries: 0}\n"


def answer_of(place: int, **changes: Any) -> Answer:
    chance = Random(place)
    head, left, right = chance.sample(range(12), 3)
    given: dict[str, Any] = {
        "experiment": "e" * 10,
        "revision": 1,
        "participant": f"p{place % 50:011d}",
        "session": "s",
        "trial": place // 50 + 1,
        "sampler": "Adaptive",
        "head": head,
        "left": left,
        "right": right,
        "score": 0.5,
        "trial_type": "random",
        "probability": 0.1,
        "sampler_probability": 1.0,
        "generation": 0,
        "published_ms": 0,
        "served_ms": 1000 + place,
        "nonce": f"{place:016x}",
    } | changes
    served = Served(**given)
    nearer = served.left if abs(head - served.left) < abs(head - served.right) else served.right
    return Answer(served, nearer, Timing(rt_ms=800.0), 2000 + place, signed=False)


@given(
    st.lists(
        st.builds(
            answer_of,
            st.integers(0, 10**6),
            sampler=st.sampled_from(["Adaptive", "Ignored"]),
            trial_type=st.sampled_from(TRIAL_TYPES),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_entries_of_a_page_are_the_entries_of_its_answers(answers: list[Answer]) -> None:
    page = page_of(*((f"{place}-0", answer) for place, answer in enumerate(answers)))
    tests = frozenset({"Ignored"})
    found = [entry for columns in columns_of("e" * 10, page) for entry in to_entries(columns, tests=tests)]
    expected = [to_entry(f"{place}-0", answer, tests=tests) for place, answer in enumerate(answers)]
    assert found == [entry for entry in expected if entry is not None]


@pytest.fixture
async def imported(
    client: httpx.AsyncClient, settings: Settings, store: Store, request: pytest.FixtureRequest
) -> tuple[Crowd, str, str]:
    """The people of an open experiment, its id, and the place of the last of its answers, which were there before."""
    crowd, experiment = await started(client, settings, store, f"replayed-{len(request.node.name)}", SPEC)
    entries = [(f"{2000 + place}-0", encode_answer(answer_of(place))) for place in range(ANSWERS)]
    for start in range(0, ANSWERS, 500):
        await store.importer.append_answers(experiment, entries[start : start + 500])
    return crowd, experiment, entries[-1][0]


async def test_learning_begins_before_all_answers_are_read_and_ends_with_all_of_them(
    imported: tuple[Crowd, str, str],
    open_service: Callable[..., Service],
    probe: BackendStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(experiments, "_PAGES", 1)
    crowd, experiment, last = imported
    service = open_service()
    item = service.experiments[experiment]
    first = len(item.learners["Adaptive"].answers)
    assert 0 < first < ANSWERS
    assert item.replaying
    run_until(service, lambda: absorbed(service, experiment) == ANSWERS)
    assert not item.replaying
    assert item.cursor == last
    line = probe._binary.xrange(Keys(experiment).history("Adaptive"), count=1)[0][1]
    assert int(line[b"absorbed"]) < ANSWERS  # the first model did not wait for the last answer
    await crowd.answer(3)
    run_until(service, lambda: absorbed(service, experiment) == ANSWERS + 3)


async def test_a_model_that_has_seen_more_than_was_read_is_kept_until_everything_is_read(
    imported: tuple[Crowd, str, str],
    open_service: Callable[..., Service],
    probe: BackendStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, experiment, _ = imported
    service = open_service()
    run_until(service, lambda: absorbed(service, experiment) == ANSWERS)
    run_until(service, lambda: probe.read_model(experiment, "Adaptive").numbers.get("reported_of") == str(ANSWERS))  # type: ignore[union-attr]
    service.close()
    monkeypatch.setattr(experiments, "_PAGES", 1)
    again = open_service()
    item = again.experiments[experiment]
    while item.replaying:
        again.step(0.0)
        numbers = probe.read_model(experiment, "Adaptive").numbers  # type: ignore[union-attr]
        assert (numbers["absorbed"], numbers["reported_of"]) == (str(ANSWERS), str(ANSWERS))
    assert len(item.learners["Adaptive"].answers) == ANSWERS
