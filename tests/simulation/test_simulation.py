"""The simulated world: seeds hold every invariant, planted faults are found, and a
seed gives the same run each time.
"""

import os
import subprocess
import sys
from functools import cache

import pytest
from fastapi.routing import APIRoute

from frontend.participant import arrival_routes
from frontend.participant.routes import router
from tests.program import REPOSITORY
from tests.simulation.invariants import INVARIANTS
from tests.simulation.planted import PLANTED, SEARCHED, Fault, find_seed, read_seed
from tests.simulation.world import LONG_EVERY, LONG_TRIALS, Outcome, run

LONG = LONG_EVERY - 1
SEEDS = (*range(12), LONG)
MANUAL = (REPOSITORY / "docs" / "reliability.md").read_text()


@cache
def clean(seed: int) -> Outcome:
    return run(seed)


def violated(outcome: Outcome) -> set[str]:
    return {violation.invariant for violation in outcome.violations}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_violates_nothing(seed: int) -> None:
    outcome = clean(seed)
    assert not outcome.violations, outcome.report()
    assert outcome.answers >= 20


def simulate(seed: int, fault: Fault | None) -> tuple[str, set[str]]:
    if fault is None:
        return clean(seed).digest, violated(clean(seed))
    outcome = run(seed, fault, until=fault.invariant)
    return outcome.digest, violated(outcome)


def test_a_long_seed_walks_hundreds_of_trials_with_a_reserve() -> None:
    outcome = clean(LONG)
    assert outcome.answers >= LONG_TRIALS
    assert outcome.scenario.max_queries == LONG_TRIALS


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found(name: str) -> None:
    seed = find_seed(PLANTED[name], simulate, first=read_seed(MANUAL, name))
    assert seed is not None, f"none of {SEARCHED} seeds finds it"


def test_a_seed_gives_the_same_run_every_time() -> None:
    """Here twice, and in a process of its own whose sets and dictionaries of texts are in another order."""
    code = "from tests.simulation.world import run; print(*(run(seed).digest for seed in (3, 4)))"
    elsewhere = subprocess.run(
        (sys.executable, "-c", code),
        env={**os.environ, "PYTHONHASHSEED": "77", "PYTHONPATH": str(REPOSITORY)},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    digests = [run(seed).digest for seed in (3, 4)]
    assert [clean(seed).digest for seed in (3, 4)] == digests
    assert elsewhere.stdout.split() == digests


def test_a_seed_that_fails_says_how_to_see_it_again() -> None:
    fault = PLANTED["an answer is counted twice"]
    report = run(0, fault).report()
    assert f"violated: {fault.invariant}" in report
    assert "make simulate-faults SEED=0" in report
    assert "fault: " in report


def test_every_invariant_has_a_planted_fault() -> None:
    assert {fault.invariant for fault in PLANTED.values()} == set(INVARIANTS)


def test_every_script_and_every_route_of_participants_has_a_planted_fault() -> None:
    planted = {fault.where for fault in PLANTED.values()}
    scripts = {
        "BEGIN_TURN",
        "ARRIVE",
        "CHANGE_STATUS",
        "CHANGE_WHERE_KNOWN",
        "COMPLETE",
        "ADMIT",
        "TAKE_QUERY",
        "REMEMBER_QUERY",
        "RECORD_ANSWER",
        "READ_ANSWERS",
        "PUBLISH",
        "BEGIN_REQUEST",
        "NOTE_REQUEST",
        "CANCEL_REQUEST",
    }
    routes = {
        f"{method} {route.path.removeprefix('/e/{slug}').removeprefix('/')}"
        for route in (*router.routes, *arrival_routes.router.routes)
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }
    pages = {"GET ", "GET own.css", "GET own.js"}  # they show what is stored, and change nothing
    unused = {"POST skip", "POST withdraw"}  # nobody tries an experiment out or withdraws in the simulated world
    assert len(routes) > len(pages)
    assert scripts | (routes - pages - unused) <= planted


def test_the_manual_lists_every_invariant_and_every_planted_fault() -> None:
    for name, sentence in INVARIANTS.items():
        assert f"| {name} | {sentence} |" in MANUAL, name
    for name in PLANTED:
        assert read_seed(MANUAL, name) is not None, f"{name}: python -m tests.simulation --table writes the table"
