"""The steps of a participant, from the welcome to the debriefing: which come, in which order, and what each leaves behind.

Pure functions of the spec and of what the store knows of the participant. What a step leaves behind are fields of the
participant: `step:NAME` is when it was done, in Unix milliseconds. A step that was done stays done, so a page that
never saw our reply may send it again.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, cast, get_args

from frontend.errors import BadRequestError, ConflictError, FormError
from frontend.schemas import Json, StepBody
from salmon.spec import Spec
from salmon.spec.schema import Comprehension, Question
from salmon.wire import decode_json, encode_json

Step = Literal["welcome", "consent", "instructions", "practice", "comprehension", "trials", "questions", "debrief"]
STEPS: tuple[Step, ...] = get_args(Step)
Values = Mapping[str, str]

#: Statuses from which there is no way on.
OUT = frozenset({"declined", "screened_out", "failed_checks", "returned", "timed_out", "withdrawn", "replaced"})
#: Statuses in which the experiment's queries are served and answers count towards the end.
UNDER_WAY = frozenset({"active", "completed", "redirected"})


@dataclass(frozen=True)
class Done:
    """What carrying out a step came to: fields to store, and what the page is told."""

    fields: dict[str, str | int]
    reply: Json


def steps_of(spec: Spec) -> tuple[Step, ...]:
    """The steps that an experiment has, in order."""
    optional: dict[str, object] = {
        "consent": spec.consent,
        "instructions": spec.instructions,
        "practice": spec.practice,
        "comprehension": spec.comprehension,
        "questions": spec.questions,
    }
    return tuple(step for step in STEPS if optional.get(step, True))


def next_step(spec: Spec, values: Values) -> Step:
    """The first step that is not done."""
    for step in steps_of(spec):
        if not _is_done(spec, values, step):
            return step
    return "debrief"


def ready_for_trials(spec: Spec, values: Values) -> bool:
    """Whether nothing that must come before the trials is missing."""
    return not _missing(spec, values, steps_of(spec)[: steps_of(spec).index("trials")])


def ready_to_finish(spec: Spec, values: Values) -> bool:
    """Whether every step but the trials is done; how many answers that takes is the store's to say."""
    return not _missing(spec, values, steps_of(spec)[:-1])


def consent_version(spec: Spec) -> str:
    """Names the text that is agreed to: the beginning of its SHA-256."""
    text = spec.consent.text if spec.consent else ""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def attempts_left(spec: Spec, values: Values) -> int:
    """How often the comprehension questions may still be answered."""
    return _attempts_left(spec.comprehension, values) if spec.comprehension else 0


def carry_out(spec: Spec, values: Values, step: str, body: StepBody, *, now_ms: int) -> Done:
    """What a step leaves behind; a step before its turn is refused, and one that was done leaves nothing more."""
    known = steps_of(spec)
    if step not in known:
        raise BadRequestError(
            f"This experiment has no step called {step!r}.", hint=f"Its steps are {', '.join(known)}.", where="step"
        )
    if step == "debrief":
        return _leave(values, now_ms)
    if values.get("status") in OUT or _is_done(spec, values, step):
        return Done({}, {})
    if missing := _missing(spec, values, known[: known.index(step)]):
        raise ConflictError(f"The step {missing[0]} comes before {step}.", hint="Reload the page.", where=step)
    done = _DO[step](spec, values, body, now_ms)
    return Done({**done.fields, "status": _status(values, done.fields)}, done.reply)


def _status(values: Values, fields: Mapping[str, str | int]) -> str | int:
    """The status after a step. It never falls: who agrees to a new text in the middle of the trials stays active."""
    was, becomes = values.get("status", ""), fields.get("status", values.get("status", ""))
    return was if was in UNDER_WAY and becomes not in OUT else becomes


def _missing(spec: Spec, values: Values, steps: tuple[Step, ...]) -> list[Step]:
    """What is not done of these steps. The welcome is a courtesy, and the last answers may still be on their way."""
    return [step for step in steps if step not in {"welcome", "trials"} and not _is_done(spec, values, step)]


def _is_done(spec: Spec, values: Values, step: str) -> bool:
    if step == "consent":
        return f"consent:{consent_version(spec)}" in values
    if step == "trials" and spec.html.max_queries > 0:
        return int(values.get("answers", 0)) >= spec.html.max_queries or "save_incomplete" in values
    return f"step:{step}" in values


def _leave(values: Values, now_ms: int) -> Done:
    """The participant has taken the way out that was shown."""
    if values.get("status") not in {"completed", "redirected"}:
        raise ConflictError("This participant has not finished yet.", hint="Reload the page.", where="debrief")
    return Done({"status": "redirected", "redirected_ms": now_ms}, {"status": "redirected"})


def _note(step: Step, status: str | None = None) -> Callable[[Spec, Values, StepBody, int], Done]:
    """A step that leaves behind only when it was done."""

    def do(spec: Spec, values: Values, body: StepBody, now_ms: int) -> Done:
        del spec, values, body
        return Done({f"step:{step}": now_ms, **({"status": status} if status else {})}, {})

    return do


def _consent(spec: Spec, values: Values, body: StepBody, now_ms: int) -> Done:
    """Agreeing is kept with the version of the text and its language; disagreeing ends it."""
    del values
    if not body.agreed:
        return Done({"status": "declined", "declined_ms": now_ms}, {})
    version = consent_version(spec)
    if body.version and body.version != version:
        raise ConflictError("The text has changed since it was shown.", hint="Reload the page and read it again.")
    kept = encode_json({"agreed_ms": now_ms, "language": body.language, "version": version})
    return Done({"step:consent": now_ms, f"consent:{version}": kept, "status": "consented"}, {})


def _practice(spec: Spec, values: Values, body: StepBody, now_ms: int) -> Done:
    del spec, values
    kept = encode_json([trial.model_dump() for trial in body.trials])
    return Done({"step:practice": now_ms, "practice": kept, "status": "training"}, {})


def _attempts_left(comprehension: Comprehension, values: Values) -> int:
    return sum(f"comprehension:{attempt}" not in values for attempt in range(1, comprehension.attempts + 1))


def _answer_comprehension(spec: Spec, values: Values, body: StepBody, now_ms: int) -> Done:
    """One attempt. An attempt that is sent again counts once: its number is its identity."""
    comprehension = cast("Comprehension", spec.comprehension)
    questions, attempts = comprehension.questions, comprehension.attempts
    if body.attempt > attempts:
        raise BadRequestError(
            f"There are {attempts} attempts; this is number {body.attempt}.", hint="Reload the page.", where="attempt"
        )
    name = f"comprehension:{body.attempt}"
    chosen = decode_json(values[name])["options"] if name in values else list(body.options)
    if len(chosen) != len(questions):
        raise BadRequestError(
            f"There are {len(questions)} questions and {len(chosen)} answers.", hint="Answer each.", where="options"
        )
    right = all(option == question.answer for option, question in zip(chosen, questions, strict=True))
    fields: dict[str, str | int] = {name: encode_json({"options": chosen, "right": right})}
    left = _attempts_left(comprehension, {**values, name: ""})
    if right:
        return Done({**fields, "step:comprehension": now_ms, "status": "training"}, {"right": True})
    status = "training" if left else "screened_out"
    return Done({**fields, "status": status}, {"right": False, "attempts_left": left})


def _questions(spec: Spec, values: Values, body: StepBody, now_ms: int) -> Done:
    del values
    return Done({"step:questions": now_ms, **_replies(spec.questions, body.replies)}, {})


def _replies(questions: tuple[Question, ...], replies: Mapping[str, str]) -> dict[str, str | int]:
    """The replies to the questions as they are stored; every question that is not answered rightly is named."""
    problems: dict[str, str] = {}
    fields: dict[str, str | int] = {}
    for question in questions:
        written = replies.get(question.name, "").strip()
        if not written:
            if question.required:
                problems[question.name] = "field_missing"
            continue
        value: str | float = written
        if question.type == "number":
            number = _number(written)
            if number is None:
                problems[question.name] = "field_number"
                continue
            value = number
        elif question.type == "choice" and written not in question.options:
            problems[question.name] = "field_missing"
            continue
        fields[f"question:{question.name}"] = encode_json(value)
    if problems:
        raise FormError("Some questions are not answered yet.", problems)
    return fields


def _number(written: str) -> float | None:
    """A number as people write it, with a comma or a point."""
    try:
        number = float(written.replace(",", "."))
    except ValueError:
        return None
    if not math.isfinite(number):
        return None
    return int(number) if number.is_integer() else number


_DO: Mapping[str, Callable[[Spec, Values, StepBody, int], Done]] = {
    "welcome": _note("welcome"),
    "consent": _consent,
    "instructions": _note("instructions", "training"),
    "practice": _practice,
    "comprehension": _answer_comprehension,
    "trials": _note("trials"),  # where they have no last one, the participant says when it is enough
    "questions": _questions,
}
