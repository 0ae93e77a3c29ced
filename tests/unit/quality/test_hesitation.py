"""Whether response times follow the margins of a map: in people they do, in a program's they do not."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from salmon.quality import Evidence, judge
from salmon.quality.combined import hesitations, margins_of
from salmon.quality.thresholds import HESITATION_LEAST
from salmon.records import Answer, Served, Timing
from salmon.simulate import RatioSigmoid, SimulatedParticipant, World, stream

WORLD = World("plane", stream(3, "truth").normal(size=(20, 2)), RatioSigmoid())
NO_TIME = -1.0


def study(count: int, *, people: int = 1, shuffled: bool = False, times: bool = True) -> Evidence:
    """Some people who need longer for hard queries; with `shuffled`, their times in another order."""
    evidence = Evidence(WORLD.n)
    for number in range(people):
        rng = stream(7, "answers", number)
        queries = WORLD.random_queries(count, rng)
        triplets, rt_ms = SimulatedParticipant(WORLD).react_all(queries, rng)
        if shuffled:
            rt_ms = rng.permutation(rt_ms)
        for (head, left, right), (_, winner, _), rt in zip(
            queries.tolist(), triplets.tolist(), rt_ms.tolist(), strict=True
        ):
            served = Served("e", 1, f"p{number}", "s", 1, "S", head, left, right, 0.0, "random", 0.0, 1.0, 0, 0, 0, "t")
            evidence.add(Answer(served, winner, Timing(rt_ms=rt if times else NO_TIME), 0))
    return evidence


def test_the_correlation_is_that_of_ranks_with_ties_shared() -> None:
    evidence = study(120)
    answered = margins_of(evidence, WORLD.coordinates)
    (found,) = hesitations(answered).values()
    assert found.correlation == pytest.approx(spearmanr(answered.times_ms, answered.margins).statistic)
    assert found.answers == 120
    tied = margins_of(study(120), np.round(WORLD.coordinates))
    (rounded,) = hesitations(tied).values()
    assert rounded.correlation == pytest.approx(spearmanr(tied.times_ms, tied.margins).statistic)


def test_people_hesitate_and_shuffled_times_do_not() -> None:
    people = hesitations(margins_of(study(100, people=60), WORLD.coordinates))
    programs = hesitations(margins_of(study(100, people=60, shuffled=True), WORLD.coordinates))
    assert np.mean([each.correlation for each in people.values()]) < -0.15
    assert abs(np.mean([each.correlation for each in programs.values()])) < 0.05
    # 60 intervals at 95 %: fewer than 50 that hold the truth have a probability of 2e-4.
    assert sum(each.low < 0 < each.high for each in programs.values()) >= 50


def test_without_times_or_with_few_answers_nothing_is_said() -> None:
    assert hesitations(margins_of(study(100, times=False), WORLD.coordinates)) == {}
    assert hesitations(margins_of(study(HESITATION_LEAST - 1), WORLD.coordinates)) == {}
    assert len(hesitations(margins_of(study(HESITATION_LEAST), WORLD.coordinates))) == 1


def test_it_is_a_figure_and_never_a_flag() -> None:
    (verdict,) = judge(study(100, shuffled=True), asked={}, coordinates=WORLD.coordinates).values()
    figures = verdict.figures
    assert figures.hesitation is not None
    assert figures.hesitation_low is not None
    assert figures.hesitation_high is not None
    assert figures.hesitation_low < figures.hesitation < figures.hesitation_high
    assert not [flag for flag in verdict.flags if flag.name == "hesitation"]
