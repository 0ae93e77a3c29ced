"""The tables about participants: who they are inside the experiment, their platform's ids apart from it, and quality."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from salmon.export.conduct import Conduct, Decision, Values, moment_of
from salmon.export.table import Column, Kind, Row, Table, columns
from salmon.quality import Figures, Verdict

#: Statuses of participants who have been shown the way out with everything stored.
_COMPLETED = frozenset({"completed", "redirected"})

#: Column of the platform's file -> the parameter of the link it came in.
_COMPANIONS = {
    "study_id": "STUDY_ID",
    "session_id": "SESSION_ID",
    "assignment_id": "assignmentId",
    "project_id": "projectId",
    "hit_id": "hitId",
    "turk_submit_to": "turkSubmitTo",
}

PLATFORM_IDS = Table(
    "platform_ids",
    "a participant: the only file beside the column puid of responses that has ids by which a platform knows them",
    columns(
        "text",
        participant="the id inside this experiment",
        source="where the link came from: prolific, connect, sona, mturk or link",
        puid="the platform's id of the participant",
        **{name: f"the parameter {parameter} of the link" for name, parameter in _COMPANIONS.items()},
    ),
)

_ARRIVED = columns(
    "text",
    participant="the id inside this experiment",
    source="where the link came from: prolific, connect, sona, mturk or link",
    status="how far the participant is: arrived, consented, training, active, completed, redirected, or how it ended",
)
_MOMENTS = columns(
    "moment",
    first_time="when the link was opened first",
    consent_time="when the consent was given",
    last_time="when the last answer came",
    completed_time="when everything was stored and the way out was shown",
)
_PROGRESS = (
    *columns("text", consent_version="beginning of the SHA-256 of the text that was agreed to"),
    *columns("truth", code_issued="whether the completion code or redirect has been shown"),
    *columns(
        "integer",
        asked="queries given to the participant",
        answers="answers stored",
        skipped="queries skipped with the button",
        given_unsaved="answers the page says were given, where it could not bring all across",
        comprehension_attempts="attempts at the comprehension questions",
    ),
)
_CONDUCT = (
    *columns(
        "integer",
        blur_count="how often the page lost the focus",
    ),
    *columns("number", blur_s="seconds without the focus, as far as the page saw it come back"),
    *columns(
        "integer",
        fullscreen_exits="how often full screen was left",
        load_failures="files of targets that did not load",
        resumes="how often the page was reloaded or the link opened again",
    ),
    *columns("text", language="language of the page", device="device named in a refusal of the page, if any"),
    *columns("integer", viewport_w="width of the page in pixels when it was opened", viewport_h="its height"),
    *columns("number", pixel_ratio="physical pixels for each pixel of the page"),
    *columns(
        "text",
        duplicate_of="an earlier participant with the same platform id",
        practice="the practice trials as JSON",
    ),
)
_KEPT = (
    *columns("text", flags="names of the flags, separated by spaces", reasons="why, a sentence for each flag"),
    *columns("truth", keep_auto="the proposal: false where a flag of the kind that excludes is set"),
    *columns("text", keep_manual="keep or exclude where the experimenter has decided; empty otherwise"),
    *columns("truth", keep="what counts: the experimenter's decision, or the proposal"),
    *columns("text", note="the experimenter's note", decided_by="who decided"),
    *columns("moment", decided_time="when"),
)

#: Figure -> (kind, meaning).
_FIGURES: Mapping[str, tuple[Kind, str]] = {
    "answers": ("integer", "answers, practice left out"),
    "asked": ("integer", "queries that the participant was to answer; those given, where the experiment has no limit"),
    "completeness": ("number", "answers / asked"),
    "catch_trials": ("integer", "catch trials: the head itself was one of the feet"),
    "catch_accuracy": ("number", "share of catch trials in which the head itself was chosen"),
    "catch_p": ("number", "probability that a guesser does as well (binomial)"),
    "geometric_mean_rt_ms": ("number", "geometric mean of the response times"),
    "median_rt_ms": ("number", "median of the response times"),
    "fast_share": ("number", "share of answers within 300 ms"),
    "shared_answers": ("integer", "answers to queries that everybody is asked, where the others have a majority"),
    "agreement": ("number", "share of them that agrees with the majority of the others"),
    "agreement_by_chance": ("number", "what 95 % of guessers do not exceed with as many answers"),
    "repeats": ("integer", "answers to queries that the participant had answered before"),
    "repeats_swapped": ("integer", "those of them with the sides exchanged"),
    "repeat_consistency": ("number", "share of repeats answered as before"),
    "left_share": ("number", "share of answers on the left side"),
    "side_p": ("number", "probability that a fair coin leans to one side as much (exact binomial, two-sided)"),
    "longest_run": ("integer", "most answers on one side in a row"),
    "alternation": ("number", "share of answers on the other side than the answer before"),
    "triads": ("integer", "three feet compared pair by pair under one head"),
    "cycles": ("integer", "triads that cannot be put in order"),
    "cycles_by_chance": ("number", "such triads expected of a guesser: a quarter"),
    "fit_answers": ("integer", "answers compared with the newest embedding of the group"),
    "fit_accuracy": ("number", "share of them that the embedding predicts; it has seen most of them"),
}

QUALITY = Table(
    "quality",
    "a participant who has answered",
    (
        _ARRIVED[0],
        *(Column(name, kind, meaning) for name, (kind, meaning) in _FIGURES.items()),
        *_KEPT,
    ),
)


def participants_table(questions: Sequence[str]) -> Table:
    """The table of participants; each question of the experiment has a column."""
    asked = tuple(Column(f"question_{name}", "text", f"reply to the question {name}") for name in questions)
    figures = tuple(column for column in QUALITY.columns if column.name in _SHOWN)
    return Table(
        "participants",
        "a participant who has arrived",
        (*_ARRIVED, *_MOMENTS, *_PROGRESS, *figures, *_CONDUCT, *_KEPT, *asked),
    )


#: Figures that the table of participants repeats.
_SHOWN = (
    "catch_accuracy",
    "geometric_mean_rt_ms",
    "median_rt_ms",
    "agreement",
    "repeat_consistency",
    "left_share",
)


def quality_row(participant: str, verdict: Verdict, decision: Decision) -> Row:
    """One row of quality."""
    return [participant, *(getattr(verdict.figures, name) for name in _FIGURES), *decision.cells()]


def platform_row(participant: str, values: Values) -> Row:
    """One row of the ids of platforms."""
    companions = (values.get(f"arrived:{parameter}", "") for parameter in _COMPANIONS.values())
    return [participant, values.get("source", ""), values.get("puid", ""), *companions]


def participant_row(
    participant: str,
    values: Values,
    *,
    conduct: Conduct,
    decision: Decision,
    duplicate_of: str,
    questions: Sequence[str],
) -> Row:
    """One row of participants."""
    figures = decision.verdict.figures if decision.verdict else Figures(answers=0)
    width, height = conduct.viewport or (None, None)
    consents = [json.loads(value) for name, value in values.items() if name.startswith("consent:")]
    consent = max(consents, key=lambda kept: kept.get("agreed_ms", 0), default={})
    return [
        participant,
        values.get("source", ""),
        values.get("status", ""),
        moment_of(values.get("first_ms")),
        moment_of(str(consent.get("agreed_ms", 0))),
        moment_of(values.get("last_ms")),
        moment_of(values.get("completed_ms")),
        consent.get("version", ""),
        values.get("status") in _COMPLETED,
        int(values.get("turns", 0)),
        int(values.get("answers", 0)),
        conduct.skipped,
        int(values["save_incomplete"]) if "save_incomplete" in values else None,
        sum(name.startswith("comprehension:") for name in values),
        *(getattr(figures, name) for name in _FIGURES if name in _SHOWN),
        conduct.blur_count,
        round(conduct.blur_ms / 1000, 3),
        conduct.fullscreen_exits,
        conduct.load_failures,
        conduct.resumes,
        values.get("language", ""),
        conduct.device,
        width,
        height,
        conduct.pixel_ratio,
        duplicate_of,
        values.get("practice", ""),
        *decision.cells(),
        *(_reply(values.get(f"question:{name}")) for name in questions),
    ]


def _reply(stored: str | None) -> str | None:
    return None if stored is None else str(json.loads(stored))
