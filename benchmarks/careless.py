"""`python -m benchmarks.careless`: how often careful and careless participants are flagged and proposed for exclusion.

A simulated study has 200 careful people, 11 who flip a coin and 11 who click on one side (5 % each). Careful people
differ: their lapses are Beta(1, 20), a lapse may fall on either side, and the medians of their times spread by a factor
of e^.3; careless people are about a third faster. Everybody is judged after so many answers each, by a map that was
fitted to all answers, as in the console. `--adaptive` has studies in which every query is chosen by `Adaptive`, with a
fit after each round.

`--crowd` has another study: of 200 people 20 flip a coin, 10 click within 250 ms and 10 choose by a rule without
looking at the head (the foot of smaller index); each is judged with and without checks (catch: 5%, repeat: 5%, shared:
10), which take the place of random queries.
"""

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from benchmarks.report import Report, arguments
from frontend.experiments import SamplingPlan
from frontend.participant.checks import find_check
from salmon.learning.refit import fit
from salmon.quality import Evidence, Verdict, judge
from salmon.records import NEVER_FITTED, Answer, Served, Timing, TrialType
from salmon.samplers.adaptive import Adaptive
from salmon.simulate import (
    Ints,
    Judge,
    SimulatedParticipant,
    World,
    egg_world,
    logistic_world,
    noisy_world,
    random_world,
    stream,
)
from salmon.spec.schema import Checks

CAREFUL, CARELESS = 200, 11
#: Accuracy of a map of all answers, and of one without the people who are flagged.
ACCURACIES = ("accuracy", "without flagged")
WORLDS = {
    "eggs-30": lambda _: egg_world(30),
    "random-60": lambda seed: random_world(60, 2, seed),
    "logistic-60": logistic_world,
    "noisy-60": noisy_world,
}
KINDS = ("careful", "flipper", "side-clicker")
#: Who takes part in `--crowd`, and how many of the checks.
CROWD = {"careful": 160, "flipper": 20, "fast": 10, "rule": 10}
CHECKS = Checks(catch="5%", repeat="5%", shared=10)  # pyright: ignore[reportArgumentType]


@dataclass(frozen=True)
class Person:
    """Somebody of a kind that the judge does not know."""

    name: str
    kind: str
    answers_as: SimulatedParticipant
    rng: np.random.Generator


def people_of(world: World, seed: int) -> list[Person]:
    """Return the people of a study, in the order in which they take part."""
    rng = stream(seed, "sides")
    kinds = rng.permutation([*["careful"] * CAREFUL, *["flipper"] * CARELESS, *["side-clicker"] * CARELESS])
    people: list[Person] = []
    for number, kind in enumerate(kinds):
        median_ms = (1400.0 if kind == "careful" else 900.0) * float(np.exp(0.3 * rng.normal()))
        lapse = {"careful": rng.beta(1, 20), "flipper": 1.0, "side-clicker": rng.uniform(0.8, 1.0)}[kind]
        bias = {"careful": rng.uniform(-1, 1), "flipper": 0.0, "side-clicker": rng.choice([-1.0, 1.0])}[kind]
        who = SimulatedParticipant(world, lapse=float(lapse), side_bias=float(bias), median_ms=median_ms)
        people.append(Person(f"{number}", str(kind), who, stream(seed, "answers", number)))
    return people


class Study:
    """One simulated study, answer by answer."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.seed = world, seed
        self.people = people_of(world, seed)
        self.evidence = Evidence(world.n)
        self.triplets: list[Ints] = []
        self.givers: list[str] = []

    def answer(self, person: Person, queries: Ints, kind: TrialType) -> None:
        """Let one person answer (q, 3) queries, each with its feet at sides drawn by a coin."""
        swapped = person.rng.random(len(queries)) < 0.5
        sided = np.where(swapped[:, None], queries[:, [0, 2, 1]], queries)
        triplets, times = person.answers_as.react_all(sided, person.rng)
        if kind == "catch" and person.kind == "careful":  # a lapse falls on the wrong foot half of the time
            lapsed = person.rng.random(len(sided)) < person.answers_as.lapse / 2
            other = sided[:, 1:].sum(axis=1) - sided[:, 0]
            triplets = np.stack(
                [sided[:, 0], np.where(lapsed, other, sided[:, 0]), np.where(lapsed, sided[:, 0], other)], 1
            )
        if person.kind == "rule":
            triplets = np.stack([sided[:, 0], sided[:, 1:].min(axis=1), sided[:, 1:].max(axis=1)], 1)
        if kind not in NEVER_FITTED:
            self.triplets.append(triplets)
            self.givers.append(person.name)
        for (head, left, right), (_, winner, _), rt_ms in zip(
            sided.tolist(), triplets.tolist(), times.tolist(), strict=True
        ):
            served = Served("e", 1, person.name, "s", 1, "S", head, left, right, 0.0, kind, 0.0, 1.0, 0, 0, 0, "t")
            self.evidence.add(Answer(served, winner, Timing(rt_ms=rt_ms), 0))

    def judge(self, d: int) -> dict[str, Verdict]:
        """Return the verdicts by a map of all answers."""
        found = fit(np.concatenate(self.triplets), self.world.n, d, seed=self.seed)
        return judge(self.evidence, asked={}, coordinates=found.coordinates)

    def accuracy(self, without: frozenset[str], d: int) -> float:
        """Return how often a map of everybody's answers but these people's agrees with a
        new answer of a careful person.
        """
        kept = [rows for rows, giver in zip(self.triplets, self.givers, strict=True) if giver not in without]
        found = fit(np.concatenate(kept), self.world.n, d, seed=self.seed)
        return Judge.of(self.world).accuracy(found.coordinates)


def crowd_study(world: World, seed: int, each: int, *, checks: bool) -> Study:
    """Return a study of the crowd in which everybody has answered `each` queries, with checks among them or without."""
    study = Study(world, seed)
    study.people = crowd_of(world, seed)
    plan = SamplingPlan(("Random",), (100,), 0, (), seed, checks=CHECKS if checks else None, trials=each)
    shared = world.random_queries(CHECKS.shared, stream(seed, "judge"))
    for number, person in enumerate(study.people):
        queries = world.random_queries(each, stream(seed, "queries", number))
        again = person.rng.permutation(each // 6)  # repeats are drawn from the first trials, and come later
        found = {kind: [] for kind in ("random", "catch", "shared", "repeat")}
        for trial in range(1, each + 1):
            check = find_check(plan, participant=person.name, trial=trial)
            if check is None:
                found["random"].append(queries[trial - 1])
            elif check[0] == "catch":
                head, other, _ = queries[trial - 1]
                found["catch"].append((head, head, other))
            else:
                found[check[0]].append(shared[check[1]] if check[0] == "shared" else queries[again[check[1]]])
        for kind, rows in found.items():
            if rows:
                study.answer(person, np.array(rows, dtype=np.int32), kind)  # pyright: ignore[reportArgumentType]
    return study


def crowd_of(world: World, seed: int) -> list[Person]:
    """Return the people of a crowd; who answers by a rule or fast does not look at the head."""
    rng = stream(seed, "sides")
    people: list[Person] = []
    for number, kind in enumerate(rng.permutation([kind for kind, count in CROWD.items() for _ in range(count)])):
        median = {"careful": 1400.0, "flipper": 900.0, "fast": 250.0, "rule": 900.0}[kind]
        who = SimulatedParticipant(
            world,
            lapse=float(rng.beta(1, 20)) if kind == "careful" else 1.0,
            side_bias=float(rng.uniform(-1, 1)) if kind == "careful" else 0.0,
            median_ms=median * float(np.exp(0.3 * rng.normal())),
        )
        people.append(Person(f"{number}", str(kind), who, stream(seed, "answers", number)))
    return people


def random_study(world: World, seed: int, each: int) -> Study:
    """Return a study in which everybody has answered `each` random queries."""
    study = Study(world, seed)
    for number, person in enumerate(study.people):
        study.answer(person, world.random_queries(each, stream(seed, "queries", number)), "random")
    return study


def adaptive_rounds(study: Study, d: int) -> Iterator[None]:
    """Let everybody answer one more query chosen by `Adaptive`; the model is fitted anew after each such round."""
    sampler = Adaptive(d=d)
    state = sampler.start(study.world.n, study.seed)
    none = np.empty((0, 3), dtype=np.int32)
    while True:
        triplets = np.concatenate([none, *study.triplets])
        if len(triplets):
            state = sampler.refit(state, triplets)
        found = sampler.search(state, triplets, none, len(study.people))
        order = stream(study.seed, "queries", len(triplets)).permutation(len(study.people))
        for place, query in zip(order, found.queries, strict=True):
            study.answer(study.people[place], query[None, :], "active")
        yield


def count(study: Study, d: int, counts: dict[str, np.ndarray]) -> dict[str, Verdict]:
    """Add everybody of a study to counts of kind → [people, flagged, proposed]; return the verdicts."""
    verdicts = study.judge(d)
    for person in study.people:
        verdict = verdicts[person.name]
        counts[person.kind] += (1, bool(verdict.flags), not verdict.keep)
    return verdicts


def report(table: Report, counts: dict[str, np.ndarray], **columns: object) -> None:
    """Print one line."""
    shares = {
        f"{short} {what}": counts[kind][place] / counts[kind][0]
        for kind, short in zip(KINDS, ("careful", "flip", "side"), strict=True)
        for place, what in ((1, "flagged"), (2, "proposed"))
    }
    table.add(**columns, **{name: round(100 * share, 2) for name, share in shares.items()})


def report_crowds(options: Namespace) -> None:
    """Print how many of each kind of the crowd are flagged and proposed, with checks and without."""
    columns = [f"{kind} {what}" for kind in CROWD for what in ("flagged", "proposed")]
    table = Report(
        "The crowd, flagged and proposed, %",
        ("world", "checks", "answers each", *columns, "found", *ACCURACIES, "better in"),
    )
    for name, each, checks in product(options.worlds, options.each, (False, True)):
        counts = {kind: np.zeros(3) for kind in CROWD}
        accuracies: list[tuple[float, float]] = []
        for seed in range(options.crowd):
            study = crowd_study(WORLDS[name](seed), seed, each, checks=checks)
            flagged = frozenset(person for person, verdict in count(study, 2, counts).items() if verdict.flags)
            accuracies.append((study.accuracy(frozenset(), 2), study.accuracy(flagged, 2)))
        shares = {
            f"{kind} {what}": round(100 * counts[kind][place] / counts[kind][0], 2)
            for kind in CROWD
            for place, what in ((1, "flagged"), (2, "proposed"))
        }
        careless = np.sum([counts[kind] for kind in CROWD if kind != "careful"], axis=0)
        shares["found"] = round(100 * careless[1] / careless[0], 2)
        for what, values in zip(ACCURACIES, zip(*accuracies, strict=True), strict=True):
            shares[what] = round(100 * float(np.mean(values)), 2)
        shares["better in"] = sum(without > everybody for everybody, without in accuracies)
        table.add(world=name, checks="yes" if checks else "no", **{"answers each": each}, **shares)


def main() -> None:
    """Run the studies that were asked for."""
    options = arguments(
        __doc__,
        clocks=False,
        worlds={"nargs": "+", "choices": list(WORLDS), "default": list(WORLDS)},
        studies={"type": int, "default": 100},
        each={"type": int, "nargs": "+", "default": [30, 60]},
        crowd={"type": int, "default": 0, "help": "studies of the crowd with checks and without"},
        adaptive={"type": int, "default": 0, "help": "studies with Adaptive in the first two worlds"},
        adaptive_each={"type": int, "nargs": "+", "default": [30, 60, 90, 120, 180, 240]},
    )
    columns = [f"{short} {what}" for short in ("careful", "flip", "side") for what in ("flagged", "proposed")]
    table = Report("Participants flagged and proposed for exclusion, %", ("world", "sampler", "answers each", *columns))
    for name in options.worlds if options.studies else ():
        for each in options.each:
            counts = {kind: np.zeros(3) for kind in KINDS}
            for seed in range(options.studies):
                count(random_study(WORLDS[name](seed), seed, each), 2, counts)
            report(table, counts, world=name, sampler="Random", **{"answers each": each})
    for name in options.worlds[:2] if options.adaptive else ():
        found = {each: {kind: np.zeros(3) for kind in KINDS} for each in options.adaptive_each}
        for seed in range(options.adaptive):
            study = Study(WORLDS[name](seed), seed)
            for each, _ in zip(range(1, max(found) + 1), adaptive_rounds(study, 2), strict=False):
                if each in found:
                    count(study, 2, found[each])
        for each, counts in found.items():
            report(table, counts, world=name, sampler="Adaptive", **{"answers each": each})
    table.write(options.json)
    if options.crowd:
        report_crowds(options)


if __name__ == "__main__":
    main()
