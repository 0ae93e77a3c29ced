"""Compare the samplers of a race: every refit of the maps is a step, and what is known is shown after each."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from backend.jobs.steps import JobPlan, JobStep
from backend.learner import to_entry
from salmon.estimator.race import Race, RaceState, Standing, begin, run_stage, standing
from salmon.records import Answer
from salmon.spec import Spec

#: The progress is reported after every so many answers.
_PIECE = 5000


def collect_race(answers: Iterable[tuple[str, Answer]], spec: Spec, n: int, on_progress: Callable[[int], None]) -> Race:
    """Return the race of the answers of an experiment, in the order of the stream."""
    names = tuple(spec.samplers)
    place = {name: number for number, name in enumerate(names)}
    rows: list[tuple[int, int, int]] = []
    samplers: list[int] = []
    people: list[int] = []
    numbers: dict[str, int] = {}
    held_out: list[bool] = []
    for stream_id, answer in answers:
        entry = to_entry(stream_id, answer, tests=frozenset())
        if entry is None or not entry.fitted or max(entry.triplet) >= n or entry.sampler not in place:
            continue
        rows.append(entry.triplet)
        samplers.append(place[entry.sampler])
        people.append(numbers.setdefault(entry.participant, len(numbers)))
        held_out.append(answer.served.trial_type == "held_out")
        if len(rows) % _PIECE == 0:
            on_progress(len(rows))
    return Race(
        names,
        tuple(_dimensions(spec, name) for name in names),
        np.array(rows, dtype=np.int32).reshape(-1, 3),
        np.array(samplers, dtype=np.int64),
        np.array(people, dtype=np.int64),
        np.array(held_out, dtype=np.bool_),
        n,
        spec.seed,
    )


def plan_race(race: Race) -> JobPlan:
    """Return the plan that runs the stages of a race one after the other."""
    stages = race.stages()
    steps = tuple(
        JobStep(
            f"{stage.learned:,} answers of each sampler, {len(stage.answers):,} held out",
            run_stage,
            (stage,) if number else (stage, begin(race)),
            after=number - 1 if number else None,
        )
        for number, stage in enumerate(stages)
    )

    def so_far(outcomes: Sequence[Any]) -> Mapping[str, Any] | None:
        state: RaceState | None = outcomes[-1] if outcomes else None
        return as_dict(standing(race, state)) if state is not None else None

    def conclude(outcomes: Sequence[Any]) -> Mapping[str, Any]:
        return as_dict(standing(race, outcomes[-1] if outcomes else begin(race)))

    return JobPlan(steps, conclude, shared=(race,), so_far=so_far)


def as_dict(found: Standing) -> dict[str, Any]:
    """Return a standing as the console shows it."""
    leads = [{**asdict(lead), "ahead": lead.ahead, "sentence": lead.sentence} for lead in found.leads]
    return {**asdict(found), "leads": leads}


def _dimensions(spec: Spec, sampler: str) -> int:
    d = spec.samplers[sampler].arguments.get("d", spec.sampling.common.get("d", 2))
    return d if isinstance(d, int) else 2
