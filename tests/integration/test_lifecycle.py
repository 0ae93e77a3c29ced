"""How participants leave, what platforms say about them, and which places that frees."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from frontend.context import Context
from frontend.errors import BundleError
from frontend.lifecycle import look_at_all
from frontend.settings import Settings
from frontend.store import Store
from frontend.store.statuses import AWAY, FINISHED, FROM_PLATFORM, TRANSITIONS, PlatformStatus, Status
from frontend.store.step_changes import StepChange
from frontend.transfer.import_bundle import import_bundle
from salmon.wire import Keys
from tests.bundles import bundle_of, change_bundle, rows_of
from tests.studies import OWNER, Study, study

EXPERIMENT = "targets: 9\nsamplers: {Random: {}}\nhtml: {max_queries: 2}\n"
_names = itertools.count()
Open = Callable[..., Awaitable[tuple[Study, str]]]


@pytest.fixture
def opened(client: httpx.AsyncClient, context: Context) -> Open:
    """Opens an experiment; returns it with its id."""

    async def begin(spec: str = EXPERIMENT) -> tuple[Study, str]:
        one = await study(client, context, spec, f"lifecycle-{next(_names)}")
        return one, (await context.catalogue.find(one.slug)).id

    return begin


@pytest.fixture
def app_context(client: httpx.AsyncClient) -> Callable[[int], None]:
    """Sets the clock of the application."""
    app: Any = client._transport.app  # type: ignore[attr-defined]

    def set_clock(now_ms: int) -> None:
        app.state.context = replace(app.state.context, now_ms=lambda: now_ms)

    return set_clock


async def standing_counts(store: Store, experiment: str) -> tuple[int, int]:
    """Return how many hold a place, and how many of them have finished."""
    return (await standing(store, experiment))[:2]


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
    opened: Open, store: Store, before: Status, said: PlatformStatus
) -> None:
    _, experiment = await opened()
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
    opened: Open, store: Store
) -> None:
    _, experiment = await opened()
    people = store.participants
    one = await people.arrive(experiment, "prolific", "ada", now_ms=1)
    note = people.note_platform_status
    assert await note(experiment, one.id, PlatformStatus.AWAITING_REVIEW, 10)
    assert not await note(experiment, one.id, PlatformStatus.TIMED_OUT, 9)
    assert await note(experiment, one.id, PlatformStatus.AWAITING_REVIEW, 10)
    after = await people.read(experiment, one.id)
    assert after is not None
    assert (after.status, after.platform) == (Status.ARRIVED, PlatformStatus.AWAITING_REVIEW)


async def test_whoever_finishes_after_a_time_out_keeps_everything_and_gets_the_code(opened: Open, store: Store) -> None:
    one, experiment = await opened(EXPERIMENT + "recruitment: {platform: prolific, completion_code: C0DE77}\n")
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


async def test_whoever_returned_the_submission_cannot_go_on_but_keeps_their_answers(opened: Open, store: Store) -> None:
    one, experiment = await opened()
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
async def test_the_places_follow_from_the_statuses_whatever_happens(opened: Open, store: Store, seed: int) -> None:
    _, experiment = await opened()
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


async def test_the_first_arrival_after_an_update_counts_those_who_were_there(opened: Open, store: Store) -> None:
    _, experiment = await opened()
    for name, status in (("a", Status.ACTIVE), ("b", Status.DECLINED), ("c", Status.COMPLETED)):
        await store.participants.arrive(experiment, "link", name, now_ms=1, status=status)
    await store.connection.do(lambda client: client.delete(Keys(experiment).places))
    await store.participants.arrive(experiment, "link", "d", now_ms=1)
    assert (await standing(store, experiment))[:2] == (3, 1)
    assert await stands_as_counted(store, experiment)


PLACES = EXPERIMENT + "stopping: {participants: 50}\n"


async def code_of(one: Study, **parameters: str) -> str:
    """Return the code of the refusal of an arrival, or nothing where it gets in."""
    reply = await one.client.post(f"/e/{one.slug}/arrive", json={"parameters": parameters})
    return reply.json()["error"]["code"] if reply.status_code != 200 else ""


async def finish(one: Study, arrival: dict[str, Any], trials: int = 2) -> dict[str, Any]:
    """Answer everything, and return what the page is told in the end."""
    for _ in range(trials):
        query = await one.query(arrival)
        if "token" in query:
            (await one.answer({"token": query["token"], "winner": query["left"]})).raise_for_status()
    headers = {"X-Salmon-Session": arrival["session"]}
    return (await one.client.post(f"/e/{one.slug}/finish", json={"given": trials}, headers=headers)).json()


async def test_of_three_hundred_who_arrive_at_once_fifty_get_in_and_those_who_replace_returned_ones(
    opened: Open, store: Store, app_context: Callable[[int], None]
) -> None:
    one, experiment = await opened(PLACES)
    app_context(0)
    codes = await asyncio.gather(*(code_of(one, puid=f"p{number}") for number in range(300)))
    assert (codes.count(""), codes.count("full")) == (50, 250)
    assert await standing_counts(store, experiment) == (50, 0)
    arrivals = await store.export_reader.read_arrivals(experiment)
    assert len(arrivals) == 50, "nothing is stored of those who were refused"
    for participant in list(arrivals.values())[:7]:
        await store.participants.note_platform_status(experiment, participant, PlatformStatus.RETURNED, 1)
    app_context(60_000)  # one address may send so many at once, and others a little later
    codes = await asyncio.gather(*(code_of(one, puid=f"q{number}") for number in range(100)))
    assert (codes.count(""), codes.count("full")) == (7, 93)
    assert await stands_as_counted(store, experiment)


async def test_an_experiment_closes_when_all_who_hold_a_place_have_finished_and_says_why(
    opened: Open, store: Store, context: Context
) -> None:
    one, experiment = await opened(EXPERIMENT + "stopping: {participants: 2}\nrecruitment: {completion_code: C0DE77}\n")
    first, second = [await one.arrive(puid=name) for name in "ab"]
    assert (await finish(one, first))["code"] == "C0DE77"
    assert (await store.experiments.read(experiment)).state == "open"
    assert await code_of(one, puid="c") == "full"
    assert (await finish(one, second))["code"] == "C0DE77"
    state = await store.experiments.read(experiment)
    assert (state.state, state.ended_by, state.lets_finish) == ("closed", "participants", True)
    change = (await store.experiments.read_changes(experiment))[-1]
    assert (change.by, change.what) == ("stopping.participants", "state")
    assert change.detail == "closed by itself: 2 participants are wanted, and 2 have finished."
    assert await code_of(one, puid="c") == "closed"
    assert await code_of(one, puid="a") == "", "whoever has finished sees the code again"
    reply = await one.client.put(f"/api/experiments/{one.slug}/state", json={"state": "open"}, auth=OWNER)
    assert reply.status_code == 409
    assert "would close again at once: 2 participants are wanted" in reply.json()["error"]["message"]
    overview = (await one.client.get(f"/api/experiments/{one.slug}/overview", auth=OWNER)).json()
    assert "closed by itself" in overview["verdict"]["what"].casefold() + str(overview["sentences"]).casefold()


async def test_an_experiment_closes_at_its_last_answer_and_whoever_has_begun_finishes_and_gets_the_code(
    opened: Open, store: Store
) -> None:
    one, experiment = await opened(EXPERIMENT + "stopping: {answers: 3}\nrecruitment: {completion_code: C0DE77}\n")
    first, second = [await one.arrive(puid=name) for name in "ab"]
    third = await one.arrive(puid="c")
    await finish(one, first)
    query = await one.query(second)
    await one.answer({"token": query["token"], "winner": query["left"]})
    state = await store.experiments.read(experiment)
    assert (state.state, state.ended_by) == ("closed", "answers")
    assert await code_of(one, puid="d") == "closed"
    again = await one.arrive(puid="b")
    assert (await finish(one, again, trials=2))["code"] == "C0DE77"
    assert (await finish(one, third))["code"] == "C0DE77", "also who had only arrived"


async def test_an_imported_study_keeps_what_happened_and_counts_its_places_anew(
    opened: Open, store: Store, settings: Settings, context: Context, tmp_path: Path
) -> None:
    one, experiment = await opened(EXPERIMENT + "stopping: {participants: 2}\nrecruitment: {repeats: 1}\n")
    for _ in range(2):
        await finish(one, await one.arrive(puid="a"))
    assert (await store.experiments.read(experiment)).ended_by == "participants"
    (first, _) = (await store.export_reader.read_arrivals(experiment)).values()
    await store.participants.note_platform_status(experiment, first, PlatformStatus.APPROVED, 5)
    path = tmp_path / "bundle.zip"
    path.write_bytes(await bundle_of(settings, store, one.slug))
    imported = await import_bundle(context, path, name=f"{one.slug}-again", owner=OWNER[0])
    copy = await context.catalogue.find(imported.slug)
    assert (copy.state.state, copy.state.ended_by) == ("paused", "")
    # Both are counted before anybody else arrives.
    places = await store.participants.read_places(copy.id)
    assert (places.held, places.finished) == (2, 2)
    people = await store.export_reader.read_arrivals(copy.id)
    kept = await store.participants.read(copy.id, first)
    assert kept is not None
    assert (kept.status, kept.platform, sorted(people.values())) == (
        Status.COMPLETED, PlatformStatus.APPROVED, sorted((await store.export_reader.read_arrivals(experiment)).values())
    )  # fmt: skip
    await store.participants.arrive(copy.id, "link", "b", now_ms=1)
    assert await standing_counts(store, copy.id) == (3, 2)
    damaged = change_bundle(
        path.read_bytes(),
        lambda members: members.update(
            {name: content.replace(b'"approved"', b'"paid"') for name, content in members.items()}
        ),
    )
    path.write_bytes(damaged)
    with pytest.raises(BundleError, match="no known status"):
        await import_bundle(context, path, name="damaged", owner=OWNER[0])


async def test_a_study_without_end_stops_asking_when_it_closes_by_itself(opened: Open) -> None:
    one, _ = await opened("targets: 9\nsamplers: {Random: {}}\nhtml: {max_queries: 0}\nstopping: {answers: 1}\n")
    arrival = await one.arrive(puid="a")
    query = await one.query(arrival)
    await one.answer({"token": query["token"], "winner": query["left"]})
    assert await one.query(arrival) == {"done": True, "answers": 1}


async def test_an_experiment_opens_and_closes_at_the_times_in_its_file(
    opened: Open, store: Store, app_context: Callable[[int], None]
) -> None:
    times = "recruitment: {opens_at: 2030-01-01 12:00}\nstopping: {at: 2030-01-02 12:00}\n"
    one, experiment = await opened(EXPERIMENT + times)
    noon = int(datetime(2030, 1, 1, 12, tzinfo=UTC).timestamp() * 1000)
    app_context(noon - 1)
    refused = await one.client.post(f"/e/{one.slug}/arrive", json={"parameters": {"puid": "a"}})
    assert refused.json()["error"]["code"] == "early"
    assert "2030-01-01 at 12:00 UTC" in refused.json()["error"]["message"]
    app_context(noon)
    arrival = await one.arrive(puid="a")
    app_context(noon + 86_400_000)
    assert await code_of(one, puid="b") == "closed"
    state = await store.experiments.read(experiment)
    assert (state.state, state.ended_by) == ("closed", "at")
    assert (await finish(one, arrival))["complete"], "who has begun may finish"


async def test_the_web_process_closes_what_is_due_without_any_request(
    opened: Open, store: Store, context: Context
) -> None:
    _, experiment = await opened(EXPERIMENT + "stopping: {at: 2020-01-01}\n")
    await look_at_all(context)
    assert (await store.experiments.read(experiment)).ended_by == "at"


async def test_groups_fill_up_to_their_numbers_and_then_the_study_is_full(opened: Open, store: Store) -> None:
    groups = "groups: {one: {question: A?, participants: 20}, two: {question: B?, participants: 10}}\n"
    one, experiment = await opened(EXPERIMENT + groups)
    codes = await asyncio.gather(*(code_of(one, puid=f"p{number}") for number in range(60)))
    assert (codes.count(""), codes.count("full")) == (30, 30)
    places = await store.participants.read_places(experiment)
    assert places.groups == {"one": 20, "two": 10}
    arrivals = await store.export_reader.read_arrivals(experiment)
    people = [
        one async for page in store.export_reader.read_people(experiment, list(arrivals.values())) for one in page
    ]
    assert sorted(person.group for person in people) == ["one"] * 20 + ["two"] * 10
    gone = next(person for person in people if person.group == "two")
    await store.participants.note_platform_status(experiment, gone.id, PlatformStatus.TIMED_OUT, 1)
    await one.arrive(puid="late")
    found = await store.participants.find(experiment, "link", "late")
    assert found is not None
    assert found.group == "two", "the group whose place was freed"


async def test_a_place_is_freed_when_somebody_shows_no_sign_and_they_may_come_back(
    opened: Open, store: Store, app_context: Callable[[int], None]
) -> None:
    one, experiment = await opened(EXPERIMENT + "stopping: {participants: 2}\nresume: {abandoned_after: 1h}\n")
    app_context(1_000)
    looked = await one.arrive(puid="looked")
    began = await one.arrive(puid="began")
    query = await one.query(began)
    await one.answer({"token": query["token"], "winner": query["left"]})
    app_context(3_600_000)
    assert await code_of(one, puid="new") == "full"
    app_context(3_700_000)
    assert [await code_of(one, puid=name) for name in ("new", "newer", "newest")] == ["", "", "full"]
    assert await code_of(one, puid="looked") == "full", "they had not answered anything"
    step = await one.client.post(
        f"/e/{one.slug}/steps/welcome", json={}, headers={"X-Salmon-Session": looked["session"]}
    )
    assert step.json()["error"]["code"] == "full"
    again = await one.arrive(puid="began")
    assert (again["answers"], again["status"]) == (1, "active"), "whoever has begun may finish"
    assert (await store.participants.read_places(experiment)).held == 3
    assert await stands_as_counted(store, experiment)


async def test_after_a_day_nobody_goes_on_and_the_place_stays_free(
    opened: Open, store: Store, app_context: Callable[[int], None]
) -> None:
    one, experiment = await opened(EXPERIMENT + "stopping: {participants: 1}\n")
    app_context(1_000)
    arrival = await one.arrive(puid="ada")
    query = await one.query(arrival)
    await one.answer({"token": query["token"], "winner": query["left"]})
    app_context(90_000_000)
    assert await code_of(one, puid="bob") == ""
    assert await code_of(one, puid="ada") == "gap"
    assert await standing_counts(store, experiment) == (1, 0)
    assert await stands_as_counted(store, experiment)


async def test_too_many_failures_pause_an_experiment_but_never_those_of_a_few(
    opened: Open, store: Store, context: Context
) -> None:
    one, experiment = await opened(EXPERIMENT + "stopping: {errors_above: 30%}\n")
    sessions = [(await one.arrive(puid=f"p{number}"))["session"] for number in range(8)]

    async def report(session: str, event: str) -> None:
        body = {"event": event, "trial": 1, "client_ms": 5.0, "detail": "target 1"}
        reply = await one.client.post(f"/e/{one.slug}/events", json=body, headers={"X-Salmon-Session": session})
        reply.raise_for_status()

    for session in sessions:
        await report(session, "opened")
    for session in sessions[:2]:
        await report(session, "load_failed")
        await report(session, "load_failed")
    await look_at_all(context)
    assert (await store.experiments.read(experiment)).state == "open", "two are too few"
    await report(sessions[2], "page_failed")
    await look_at_all(context)
    state = await store.experiments.read(experiment)
    assert (state.state, state.ended_by) == ("paused", "errors_above")
    assert "3 of 8 participants reported a failure" in (await store.experiments.read_changes(experiment))[-1].detail
    overview = (await one.client.get(f"/api/experiments/{one.slug}/overview", auth=OWNER)).json()
    assert "paused by itself" in str(overview["sentences"])
    await store.experiments.set_state(experiment, "open", now_ms=context.now_ms() + 1000)
    await look_at_all(context)
    assert (await store.experiments.read(experiment)).state == "open", (
        "failures before it was opened again do not count"
    )


SUBMISSIONS: dict[str, tuple[str, str]] = {
    "prolific": ("PROLIFIC_PID", "SESSION_ID"),
    "connect": ("participantId", "assignmentId"),
    "mturk": ("workerId", "assignmentId"),
}


def spec_for(platform: str, extra: str = "") -> str:
    return EXPERIMENT + f"recruitment: {{platform: {platform}, completion_code: C0DE77{extra}}}\n"


@pytest.mark.parametrize("platform", SUBMISSIONS)
async def test_the_same_submission_goes_on_where_it_was_and_gets_the_code_again(opened: Open, platform: str) -> None:
    person, submission = SUBMISSIONS[platform]
    one, _ = await opened(spec_for(platform))
    ids = {person: "ada", submission: "s1"}
    arrival = await one.arrive(**ids)
    query = await one.query(arrival)
    await one.answer({"token": query["token"], "winner": query["left"]})
    again = await one.arrive(**ids)
    assert (again["answers"], again["resumed"], again["status"]) == (1, True, "active")
    assert (await finish(one, again))["code"] == "C0DE77"
    for _ in range(2):
        done = await one.arrive(**ids)
        assert done["status"] == "completed"
        assert (await finish(one, done, trials=0))["code"] == "C0DE77"


@pytest.mark.parametrize("platform", SUBMISSIONS)
async def test_a_new_submission_before_the_trials_begins_anew(opened: Open, store: Store, platform: str) -> None:
    person, submission = SUBMISSIONS[platform]
    one, experiment = await opened(spec_for(platform) + "instructions: [{text: Look.}]\nstopping: {participants: 1}\n")
    first = await one.arrive(**{person: "ada", submission: "s1"})
    headers = {"X-Salmon-Session": first["session"]}
    await one.client.post(f"/e/{one.slug}/steps/welcome", json={}, headers=headers)
    again = await one.arrive(**{person: "ada", submission: "s2"})
    assert (again["step"], again["resumed"]) == ("welcome", False)
    assert await stands_as_counted(store, experiment)
    assert await standing_counts(store, experiment) == (1, 0), "the place went over to the new submission"
    assert await code_of(one, **{person: "bob", submission: "s3"}) == "full"
    old = await one.client.post(f"/e/{one.slug}/steps/instructions", json={}, headers=headers)
    assert old.json().get("status") == "replaced"


@pytest.mark.parametrize("platform", SUBMISSIONS)
@pytest.mark.parametrize("finished", [False, True])
async def test_a_new_submission_after_the_trials_began_is_refused_with_an_explanation(
    opened: Open, platform: str, finished: bool
) -> None:
    person, submission = SUBMISSIONS[platform]
    one, _ = await opened(spec_for(platform))
    arrival = await one.arrive(**{person: "ada", submission: "s1"})
    if finished:
        await finish(one, arrival)
    else:
        await one.query(arrival)
    reply = await one.client.post(f"/e/{one.slug}/arrive", json={"parameters": {person: "ada", submission: "s2"}})
    assert (reply.status_code, reply.json()["error"]["code"]) == (409, "again")
    assert "contact the people who run the study" in reply.json()["error"]["hint"]
    status = (await one.arrive(**{person: "ada", submission: "s1"}))["status"]
    assert status == ("completed" if finished else "active"), "the first one still goes on"


async def test_whoever_failed_gets_no_other_attempt_by_a_new_submission(opened: Open, store: Store) -> None:
    one, experiment = await opened(spec_for("prolific"))
    await one.arrive(PROLIFIC_PID="ada", SESSION_ID="s1")
    found = await store.participants.find(experiment, "prolific", "ada")
    assert found is not None
    await store.participants.change(experiment, found.id, StepChange(Status.SCREENED_OUT))
    assert await code_of(one, PROLIFIC_PID="ada", SESSION_ID="s2") == "again"


async def test_workers_of_one_assignment_are_two_participants(opened: Open) -> None:
    one, _ = await opened(spec_for("mturk"))
    await finish(one, await one.arrive(workerId="W1", assignmentId="A1"))
    assert (await one.arrive(workerId="W2", assignmentId="A1"))["answers"] == 0


FIXED = """\
targets: [a, b, c, d, e, f, g]
samplers: {Random: {}, Validation: {queries: [[0, 1, 2], [3, 4, 5]]}}
sampling: {probs: {Random: 50, Validation: 50}, details: {1: {sampler: Random, query: [6, 0, 1]}}}
html: {max_queries: 12}
checks: {shared: 4}
recruitment: {platform: prolific, completion_code: C0DE77, repeats: 2}
"""


async def asked_of(one: Study, arrival: dict[str, Any]) -> set[tuple[int, int, int]]:
    """Answer everything; return the queries that were asked."""
    asked: set[tuple[int, int, int]] = set()
    while "token" in (query := await one.query(arrival)):
        asked.add((query["head"], min(query["left"], query["right"]), max(query["left"], query["right"])))
        await one.answer({"token": query["token"], "winner": query["left"]})
    headers = {"X-Salmon-Session": arrival["session"]}
    done = (await one.client.post(f"/e/{one.slug}/finish", json={"given": 12}, headers=headers)).json()
    assert done["code"] == "C0DE77"
    return asked


async def test_repeats_allow_so_many_further_times_and_never_the_same_query(opened: Open, store: Store) -> None:
    one, experiment = await opened(FIXED)
    first = await asked_of(one, await one.arrive(PROLIFIC_PID="ada", SESSION_ID="s1"))
    assert (6, 0, 1) in first
    later = [await asked_of(one, await one.arrive(PROLIFIC_PID="ada", SESSION_ID=f"s{n}")) for n in (2, 3)]
    assert not first & later[0], "neither fixed nor shared queries, nor any other"
    assert not (first | later[0]) & later[1]
    assert await code_of(one, PROLIFIC_PID="ada", SESSION_ID="s4") == "again"
    early = await one.arrive(PROLIFIC_PID="ada", SESSION_ID="s1")
    assert (early["status"], early["answers"]) == ("completed", 12), "an earlier submission sees its own end"
    assert await standing_counts(store, experiment) == (3, 3)
    assert await stands_as_counted(store, experiment)
    rows = rows_of((await one.client.get(f"/api/experiments/{one.slug}/exports/participants.csv", auth=OWNER)).content)
    assert [row["status"] for row in rows] == ["completed"] * 3
    assert len({row["duplicate_of"] for row in rows} - {""}) == 1


async def test_where_there_are_no_submissions_opening_the_link_anew_is_another_time(opened: Open) -> None:
    one, _ = await opened(EXPERIMENT + "recruitment: {repeats: 1, completion_code: C0DE77}\n")
    first = await one.arrive(puid="ada")
    await finish(one, first)
    reload = await one.client.post(
        f"/e/{one.slug}/arrive", json={"parameters": {"puid": "ada"}, "session": first["session"]}
    )
    assert reload.json()["status"] == "completed", "a reload shows the code again"
    second = await one.arrive(puid="ada")
    assert (second["step"], second["answers"]) == ("welcome", 0)
    assert (await finish(one, second))["complete"]
    assert (await one.arrive(puid="ada"))["status"] == "completed"


async def test_whoever_withdraws_is_asked_nothing_more_and_excluded(opened: Open) -> None:
    one, _ = await opened(EXPERIMENT + "consent: {text: May we?}\nstopping: {participants: 1}\n")
    arrival = await one.arrive(puid="ada")
    headers = {"X-Salmon-Session": arrival["session"]}
    await one.client.post(f"/e/{one.slug}/steps/consent", json={"agreed": True}, headers=headers)
    query = await one.query(arrival)
    await one.answer({"token": query["token"], "winner": query["left"]})
    reply = await one.client.post(f"/e/{one.slug}/withdraw", headers=headers)
    assert reply.json() == {"status": "withdrawn"}
    refused = await one.client.get(f"/e/{one.slug}/query", headers=headers)
    assert refused.json()["error"]["code"] == "ended"
    assert (await one.arrive(puid="ada"))["step"] == "out"
    assert (await one.arrive(puid="bob"))["step"] == "welcome", "the place is free again"
    rows = rows_of((await one.client.get(f"/api/experiments/{one.slug}/exports/participants.csv", auth=OWNER)).content)
    row = next(row for row in rows if row["status"] == "withdrawn")
    assert (row["answers"], row["keep"].casefold(), row["note"], row["decided_by"]) == (
        "1", "false", "They withdrew.", "participant"
    )  # fmt: skip
    forged = await one.client.post(f"/e/{one.slug}/withdraw", headers={"X-Salmon-Session": "x.y"})
    assert forged.status_code == 403


async def test_nobody_withdraws_from_a_study_without_a_consent(opened: Open) -> None:
    one, _ = await opened()
    arrival = await one.arrive(puid="ada")
    reply = await one.client.post(f"/e/{one.slug}/withdraw", headers={"X-Salmon-Session": arrival["session"]})
    assert reply.status_code == 400
