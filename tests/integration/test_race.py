"""A race on a real store: everybody meets one sampler, each learns from its own people,
and the job says where it stands.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np

from backend.service import Service
from backend.store import Store as BackendStore
from frontend.settings import Settings
from frontend.store import Store
from salmon.estimator.race import Race, judge
from tests.bundles import read_answers
from tests.job_requests import ask_for, run_to_the_end
from tests.living import absorbed, run_until, started

SPEC = """
targets: 30
html: {max_queries: 0}
samplers: {Adaptive: {random_share: 20%}, Random: {}}
sampling: {race: 30%}
seed: 11
"""
PEOPLE, ANSWERS = 24, 400


async def test_a_race_is_served_learned_apart_and_judged(
    client: httpx.AsyncClient,
    settings: Settings,
    store: Store,
    owned: Callable[..., Any],
    probe: BackendStore,
    open_service: Callable[..., Service],
) -> None:
    crowd, experiment = await started(client, settings, store, "raced", SPEC)
    service = open_service()
    run_until(service, lambda: probe.count_queries(experiment, "Adaptive") > 0)
    for _ in range(ANSWERS // 100):
        await crowd.answer(100, PEOPLE)
        run_until(service, lambda: service.step(0.0) > 0)
    answers = await read_answers(store, experiment)
    assert len(answers) == ANSWERS
    met = {answer.served.participant: set[str]() for answer in answers}
    for answer in answers:
        met[answer.served.participant].add(answer.served.sampler)
    assert all(len(samplers) == 1 for samplers in met.values())
    assert {sampler for (sampler,) in met.values()} == {"Adaptive", "Random"}
    own = Counter(answer.served.sampler for answer in answers)
    held_out = [answer for answer in answers if answer.served.trial_type == "held_out"]
    assert 0.2 < len(held_out) / ANSWERS < 0.4
    assert len({answer.served.participant for answer in held_out}) >= PEOPLE - 2

    run_until(service, lambda: absorbed(service, experiment) == own["Adaptive"])
    ended = run_to_the_end(service, probe, await ask_for(owned, "raced", "race"))
    assert ended.state == "done", ended.error
    found = ended.result
    assert (found["names"], found["answers"]) == (["Adaptive", "Random"], [own["Adaptive"], own["Random"]])
    assert found["held_out"] == len(held_out)
    assert 0 < found["judged"] < len(held_out), "the first ones come before there is a map of each"
    (lead,) = found["leads"]
    assert lead["low"] < lead["lead"] < lead["high"]
    assert (lead["first"], lead["ahead"]) == ("Adaptive", "")
    # Participants meet their samplers by chance, so that the lead may be exactly 0.
    neither = "No difference between Adaptive and Random can be stated yet ("
    assert lead["sentence"].startswith("No difference can be stated yet: " if lead["lead"] else neither)

    names, people = ("Adaptive", "Random"), list(met)
    again = judge(
        Race(
            names,
            (2, 2),
            *(
                np.array(column)
                for column in (
                    [(answer.served.head, answer.winner, answer.loser) for answer in answers],
                    [names.index(answer.served.sampler) for answer in answers],
                    [people.index(answer.served.participant) for answer in answers],
                    [answer.served.trial_type == "held_out" for answer in answers],
                )
            ),
            n=30,
            seed=11,
        )
    )
    assert (again.judged, again.leads[0].lead) == (found["judged"], lead["lead"])
    table = (await owned("GET", "/api/experiments/raced/exports/responses.csv")).text
    assert table.count(",held_out,") == len(held_out)


async def test_where_no_samplers_race_nothing_is_judged(
    client: httpx.AsyncClient, settings: Settings, store: Store, owned: Callable[..., Any]
) -> None:
    await started(client, settings, store, "unraced")
    reply = await owned("POST", "/api/experiments/unraced/requests", json={"kind": "race", "arguments": {}})
    assert reply.status_code == 422
    assert "samplers do not race" in reply.text
