"""Who is flagged and why, told with people who answer in recognisable ways."""

from collections.abc import Callable

import numpy as np
import pytest

from salmon.quality import Evidence, Verdict, judge
from salmon.quality.figures import figures_of
from salmon.records import Answer, Served, Timing
from salmon.wire import StoredVerdicts

N = 12
MAP = np.random.default_rng(4).normal(size=(N, 2))
Chooser = Callable[[np.random.Generator, int, int, int], int]


def honest(generator: np.random.Generator, head: int, left: int, right: int) -> int:
    """Nine times of ten the nearer target."""
    near = left if np.linalg.norm(MAP[head] - MAP[left]) < np.linalg.norm(MAP[head] - MAP[right]) else right
    return near if generator.random() < 0.9 else left + right - near


def guess(generator: np.random.Generator, head: int, left: int, right: int) -> int:
    return left if generator.random() < 0.5 else right


def always_left(generator: np.random.Generator, head: int, left: int, right: int) -> int:
    return left


def sees_it_the_other_way(generator: np.random.Generator, head: int, left: int, right: int) -> int:
    return left + right - honest(generator, head, left, right)


def crowd(*, count: int = 60, rt_ms: float = 1500.0, **choosers: Chooser) -> Evidence:
    """Everybody gets 30 shared queries and `count` of their own, each shown at random sides, and 8 catch trials."""
    evidence = Evidence(N)
    draw = np.random.default_rng(0)
    shared = [tuple(int(t) for t in draw.choice(N, 3, replace=False)) for _ in range(30)]
    for name, choose in choosers.items():
        generator = np.random.default_rng(sum(name.encode()))
        own = [tuple(int(t) for t in generator.choice(N, 3, replace=False)) for _ in range(count)]
        for kind, queries in (
            ("validation", shared),
            ("random", own),
            ("catch", [(h, h, o) for h, o, _ in shared[:8]]),
        ):
            for head, one, other in queries:
                left, right = (one, other) if generator.random() < 0.5 else (other, one)
                winner = choose(generator, head, left, right)
                if kind == "catch" and choose is honest:
                    winner = head
                evidence.add(
                    answer_of(name, head, left, right, winner, kind, rt_ms * float(generator.uniform(0.7, 1.3)))
                )
    return evidence


def answer_of(name: str, head: int, left: int, right: int, winner: int, kind: str, rt_ms: float) -> Answer:
    served = Served("e", 1, name, "s", 1, "S", head, left, right, 0.0, kind, 0.0, 1.0, 0, 0, 0, "t")  # type: ignore[arg-type]
    return Answer(served, winner, Timing(rt_ms=rt_ms), 0)


def flags(verdict: Verdict) -> set[str]:
    return {flag.name for flag in verdict.flags}


def agreement_of(verdict: Verdict) -> float:
    assert verdict.figures.agreement is not None
    return verdict.figures.agreement


HONEST = {f"h{k}": honest for k in range(12)}


def test_careful_people_are_kept() -> None:
    found = judge(crowd(**HONEST), asked=dict.fromkeys(HONEST, 98), coordinates=MAP)
    assert [name for name, verdict in found.items() if not verdict.keep] == []
    assert all(verdict.figures.completeness == 1.0 for verdict in found.values())
    assert 0.8 < np.mean([verdict.figures.agreement for verdict in found.values()]) <= 1.0  # type: ignore[arg-type]


def test_a_guesser_agrees_with_nobody_and_misses_catches() -> None:
    verdict = judge(crowd(**HONEST, x=guess), asked={})["x"]
    assert {"agreement", "catch"} <= flags(verdict)
    assert not verdict.keep
    assert "half of the others in" in verdict.reasons
    assert "catch trials" in verdict.exclusion


def test_somebody_who_always_takes_the_left_side_is_told_by_three_signs() -> None:
    verdict = judge(crowd(**HONEST, x=always_left), asked={})["x"]
    assert {"side", "run", "agreement"} <= flags(verdict)
    assert (verdict.figures.left_share, verdict.figures.longest_run) == (1.0, 98)
    assert not verdict.keep
    assert "left side in 100 % of 98 answers" in verdict.reasons


def test_who_clicks_to_and_fro_is_told_by_the_changes_of_side() -> None:
    turn = iter(range(10_000))
    verdict = judge(crowd(**HONEST, x=lambda _, __, left, right: left if next(turn) % 2 else right), asked={})["x"]
    assert "changes" in flags(verdict)
    assert verdict.figures.left_share == 0.5


def test_fast_answers_are_told_and_those_that_are_right_are_kept() -> None:
    verdict = judge(crowd(rt_ms=260.0, x=honest), asked={})["x"]
    assert {"fast", "fast_share"} <= flags(verdict)
    assert verdict.keep
    evidence = crowd(rt_ms=260.0, x=guess)
    evidence.traces.update(crowd(**HONEST).traces)
    assert not judge(evidence, asked={}, coordinates=MAP)["x"].keep


def test_a_side_is_no_reason_to_exclude_whom_the_map_predicts() -> None:
    """Somebody with a fit of 97 % was excluded because of a side preference, and coin-flippers were kept."""

    def leans(generator: np.random.Generator, head: int, left: int, right: int) -> int:
        near, far = (np.linalg.norm(MAP[head] - MAP[foot]) for foot in (left, right))
        return left if near < 1.6 * far else right

    found = judge(crowd(**HONEST, x=leans, y=guess), asked={}, coordinates=MAP)
    leaning, guessing = found["x"], found["y"]
    assert leaning.figures.side_p is not None
    assert leaning.figures.side_p < 0.001
    assert leaning.figures.guess_p is not None
    assert leaning.figures.guess_p < 0.001
    assert leaning.keep
    assert not guessing.keep
    assert "fit" in flags(guessing)


def test_who_has_only_begun_is_told_and_kept() -> None:
    verdict = judge(crowd(**HONEST), asked={"h0": 1000})["h0"]
    assert flags(verdict) == {"incomplete"}
    assert verdict.keep
    assert "98 of 1000" in verdict.reasons
    assert verdict.exclusion == ""


def test_who_sees_things_in_another_way_is_no_reason_to_exclude_by_the_map_alone() -> None:
    evidence = crowd(**HONEST, x=sees_it_the_other_way)
    for trace in evidence.traces.values():
        del trace.shared[:], trace.shared_ms[:]
        trace.catch_trials = 0
    verdict = judge(evidence, asked={}, coordinates=MAP)["x"]
    assert flags(verdict) == {"fit", "against"}
    assert verdict.keep


def test_a_group_too_small_to_be_compared_with_is_not_compared_with() -> None:
    found = judge(crowd(a=honest, b=honest), asked={}, coordinates=MAP)
    assert [flags(verdict) for verdict in found.values()] == [set(), set()]
    assert found["a"].figures.fit_accuracy is not None


def test_the_excluded_are_judged_and_are_nobodys_majority() -> None:
    two_camps = {**{f"h{k}": honest for k in range(6)}, **{f"x{k}": sees_it_the_other_way for k in range(7)}}
    evidence = crowd(**two_camps)
    assert agreement_of(judge(evidence, asked={})["h0"]) < 0.4
    after = judge(evidence, asked={}, excluded=frozenset(f"x{k}" for k in range(7)))
    assert agreement_of(after["h0"]) > 0.6
    assert "agreement" not in flags(after["h0"])
    assert "agreement" in flags(after["x0"])


def test_an_answer_counts_once_however_much_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("salmon.quality.figures.MOST_ANSWERS", 50)
    trace = crowd(count=500, x=honest).traces["x"]
    assert (trace.answers, len(trace.own), len(trace.shared), len(trace.times_ms)) == (538, 50, 30, 50)


def test_nothing_is_said_about_what_was_not_asked() -> None:
    evidence = Evidence(N)
    evidence.add(answer_of("a", 0, 1, 2, 1, "random", -1.0))
    figures = figures_of(evidence, evidence.traces["a"], asked=None, others={}, counted=True)
    silent = ("completeness", "catch_accuracy", "median_rt_ms", "agreement", "repeat_consistency", "fit_accuracy")
    assert [getattr(figures, name) for name in silent] == [None] * len(silent)


def test_a_judgement_is_remembered_as_it_was_and_forgotten_under_other_rules() -> None:
    judgement = StoredVerdicts(
        "17-0", 3, "Adaptive 12", judge(crowd(**HONEST, x=guess), asked={"x": 200}, coordinates=MAP)
    )
    text = judgement.encode()
    assert StoredVerdicts.decode(text) == judgement
    assert StoredVerdicts.decode(text.replace('"rules":4', '"rules":3')) is None
    assert StoredVerdicts.decode(None) is None
