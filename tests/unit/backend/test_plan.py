"""The plan: what a learner does next follows from how far it is, and nothing is ever done twice or for ever put off."""

from dataclasses import replace
from math import inf, isinf

from hypothesis import given
from hypothesis import strategies as st

from backend.plan import (
    DUTY,
    EVALUATION_DUTY,
    FEWEST_QUERIES,
    LONGEST_PAUSE_SECONDS,
    MOST_QUERIES,
    ROUNDS_KEPT,
    Evaluate,
    Progress,
    Refit,
    Report,
    Rest,
    Search,
    Timed,
    next_steps,
    queries_wanted,
)

FRESH = Progress(n=30, received=0, absorbed=0, generation=0, searched=-1, reported=0, listed=0, rate=0.0)
SETTLED = replace(FRESH, received=90, absorbed=90, generation=3, searched=3, reported=90, listed=30, evaluated=90)

moments = st.floats(0, 1e6)
timed = st.builds(
    Timed,
    running=st.booleans(),
    began=moments,
    seconds=st.floats(0, 100),
    failures=st.integers(0, 30),
)
progresses = st.builds(
    Progress,
    n=st.integers(3, 2000),
    received=st.integers(0, 10_000),
    absorbed=st.integers(0, 10_000),
    generation=st.integers(0, 1000),
    searched=st.integers(-1, 1000),
    reported=st.integers(0, 10_000),
    listed=st.integers(0, 10_000),
    rate=st.floats(0, 1000),
    refit=timed,
    search=timed,
    report=timed,
    evaluated=st.integers(0, 10_000),
    evaluation=timed,
)


def kinds(progress: Progress, now: float = 1000.0) -> list[type]:
    return [type(step) for step in next_steps(progress, now)]


def test_a_new_learner_searches_at_once_and_has_nothing_to_fit() -> None:
    assert kinds(FRESH) == [Search, Rest]


def test_with_nothing_to_do_it_rests_until_something_happens() -> None:
    assert next_steps(SETTLED, 1000.0) == (Rest(inf),)


def test_a_new_answer_is_fitted_at_once_after_a_quiet_time() -> None:
    assert Refit in kinds(replace(SETTLED, received=91))


def test_searching_goes_on_while_the_next_refit_runs() -> None:
    busy = replace(SETTLED, received=91, evaluated=91, generation=4, searched=3, refit=Timed(running=True, began=999.9))
    assert kinds(busy) == [Search, Rest]


def test_while_a_model_waits_for_its_search_the_next_is_fitted_just_in_time() -> None:
    search = Timed(running=True, began=1000.0, seconds=2.0)
    waiting = replace(
        SETTLED, received=91, evaluated=91, generation=4, searched=3, search=search, refit=Timed(began=990, seconds=0.5)
    )
    begin = 1000.0 + 2.0 / DUTY - 0.5
    assert next_steps(waiting, 1001.0) == (Rest(begin),)
    assert Refit in kinds(waiting, begin)


def test_a_list_that_runs_short_is_searched_again_without_a_new_model() -> None:
    assert Search in kinds(replace(SETTLED, listed=10))
    assert Search not in kinds(replace(SETTLED, listed=29))


def test_a_busy_learner_leaves_its_share_of_the_core() -> None:
    heavy = replace(SETTLED, received=200, evaluated=200, refit=Timed(began=1000.0, seconds=2.0))
    assert next_steps(heavy, 1002.0) == (Rest(1000.0 + 2.0 / DUTY),)
    assert Refit() in next_steps(heavy, 1000.0 + 2.0 / DUTY)


def test_nothing_is_evaluated_before_the_first_model() -> None:
    assert Evaluate() not in next_steps(replace(FRESH, received=90), 1000.0)
    assert Evaluate() in next_steps(replace(SETTLED, evaluated=0), 1000.0)


def test_an_evaluation_takes_a_tenth_of_a_core_and_sees_every_answer_in_the_end() -> None:
    due = 1000.0 + 3.0 / EVALUATION_DUTY
    behind = replace(SETTLED, evaluated=80, evaluation=Timed(began=1000.0, seconds=3.0))
    assert next_steps(behind, 1010.0) == (Rest(due),)
    assert Evaluate() in next_steps(behind, due)


@given(progresses, moments)
def test_no_kind_of_work_begins_while_it_runs(progress: Progress, now: float) -> None:
    steps = next_steps(progress, now)
    assert not (progress.refit.running and Refit() in steps)
    assert not (progress.search.running and any(isinstance(step, Search) for step in steps))
    assert not (progress.report.running and Report() in steps)
    assert not (progress.evaluation.running and Evaluate() in steps)
    assert isinstance(steps[-1], Rest)
    assert len({type(step) for step in steps}) == len(steps)


@given(progresses, moments)
def test_what_must_wait_is_woken_for_and_never_in_the_past(progress: Progress, now: float) -> None:
    *_, rest = next_steps(progress, now)
    assert isinstance(rest, Rest)
    assert rest.until > now
    if not isinf(rest.until):
        assert len(next_steps(progress, rest.until)) > 1  # when woken, there is something to do


@given(progresses, moments)
def test_answers_not_absorbed_are_fitted_in_the_end(progress: Progress, now: float) -> None:
    waiting = replace(
        progress,
        received=progress.absorbed + 1,
        searched=progress.generation,
        refit=replace(progress.refit, running=False),
        search=replace(progress.search, running=False),
    )
    assert Refit() in next_steps(waiting, now + LONGEST_PAUSE_SECONDS + 1e6 + 100 / DUTY + 200)


@given(progresses)
def test_a_list_is_never_shorter_than_a_few_nor_longer_than_the_limit(progress: Progress) -> None:
    assert FEWEST_QUERIES <= queries_wanted(progress) <= max(MOST_QUERIES, FEWEST_QUERIES)


def test_a_search_may_end_early_with_what_several_rounds_use() -> None:
    rate, refit, search = 40.0, Timed(seconds=0.1), Timed(seconds=0.3, began=-10.0)
    steps = next_steps(replace(SETTLED, n=500, listed=0, rate=rate, refit=refit, search=search), 0.0)
    found = next(step for step in steps if isinstance(step, Search))
    assert found == Search(500, round(ROUNDS_KEPT * rate * (0.1 / DUTY + 0.3)))
    quiet = next_steps(replace(SETTLED, listed=0, rate=0.0, search=search), 0.0)
    assert next(step for step in quiet if isinstance(step, Search)).enough == FEWEST_QUERIES


def test_the_first_search_that_chooses_is_not_cut_short() -> None:
    """Its queries replace hundreds of random ones, and how long the next search takes is not known yet."""
    steps = next_steps(replace(SETTLED, n=300, listed=200, searched=-1, rate=10.0, search=Timed()), 0.0)
    assert next(step for step in steps if isinstance(step, Search)) == Search(300, 300)


def test_a_list_grows_with_the_pace_and_the_time_of_a_round() -> None:
    slow = replace(SETTLED, rate=100.0, refit=Timed(seconds=1.0), search=Timed(seconds=1.0))
    assert queries_wanted(slow) > 100 * 2 > queries_wanted(SETTLED)


def test_after_failures_the_pauses_double_up_to_a_limit() -> None:
    for failures, pause in ((1, 1.0), (2, 2.0), (3, 4.0), (11, LONGEST_PAUSE_SECONDS)):
        failing = replace(SETTLED, received=91, evaluated=91, refit=Timed(began=1000.0, failures=failures))
        assert next_steps(failing, 1000.0) == (Rest(1000.0 + pause),)


def test_while_answers_are_replayed_a_restored_model_only_searches() -> None:
    restored = replace(SETTLED, received=40, searched=-1, reported=0, evaluated=0, replaying=True)
    assert kinds(restored) == [Search, Rest]
    assert kinds(replace(restored, received=90)) == [Search, Rest]
    assert kinds(replace(restored, received=91)) == [Search, Refit, Rest]
    assert kinds(replace(restored, received=91, replaying=False)) == [Search, Refit, Report, Evaluate, Rest]


def test_where_there_are_answers_enough_nothing_is_chosen_before_the_first_model() -> None:
    opened = replace(FRESH, received=5000)
    assert kinds(opened) == [Refit, Rest]
    assert kinds(replace(opened, absorbed=5000, generation=1)) == [Search, Report, Evaluate, Rest]
    assert kinds(replace(opened, opening=True)) == [Search, Refit, Rest]
