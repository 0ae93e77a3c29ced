"""How participants leave, what platforms say about them, and which places that frees."""

import itertools
from collections.abc import Callable
from random import Random

import httpx
import pytest

from frontend.context import Context
from frontend.store import Store
from frontend.store.participants import StepChange
from frontend.store.statuses import AWAY, FINISHED, FROM_PLATFORM, TRANSITIONS, PlatformStatus, Status
from salmon.wire import Keys
from tests.bundles import rows_of
from tests.studies import OWNER, Study, study

EXPERIMENT = "targets: 9\nsamplers: {Random: {}}\nhtml: {max_queries: 2}\n"
_names = itertools.count()


@pytest.fixture
def opened(client: httpx.AsyncClient, context: Context) -> Callable[..., object]:
    """Opens an experiment; returns it with its id."""

    async def begin(spec: str = EXPERIMENT) -> tuple[Study, str]:
        one = await study(client, context, spec, f"lifecycle-{next(_names)}")
        return one, (await context.catalogue.find(one.slug)).id

    return begin


async def standing(store: Store, experiment: str) -> tuple[int, int, set[str]]:
    """Return how many hold a place, how many of them have finished, and who has not."""
    found = await store.connection.do(lambda client: client.hgetall(Keys(experiment).places))
    under_way = {name.removeprefix("at:") for name in found if name.startswith("at:")}
    return int(found.get("held", -1)), int(found.get("finished", 0)), under_way


async def stands_as_counted(store: Store, experiment: str) -> bool:
    """Return whether the places are those that follow from the statuses of all participants."""
    arrivals = await store.export_reader.read_arrivals(experiment)
    people = [
        one async for page in store.export_reader.read_people(experiment, list(arrivals.values())) for one in page
    ]
    holding = [one for one in people if one.status not in AWAY]
    finished = [one for one in holding if one.status in FINISHED]
    under_way = {one.id for one in holding if one.status not in FINISHED}
    return await standing(store, experiment) == (len(holding), len(finished), under_way)


@pytest.mark.parametrize("before", [each for each in Status if each != Status.REPLACED])
@pytest.mark.parametrize("said", PlatformStatus)
async def test_what_a_platform_says_is_stored_and_changes_the_status_only_where_it_may_follow(
    opened: Callable[..., object], store: Store, before: Status, said: PlatformStatus
) -> None:
    _, experiment = await opened()  # type: ignore[misc]
    people = store.participants
    one = await people.arrive(experiment, "prolific", "ada", now_ms=1, status=before)
    assert await people.note_platform_status(experiment, one.id, said, 5)
    after = await people.read(experiment, one.id)
    assert after is not None
    wanted = FROM_PLATFORM.get(said)
    assert after.status == (wanted if wanted in TRANSITIONS[before] else before)
    assert (after.platform, after.platform_ms) == (said, 5)
    assert await stands_as_counted(store, experiment)


async def test_what_a_platform_said_earlier_changes_nothing_when_it_comes_late_or_twice(
    opened: Callable[..., object], store: Store
) -> None:
    _, experiment = await opened()  # type: ignore[misc]
    people = store.participants
    one = await people.arrive(experiment, "prolific", "ada", now_ms=1)
    note = people.note_platform_status
    assert await note(experiment, one.id, PlatformStatus.AWAITING_REVIEW, 10)
    assert not await note(experiment, one.id, PlatformStatus.TIMED_OUT, 9)
    assert await note(experiment, one.id, PlatformStatus.AWAITING_REVIEW, 10)
    after = await people.read(experiment, one.id)
    assert after is not None
    assert (after.status, after.platform) == (Status.ARRIVED, PlatformStatus.AWAITING_REVIEW)


async def test_whoever_finishes_after_a_time_out_keeps_everything_and_gets_the_code(
    opened: Callable[..., object], store: Store
) -> None:
    one, experiment = await opened(EXPERIMENT + "recruitment: {platform: prolific, completion_code: C0DE77}\n")  # type: ignore[misc]
    arrival = await one.arrive(PROLIFIC_PID="ada", SESSION_ID="s1")
    first = await one.query(arrival)
    await one.answer({"token": first["token"], "winner": first["left"]})
    (participant,) = (await store.export_reader.read_arrivals(experiment)).values()
    await store.participants.note_platform_status(experiment, participant, PlatformStatus.TIMED_OUT, 7)
    assert await standing(store, experiment) == (0, 0, set()), "somebody else may come"
    second = await one.query(arrival)
    await one.answer({"token": second["token"], "winner": second["left"]})
    headers = {"X-Salmon-Session": arrival["session"]}
    done = (await one.client.post(f"/e/{one.slug}/finish", json={"given": 2}, headers=headers)).json()
    assert (done["complete"], done["code"]) == (True, "C0DE77")
    assert await standing(store, experiment) == (1, 1, set())
    reply = await one.client.get(f"/api/experiments/{one.slug}/exports/participants.csv", auth=OWNER)
    (row,) = rows_of(reply.content)
    assert (row["status"], row["platform_status"], row["answers"]) == ("completed", "timed_out", "2")
    assert row["platform_time"].startswith("1970-01-01")


async def test_whoever_returned_the_submission_cannot_go_on_but_keeps_their_answers(
    opened: Callable[..., object], store: Store
) -> None:
    one, experiment = await opened()  # type: ignore[misc]
    arrival = await one.arrive(puid="ada")
    first = await one.query(arrival)
    await one.answer({"token": first["token"], "winner": first["left"]})
    second = await one.query(arrival)
    (participant,) = (await store.export_reader.read_arrivals(experiment)).values()
    await store.participants.note_platform_status(experiment, participant, PlatformStatus.RETURNED, 7)
    headers = {"X-Salmon-Session": arrival["session"]}
    refused = await one.client.get(f"/e/{one.slug}/query", headers=headers)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "ended")
    late = await one.answer({"token": second["token"], "winner": second["left"]})
    assert late.json()["results"][0]["recorded"], "what was on its way is kept"
    finish = await one.client.post(f"/e/{one.slug}/finish", json={"given": 2}, headers=headers)
    assert finish.json()["error"]["code"] == "ended"


@pytest.mark.parametrize("seed", range(3))
async def test_the_places_follow_from_the_statuses_whatever_happens(
    opened: Callable[..., object], store: Store, seed: int
) -> None:
    _, experiment = await opened()  # type: ignore[misc]
    chance, people = Random(seed), store.participants
    known = [(await people.arrive(experiment, "link", f"p{n}", now_ms=1)).id for n in range(5)]
    for step in range(60):
        someone = chance.choice(known)
        match chance.randrange(5):
            case 0:
                await people.complete(experiment, someone, now_ms=step)
            case 1:
                await people.note_platform_status(experiment, someone, chance.choice(list(PlatformStatus)), step)
            case 2:
                again = await people.restart(experiment, someone, "link", f"p{known.index(someone)}", now_ms=step)
                known[known.index(someone)] = again.id
            case _:
                await people.change(experiment, someone, StepChange(chance.choice(list(Status))))
        assert await stands_as_counted(store, experiment)


async def test_the_first_arrival_after_an_update_counts_those_who_were_there(
    opened: Callable[..., object], store: Store
) -> None:
    _, experiment = await opened()  # type: ignore[misc]
    for name, status in (("a", Status.ACTIVE), ("b", Status.DECLINED), ("c", Status.COMPLETED)):
        await store.participants.arrive(experiment, "link", name, now_ms=1, status=status)
    await store.connection.do(lambda client: client.delete(Keys(experiment).places))
    await store.participants.arrive(experiment, "link", "d", now_ms=1)
    assert (await standing(store, experiment))[:2] == (3, 1)
    assert await stands_as_counted(store, experiment)
