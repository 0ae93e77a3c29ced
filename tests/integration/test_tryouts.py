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
