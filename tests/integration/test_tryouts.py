"""An experimenter who tries an experiment out leaves nothing behind that anybody could take for a participant's."""

from typing import Any

import httpx

from frontend.context import Context
from tests.studies import OWNER, Study, study

SPEC = "targets: [red, green, blue, cyan]\nhtml: {max_queries: 2}\nrecruitment: {completion_code: C0DE}\n"


async def everything(colors: Study, context: Context, experiment: str) -> list[Any]:
    """All that is stored of an experiment: state, counters, arrivals, answers, events, changes."""
    book = context.store.export_reader
    entries = [page async for page in book.read_entries(experiment, until="+")]
    events = [page async for page in book.read_events(experiment)]
    overview = (await colors.client.get(f"/api/experiments/{colors.slug}/overview", auth=OWNER)).json()
    figures = (overview["answers"]["total"], overview["participants"], overview["fallbacks"])
    return [
        await context.store.experiments.read_fields(experiment),
        await context.store.experiments.read_counts(experiment),
        await book.read_arrivals(experiment),
        await context.store.participants.count(experiment),
        entries,
        events,
        figures,
        await colors.rows(),
    ]


async def test_a_try_out_moves_no_counter_appends_no_answer_and_leaves_no_arrival_and_no_event(
    client: httpx.AsyncClient, context: Context
) -> None:
    colors = await study(client, context, SPEC, "tried-out")
    query = await colors.query(await colors.arrive(puid="real"))
    await colors.answer({"token": query["token"], "winner": query["left"]})
    experiment = (await context.catalogue.find("tried-out")).id
    before = await everything(colors, context, experiment)

    link = (await client.post("/api/experiments/tried-out/tryout", auth=OWNER)).json()["link"]
    assert (await client.get(link)).status_code == 200
    tried = await colors.arrive(tryout=link.partition("tryout=")[2])
    headers = {"X-Salmon-Session": tried["session"]}
    await client.post("/e/tried-out/steps/welcome", json={}, headers=headers)
    await colors.query(tried, spare=True)
    for _ in range(2):
        query = await colors.query(tried)
        results = (await colors.answer({"token": query["token"], "winner": query["left"]})).json()["results"]
        assert results[0]["recorded"] is True
        again = (await colors.answer({"token": query["token"], "winner": query["right"]})).json()["results"]
        assert (again[0]["recorded"], again[0]["count"]) == (False, results[0]["count"])
    told = await client.post("/e/tried-out/events", json=[{"event": "blur"}, {"event": "focus"}], headers=headers)
    assert told.json() == {"stored": 2}
    done = (await client.post("/e/tried-out/finish", json={"given": 2}, headers=headers)).json()
    assert (done["complete"], done["code"]) == (True, "C0DE")

    assert await everything(colors, context, experiment) == before


async def test_who_tries_can_skip_to_the_last_questions_and_the_end(
    client: httpx.AsyncClient, context: Context
) -> None:
    before_trials = (
        "consent: {text: May we?}\ninstructions: [{text: Look.}]\npractice: {queries: [[0, 1, 2, 1]]}\n"
        "comprehension: {questions: [{text: t, options: [x, y], answer: y}]}\n"
        "questions: [{name: age, text: How old?}]\n"
    )
    colors = await study(client, context, SPEC + before_trials, "skipped")
    link = (await client.post("/api/experiments/skipped/tryout", auth=OWNER)).json()["link"]
    tried = await colors.arrive(tryout=link.partition("tryout=")[2])
    assert tried["tryout"] is True
    headers = {"X-Salmon-Session": tried["session"]}
    assert (await client.post("/e/skipped/skip", headers=headers)).json() == {"skipped": True}
    again = await client.post(
        "/e/skipped/arrive", json={"parameters": {"tryout": link.partition("tryout=")[2]}, "session": tried["session"]}
    )
    assert (again.json()["step"], again.json()["answers"]) == ("questions", 2)
    headers = {"X-Salmon-Session": again.json()["session"]}
    reply = await client.post("/e/skipped/steps/questions", json={"replies": {"age": "40"}}, headers=headers)
    assert reply.json()["next"] == "debrief"
    done = (await client.post("/e/skipped/finish", json={"given": 2}, headers=headers)).json()
    assert (done["complete"], done["code"]) == (True, "C0DE")

    real = await colors.arrive(puid="real")
    refused = await client.post("/e/skipped/skip", headers={"X-Salmon-Session": real["session"]})
    assert refused.status_code == 403
    assert real["tryout"] is False
