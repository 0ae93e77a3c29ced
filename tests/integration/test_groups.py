"""Groups of participants: who belongs to which, and what each is asked."""

import asyncio
from collections import Counter

import httpx
import pytest

from backend.experiment import Experiment
from backend.learner import AnswerLog
from backend.store import ExperimentRecord
from frontend.context import Context
from salmon.errors import SpecError
from salmon.records import Answer, Served, Timing
from salmon.spec import parse_spec
from tests.studies import OWNER, Study, study

TARGETS = "targets: [red, green, blue, cyan, pink, grey]\n"
SPEC = f"""{TARGETS}html: {{max_queries: 6, instructions: Which is more alike?}}
samplers: {{Warm: {{class: Random}}, Cold: {{class: Random}}, Both: {{class: Random}}}}
instructions: [{{text: For everybody.}}]
groups:
  warm: {{question: Which is WARMER?, samplers: [Warm], targets: [red, pink, grey]}}
  cold: {{instructions: [{{text: Think of ice.}}], samplers: [Cold, Both]}}
seed: 4
"""


async def walk(colors: Study, name: str) -> tuple[str, list[dict[str, int]], dict[str, object]]:
    """Let somebody take part; return the question, the queries and the arrival."""
    arrived = await colors.arrive(puid=name)
    headers = {"X-Salmon-Session": arrived["session"]}
    await colors.client.post(f"/e/{colors.slug}/steps/instructions", json={}, headers=headers)
    queries = []
    for _ in range(6):
        queries.append(await colors.query(arrived))
        await colors.answer({"token": queries[-1]["token"], "winner": queries[-1]["left"]})
    return arrived["page"]["instructions"], queries, arrived


async def test_each_group_has_its_own_question_texts_samplers_and_targets(
    client: httpx.AsyncClient, context: Context
) -> None:
    colors = await study(client, context, SPEC, "grouped")
    for name in ("p0", "p1", "p2", "p3"):
        question, queries, arrived = await walk(colors, name)
        shown = {target for query in queries for target in (query["head"], query["left"], query["right"])}
        text = arrived["steps"]["instructions"][0]["html"]  # type: ignore[index]
        if "WARMER" in question:
            assert shown == {0, 4, 5}
            assert {query["sampler"] for query in queries} == {"Warm"}
            assert "For everybody." in text
        else:
            assert question == "Which is more alike?"
            assert {query["sampler"] for query in queries} <= {"Cold", "Both"}
            assert "Think of ice." in text
    table = (await client.get("/api/experiments/grouped/exports/participants.jsonl", auth=OWNER)).text
    assert [table.count(f'"group":"{name}"') + table.count(f'"group": "{name}"') for name in ("warm", "cold")] == [2, 2]


async def test_groups_fill_up_together_however_many_arrive_at_once(client: httpx.AsyncClient, context: Context) -> None:
    colors = await study(client, context, SPEC.replace("seed: 4", "seed: 5"), "at-once")
    arrivals = await asyncio.gather(*(colors.arrive(puid=f"p{number}") for number in range(41)))
    questions = Counter(arrived["page"]["instructions"] for arrived in arrivals)
    assert sorted(questions.values()) == [20, 21]
    again = await colors.arrive(puid="p7")
    assert again["page"]["instructions"] == arrivals[7]["page"]["instructions"]


async def test_a_try_out_shows_the_group_that_is_asked_for(client: httpx.AsyncClient, context: Context) -> None:
    colors = await study(client, context, SPEC.replace("seed: 4", "seed: 6"), "tried-groups")
    link = (await client.post("/api/experiments/tried-groups/tryout", auth=OWNER)).json()["link"]
    key = link.partition("tryout=")[2]
    for _ in range(3):
        assert (await colors.arrive(tryout=key, group="warm"))["page"]["instructions"] == "Which is WARMER?"


def test_a_map_is_fitted_to_the_answers_of_its_groups() -> None:
    samplers = "samplers: {A: {class: Adaptive}, B: {class: Adaptive}, C: {class: Random}}\n"
    apart = parse_spec(f"{TARGETS}{samplers}groups: {{a: {{samplers: [A, C]}}, b: {{samplers: [B]}}}}\n").spec
    assert [apart.fitted_by(name) for name in "ABC"] == [{"A", "C"}, {"B"}, {"A", "C"}]
    mixed = parse_spec(f"{TARGETS}{samplers}groups: {{a: {{samplers: [A]}}, b: {{}}}}\n").spec
    assert mixed.fitted_by("A") == parse_spec(f"{TARGETS}{samplers}").spec.fitted_by("A") == frozenset()


def test_answers_of_other_groups_are_not_in_a_map() -> None:
    followed = ExperimentRecord("e" * 10, "groups", "open", 1)
    logs = {frozenset({"A"}): AnswerLog(), frozenset({"B"}): AnswerLog()}
    experiment = Experiment(followed, 1, frozenset(), 6, logs)
    for place, sampler in enumerate("AABAB"):
        served = Served("e", 1, "p", "s", 1, sampler, 0, 1, 2, 0.0, "active", 0.0, 1.0, 0, 0, 0, "t")
        experiment.absorb([(f"{place + 1}-0", Answer(served, 1, Timing(), 0))], live_at=0.0)
    assert [(len(log), log.cursor) for log in logs.values()] == [(3, "5-0"), (2, "5-0")]


@pytest.mark.parametrize(
    ("groups", "sentence"),
    [
        ("{a: {}}", "There is only one group"),
        ("{a: {samplers: [warn]}, b: {}}", "There is no sampler 'warn'"),
        ("{a: {targets: [red, green, blu], samplers: [Warm]}, b: {}}", "There is no target 'blu'"),
        ("{a: {targets: [red, green, blue], samplers: [Search]}, b: {}}", "Search would ask this group about targets"),
        ("{a: {targets: [red, green]}, b: {}}", "at least three|at least 3"),
        ("{a: {colour: red}, b: {}}", "colour"),
    ],
)
def test_groups_that_cannot_be_asked_are_refused_in_a_sentence(groups: str, sentence: str) -> None:
    text = f"{TARGETS}samplers: {{Warm: {{class: Random}}, Search: {{class: Adaptive}}}}\ngroups: {groups}\n"
    with pytest.raises(SpecError, match=sentence):
        parse_spec(text)
