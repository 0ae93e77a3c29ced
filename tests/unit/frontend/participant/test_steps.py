"""Steps around the trials, ways in and ways out, as pure functions."""

import re
from dataclasses import replace
from datetime import timedelta

import pytest

from frontend.errors import ConflictError, FormError
from frontend.languages import LANGUAGES, catalogue, direction_of, language_of, strings_of
from frontend.participant import steps
from frontend.participant.arrival import read_arrival, way_back
from frontend.participant.completion import completion_of
from frontend.schemas import StepBody
from frontend.store.participants import Participant, identity_of
from frontend.store.statuses import OUT, TRANSITIONS, UNDER_WAY, Status
from salmon.errors import SpecError
from salmon.spec import Spec, parse_spec
from salmon.spec.page_texts import PAGE_TEXTS
from salmon.spec.schema import Resume

HOUR_MS = 3_600_000
SOMEBODY = Participant("somebody", puid="x", source="link", first_ms=1)


def spec_of(extra: str = "") -> Spec:
    return parse_spec(("targets: [a, b, c]\nsamplers: {Random: {}}\n" + extra).encode(), name="spec.yaml").spec


def take_step(spec: Spec, participant: Participant, step: str, **body: object) -> Participant:
    result = steps.carry_out(spec, participant, step, StepBody.model_validate(body), now_ms=1)
    return participant.after(result.change) if result.change else participant


def test_an_experiment_that_writes_only_targets_has_three_steps():
    assert steps.steps_of(spec_of()) == ("welcome", "trials", "debrief")


def test_a_consent_counts_for_its_own_text_only():
    old, new = spec_of("consent: {text: first}\n"), spec_of("consent: {text: second}\n")
    agreed = take_step(old, SOMEBODY, "consent", agreed=True)
    assert agreed.status == Status.CONSENTED
    assert [steps.missing_before_trials(spec, agreed) for spec in (old, new)] == [[], ["consent"]]
    active = replace(agreed, status=Status.ACTIVE)
    assert take_step(new, active, "consent", agreed=True).status == Status.ACTIVE
    assert take_step(new, active, "consent").status == Status.DECLINED


def test_whoever_has_agreed_is_not_welcomed_again_when_the_welcome_comes_later():
    """Two web processes may carry out the two requests in the other order."""
    spec = spec_of("consent: {text: first}\ninstructions: [{text: look}]\n")
    assert steps.next_step(spec, SOMEBODY) == "welcome"
    agreed = take_step(spec, SOMEBODY, "consent", agreed=True)
    assert steps.next_step(spec, agreed) == "instructions"
    assert steps.next_step(spec, take_step(spec, agreed, "welcome")) == "instructions"


def test_a_step_before_its_turn_is_refused_by_name():
    spec = spec_of("consent: {text: first}\npractice: {queries: [[0, 1, 2, 1]]}\n")
    with pytest.raises(ConflictError, match="consent comes before practice"):
        take_step(spec, SOMEBODY, "practice")


def test_an_attempt_that_is_sent_again_counts_once():
    spec = spec_of("comprehension: {questions: [{text: t, options: [x, y], answer: x}]}\n")
    once = take_step(spec, SOMEBODY, "comprehension", attempt=1, options=["y"])
    twice = take_step(spec, once, "comprehension", attempt=1, options=["x"])
    assert steps.attempts_left(spec, once) == steps.attempts_left(spec, twice) == 1
    assert take_step(spec, twice, "comprehension", attempt=2, options=["x"]).status == Status.TRAINING
    assert take_step(spec, twice, "comprehension", attempt=2, options=["y"]).status == Status.SCREENED_OUT


def test_replies_that_do_not_fit_are_named_together():
    spec = spec_of(
        "questions: [{name: age, text: t, type: number, required: true}, {name: n, text: t, type: number}]\n"
    )
    with pytest.raises(FormError) as caught:
        take_step(spec, SOMEBODY, "questions", replies={"n": "many"})
    assert caught.value.problems == {"age": "field_missing", "n": "field_number"}
    change = steps.carry_out(spec, SOMEBODY, "questions", StepBody(replies={"age": "31", "n": "1,5"}), now_ms=1).change
    assert change is not None
    assert (change.encode()["question:age"], change.encode()["question:n"]) == ("31", "1.5")


STEP_BY_STEP = """
consent: {text: first}
instructions: [{text: Look.}]
practice: {queries: [[0, 1, 2, 1]]}
comprehension: {questions: [{text: t, options: [x, y], answer: x}]}
questions: [{name: age, text: t, type: number}]
"""
BODIES: dict[str, dict[str, object]] = {
    "welcome": {},
    "consent": {"agreed": True, "language": "en"},
    "instructions": {},
    "practice": {"trials": [{"query": 0, "winner": 1}]},
    "comprehension": {"options": ["x"]},
    "questions": {"replies": {"age": "31"}},
}


def test_what_a_step_stores_is_read_again_as_what_it_changed():
    spec, stored, participant = spec_of(STEP_BY_STEP), {"first_ms": "1", "puid": "x", "source": "link"}, SOMEBODY
    for step, body in BODIES.items():
        change = steps.carry_out(spec, participant, step, StepBody.model_validate(body), now_ms=7).change
        assert change is not None
        stored |= {name: str(value) for name, value in change.encode().items()}
        participant = participant.after(change)
        assert Participant.parse("somebody", stored) == participant
    assert (steps.missing_before_trials(spec, participant), steps.next_step(spec, participant)) == ([], "trials")


def test_every_status_is_reached_and_those_out_have_no_way_on():
    assert set(TRANSITIONS) == set(Status)
    reached = {Status.ARRIVED}
    for _ in Status:
        reached |= {following for status in reached for following in TRANSITIONS[status]}
    assert reached == set(Status)
    assert all(status.becomes(wanted) == status for status in OUT for wanted in Status)
    assert not OUT & UNDER_WAY
    assert Status.REDIRECTED.becomes(Status.TRAINING) == Status.REDIRECTED


ACTIVE = replace(SOMEBODY, first_ms=0, status=Status.ACTIVE, last_ms=1)
DONE = replace(ACTIVE, status=Status.COMPLETED)


@pytest.mark.parametrize(
    ("resume", "participant", "same_tab", "hours", "way"),
    [
        (Resume(), ACTIVE, False, 1, "continue"),
        (Resume(), ACTIVE, False, 3, "review"),
        (Resume(max_gap=timedelta(days=7)), ACTIVE, False, 25, "continue"),
        (Resume(), DONE, False, 99, "continue"),
        (Resume(policy="restart"), ACTIVE, False, 0, "restart"),
        (Resume(policy="restart"), ACTIVE, True, 0, "continue"),
        (Resume(policy="block"), ACTIVE, True, 0, "continue"),
    ],
)
def test_who_comes_back_goes_on_by_the_length_of_the_gap_and_the_policy_for_links(
    resume: Resume, participant: Participant, same_tab: bool, hours: int, way: str
):
    assert way_back(resume, participant, same_tab=same_tab, browser="", now_ms=hours * HOUR_MS) == way


@pytest.mark.parametrize(
    ("resume", "hours", "words"),
    [(Resume(), 25, "too long ago"), (Resume(policy="block"), 0, "cannot be continued")],
)
def test_who_may_not_come_back_is_refused_with_the_reason(resume: Resume, hours: int, words: str):
    with pytest.raises(ConflictError, match=words):
        way_back(resume, ACTIVE, same_tab=False, browser="", now_ms=hours * HOUR_MS)


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
    arrival = read_arrival(parameters, fresh="new")
    assert identity_of(arrival.source, arrival.puid) == identity


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
    settings = spec_of(f"recruitment: {recruitment}\n").recruitment
    assert completion_of(settings, replace(SOMEBODY, puid="p&1", companions={"STUDY_ID": "s/2"})).redirect == redirect


def test_files_are_checked_against_the_texts_that_the_page_has():
    assert {name: tuple(re.findall(r"\{(\w+)\}", text)) for name, text in catalogue("en").items()} == dict(PAGE_TEXTS)


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_every_text_with_the_same_fields(language: str):
    ours, english = (
        {name: set(re.findall(r"\{\w+\}", text)) for name, text in catalogue(one).items() if text}
        for one in (language, "en")
    )
    assert ours == english


def test_a_link_may_ask_for_a_language_and_an_experimenter_may_replace_a_text():
    assert language_of("pt-BR", "en") == "pt-BR"
    assert language_of("xx", "it") == "it"
    assert strings_of("it", {"begin": "Inizia"})["begin"] == "Inizia"
    assert strings_of("it", {})["back"] == "Back"
    assert [direction_of(language) for language in ("ar", "he-IL", "ja")] == ["rtl", "rtl", "ltr"]


@pytest.mark.parametrize(
    ("question", "written", "stored"),
    [
        ("type: likert", "7", "7"),
        ("type: likert, points: 5, options: [not at all, very much]", "1", "1"),
        ("type: likert, points: 5", "6", None),
        ("type: likert", "3.0", None),
        ("type: multiple, options: [a, b, c]", "a; c", "a; c"),
        ("type: multiple, options: [a, b, c]", "c; a", None),
        ("type: multiple, options: [a, b, c]", "a; d", None),
    ],
)
def test_replies_on_scales_and_of_several_choices(question: str, written: str, stored: str | None) -> None:
    spec = spec_of(f"questions: [{{name: q, text: t, {question}}}]\n")
    if stored is None:
        with pytest.raises(FormError):
            take_step(spec, SOMEBODY, "questions", replies={"q": written})
    else:
        assert take_step(spec, SOMEBODY, "questions", replies={"q": written}).replies == {"q": stored}


@pytest.mark.parametrize(
    ("question", "sentence"),
    [
        ("type: likert, points: 5, options: [a, b, c]", "has 3 options for 5 points"),
        ("type: multiple, options: [a]", "is a choice without options"),
        ("type: multiple, options: ['a; b', c]", "semicolon"),
        ("type: number, options: [a, b]", "its type is number"),
        ("type: likert, points: 12", "points"),
    ],
)
def test_questions_that_cannot_be_asked_are_refused_in_a_sentence(question: str, sentence: str) -> None:
    with pytest.raises(SpecError, match=sentence):
        spec_of(f"questions: [{{name: q, text: t, {question}}}]\n")
