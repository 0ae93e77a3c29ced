"""What may be asked of the learning process: defaults, and every mistake at once."""

import json
from dataclasses import fields
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from salmon.errors import Problem
from salmon.jobs import (
    KINDS,
    CrossValidation,
    EmbeddingAsOf,
    FitWithout,
    Job,
    RequestError,
    StudyPlan,
    plain_arguments,
    read_job,
)
from salmon.spec import Spec, parse_spec
from tests.program import REPOSITORY

TEXT = "targets: 30\nsamplers: {Random: {}, ARR: {d: 3, module: CKL}, Adaptive: {}}\n"
SPEC: Spec = parse_spec(TEXT.encode()).spec
PASSIVE: Spec = parse_spec(b"targets: 30\nsamplers: {Random: {}}\n").spec


def refused(kind: str, arguments: dict[str, Any], spec: Spec = SPEC) -> list[str]:
    with pytest.raises(RequestError) as caught:
        read_job(kind, arguments, spec, 30)
    return [problem.sentence() for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("kind", "arguments", "spec", "meaning"),
    [
        ("fit", {}, SPEC, FitWithout((), "ARR", d=3, noise="CKL", folds=10)),
        ("fit", {"sampler": "Adaptive"}, SPEC, FitWithout((), "Adaptive", 2, "PowerTSTE", 10)),
        ("plan", {}, SPEC, StudyPlan("ARR", 30, 3, "typical", "random", 0.0, 0, 6, None, 3.0, 3.0, 0.0, 0.0)),
        ("plan", {"runs": 2}, PASSIVE, StudyPlan("", 30, 2, "typical", "random", 0.0, 0, 2, None, 3.0, 3.0, 0.0, 0.0)),
        (
            "cross_validation",
            {"dimensions": 2, "noise": ["ckl", "CKL"]},
            SPEC,
            CrossValidation((2,), ("CKL",), folds=10, repeats=1),
        ),
        ("embedding", {"answers": 40}, PASSIVE, EmbeddingAsOf("", None, 40)),
    ],
)
def test_what_a_request_leaves_out_means_what_the_experiment_says(
    kind: str, arguments: dict[str, Any], spec: Spec, meaning: Job
) -> None:
    assert read_job(kind, arguments, spec, 30) == meaning


def test_every_mistake_of_a_request_comes_back_at_once() -> None:
    arguments = {"exclude": ["abc", "no such!"], "sampler": "Adaptiv", "d": 0, "noise": "CKLL", "fold": 5}
    assert refused("fit", arguments) == [
        "exclude, item 2 must be the id of a participant, small letters and digits, not 'no such!'.",
        "sampler must be an active sampler of this experiment (ARR or Adaptive), not 'Adaptiv'. Did you mean Adaptive?",
        "d must be a whole number from 1 to 10, not '0'.",
        "noise must be TSTE, STE, CKL, GNMDS, SOE, PowerTSTE or Logistic, not 'CKLL'. Did you mean CKL?",
        "A fit takes no argument 'fold'. Did you mean folds?",
    ]


@pytest.mark.parametrize(
    ("kind", "arguments", "says"),
    [
        ("fits", {}, "There is no request of the kind 'fits'. Did you mean fit?"),
        ("", {}, "There is no request of the kind ''. Ask for fit, embedding, cross_validation, plan, race or groups."),
        ("embedding", {}, "Give exactly one of generation and answers."),
        ("embedding", {"generation": 3, "answers": 40}, "Give exactly one of generation and answers."),
        ("embedding", {"answers": "many"}, "answers must be a whole number of at least 1, not 'many'."),
        ("cross_validation", {"dimensions": []}, "dimensions names nothing to compare."),
        ("cross_validation", {"repeats": 20}, "3,600 fits; at most 2,000"),
        ("plan", {"answers": 6001}, "answers is 6,001; for 30 targets at most 6,000 are simulated."),
        ("plan", {"targets": 3}, "targets must be a whole number from 4 to 300, not '3'."),
        ("plan", {"people": "typicl"}, "people must be typical, clear or hard, not 'typicl'. Did you mean typical?"),
        ("plan", {"lapse": 1.5}, "lapse must be a number from 0 to 0.9, not '1.5'."),
        ("plan", {"answers": [1, 2]}, "answers must be a whole number from 0 to 60,000"),
        ("fit", {"exclude": {"a": 1}}, "exclude must be the id of a participant"),
        ("fit", {"sampler": "Random"}, "sampler must be an active sampler"),
        ("fit", {"exclude": ["a"] * 10_001}, "exclude has 10,001 entries; at most 10,000 are read."),
    ],
)
def test_a_mistake_is_a_sentence(kind: str, arguments: dict[str, Any], says: str) -> None:
    assert any(says in sentence for sentence in refused(kind, arguments))


def test_an_experiment_without_active_samplers_has_no_generations() -> None:
    assert "nothing was refitted" in refused("embedding", {"generation": 1}, PASSIVE)[0]
    assert "no active sampler" in refused("fit", {"sampler": "Random"}, PASSIVE)[0]


def test_every_kind_and_every_argument_is_in_the_manual() -> None:
    manual = (REPOSITORY / "docs" / "requests.md").read_text()
    for kind, meaning in zip(KINDS, get_args(Job), strict=True):
        assert f"| `{kind}` |" in manual
        missing = [item.name for item in fields(meaning) if f"`{item.name}`" not in manual]
        assert missing == [], f"not in docs/requests.md: {missing} of {kind}"


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 100) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=5,
)
names = st.sampled_from(["exclude", "sampler", "d", "noise", "folds", "generation", "answers", "dimensions", "runs"])


@given(st.sampled_from(KINDS), st.dictionaries(names | st.text(max_size=5), anything, max_size=5))
def test_whatever_is_asked_is_read_or_refused_with_places(kind: str, arguments: dict[str, Any]) -> None:
    for spec in (SPEC, PASSIVE):
        meaning, problems = read(kind, arguments, spec)
        assert all(problem.path and problem.message for problem in problems)
        assert (meaning is None) == bool(problems)
        if meaning is not None:
            # What is stored is read back as the same, so that later defaults change nothing of it.
            assert read_job(kind, json.loads(json.dumps(plain_arguments(meaning))), spec, 30) == meaning


def read(kind: str, arguments: dict[str, Any], spec: Spec) -> tuple[Job | None, tuple[Problem, ...]]:
    try:
        return read_job(kind, arguments, spec, 30), ()
    except RequestError as error:
        return None, error.problems
