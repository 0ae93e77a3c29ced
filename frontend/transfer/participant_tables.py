"""The tables about participants: what each did, the ids of platforms (in a table of their own), and quality.

`Conduct` collects what the events of the pages tell of one participant.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from frontend.store.participants import Participant
from frontend.store.statuses import FINISHED
from salmon.export import Cell, Row, Table, moment
from salmon.export.table import Column, Kind, columns
from salmon.quality import Decision, Figures, Verdict


@dataclass
class Conduct:
    """What the events of the pages tell of one participant."""

    skipped: int = 0
    blur_count: int = 0
    blur_ms: float = 0.0
    fullscreen_exits: int = 0
    load_failures: int = 0
    resumes: int = 0
    pasted: int = 0
    copied: int = 0
    device: str = ""
    viewport: tuple[int, int] | None = None
    pixel_ratio: float | None = None
    _blurred_ms: float | None = None

    def note(self, entry: Mapping[str, str]) -> None:
        """Add one more event, in order."""
        detail, event = entry.get("detail", ""), entry.get("event", "")
        self.pasted += event == "paste"
        self.copied += event == "copy"
        match event:
            case "skip":
                self.skipped += 1
            case "blur":
                self.blur_count += 1
                self._blurred_ms = float(entry.get("client_ms", -1))
            case "focus":
                back_ms = float(entry.get("client_ms", -1))
                if self._blurred_ms is not None and back_ms >= self._blurred_ms >= 0:
                    self.blur_ms += back_ms - self._blurred_ms
                self._blurred_ms = None
            case "fullscreenexit":
                self.fullscreen_exits += 1
            case "load_failed":
                self.load_failures += 1
            case "resumed" | "came_back":
                self.resumes += 1
            case "device":
                self.device = detail
            case "opened":
                self._note_opening(detail)
            case _:
                pass

    def _note_opening(self, detail: str) -> None:
        """`1280x800 2`: the size of the page and its pixel ratio, as pages write it; anything else is passed over."""
        size, _, ratio = detail.partition(" ")
        width, _, height = size.partition("x")
        if self.viewport is None and width.isdecimal() and height.isdecimal():
            self.viewport = (int(width[:6]), int(height[:6]))
            try:
                self.pixel_ratio = float(ratio)
            except ValueError:
                self.pixel_ratio = None


def _decision_cells(decision: Decision) -> list[Cell]:
    """Return the last columns of participants and quality."""
    verdict = decision.verdict
    flags = verdict.flags if verdict else ()
    return [
        " ".join(flag.name for flag in flags),
        " ".join(flag.reason for flag in flags),
        verdict is None or verdict.keep,
        decision.manual,
        decision.keep,
        decision.note,
        decision.by,
        _moment_or_none(decision.decided_ms),
    ]


def _moment_or_none(milliseconds: int) -> str | None:
    """Return a time in Unix milliseconds; None if it is 0."""
    return moment(milliseconds) if milliseconds > 0 else None


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
    "a participant with their platform ids, which the column puid of responses, salmon_responses and triplettools_triplets holds, too",
    (
        *columns(
            "text",
            participant="the id inside this experiment",
            source="where the link came from: prolific, connect, sona, mturk or link",
        ),
        *columns(
            "written",
            puid="the platform's id of the participant",
            **{name: f"the parameter {parameter} of the link" for name, parameter in _COMPANIONS.items()},
        ),
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
    first_time="when the link was first opened",
    consent_time="when the consent was given",
    last_time="when the last answer arrived",
    completed_time="when everything was stored and the last page was shown",
)
_ON_PLATFORM = (
    *columns("text", platform_status="what the recruitment platform said last about the submission, if it did"),
    *columns("moment", platform_time="when it said so"),
)
_PROGRESS = (
    *columns("text", consent_version="beginning of the SHA-256 of the text that was agreed to"),
    *columns("truth", code_issued="whether the completion code or redirect has been shown"),
    *columns(
        "integer",
        asked="queries given to the participant",
        answers="answers stored",
        skipped="queries skipped with the button",
        given_unsaved="number of answers given according to the page, if it could not send all of them",
        comprehension_attempts="attempts at the comprehension questions",
    ),
)
_CONDUCT = (
    *columns(
        "integer",
        blur_count="how often the page lost the focus",
    ),
    *columns("number", blur_s="seconds without the focus, counted when the focus returned"),
    *columns(
        "integer",
        fullscreen_exits="how often full screen was left",
        load_failures="files of targets that did not load",
        resumes="how often the page was reloaded or the link opened again",
        pasted="how often something was pasted into a question that asks for a text",
        copied="how often something was copied from one",
    ),
    *columns("text", language="language of the page"),
    *columns("written", device="device named in a refusal of the page, if any"),
    *columns("integer", viewport_w="width of the page in pixels when it was opened", viewport_h="its height"),
    *columns("number", pixel_ratio="physical pixels for each pixel of the page"),
    *columns(
        "text",
        group="the group of `groups` in the file, if there are any",
        duplicate_of="an earlier participant with the same platform id",
        practice="the practice trials as JSON",
    ),
)
_KEPT = (
    *columns(
        "text", flags="names of the flags, separated by spaces", reasons="the reasons, one sentence for each flag"
    ),
    *columns("truth", keep_auto="the proposal: false if exclusion is proposed"),
    *columns("text", keep_manual="keep or exclude where the experimenter has decided; empty otherwise"),
    *columns("truth", keep="the result: the experimenter's decision if there is one, otherwise the proposal"),
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
    "timed": ("integer", "answers whose response time is known"),
    "shared_answers": ("integer", "answers to queries that everybody is asked, where the others have a majority"),
    "agreement": ("number", "share of them that agrees with the majority of the others"),
    "agreement_by_chance": ("number", "95th percentile of the agreement of guessers with as many answers"),
    "repeats": ("integer", "answers to queries that the participant had answered before"),
    "repeats_swapped": ("integer", "those of them with the sides exchanged"),
    "repeat_consistency": ("number", "share of repeats answered as before"),
    "sided": ("integer", "answers whose side counts: all but practice"),
    "left_share": ("number", "share of answers on the left side"),
    "side_p": ("number", "probability that a fair coin leans to one side as much (exact binomial, two-sided)"),
    "longest_run": ("integer", "most answers on one side in a row"),
    "alternation": ("number", "share of answers on the other side than the answer before"),
    "triads": ("integer", "three feet compared pair by pair under one head"),
    "cycles": ("integer", "triads that cannot be put in order"),
    "cycles_by_chance": ("number", "such triads expected of a guesser: a quarter"),
    "fit_answers": ("integer", "answers compared with the newest embedding of the group"),
    "fit_accuracy": ("number", "share of them that the embedding predicts; it has seen most of them"),
    "fit_expected": ("number", "share that it predicts of careful people's answers to such queries"),
    "hesitation_answers": ("integer", "timed answers whose response time is compared with the embedding's margin"),
    "hesitation": (
        "number",
        "rank correlation of response times with margins; people answer easy queries faster (about -0.4), programs do not (0)",
    ),
    "hesitation_low": ("number", "lower bound of its 95 % interval"),
    "hesitation_high": ("number", "upper bound of its 95 % interval"),
    "guess_p": ("number", "probability that a guesser does as well in what tells most"),
    "careless_p": (
        "number",
        "probability that a careful person looks as careless, everything together (docs/quality.md)",
    ),
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
    """Return the table of participants; each question of the experiment has a column."""
    return Table(
        "participants",
        "a participant who has arrived",
        (
            *_ARRIVED,
            *_MOMENTS,
            *_ON_PLATFORM,
            *_PROGRESS,
            *(column for column in QUALITY.columns if column.name in _SHOWN),
            *_CONDUCT,
            *_KEPT,
            *(Column(f"question_{name}", "written", f"reply to the question {name}") for name in questions),
        ),
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
    """Return one row of quality."""
    return [participant, *(getattr(verdict.figures, name) for name in _FIGURES), *_decision_cells(decision)]


def platform_row(person: Participant) -> Row:
    """Return one row of the ids of platforms."""
    return [
        person.id,
        person.source,
        person.puid,
        *(person.companions.get(parameter, "") for parameter in _COMPANIONS.values()),
    ]


def participant_row(
    person: Participant, *, conduct: Conduct, decision: Decision, duplicate_of: str, questions: Sequence[str]
) -> Row:
    """Return one row of participants."""
    figures = decision.verdict.figures if decision.verdict else Figures(answers=0)
    width, height = conduct.viewport or (None, None)
    version, agreed_ms = max(person.consents.items(), key=lambda consent: consent[1], default=("", 0))
    return [
        person.id,
        person.source,
        person.status.value if person.stored else "",
        _moment_or_none(person.first_ms),
        _moment_or_none(agreed_ms),
        _moment_or_none(person.last_ms),
        _moment_or_none(person.completed_ms),
        person.platform or "",
        _moment_or_none(person.platform_ms),
        version,
        person.status in FINISHED,
        person.turns,
        person.answers,
        conduct.skipped,
        person.given_unsaved,
        len(person.attempts),
        *(getattr(figures, name) for name in _FIGURES if name in _SHOWN),
        conduct.blur_count,
        round(conduct.blur_ms / 1000, 3),
        conduct.fullscreen_exits,
        conduct.load_failures,
        conduct.resumes,
        conduct.pasted,
        conduct.copied,
        person.language,
        conduct.device,
        width,
        height,
        conduct.pixel_ratio,
        person.group,
        duplicate_of,
        person.practice,
        *_decision_cells(decision),
        *(person.replies.get(name) for name in questions),
    ]
