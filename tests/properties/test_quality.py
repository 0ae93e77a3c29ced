"""The figures of quality equal what slow, obvious counting finds, whatever people answer."""

import math
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, groupby, pairwise
from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from salmon.quality import Evidence, Figures, judge
from salmon.quality.combined import Sign, combine
from salmon.quality.figures import at_least, below, chance_bound, two_sided
from salmon.records import Answer
from tests.unit.quality.test_verdict import answer_of

N = 5
PEOPLE = ("a", "b", "c", "d")
SHARED = {"validation", "fixed"}


@st.composite
def answers(draw: st.DrawFn) -> Answer:
    kind = draw(st.sampled_from(["active", "random", "validation", "fixed", "catch", "practice", "repeat"]))
    head, left, right = draw(st.permutations(range(N)))[:3]
    if kind == "catch":
        head = draw(st.sampled_from([left, right]))
    rt_ms = draw(st.one_of(st.just(-1.0), st.floats(0, 1e6)))
    return answer_of(
        draw(st.sampled_from(PEOPLE)), head, left, right, draw(st.sampled_from([left, right])), kind, rt_ms
    )


def judged(given_answers: list[Answer], **options: object) -> list[tuple[str, Figures, list[Answer]]]:
    """Everybody who answered, with the figures and the answers given."""
    evidence = Evidence(N)
    for answer in given_answers:
        evidence.add(answer)
    found = judge(evidence, asked={}, **options)  # type: ignore[arg-type]
    return [
        (name, verdict.figures, [answer for answer in given_answers if answer.served.participant == name])
        for name, verdict in found.items()
    ]


def triplets_of(answers: list[Answer]) -> list[Answer]:
    """Answers to triplets, those to shared queries last."""
    triplets = [answer for answer in answers if answer.served.trial_type not in {"catch", "practice"}]
    return sorted(triplets, key=lambda answer: answer.served.trial_type in SHARED)


@given(st.lists(answers(), max_size=80))
def test_times_and_sides_are_those_of_all_trials_but_practice(given_answers: list[Answer]) -> None:
    for _, figures, everything in judged(given_answers):
        own = [answer for answer in everything if answer.served.trial_type != "practice"]
        times = [answer.timing.rt_ms for answer in own if answer.timing.rt_ms >= 0]
        sides = [answer.winner_side for answer in own]
        assert (figures.answers, figures.longest_run) == (len(own), max(len(list(run)) for _, run in groupby(sides)))
        assert figures.left_share == sides.count("left") / len(sides)
        turns = [one != other for one, other in pairwise(sides)]
        assert figures.alternation == (sum(turns) / len(turns) if turns else None)
        assert figures.median_rt_ms == (median(times) if times else None)
        assert figures.fast_share == (sum(time < 300 for time in times) / len(times) if times else None)
        if times:
            product = math.prod(Fraction(max(time, 1.0)) for time in times)
            assert figures.geometric_mean_rt_ms == pytest.approx(
                math.exp((math.log(product.numerator) - math.log(product.denominator)) / len(times)), rel=1e-9
            )


@given(st.lists(answers(), max_size=80))
def test_catch_trials_and_repeats_are_compared_one_by_one(given_answers: list[Answer]) -> None:
    for _, figures, own in judged(given_answers):
        caught = [answer.winner == answer.served.head for answer in own if answer.served.trial_type == "catch"]
        assert figures.catch_trials == len(caught)
        assert figures.catch_accuracy == (sum(caught) / len(caught) if caught else None)
        in_order = triplets_of(own)
        repeats = same = swapped = 0
        for place, answer in enumerate(in_order):
            before = [earlier for earlier in in_order[:place] if earlier.served.key == answer.served.key]
            if before:
                repeats += 1
                same += before[-1].winner == answer.winner
                swapped += before[-1].served.left != answer.served.left
        assert (figures.repeats, figures.repeats_swapped) == (repeats, swapped)
        assert figures.repeat_consistency == (same / repeats if repeats else None)


@given(st.lists(answers(), max_size=80), st.sets(st.sampled_from(PEOPLE), max_size=2))
def test_agreement_is_with_the_majority_of_all_others_who_count(
    given_answers: list[Answer], excluded: set[str]
) -> None:
    shared = [answer for answer in given_answers if answer.served.trial_type in SHARED]
    for participant, figures, _ in judged(given_answers, excluded=frozenset(excluded)):
        agreed: list[bool] = []
        for answer in shared:
            if answer.served.participant != participant:
                continue
            others = [
                other.winner
                for other in shared
                if other.served.key == answer.served.key
                and other.served.participant != participant
                and other.served.participant not in excluded
            ]
            votes = others.count(answer.winner)
            if 2 * votes != len(others):
                agreed.append(2 * votes > len(others))
        assert figures.shared_answers == len(agreed)
        assert figures.agreement == (sum(agreed) / len(agreed) if agreed else None)


@given(st.lists(answers(), max_size=120))
def test_a_cycle_is_a_triad_of_last_answers_in_which_each_foot_wins_once(given_answers: list[Answer]) -> None:
    for _, figures, own in judged(given_answers):
        last = {answer.served.key: answer.winner for answer in triplets_of(own)}
        triads = cycles = 0
        for head in range(N):
            for feet in combinations([target for target in range(N) if target != head], 3):
                winners = [last.get(f"{head},{one},{other}") for one, other in combinations(feet, 2)]
                if None not in winners:
                    triads += 1
                    cycles += len(set(winners)) == 3  # each foot wins once: nobody is first
        assert (figures.triads, figures.cycles) == (triads, cycles)


@given(st.lists(answers(), max_size=60), st.integers(0, 2**32 - 1))
def test_fit_is_the_share_of_triplets_that_the_map_has_right(given_answers: list[Answer], seed: int) -> None:
    coordinates = np.random.default_rng(seed).normal(size=(N, 2))
    for _, figures, own in judged(given_answers, coordinates=coordinates):
        right = [
            math.dist(coordinates[answer.served.head], coordinates[answer.winner])
            < math.dist(coordinates[answer.served.head], coordinates[answer.loser])
            for answer in triplets_of(own)
        ]
        assert figures.fit_answers == len(right)
        assert figures.fit_accuracy == (pytest.approx(sum(right) / len(right)) if right else None)


@given(st.integers(1, 400).flatmap(lambda trials: st.tuples(st.integers(0, trials), st.just(trials))))
def test_binomial_tails_are_exact(case: tuple[int, int]) -> None:
    successes, trials = case
    tail = Fraction(sum(math.comb(trials, k) for k in range(successes, trials + 1)), 2**trials)
    fewer = min(successes, trials - successes)
    both = 2 * Fraction(sum(math.comb(trials, k) for k in range(fewer + 1)), 2**trials)
    assert at_least(successes, trials) == pytest.approx(float(tail), rel=1e-9, abs=1e-15)
    assert two_sided(successes, trials) == pytest.approx(min(1.0, float(both)), rel=1e-9)


@given(st.integers(1, 300))
def test_the_bound_of_chance_is_the_first_that_most_guessers_do_not_exceed(trials: int) -> None:
    weights = [Fraction(math.comb(trials, k), 2**trials) for k in range(trials + 1)]
    first = next(k for k in range(trials + 1) if float(sum(weights[: k + 1])) >= 0.95)
    assert chance_bound(trials, 0.95) == first / trials


@given(st.integers(1, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.floats(0.01, 0.99))
def test_lower_tails_of_any_share_are_exact(case: tuple[int, int], share: float) -> None:
    successes, trials = case
    exact = sum(
        math.comb(trials, k) * Fraction(share) ** k * Fraction(1 - share) ** (trials - k) for k in range(successes + 1)
    )
    assert below(successes, trials, share) == pytest.approx(min(1.0, float(exact)), rel=1e-9, abs=1e-15)


@given(st.lists(st.floats(1e-9, 0.5), min_size=1, max_size=9))
def test_a_combination_lies_between_its_signs_and_any_of_them_can_lower_it(chances: list[float]) -> None:
    signs = [Sign(f"s{k}", p, "") for k, p in enumerate(chances)]
    combined = combine(signs)
    assert min(chances) * (1 - 1e-6) <= combined <= max(chances) * (1 + 1e-6)
    assert combine([replace(signs[0], p=signs[0].p / 10), *signs[1:]]) < combined
    assert combine(signs[::-1]) == pytest.approx(combined)
