"""Checks: where they stand, which queries they show, and that none of them is ever fitted."""

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from backend.learner import AnswerLog, to_entry
from frontend.experiments import ParsedRevision, parse_revision
from frontend.participant.checks import choose_repeat, find_check, has_failed, keys_of_shared, shared_queries
from frontend.participant.queries import Drawn, Fixed, Repeated, choose_sampler, may_pass, plan_query
from frontend.store.experiments import Revision
from salmon.estimator.cross_validation import noise_ceiling
from salmon.records import Answer, Served, Timing, TrialType

SPEC = """targets: {n}
seed: 3
samplers: {{Random: {{}}, Validation: {{n_queries: 4}}}}
html: {{max_queries: {trials}}}
sampling: {{details: {{7: {{sampler: Random, query: [0, 1, 2]}}}}}}
checks: {{catch: 6%, repeat: 5%, shared: {shared}, on_failure: screen_out{more}}}
"""
TRIALS, PEOPLE = 50, 200


def parsed(*, n: int = 30, trials: int = TRIALS, shared: int = 10, more: str = "") -> ParsedRevision:
    return parse_revision(Revision("", SPEC.format(n=n, trials=trials, shared=shared, more=more), None, 0))


def checks_of(revision: ParsedRevision, person: str, trials: int) -> list[str]:
    found = [find_check(revision.plan, participant=person, trial=trial) for trial in range(1, trials + 1)]
    return [check[0] if check else "" for check in found]


def plan(revision: ParsedRevision, person: str, trial: int, **options: Any) -> Any:
    choice = choose_sampler(revision.plan, participant=person, trial=trial)
    return plan_query(revision, choice, participant=person, trial=trial, number=trial, **options)


def answer(kind: TrialType, trial: int, query: tuple[int, int, int], winner: int, person: str = "p") -> Answer:
    head, left, right = query
    served = Served("e", 1, person, "s", trial, "S", head, left, right, 0.0, kind, 0.0, 1.0, 0, 0, 0, f"t{trial}")
    return Answer(served, winner, Timing(), 0)


@pytest.mark.parametrize("trials", [TRIALS, 0], ids=["50 trials", "without end"])
def test_of_10000_trials_each_check_has_its_share_and_none_is_first_or_beside_another(trials: int) -> None:
    revision = parsed(trials=trials)
    length = trials or 100
    counts: Counter[str] = Counter()
    for person in range(10_000 // length):
        kinds = checks_of(revision, f"p{person}", length)
        counts.update(kinds)
        assert kinds[0] == "" == kinds[6], "the first trial and one that the experimenter fixed"
        assert not any(one and other for one, other in pairwise(kinds))
        assert "repeat" not in kinds[:10]
    for kind, share in (("catch", 0.06), ("repeat", 0.05), ("shared", 10 / length)):
        assert counts[kind] == pytest.approx(10_000 * share, abs=1.96 * (10_000 * share * (1 - share)) ** 0.5), kind


def test_everybody_gets_other_places_and_a_replay_the_same() -> None:
    revision = parsed()
    assert len({tuple(checks_of(revision, f"p{person}", TRIALS)) for person in range(50)}) == 50
    assert checks_of(revision, "p", TRIALS) == checks_of(parsed(), "p", TRIALS)


def test_each_shared_query_comes_once_to_everybody_and_in_another_order() -> None:
    revision = parsed()
    orders: set[tuple[str, ...]] = set()
    for person in ("ann", "bob", "cat"):
        asked = [plan(revision, person, trial) for trial in range(1, 2 * TRIALS)]
        shared = [each.query.key for each in asked if isinstance(each, Fixed) and each.query.trial_type == "shared"]
        assert sorted(shared) == sorted(keys_of_shared(revision))
        orders.add(tuple(shared))
    assert len(orders) == 3


def test_no_other_trial_asks_a_shared_query_and_a_spare_one_is_no_check() -> None:
    revision = parsed(n=6, shared=6)
    held_out = keys_of_shared(revision)
    assert len(held_out) == 6
    assert not held_out & {
        f"{head},{low},{high}" for head, low, high in revision.passive["Validation"].all_queries(6, 3)
    }  # type: ignore[union-attr]
    for trial in range(1, 300):
        for spare in (False, True):
            found = plan(revision, "p", trial, spare=spare)
            assert isinstance(found, Drawn) or not spare
            if isinstance(found, Drawn | Repeated):
                assert not held_out & {query.key for query in found.candidates}


def test_a_catch_trial_shows_the_head_again_or_what_the_experimenter_calls_obvious() -> None:
    for more, obvious in (("", set[str]()), (", obvious: [[0, 3, 9], [1, 4, 8]]", {"0,3,9", "1,4,8"})):
        revision = parsed(more=more)
        queries = [
            plan(revision, f"p{person}", trial).query
            for person in range(40)
            for trial in range(1, TRIALS)
            if (find_check(revision.plan, participant=f"p{person}", trial=trial) or ("",))[0] == "catch"
        ]
        assert {query.trial_type for query in queries} == {"catch"}
        assert {query.key for query in queries} == obvious if obvious else all(q.head in q.feet for q in queries)


def test_groups_are_checked_with_the_targets_that_they_are_shown() -> None:
    text = SPEC.format(n="[a, b, c, d, e, f, g, h, i, j, k, l]", trials=40, shared=5, more=", obvious: [[0, 1, 2]]")
    text = text.replace("sampling", "groups: {x: {targets: [g, h, i, j, k, l], samplers: [Random]}, y: {}}\nsampling")
    text = text.replace("query: [0, 1, 2]", "query: [6, 7, 8]").replace(
        "Validation: {n_queries: 4}", "Rest: {class: Random}"
    )
    group = parse_revision(Revision("", text, None, 0)).for_group("x")
    assert group.shown_targets == (6, 7, 8, 9, 10, 11)
    assert {target for query in shared_queries(group) for target in query} <= {6, 7, 8, 9, 10, 11}
    for trial in range(1, 120):
        for query in plan(group, "p", trial).candidates:
            assert {query.head, *query.feet} <= {6, 7, 8, 9, 10, 11}


def test_a_check_is_waited_for_and_takes_no_turn_of_a_sampler() -> None:
    revision = parsed()
    choices = [choose_sampler(revision.plan, participant="p", trial=trial) for trial in range(1, TRIALS + 1)]
    assert not any(may_pass(revision, choice) for choice in choices if choice.check)
    assert any(may_pass(revision, choice) for choice in choices)


def test_a_repeat_has_its_sides_swapped_comes_ten_trials_later_and_only_once() -> None:
    revision = parsed()
    answers = [answer("active" if k < 4 else "random", k, (k, k + 1, k + 2), k + 1) for k in range(1, 13)]
    for number, known in ((10, []), (13, [1, 2, 3]), (15, [4, 5])):
        queries = {
            query.key: query
            for person in range(60)
            if (query := choose_repeat(revision.plan, answers, participant=f"p{person}", number=number))
        }
        assert sorted(queries) == [f"{k},{k + 1},{k + 2}" for k in known], "random ones first"
        assert all(query.left == query.head + 2 for query in queries.values())
    repeated = [*answers, answer("repeat", 14, (4, 6, 5), 5), answer("catch", 2, (9, 9, 1), 9)]
    again = choose_repeat(revision.plan, repeated, participant="p", number=15)
    assert again is not None
    assert again.key == "5,6,7"


@pytest.mark.parametrize("kind", ["catch", "shared", "repeat", "practice"])
def test_no_check_is_in_a_fit(kind: TrialType) -> None:
    log = AnswerLog()
    entries = [
        to_entry(f"{k}-1", answer(each, k, (0, 1, 2), 1), tests=frozenset()) for k, each in enumerate((kind, "random"))
    ]
    log.append([entry for entry in entries if entry is not None])
    assert len(log) == 1
    assert len(log.repeatable()) == (2 if kind in {"shared", "repeat"} else 1)


def test_repeats_give_a_noise_ceiling_that_covers_the_truth() -> None:
    rng, covered = np.random.default_rng(1), 0
    for _ in range(50):
        log, sure = AnswerLog(), 0.85  # everybody gives the likelier answer with this probability
        for k in range(600):
            for kind in ("random", "repeat"):
                winner = 1 if rng.random() < sure else 2
                triplet = answer(kind, k, (k + 3, 1, 2), winner)  # type: ignore[arg-type]
                entry = to_entry(f"{k}-1", triplet, tests=frozenset())
                log.append([entry] if entry else [])
        found = noise_ceiling(log.repeatable())
        assert found is not None
        covered += found.ceiling.low <= sure <= found.ceiling.high
    assert len(log) == 600
    assert covered >= 44  # 95 % of 50, less three standard deviations


def test_only_a_wrong_catch_trial_has_failed() -> None:
    checks = parsed(more=", obvious: [[0, 1, 2]]").spec.checks
    assert [has_failed(checks, answer("catch", 1, (3, 3, 4), winner)) for winner in (3, 4)] == [False, True]
    assert [has_failed(checks, answer("catch", 1, (0, 2, 1), winner)) for winner in (1, 2)] == [False, True]
    assert not has_failed(checks, answer("random", 1, (0, 2, 1), 2))
