"""Which sampler, which query, which side: by the experimenter's probabilities, and the same again in a replay."""

from collections import Counter
from dataclasses import replace

import pytest

from frontend.experiments import ParsedRevision, SamplingPlan, parse_revision
from frontend.participant.queries import (
    Drawn,
    Fixed,
    Published,
    QueryPlan,
    allows_spare,
    choose_sampler,
    may_pass,
    place,
    plan_query,
    turn_of,
)
from frontend.store.experiments import Revision
from salmon.records import Query
from salmon.samplers.passive import candidates, fallback
from salmon.spec import parse_spec
from salmon.wire.keys import NOBODY, draw_tryout_id

PLAN = SamplingPlan(samplers=("A", "B", "C"), probabilities=(70, 20, 10), samplers_per_user=0, details=(), seed=5)


def chosen(plan: SamplingPlan, participants: int, trials: int) -> Counter[str]:
    return Counter(
        choose_sampler(plan, participant=f"p{p}", trial=trial).sampler
        for p in range(participants)
        for trial in range(1, trials + 1)
    )


def test_samplers_come_with_their_probabilities() -> None:
    counts = chosen(PLAN, 100, 100)
    for sampler, percentage in zip(PLAN.samplers, PLAN.probabilities, strict=True):
        assert counts[sampler] == pytest.approx(100 * percentage, abs=5 * (10_000 * 0.25) ** 0.5 / 2)


def test_a_sampler_of_probability_zero_never_comes() -> None:
    assert chosen(replace(PLAN, probabilities=(0, 100, 0)), 20, 50) == {"B": 1000}


def test_the_probability_of_the_choice_is_told() -> None:
    choice = choose_sampler(PLAN, participant="p", trial=1)
    assert choice.probability == {"A": 0.7, "B": 0.2, "C": 0.1}[choice.sampler]


def test_with_one_sampler_per_user_a_participant_meets_one_and_all_meet_all_by_probability() -> None:
    plan = replace(PLAN, samplers_per_user=1)
    own = [{choose_sampler(plan, participant=f"p{p}", trial=t).sampler for t in range(1, 9)} for p in range(2000)]
    first = Counter(only for (only,) in own)
    for sampler, percentage in zip(PLAN.samplers, PLAN.probabilities, strict=True):
        assert first[sampler] == pytest.approx(20 * percentage, abs=100)


def test_with_two_samplers_per_user_a_participant_meets_two_in_their_proportion() -> None:
    plan = replace(PLAN, samplers_per_user=2)
    for p in range(50):
        met = {choose_sampler(plan, participant=f"p{p}", trial=t) for t in range(1, 200)}
        assert len({choice.sampler for choice in met}) == 2
        assert sum({choice.sampler: choice.probability for choice in met}.values()) == pytest.approx(1)


def test_in_a_race_everybody_meets_one_sampler_and_the_same_share_of_trials_is_held_out() -> None:
    spec = "targets: 9\nsamplers: {A: {class: Random}, B: {class: Adaptive}}\nsampling: {race: 30%}\n"
    parsed = parse_revision(Revision("", parse_spec(spec).spec.to_json(), None, 0))
    own: Counter[str] = Counter()
    held_out: Counter[str] = Counter()
    for p in range(400):
        name = f"p{p}"
        choices = [choose_sampler(parsed.plan, participant=name, trial=trial) for trial in range(1, 41)]
        (sampler,) = {choice.sampler for choice in choices}
        own[sampler] += 1
        for trial, choice in enumerate(choices, 1):
            plan = plan_query(parsed, choice, participant=name, trial=trial, number=trial)
            if choice.check is None:
                assert isinstance(plan, Drawn if sampler == "A" else Published)
                continue
            assert isinstance(plan, Drawn)
            assert {query.trial_type for query in plan.candidates} == {"held_out"}
            assert not may_pass(parsed, choice)
            held_out[sampler] += 1
    assert own["A"] == pytest.approx(200, abs=40)
    for sampler, people in own.items():
        assert held_out[sampler] / (40 * people) == pytest.approx(0.3, abs=0.02)


def test_what_the_experimenter_fixed_for_a_trial_comes_at_that_trial() -> None:
    plan = replace(PLAN, details=((3, "C", (4, 5, 6)), (5, "B", None)))
    assert choose_sampler(plan, participant="p", trial=3).query == (4, 5, 6)
    assert choose_sampler(plan, participant="p", trial=5).sampler == "B"


def test_the_turn_of_a_sampler_counts_its_earlier_trials() -> None:
    chosen_so_far: Counter[str] = Counter()
    for trial in range(1, 60):
        sampler = choose_sampler(PLAN, participant="p", trial=trial).sampler
        assert turn_of(PLAN, participant="p", trial=trial, sampler=sampler) == chosen_so_far[sampler]
        chosen_so_far[sampler] += 1


def test_sides_are_a_fair_coin_and_the_same_in_a_replay() -> None:
    query = Query(0, (7, 3))
    sides, again = (
        [place(query, participant=f"p{p}", trial=t, seed=0) for p in range(50) for t in range(40)] for _ in range(2)
    )
    assert set(sides) == {(3, 7), (7, 3)}
    assert sides.count((3, 7)) == pytest.approx(1000, abs=110)
    assert sides == again


MIXED = """targets: 9
seed: 5
samplers: {Adaptive: {}, Random: {}, Validation: {n_queries: 4}}
sampling: {details: {2: {sampler: Adaptive, query: [7, 0, 6]}, 3: {sampler: Adaptive}, 4: {sampler: Validation}}}
"""


@pytest.fixture
def mixed() -> ParsedRevision:
    return parse_revision(Revision("", MIXED, None, 0))


def plan_trial(
    parsed: ParsedRevision, trial: int, *, participant: str = "p", number: int = 0, **options: bool
) -> QueryPlan:
    choice = choose_sampler(parsed.plan, participant=participant, trial=trial)
    return plan_query(parsed, choice, participant=participant, trial=trial, number=number or trial, **options)


def test_each_trial_has_one_source_that_follows_from_its_sampler(mixed: ParsedRevision) -> None:
    assert plan_trial(mixed, 2) == Fixed(Query(7, (0, 6), trial_type="fixed", probability=1.0))
    assert plan_trial(mixed, 3) == Published("Adaptive")
    own_turn = turn_of(mixed.plan, participant="p", trial=4, sampler="Validation")
    assert plan_trial(mixed, 4) == Drawn(
        candidates(mixed.passive["Validation"], 9, participant="p", turn=own_turn, seed=5)
    )


def test_spare_queries_and_those_of_a_try_out_are_random_and_counted_over_everything_given(
    mixed: ParsedRevision,
) -> None:
    random = Drawn(fallback(9, participant="p", turn=11, seed=5))
    assert all(plan_trial(mixed, trial, number=11, spare=True) == random for trial in (2, 3, 4))
    tryout = draw_tryout_id()
    assert plan_trial(mixed, 2, participant=tryout) == plan_trial(mixed, 2)
    assert plan_trial(mixed, 3, participant=tryout) == Drawn(fallback(9, participant=tryout, turn=3, seed=5))


def test_only_queries_that_are_searched_or_drawn_freely_may_be_stood_in_for(mixed: ParsedRevision) -> None:
    choices = [choose_sampler(mixed.plan, participant="p", trial=trial) for trial in (2, 3, 4)]
    assert [may_pass(mixed, choice) for choice in choices] == [False, True, False]
    assert [allows_spare(mixed, participant="p", after=trial - 1) for trial in (2, 3, 4)] == [False, True, False]


def test_what_is_fixed_for_each_participant_is_fixed_for_nobody(mixed: ParsedRevision) -> None:
    assert choose_sampler(mixed.plan, participant=NOBODY, trial=2).query is None
    plan = replace(PLAN, samplers_per_user=1)
    met = {choose_sampler(plan, participant=NOBODY, trial=trial).sampler for trial in range(1, 100)}
    assert met == set(PLAN.samplers)
