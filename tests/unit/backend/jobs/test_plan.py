"""What requests come to: courses carried out step by step in this process."""

import json
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from backend.jobs.answers import AnswerSet, collect_answers
from backend.jobs.cross_validation import judge_fold, plan_comparison
from backend.jobs.embeddings import plan_embedding_as_of, plan_fit_without
from backend.jobs.steps import JobPlan, StepFailure, run_step, to_json_value
from backend.jobs.study_plan import plan_study
from salmon.answer_files.published_map import PublishedMap
from salmon.errors import SalmonError, TripletError
from salmon.estimator import triple_groups
from salmon.estimator.cross_validation import Candidate, Evaluation, cross_validate, noise_with_lapse
from salmon.jobs import CrossValidation, EmbeddingAsOf, FitWithout, StudyPlan
from salmon.learning.noise_learning import ridge_for
from salmon.learning.objective import objective_of
from salmon.noise import PowerTSTE
from salmon.planning import RANDOM, advance
from salmon.records import Answer, Served, Timing
from salmon.simulate import egg_world
from salmon.spec import parse_spec
from tests.adaptive_studies import adaptive_study

pytestmark = pytest.mark.slow

N = 30
SPEC = parse_spec(b"targets: 30\nsamplers: {Adaptive: {}}\nseed: 5\n").spec


def carried_out(course: JobPlan) -> dict[str, Any]:
    """The result as the store will hold it."""
    outcomes: list[Any] = []
    for step in course.steps:
        earlier = () if step.after is None else (outcomes[step.after],)
        outcomes.append(run_step(step.function, *course.shared, *step.arguments, *earlier))
        assert not isinstance(outcomes[-1], StepFailure), outcomes[-1]
        if step.after is not None:
            outcomes[step.after] = None
    result = to_json_value(course.conclude(outcomes))
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    return result


@pytest.fixture(scope="module")
def answered() -> AnswerSet:
    """900 answers of five people about the eggs; the first one contradicts every other."""
    rng = np.random.default_rng(3)
    world = egg_world(N)
    triplets = world.answer(world.random_queries(900, rng), rng)
    people = rng.integers(0, 5, 900).astype(np.int32)
    triplets[people == 0] = triplets[people == 0][:, [0, 2, 1]]
    random = rng.random(900) < 0.5
    return AnswerSet(triplets, people, random, np.ones(900, dtype=np.bool_), ("awkward", "b", "c", "d", "e"), "9-9")


def test_leaving_out_somebody_who_contradicts_everybody_makes_the_others_easier_to_predict(answered: AnswerSet) -> None:
    result = carried_out(plan_fit_without(FitWithout(("awkward",), "Adaptive", 2, "PowerTSTE", 5), SPEC, N, answered))
    excluded = int((answered.participants == 0).sum())
    assert (result["answers"], result["excluded"]["answers"]) == (900 - excluded, excluded)
    assert result["excluded"]["accuracy"] < 0.5
    held_out = result["held_out"]
    assert held_out["answers"] == int(answered.random.sum())
    assert held_out["kept_answers"] == int((answered.random & (answered.participants != 0)).sum())
    assert held_out["change"]["low"] > 0
    gain = held_out["without"]["accuracy"] - held_out["with"]["accuracy"]
    assert held_out["change"]["accuracy"] == pytest.approx(gain)
    assert held_out["change"]["low"] < gain < held_out["change"]["high"]
    assert (np.array(result["coordinates"]).shape, result["notes"]) == ((N, 2), [])


def test_with_nobody_left_out_there_is_nothing_to_compare(answered: AnswerSet) -> None:
    course = plan_fit_without(FitWithout(("nobody",), "", 3, "CKL", 5), SPEC, N, answered)
    result = carried_out(course)
    assert len(course.steps) == 1 + 5
    assert not {"with", "without"} & set(result["held_out"])
    assert (result["excluded"]["accuracy"], result["noise"]) == (None, {"name": "CKL", "lapse": 0.05, "mu": 0.05})
    assert result["notes"] == ["Participant nobody gave no answer that can be fitted."]


def test_leaving_out_everybody_is_a_sentence(answered: AnswerSet) -> None:
    with pytest.raises(TripletError, match=r"No answers are left to fit.*Exclude fewer"):
        plan_fit_without(FitWithout(answered.names, "", 2, "TSTE", 5), SPEC, N, answered)


def test_without_random_answers_an_embedding_comes_without_an_accuracy(answered: AnswerSet) -> None:
    chosen = AnswerSet(**{**vars(answered), "random": np.zeros(900, dtype=np.bool_)})
    result = carried_out(plan_fit_without(FitWithout((), "", 2, "TSTE", 5), SPEC, N, chosen))
    assert result["held_out"] is None
    assert "Too few queries were asked at random" in result["notes"][0]
    with pytest.raises(TripletError, match="0 of 900 answers are to random queries"):
        plan_comparison(CrossValidation((1, 2), ("TSTE",), 5, 1), SPEC, N, chosen)


def test_an_embedding_of_an_earlier_time_depends_on_the_answers_until_then_alone(answered: AnswerSet) -> None:
    def plan(count: int) -> JobPlan:
        """The embedding as of 300 answers, where there are so many."""
        cut = {name: getattr(answered, name)[:count] for name in ("triplets", "participants", "random", "repeatable")}
        return plan_embedding_as_of(
            EmbeddingAsOf("Adaptive", None, 300), SPEC, N, AnswerSet(**cut, names=answered.names, cursor=f"{count}-0")
        )

    then, again, later = (carried_out(plan(count)) for count in (300, 300, 301))
    assert then == again
    assert (then["answers"], then["cursor"]) == (300, "300-0")
    assert (then["noise"]["name"], then["searched_with"]["name"]) == ("PowerTSTE", "TSTE")
    assert then["coordinates"] != later["coordinates"]
    with pytest.raises(TripletError, match="There are only 299 answers"):
        plan(299)


@pytest.mark.parametrize("seed", [5, 9, 12, 21])
def test_what_a_request_gives_is_no_worse_than_the_map_that_is_shown(seed: int) -> None:
    triplets, shown = adaptive_study(N, seed)
    every = np.ones(len(triplets), dtype=np.bool_)
    given = AnswerSet(triplets, np.zeros(len(triplets), dtype=np.int32), every, every, ("a",), "9-9")
    published = PublishedMap(tuple(range(N)), shown, "Adaptive, generation 15")
    asked = {
        "fit": plan_fit_without(FitWithout((), "Adaptive", 2, "PowerTSTE", 2), SPEC, N, given, published=published),
        "as of": plan_embedding_as_of(EmbeddingAsOf("Adaptive", None, 900), SPEC, N, given, published=published),
    }
    for kind, course in asked.items():
        embedding = course.steps[0].function(*course.shared, *course.steps[0].arguments)
        result = course.conclude([embedding]) if kind == "as of" else embedding
        noise = PowerTSTE(k=result["noise"]["k"], lapse=result["noise"]["lapse"])
        objective = objective_of(triplets, N, noise, ridge=ridge_for(noise))
        assert objective(np.array(result["coordinates"]))[0] <= objective(shown)[0] + 1e-9, kind
    assert result["start"]["coordinates"] == shown.tolist()


def test_every_judged_answer_is_held_out_once_a_repeat_together_with_its_group(answered: AnswerSet) -> None:
    kept = answered.participants > 0
    evaluation = Evaluation(answered.triplets, answered.random, kept, N, folds=4, seed=1)
    candidate = Candidate(2, noise_with_lapse("TSTE"))
    outcomes = [[judge_fold(evaluation, candidate, repeat, fold) for fold in range(4)] for repeat in range(2)]
    joined = evaluation.join_folds(outcomes)
    assert joined.hits.shape == (2, int(evaluation.judged.sum()))
    groups = triple_groups(evaluation.triplets[evaluation.judged])
    for repeat in range(2):
        assert sum(len(hits) for hits, _, _ in outcomes[repeat]) == int(evaluation.judged.sum())
        assert all(len(set(joined.folds[repeat][groups == group])) == 1 for group in set(groups))
    whole = cross_validate(answered.triplets, answered.random, N, 2, candidate.noise, folds=4, repeats=2, seed=1)
    assert whole is not None
    assert whole.accuracy == joined.accuracy


def test_without_some_the_others_are_judged_on_the_same_folds(answered: AnswerSet) -> None:
    kept = answered.participants > 0
    evaluation = Evaluation(answered.triplets, answered.random, kept, N, folds=4, seed=1)
    everybody = evaluation.join_folds([[judge_fold(evaluation, Candidate(2, None), 0, fold) for fold in range(4)]])
    alone = Candidate(2, None, only_kept=True)
    others = evaluation.join_folds([[judge_fold(evaluation, alone, 0, fold) for fold in range(4)]], only_kept=True)
    own = kept[answered.random]
    assert (others.folds == everybody.folds[:, own]).all()
    assert others.fitted < everybody.fitted


def test_all_candidates_are_judged_and_one_of_each_is_recommended(answered: AnswerSet) -> None:
    course = plan_comparison(CrossValidation((1, 2), ("TSTE", "STE"), folds=3, repeats=2), SPEC, N, answered)
    assert (len(course.steps), course.steps[0].note) == (2 * 2 * 3 * 2, "judging d = 1 with TSTE, fold 1 of 3")
    result = carried_out(course)
    assert [(one["d"], one["noise"]["name"]) for one in result["candidates"]] == [
        *((1, "TSTE"), (2, "TSTE"), (1, "STE"), (2, "STE")),
    ]
    assert all(one["low"] < one["accuracy"] < one["high"] for one in result["candidates"])
    assert result["dimension"]["chosen"] in {1, 2}
    assert result["noise"]["chosen"] in {"TSTE", "STE"}
    assert {"d": result["dimension"]["chosen"], "noise": result["noise"]["chosen"]} in result["ties"]
    assert min(one["behind"] for one in result["candidates"]) == 0
    assert 0.5 <= result["ceiling"]["ceiling"]["value"] <= 1


def test_the_recommended_noise_is_learned_in_every_fold_and_described_so(answered: AnswerSet) -> None:
    job = CrossValidation((2,), ("PowerTSTE", "STE"), folds=3, repeats=1)
    result = carried_out(plan_comparison(job, SPEC, N, answered))
    assert result["candidates"][0]["noise"] == {"name": "PowerTSTE", "learned": True}
    fitted = carried_out(plan_fit_without(FitWithout((), "Adaptive", 2, "PowerTSTE", 3), SPEC, N, answered))
    assert fitted["noise"]["name"] == "PowerTSTE"
    assert fitted["noise"]["k"] != 0.85


PLANNED = StudyPlan(
    "Adaptive", targets=N, d=2, people="typical", world="random", lapse=0.0, answers=360, runs=2, accuracy=None,
    seconds=3.0, besides=3.0, pay=9.0, fee=0.0,
)  # fmt: skip


def test_a_planned_study_rises_towards_what_is_possible_and_the_sampler_needs_fewer_answers() -> None:
    result = carried_out(plan_study(PLANNED, SPEC))
    assert result["answers"][:3] == [30, 60, 90]
    assert result["answers"][-1] == 360
    for curve in result["accuracy"].values():
        assert 0.45 < curve["mean"][0] < curve["mean"][-1] < result["best_possible"]
        assert all(
            low <= mean <= high for low, mean, high in zip(*(curve[k] for k in ("low", "mean", "high")), strict=True)
        )
    assert result["accuracy"]["Adaptive"]["mean"][-1] > result["accuracy"][RANDOM]["mean"][-1]
    assert carried_out(plan_study(PLANNED, SPEC)) == result
    level = replace(PLANNED, accuracy=0.6)
    needed = carried_out(plan_study(level, SPEC))["to_reach"]
    assert needed["Adaptive"]["middle"]["answers"] < needed[RANDOM]["middle"]["answers"]
    assert needed["Adaptive"]["middle"]["money"] > 0
    assert "0.6" not in result["texts"]["ethics"]


def test_what_is_known_of_a_plan_is_refined_with_every_simulated_study() -> None:
    plan = plan_study(replace(PLANNED, answers=90), SPEC)
    outcomes: list[Any] = []
    known: list[Any] = []
    for step in plan.steps:
        outcomes.append(step.function(*step.arguments, *(() if step.after is None else (outcomes[step.after],))))
        if step.after is not None:
            outcomes[step.after] = None
        if (found := plan.so_far(outcomes)) is not None:
            known.append(found)
    assert [one["runs"] for one in known] == [1, 2]
    assert known[-1] == plan.conclude(outcomes)


def test_thoughtless_answers_cost_accuracy_and_a_single_study_has_no_band() -> None:
    careful, careless = (
        carried_out(plan_study(replace(PLANNED, answers=300, runs=1, lapse=lapse), SPEC)) for lapse in (0.0, 0.5)
    )
    assert careless["best_possible"] < careful["best_possible"]
    assert careless["accuracy"][RANDOM]["mean"][-1] < careful["accuracy"][RANDOM]["mean"][-1]
    assert careful["accuracy"][RANDOM]["low"][0] is None


def test_three_targets_are_enough_for_every_kind() -> None:
    spec = parse_spec(b"targets: 3\nsamplers: {Adaptive: {}, ARR: {}}\n").spec
    triplets = np.array([[0, 1, 2], [1, 0, 2], [2, 1, 0]] * 4, dtype=np.int32)
    every = np.ones(12, dtype=np.bool_)
    answered = AnswerSet(triplets, np.zeros(12, dtype=np.int32), every, every, ("a",), "1-1")
    fitted = carried_out(plan_fit_without(FitWithout((), "Adaptive", 2, "PowerTSTE", 10), spec, 3, answered))
    assert (fitted["accuracy"], fitted["held_out"]) == (1.0, None)
    for sampler in ("Adaptive", "ARR"):
        assert carried_out(plan_embedding_as_of(EmbeddingAsOf(sampler, None, 12), spec, 3, answered))["accuracy"] == 1.0


def test_a_stage_goes_on_where_the_one_before_it_ended() -> None:
    steps = plan_study(replace(PLANNED, answers=90, runs=1), SPEC).steps[-3:]
    first = advance(*steps[0].arguments)
    second = advance(*steps[1].arguments, first)
    assert second.curve[:1] == first.curve
    np.testing.assert_array_equal(second.triplets[:30], first.triplets)
    assert len(second.triplets) == 60


def test_only_answers_that_may_be_fitted_are_gathered_and_their_people_are_remembered() -> None:
    def answer(place: int, person: str, kind: Any = "active", sampler: str = "Adaptive") -> tuple[str, Answer]:
        served = Served(
            "e", 1, person, "s", 1, sampler, head=place % N, left=(place + 1) % N, right=(place + 2) % N, score=0.0,
            trial_type=kind, probability=0.0, sampler_probability=1.0, generation=0, published_ms=0, served_ms=0,
            nonce=str(place),
        )  # fmt: skip
        return f"{place}-1", Answer(served, served.right, Timing(), received_ms=0)

    heard: list[int] = []
    entries = [
        *(answer(1, "ann"), answer(2, "bob", "random"), answer(3, "ann", "catch"), answer(4, "cat", sampler="Test")),
        *(answer(20, "ann", "shared"), answer(30, "bob", "repeat")),
        *(answer(35, "ann", "fallback"), answer(36, "dan", "validation"), answer(37, "eve")),
    ]
    found = collect_answers(entries, tests=frozenset({"Test"}), n=N, at_most=4, on_progress=heard.append)
    assert found.triplets.tolist() == [[1, 3, 2], [2, 4, 3], [5, 7, 6], [6, 8, 7]]
    assert [found.names[place] for place in found.participants] == ["ann", "bob", "ann", "dan"]
    assert found.random.tolist() == [False, True, True, False]
    assert (found.repeatable.tolist(), found.cursor) == ([False, True, True, True], "36-1")
    assert [len(found.for_ceiling(people)) for people in ((), ["ann"], ["bob"])] == [5, 3, 3]
    assert found.given_by(["ann", "zoe"]).tolist() == [True, False, True, False]
    assert heard == []
    nothing = collect_answers([], tests=frozenset(), n=N, at_most=None, on_progress=heard.append)
    assert (len(nothing), nothing.cursor) == (0, "0")


def test_what_goes_wrong_on_a_worker_comes_back_as_a_sentence() -> None:
    assert run_step(Mock(side_effect=SalmonError("There are no targets.", hint="Add some."))) == StepFailure(
        "There are no targets. Add some."
    )
    assert run_step(divmod, 1, 0) == StepFailure(
        "The computation failed (ZeroDivisionError: integer division or modulo by zero)."
    )
    assert run_step(divmod, 7, 2) == (3, 1)


def test_results_hold_plain_values_only() -> None:
    value = {"a": np.array([[1.0, np.nan]]), 2: (np.float64("inf"), np.int32(3), None, "x", True)}
    assert to_json_value(value) == {"a": [[1.0, None]], "2": [None, 3, None, "x", True]}
    with pytest.raises(TypeError, match="A set cannot be part of a result"):
        to_json_value({"a": {1}})
