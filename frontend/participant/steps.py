"""The steps of a participant, from the welcome to the debriefing: which there are, in
which order, and what each changes.

Pure functions of the spec and of the participant. A step that was done stays done, so a page that never saw the reply
may send it again.
"""

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, cast, get_args

from typing_extensions import TypedDict

from frontend.errors import BadRequestError, ConflictError, FormError
from frontend.schemas import StepBody
from frontend.store.participants import Participant
from frontend.store.statuses import FINISHED, OUT, Status
from frontend.store.step_changes import ComprehensionAttempt, ConsentGiven, StepChange
from salmon.spec import Spec
from salmon.spec.schema import Comprehension, Question


class StepOutcome(TypedDict, total=False):
    """What a step itself says: the comprehension check whether it was right, and how many attempts are left."""

    right: bool
    attempts_left: int


Step = Literal["welcome", "consent", "instructions", "practice", "comprehension", "trials", "questions", "debrief"]
STEPS: tuple[Step, ...] = get_args(Step)


@dataclass(frozen=True)
class StepResult:
    """Result of carrying out a step: a change to store, if any, and the reply to the page."""

    change: StepChange | None
    reply: StepOutcome


def steps_of(spec: Spec) -> tuple[Step, ...]:
    """Return the steps that an experiment has, in order."""
    optional: dict[str, object] = {
        "consent": spec.consent,
        "instructions": spec.instructions,
        "practice": spec.practice,
        "comprehension": spec.comprehension,
        "questions": spec.questions,
    }
    return tuple(step for step in STEPS if optional.get(step, True))


def next_step(spec: Spec, participant: Participant) -> Step:
    """Return the first step that is not done.

    The page goes on from the welcome without waiting for the reply, so what comes after it may be here before it.
    """
    known = steps_of(spec)
    left: list[Step] = [step for step in known if step == "debrief" or not _is_done(spec, participant, step)]
    return left[1] if left[0] == "welcome" and len(left) < len(known) else left[0]


def missing_before_trials(spec: Spec, participant: Participant) -> list[Step]:
    """Return the steps that are not done and must come before the trials."""
    known = steps_of(spec)
    return _missing(spec, participant, known[: known.index("trials")])


def ready_to_finish(spec: Spec, participant: Participant) -> bool:
    """Return whether every step but the trials is done; how many answers that takes is
    decided where they are counted.
    """
    return not _missing(spec, participant, steps_of(spec)[:-1])


def consent_version(spec: Spec) -> str:
    """Return the name of the text that is agreed to: the beginning of its SHA-256."""
    text = spec.consent.text if spec.consent else ""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def attempts_left(spec: Spec, participant: Participant) -> int:
    """Return how often the comprehension questions may still be answered."""
    return _attempts_left(spec.comprehension, participant.attempts) if spec.comprehension else 0


def carry_out(spec: Spec, participant: Participant, step: str, body: StepBody, *, now_ms: int) -> StepResult:
    """Return what a step changes. A step before its turn is refused, and one that was done changes nothing more."""
    known = steps_of(spec)
    if step not in known:
        raise BadRequestError(
            f"This experiment has no step called {step!r}.", hint=f"Its steps are {', '.join(known)}.", where="step"
        )
    if step == "debrief":
        return _leave(participant, now_ms)
    if participant.status in OUT or _is_done(spec, participant, step):
        return StepResult(None, {})
    if missing := _missing(spec, participant, known[: known.index(step)]):
        raise ConflictError(f"The step {missing[0]} comes before {step}.", hint="Reload the page.", where=step)
    result = _CARRY_OUT[step](spec, participant, body, now_ms)
    change = cast("StepChange", result.change)
    return StepResult(replace(change, status=participant.status.becomes(change.status)), result.reply)


def shortest_way(spec: Spec, participant: Participant) -> list[tuple[Step, StepBody]]:
    """Return the steps that are not done up to the trials, with what completes each: for somebody who tries it out."""
    known = steps_of(spec)
    options = tuple(question.answer for question in spec.comprehension.questions) if spec.comprehension else ()
    body = StepBody(agreed=True, version=consent_version(spec), options=options)
    if spec.comprehension is not None:
        body = body.model_copy(update={"attempt": next_attempt(participant)})
    return [(step, body) for step in known[: known.index("trials") + 1] if not _is_done(spec, participant, step)]


def next_attempt(participant: Participant) -> int:
    """Return the number of the next attempt at the comprehension questions."""
    return max(participant.attempts, default=0) + 1


def _missing(spec: Spec, participant: Participant, steps: tuple[Step, ...]) -> list[Step]:
    """Return which of these steps are not done. The welcome is a courtesy, and the last
    answers may still be on their way.
    """
    return [step for step in steps if step not in {"welcome", "trials"} and not _is_done(spec, participant, step)]


def _is_done(spec: Spec, participant: Participant, step: str) -> bool:
    if step == "consent":
        return consent_version(spec) in participant.consents
    if step == "trials" and spec.html.max_queries > 0:
        return participant.answers >= spec.html.max_queries or participant.given_unsaved is not None
    return step in participant.steps


def _leave(participant: Participant, now_ms: int) -> StepResult:
    """Return the change of a participant who has taken the way out that was shown."""
    if participant.status not in FINISHED:
        raise ConflictError("This participant has not finished yet.", hint="Reload the page.", where="debrief")
    return StepResult(StepChange(Status.REDIRECTED, redirected_ms=now_ms), {})


def _mark_done(step: Step, status: Status | None = None) -> Callable[[Spec, Participant, StepBody, int], StepResult]:
    """Return how a step is carried out of which only the time is kept."""

    def carry_out_step(spec: Spec, participant: Participant, body: StepBody, now_ms: int) -> StepResult:
        del spec, body
        return StepResult(StepChange(status or participant.status, step, now_ms), {})

    return carry_out_step


def _answer_consent(spec: Spec, participant: Participant, body: StepBody, now_ms: int) -> StepResult:
    """Agreeing is kept with the version of the text and its language; disagreeing ends the participant's part."""
    del participant
    if not body.agreed:
        return StepResult(StepChange(Status.DECLINED, declined_ms=now_ms), {})
    version = consent_version(spec)
    if body.version and body.version != version:
        raise ConflictError("The text has changed since it was shown.", hint="Reload the page and read it again.")
    return StepResult(
        StepChange(Status.CONSENTED, "consent", now_ms, consent=ConsentGiven(version, now_ms, body.language)), {}
    )


def _finish_practice(spec: Spec, participant: Participant, body: StepBody, now_ms: int) -> StepResult:
    del spec, participant
    return StepResult(
        StepChange(Status.TRAINING, "practice", now_ms, practice=[trial.model_dump() for trial in body.trials]), {}
    )


def _answer_comprehension(spec: Spec, participant: Participant, body: StepBody, now_ms: int) -> StepResult:
    """Judge one attempt. An attempt that is sent again counts once, with the options that were chosen first."""
    comprehension = cast("Comprehension", spec.comprehension)
    questions, attempts = comprehension.questions, comprehension.attempts
    if body.attempt > attempts:
        raise BadRequestError(
            f"There are {attempts} attempts; this is number {body.attempt}.", hint="Reload the page.", where="attempt"
        )
    chosen = participant.attempts.get(body.attempt, body.options)
    if len(chosen) != len(questions):
        raise BadRequestError(
            f"There are {len(questions)} questions and {len(chosen)} answers.", hint="Answer each.", where="options"
        )
    right = all(option == question.answer for option, question in zip(chosen, questions, strict=True))
    attempt = ComprehensionAttempt(body.attempt, chosen, right)
    if right:
        return StepResult(StepChange(Status.TRAINING, "comprehension", now_ms, attempt=attempt), {"right": True})
    left = _attempts_left(comprehension, {**participant.attempts, body.attempt: chosen})
    return StepResult(
        StepChange(Status.TRAINING if left else Status.SCREENED_OUT, attempt=attempt),
        {"right": False, "attempts_left": left},
    )


def _attempts_left(comprehension: Comprehension, made: Mapping[int, tuple[str, ...]]) -> int:
    return sum(attempt not in made for attempt in range(1, comprehension.attempts + 1))


def _answer_questions(spec: Spec, participant: Participant, body: StepBody, now_ms: int) -> StepResult:
    return StepResult(
        StepChange(participant.status, "questions", now_ms, replies=_read_replies(spec.questions, body.replies)), {}
    )


def _read_replies(questions: tuple[Question, ...], written: Mapping[str, str]) -> dict[str, str | float]:
    """Return the replies as they are stored; FormError names every question that is not answered as it asks."""
    problems: dict[str, str] = {}
    replies: dict[str, str | float] = {}
    for question in questions:
        text = written.get(question.name, "").strip()
        if not text:
            if question.required:
                problems[question.name] = "field_missing"
        elif question.type == "number":
            number = _read_number(text)
            if number is None:
                problems[question.name] = "field_number"
            else:
                replies[question.name] = number
        elif question.type == "likert":
            if text not in map(str, range(1, question.points + 1)):
                problems[question.name] = "field_missing"
            else:
                replies[question.name] = int(text)
        elif not _is_an_option(question, text):
            problems[question.name] = "field_missing"
        else:
            replies[question.name] = text
    if problems:
        raise FormError("Some questions are not answered yet.", problems)
    return replies


def _is_an_option(question: Question, text: str) -> bool:
    """Return whether a choice is one of the options, or several choices some of them, in their order."""
    if question.type == "choice":
        return text in question.options
    if question.type == "multiple":
        chosen = text.split("; ")
        return chosen == [option for option in question.options if option in chosen]
    return True


def _read_number(written: str) -> float | None:
    """Return a number as people write it, with a comma or a point; None where it is none."""
    try:
        number = float(written.replace(",", "."))
    except ValueError:
        return None
    if not math.isfinite(number):
        return None
    return int(number) if number.is_integer() else number


_CARRY_OUT: Mapping[str, Callable[[Spec, Participant, StepBody, int], StepResult]] = {
    "welcome": _mark_done("welcome"),
    "consent": _answer_consent,
    "instructions": _mark_done("instructions", Status.TRAINING),
    "practice": _finish_practice,
    "comprehension": _answer_comprehension,
    "trials": _mark_done("trials"),  # where they have no last one, the participant says when it is enough
    "questions": _answer_questions,
}
