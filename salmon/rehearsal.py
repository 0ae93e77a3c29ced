"""Simulated people who take part in an experiment on a running server, from the platform's link to the way out.

They do what participants do: consent, practise, answer the comprehension questions (rightly), answer queries by the
distances of a true embedding, reply to the questions at the end and ask for their code. Some answer without looking,
and some leave in the middle, as in every study. They think faster than people by a factor, and tell the server the
response times that people would have needed.
"""

import asyncio
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import urlencode

import numpy as np

from salmon import parent_watch
from salmon.client import Connections, PageSession, ServedQuery, connections
from salmon.errors import SalmonError
from salmon.simulate import Reaction, SimulatedParticipant, World, random_world, stream
from salmon.spec import Spec
from salmon.spec.schema import Question

#: careful looks, with few lapses; coin chooses by chance; fast does so within 150 ms; rule takes the target that comes
#: first in the file, whatever the head; leaving is careful and closes the page in the middle.
Kind = Literal["careful", "coin", "fast", "rule", "leaving"]
Outcome = Literal["completed", "screened_out", "left", "failed"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_PLACEHOLDER = re.compile(r"\{\{%[A-Z_]+%\}\}|%[A-Z_]+%")
_FAST_MS = 150.0
#: Answers of each person where the experiment has no end.
ANSWERS_WITHOUT_END = 50


@dataclass(frozen=True)
class SimulatedPerson:
    """Somebody of a kind that the server does not know, and the link that they open."""

    name: str
    kind: Kind
    link: str
    answers_as: SimulatedParticipant
    rng: np.random.Generator


@dataclass(frozen=True)
class Walk:
    """How far a person came: `said` is the code, redirect or error with which it ended."""

    person: SimulatedPerson
    outcome: Outcome
    participant: str = ""
    answers: int = 0
    said: str = ""
    query_seconds: tuple[float, ...] = ()


def draw_people(world: World, links: Sequence[str], shares: Mapping[Kind, float], seed: int) -> list[SimulatedPerson]:
    """Return a person for each link, with kinds in these shares (the rest is careful),
    in an order drawn from the seed.
    """
    if not 0 <= sum(shares.values()) <= 1 or min(shares.values(), default=0) < 0:
        raise SalmonError("The shares of careless people must not be negative, nor more than 100 % together.")
    kinds: list[Kind] = [kind for kind, share in shares.items() for _ in range(round(share * len(links)))]
    careful: list[Kind] = ["careful"]
    kinds = [*kinds[: len(links)], *careful * (len(links) - len(kinds))]
    people: list[SimulatedPerson] = []
    for number, place in enumerate(stream(seed, "sides").permutation(len(links)).tolist()):
        rng = stream(seed, "answers", number)
        kind = kinds[place]
        looks = kind in {"careful", "leaving"}
        answers_as = SimulatedParticipant(
            world,
            lapse=float(rng.beta(1, 20)) if looks else 1.0,
            median_ms=_FAST_MS if kind == "fast" else 1400.0 * float(np.exp(0.3 * rng.normal())),
        )
        people.append(SimulatedPerson(f"person {number + 1}", kind, links[number], answers_as, rng))
    return people


def fill_in(link: str, platform: str, number: int) -> str:
    """Return the link as a platform opens it for one of its people: placeholders filled
    in, parameters of its own added.
    """
    person, submission = f"{number:024x}", f"{number:04d}5e551011"
    filled = {
        "{{%PROLIFIC_PID%}}": person,
        "{{%STUDY_ID%}}": "rehearsal",
        "{{%SESSION_ID%}}": submission,
        "%SURVEY_CODE%": str(10_000 + number),
    }
    link = _PLACEHOLDER.sub(lambda found: filled.get(found[0], found[0]), link)
    added = {
        "connect": {"participantId": person, "assignmentId": submission, "projectId": "REHEARSAL"},
        "mturk": {"workerId": f"A{number:013d}", "assignmentId": submission, "hitId": "REHEARSAL"},
    }.get(platform)
    return f"{link}{'&' if '?' in link else '?'}{urlencode(added)}" if added else link


@dataclass(frozen=True)
class RehearsedStudy:
    """An experiment on a server, and how much faster than people its simulated participants think.

    `heard` is called after every answer.
    """

    spec: Spec
    pace: float
    heard: Callable[[], None]

    async def run(self, people: Sequence[SimulatedPerson]) -> list[Walk]:
        """Let everybody take part at once; nobody's failure stops the others."""
        async with connections(len(people)) as client:
            return await asyncio.gather(*(self._walk(client, person) for person in people))

    async def _walk(self, client: Connections, person: SimulatedPerson) -> Walk:
        session: PageSession | None = None
        answers = 0

        def ended(outcome: Outcome, said: str = "") -> Walk:
            times = tuple(session.query_seconds) if session else ()
            participant = str(session.content["participant"]) if session else ""
            return Walk(person, outcome, participant, answers, said, times)

        try:
            await asyncio.sleep(float(person.rng.uniform(0, 10)) / self.pace)
            session = await PageSession.open(client, person.link)
            steps = session.steps
            for step in steps[: steps.index("trials")]:
                reply = await session.take_step(step, **self._done(session, person, step))
                if reply["next"] == "out":
                    return ended("screened_out", f"after the step {step}")
            leaves_after = int(person.rng.integers(1, self._trials)) if person.kind == "leaving" else -1
            number = int(session.content["numbers"]["next"])
            while answers < self._trials:
                if answers == leaves_after:
                    return ended("left", f"after {answers} answers")
                query = await session.ask(number)
                number += 1
                if isinstance(query, ServedQuery):
                    await self._react(session, person, query)
                    answers += 1
                    self.heard()
                elif query.get("done"):
                    break
            return ended(*await self._leave(session, person, steps, answers))
        except SalmonError as error:
            return ended("failed", str(error))

    @property
    def _trials(self) -> int:
        return self.spec.html.max_queries if self.spec.html.max_queries > 0 else ANSWERS_WITHOUT_END

    def _done(self, session: PageSession, person: SimulatedPerson, step: str) -> dict[str, Any]:
        """Return how a step before the trials is done."""
        content = session.content["steps"].get(step)
        if step == "consent":
            return {"agreed": True, "version": content["version"]}
        if step == "comprehension" and self.spec.comprehension is not None:
            return {"options": [question.answer for question in self.spec.comprehension.questions]}
        if step == "practice":
            return {
                "trials": [
                    {"query": place, "winner": query["nearer"], "rt_ms": person.answers_as.median_ms}
                    for place, query in enumerate(content["queries"])
                ]
            }
        return {}

    async def _react(self, session: PageSession, person: SimulatedPerson, query: ServedQuery) -> None:
        reaction = react(person, query)
        await asyncio.sleep(reaction.rt_ms / 1000 / self.pace)
        await session.answer(query, reaction.winner, rt_ms=reaction.rt_ms)

    async def _leave(
        self, session: PageSession, person: SimulatedPerson, steps: list[str], answers: int
    ) -> tuple[Outcome, str]:
        """Reply to the questions after the trials and take the way out."""
        if "questions" in steps:
            replies = {question.name: reply_to(question, person.rng) for question in self.spec.questions}
            await session.take_step("questions", replies=replies)
        end = await session.finish(answers)
        if end.get("out"):
            return "screened_out", str(end.get("code") or end.get("redirect") or "after failed checks")
        if not end["complete"]:
            return "failed", f"The server has stored {end['stored']} of {answers} answers and gives no way out."
        await session.take_step("debrief")
        form = end.get("form")
        return "completed", str(end.get("redirect") or (form and form[0]) or end.get("code") or "")


def react(person: SimulatedPerson, query: ServedQuery) -> Reaction:
    """Return what a person answers to a query, and after how long.

    Who looks at a catch trial sees that one foot is the head itself.
    """
    reaction = person.answers_as.react(query.head, query.left, query.right, person.rng)
    if person.kind == "rule":
        return Reaction(min(query.left, query.right), reaction.rt_ms)
    looks = person.rng.random() >= person.answers_as.lapse
    if looks and query.head in {query.left, query.right}:
        return Reaction(query.head, reaction.rt_ms)
    return reaction


def reply_to(question: Question, rng: np.random.Generator) -> str:
    """Return a reply that a question after the trials accepts."""
    if question.type == "number":
        return str(int(rng.integers(18, 80)))
    if question.type == "likert":
        return str(int(rng.integers(1, question.points + 1)))
    if question.type in {"choice", "multiple"}:
        return question.options[int(rng.integers(len(question.options)))]
    return "A rehearsed reply."


def main(order: str) -> str:
    """Let the people of an order take part in an experiment that is open on a server;
    return JSON of what became of them.

    The order is JSON: the stored `spec`, the number of `targets`, how many `people` open which `link`, the `shares` of
    careless kinds, the `pace` and the `seed`.
    """
    asked: dict[str, Any] = json.loads(order)
    spec = Spec.from_json(asked["spec"])
    platform = str(spec.recruitment.platform)
    links = [fill_in(asked["link"], platform, place) for place in range(1, asked["people"] + 1)]
    people = draw_people(random_world(asked["targets"], 2, asked["seed"]), links, asked["shares"], asked["seed"])
    walks = asyncio.run(RehearsedStudy(spec, asked["pace"], lambda: None).run(people))
    problems = Counter(walk.said for walk in walks if walk.outcome == "failed")
    return json.dumps({"outcomes": Counter(walk.outcome for walk in walks), "problems": dict(problems.most_common(3))})


if __name__ == "__main__":
    parent_watch.watch(os.environ)
    sys.stdout.write(main(Path(sys.argv[1]).read_text(encoding="utf-8")) + "\n")
