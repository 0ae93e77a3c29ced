"""Find groups of people who see similarity differently: every candidate and every few shuffles are a step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.jobs.answers import AnswerSet
from backend.jobs.cross_validation import describe_noise
from backend.jobs.steps import JobPlan, JobStep
from backend.learner import Rows
from salmon.estimator.groups import (
    LEAST_ANSWERS,
    AgreementTest,
    Floats,
    Grouping,
    GroupSearch,
    agreement,
    count_candidates,
    procrustes_agreement,
)
from salmon.geometry import align, principal_axes
from salmon.jobs import PeopleGroups
from salmon.spec import Spec
from salmon.wire.keys import NOBODY

#: Shuffles of one step.
_SHUFFLES = 20
#: People whose maps are compared with each other.
_MOST_COMPARED = 80


@dataclass(frozen=True)
class GroupsState:
    """How far the search is: `test` is there where more than one group was found,
    `personal` (people, n, d) at the end.
    """

    search: GroupSearch
    found: Grouping | None = None
    test: AgreementTest | None = None
    personal: Floats | None = None
    personal_pull: float = 0.0


def begin(rows: Rows, given_by: NDArray[np.int64], n: int, d: int, most: int, seed: int) -> GroupsState:
    """Fit the shared map."""
    return GroupsState(GroupSearch.begin(rows, given_by, n, d, most=most, seed=seed))


def judge(number: int, state: GroupsState) -> GroupsState:
    """Judge one candidate on answers that no fit has seen."""
    return replace(state, search=state.search.judge(state.search.candidates[number]))


def conclude_search(state: GroupsState) -> GroupsState:
    """Choose the groups, and begin the test of how well their maps agree."""
    found = state.search.conclude()
    return replace(state, found=found, test=state.search.test(found) if found.count > 1 else None)


def shuffle(count: int, state: GroupsState) -> GroupsState:
    """Shuffle the names of people so many times; nothing to do where there is one group."""
    return replace(state, test=state.test.shuffle(count)) if state.test is not None else state


def compare_people(state: GroupsState) -> GroupsState:
    """Fit a map for each person, where there are not too many."""
    if state.search.known.sum() > _MOST_COMPARED:
        return state
    maps, pull = state.search.personal_maps()
    return replace(state, personal=maps, personal_pull=pull)


def plan_groups(job: PeopleGroups, spec: Spec, n: int, answers: AnswerSet) -> JobPlan:
    """Return the plan that finds the groups and tests them."""
    named = ~answers.given_by({NOBODY})
    rows, people = answers.triplets[named], answers.participants[named].astype(np.int64)
    present, given_by = np.unique(people, return_inverse=True)
    names = [answers.names[person] for person in present]
    steps = [JobStep("fitting the map of all", begin, (rows, given_by, n, job.d, job.most, spec.seed))]
    for number in range(count_candidates(len(names), job.most)):
        steps.append(JobStep("judging groups on answers that no fit has seen", judge, (number,), after=len(steps) - 1))
    steps.append(JobStep("placing everybody", conclude_search, after=len(steps) - 1))
    for done in range(0, job.shuffles, _SHUFFLES):
        count = min(_SHUFFLES, job.shuffles - done)
        steps.append(JobStep("shuffling the names of people", shuffle, (count,), after=len(steps) - 1))
    steps.append(JobStep("comparing the maps of people", compare_people, after=len(steps) - 1))

    def conclude(outcomes: Sequence[Any]) -> Mapping[str, Any]:
        return as_dict(outcomes[-1], names, len(rows))

    return JobPlan(tuple(steps), conclude)


def as_dict(state: GroupsState, names: Sequence[str], answers: int) -> dict[str, Any]:
    """Return the groups as the console shows them; all maps lie over the shared one on its principal axes."""
    found = state.found
    assert found is not None  # noqa: S101 - the search was concluded
    shared = principal_axes(found.map)
    test = state.test
    counts = np.bincount(state.search.given_by)
    people = [
        {"participant": name, "group": int(group), "answers": int(count), "placed": bool(count >= LEAST_ANSWERS)}
        for name, group, count in zip(names, found.of, counts, strict=True)
    ]
    compared = None
    if state.personal is not None:
        known = np.flatnonzero(state.search.known)
        order = sorted(range(len(known)), key=lambda place: (found.of[known[place]], place))
        compared = {
            "people": [names[known[place]] for place in order],
            "agreement": procrustes_agreement(state.personal)[np.ix_(order, order)],
            "pull": state.personal_pull,
        }
    return {
        "answers": answers,
        "people": people,
        "count": found.count,
        "pull": found.pull,
        "noise": describe_noise(found.noise),
        "losses": found.losses,
        "errors": found.errors,
        "map": shared,
        "maps": [align(own, shared, scale=True).coordinates for own in found.maps],
        "same_answers": agreement(found.maps),
        "agreement": procrustes_agreement(found.maps),
        "p": test.p if test is not None else None,
        "shuffles": test.shuffles if test is not None else 0,
        "compared": compared,
    }
