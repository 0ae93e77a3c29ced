"""Steps around the trials, ways in and ways out, as pure functions."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from frontend.errors import ConflictError, FormError
from frontend.languages import LANGUAGES, catalogue, direction_of, language_of, strings_of
from frontend.participant import steps
from frontend.participant.arrival import arrival_of, returning
from frontend.participant.completion import departure_of
from frontend.schemas import StepBody
from salmon.spec import Spec, parse_spec
from salmon.spec.consistency import PAGE_TEXTS
from salmon.spec.schema import Resume

HOUR_MS = 3_600_000


def spec_of(extra: str = "") -> Spec:
    return parse_spec(("targets: [a, b, c]\nsamplers: {Random: {}}\n" + extra).encode(), name="spec.yaml").spec


def taken(spec: Spec, values: dict[str, str], step: str, **body: object) -> dict[str, str]:
    done = steps.carry_out(spec, values, step, StepBody.model_validate(body), now_ms=1)
    return {**values, **{name: str(value) for name, value in done.fields.items()}}


def test_an_experiment_that_writes_only_targets_has_three_steps():
    assert steps.steps_of(spec_of()) == ("welcome", "trials", "debrief")


def test_a_consent_counts_for_its_own_text_only():
    old, new = spec_of("consent: {text: first}\n"), spec_of("consent: {text: second}\n")
    agreed = taken(old, {}, "consent", agreed=True)
    assert steps.ready_for_trials(old, agreed)
    assert not steps.ready_for_trials(new, agreed)
    active = {**agreed, "status": "active"}
    assert taken(new, active, "consent", agreed=True)["status"] == "active"


def test_a_step_before_its_turn_is_refused_by_name():
    spec = spec_of("consent: {text: first}\npractice: {queries: [[0, 1, 2, 1]]}\n")
    with pytest.raises(ConflictError, match="consent comes before practice"):
        taken(spec, {}, "practice")


def test_an_attempt_that_is_sent_again_counts_once():
    spec = spec_of("comprehension: {questions: [{text: t, options: [x, y], answer: x}]}\n")
    once = taken(spec, {}, "comprehension", attempt=1, options=["y"])
    twice = taken(spec, once, "comprehension", attempt=1, options=["x"])
    assert steps.attempts_left(spec, once) == steps.attempts_left(spec, twice) == 1
    assert taken(spec, twice, "comprehension", attempt=2, options=["x"])["status"] == "training"
    assert taken(spec, twice, "comprehension", attempt=2, options=["y"])["status"] == "screened_out"


def test_replies_that_do_not_fit_are_named_together():
    spec = spec_of(
        "questions: [{name: age, text: t, type: number, required: true}, {name: n, text: t, type: number}]\n"
    )
    with pytest.raises(FormError) as caught:
        taken(spec, {}, "questions", replies={"n": "many"})
    assert caught.value.problems == {"age": "field_missing", "n": "field_number"}
    kept = taken(spec, {}, "questions", replies={"age": "31", "n": "1,5"})
    assert (kept["question:age"], kept["question:n"]) == ("31", "1.5")


def test_who_comes_back_goes_on_reads_again_or_is_refused_by_the_length_of_the_gap():
    values = {"status": "active", "seen_ms": "0", "last_ms": "1"}
    ways = [returning(Resume(), values, same_tab=False, now_ms=hours * HOUR_MS) for hours in (1, 3)]
    assert ways == ["continue", "review"]
    with pytest.raises(ConflictError, match="too long ago"):
        returning(Resume(), values, same_tab=False, now_ms=25 * HOUR_MS)
    week = Resume(max_gap=timedelta(days=7))
    assert returning(week, values, same_tab=False, now_ms=25 * HOUR_MS) == "continue"
    done = {**values, "status": "completed"}
    assert returning(Resume(), done, same_tab=False, now_ms=99 * HOUR_MS) == "continue"


def test_the_policy_is_about_coming_back_by_the_link_and_not_about_reloading():
    values = {"status": "active", "seen_ms": "0"}
    assert returning(Resume(policy="restart"), values, same_tab=False, now_ms=1) == "restart"
    assert returning(Resume(policy="restart"), values, same_tab=True, now_ms=1) == "continue"
    assert returning(Resume(policy="block"), values, same_tab=True, now_ms=1) == "continue"
    with pytest.raises(ConflictError, match="cannot be continued"):
        returning(Resume(policy="block"), values, same_tab=False, now_ms=1)


@pytest.mark.parametrize(
    ("parameters", "identity"),
    [
        ({"PROLIFIC_PID": "p1", "STUDY_ID": "s"}, "prolific:p1"),
        ({"participantId": "c1"}, "connect:c1"),
        ({"survey_code": "4711"}, "sona:4711"),
        ({"workerId": "W1", "assignmentId": "A1"}, "mturk:W1"),
        ({"puid": "x"}, "link:x"),
        ({}, "link:new"),
    ],
)
def test_each_platform_says_in_its_own_words_who_comes(parameters: dict[str, str], identity: str):
    assert arrival_of(parameters, fresh="new").identity == identity


@pytest.mark.parametrize(
    ("recruitment", "redirect"),
    [
        (
            "{platform: prolific, completion_code: C1}",
            "https://app.prolific.com/submissions/complete?cc=C1",
        ),
        (
            "{platform: sona, sona: {school: psych-uni, experiment_id: 9, credit_token: abcdef012345}}",
            "https://psych-uni.sona-systems.com/webstudy_credit.aspx?experiment_id=9&credit_token=abcdef012345&survey_code=p%261",
        ),
        (
            "{platform: connect, connect: {project: ABCD}}",
            "https://connect.cloudresearch.com/participant/project/ABCD/complete",
        ),
        ('{redirect: "https://x.org/?a={puid}&b={STUDY_ID}"}', "https://x.org/?a=p%261&b=s%2F2"),
    ],
)
def test_every_platform_gets_its_participants_back_with_their_ids_quoted(recruitment: str, redirect: str):
    spec = spec_of(f"recruitment: {recruitment}\n")
    assert departure_of(spec.recruitment, {"puid": "p&1", "arrived:STUDY_ID": "s/2"}).redirect == redirect


def test_files_are_checked_against_the_texts_that_the_page_has():
    fields = {name: tuple(re.findall(r"\{(\w+)\}", text)) for name, text in catalogue("en").items()}
    assert fields == dict(PAGE_TEXTS)


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_every_text_with_the_same_fields(language: str):
    ours, english = catalogue(language), catalogue("en")
    assert set(ours) == set(english)
    for name, text in english.items():
        assert ours[name]
        assert set(re.findall(r"\{\w+\}", ours[name])) == set(re.findall(r"\{\w+\}", text)), name


def test_a_link_may_ask_for_a_language_and_an_experimenter_may_replace_a_text():
    assert language_of("pt-BR", "en") == "pt-BR"
    assert language_of("xx", "it") == "it"
    assert strings_of("it", {"begin": "Inizia"})["begin"] == "Inizia"
    assert strings_of("it", {})["back"] == "Back"
    assert [direction_of(language) for language in ("ar", "he-IL", "ja")] == ["rtl", "rtl", "ltr"]
