"""The search for groups runs as small steps, leaves anonymous answers out, and says who is in which group."""

from typing import Any

import numpy as np
import pytest

from backend.jobs.answers import AnswerSet
from backend.jobs.people_groups import plan_groups
from backend.jobs.steps import run_step, to_json_value
from salmon.jobs import PeopleGroups, RequestError, read_job
from salmon.simulate import SimulatedParticipant, random_world
from salmon.spec import parse_spec
from salmon.wire.keys import NOBODY

N, EACH = 12, 120
SPEC = parse_spec(f"targets: {N}\nsamplers: {{Random: {{}}}}\n").spec
NAMES = (NOBODY, *(f"p{number}" for number in range(8)))


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """The result for eight people of two worlds by turns, and answers of nobody in particular."""
    rng = np.random.default_rng(3)
    worlds = [SimulatedParticipant(random_world(N, 2, 50 + place)) for place in range(2)]
    rows = [one.react_all(one.world.random_queries(EACH, rng), rng)[0] for one in (*worlds * 4, worlds[0])]
    people = np.repeat([*range(1, 9), 0], EACH).astype(np.int32)
    every = np.ones(len(people), dtype=np.bool_)
    answers = AnswerSet(np.concatenate(rows).astype(np.int32), people, every, every, NAMES, "1-0")
    plan = plan_groups(PeopleGroups(d=2, most=2, shuffles=30), SPEC, N, answers)
    outcomes: list[Any] = []
    for step in plan.steps:
        earlier = () if step.after is None else (outcomes[step.after],)
        outcomes.append(run_step(step.function, *step.arguments, *earlier))
    return to_json_value(plan.conclude(outcomes))


def test_both_worlds_are_found_and_nobody_is_left_out_but_the_anonymous(found: dict[str, Any]) -> None:
    assert found["count"] == 2
    assert [one["participant"] for one in found["people"]] == list(NAMES[1:])
    groups = [one["group"] for one in found["people"]]
    assert groups == [groups[0], groups[1]] * 4
    assert groups[0] != groups[1]
    assert found["answers"] == 8 * EACH


def test_the_maps_the_test_and_the_agreement_of_people_come_with_them(found: dict[str, Any]) -> None:
    assert np.shape(found["maps"]) == (2, N, 2)
    assert found["shuffles"] == 30
    assert found["p"][0][1] <= 0.1
    assert found["agreement"][0][1] < 0.9
    compared = found["compared"]
    assert sorted(compared["people"]) == sorted(NAMES[1:])
    assert np.shape(compared["agreement"]) == (8, 8)
    group = {one["participant"]: one["group"] for one in found["people"]}
    assert [group[name] for name in compared["people"]] == [0] * 4 + [1] * 4, "people stand in the order of groups"


def test_arguments_have_defaults_and_bounds() -> None:
    assert read_job("groups", {}, SPEC, N) == PeopleGroups(d=2, most=4, shuffles=99)
    with pytest.raises(RequestError, match="most must be"):
        read_job("groups", {"most": 9}, SPEC, N)
