"""Content of the participant page: texts, settings and targets, never file names and never what is secret.

An experimenter's own HTML, styles and scripts (`html.css`, `html.js`, `html.element_*`) are cleaned here unless the
spec is trusted. Those written for the first Salmon count on jQuery 3.2, Bootstrap 4.0 and a few global names:
`hooks_of` says which of these files a page needs. The page itself needs none of them.
"""

import html
import re
from typing import NotRequired

from typing_extensions import TypedDict

from frontend.experiments import ParsedRevision, ServedExperiment
from frontend.html import clean, place_media, prose, refers_elsewhere
from frontend.languages import strings_of
from frontend.pages import participant_policy
from frontend.participant import steps
from frontend.participant.steps import StepOutcome
from frontend.store.participants import Participant
from salmon.spec import Spec, TargetKind, TargetSpec
from salmon.spec.schema import Html


class TurnNumbers(TypedDict):
    """The turns of a participant that are open, and the next one."""

    open: list[int]
    next: int


class PageSettings(TypedDict):
    """How the participant page looks, and what it takes as an answer."""

    title: str
    instructions: str
    max_queries: int
    skip_button: bool
    keys: list[str]
    fixation_ms: int
    blank_ms: int
    min_rt_ms: int
    warn_rt_ms: int | None
    max_trial_ms: int | None
    enlarge: bool
    stimulus_size: str
    background: str
    fullscreen: bool
    devices: list[str]
    min_viewport: list[int]


class ConsentText(TypedDict):
    """The text that is agreed to."""

    html: str
    version: str
    decline_url: str | None


class InstructionPage(TypedDict):
    """One page of the instructions."""

    html: str
    image: str | None


class PracticeQuery(TypedDict):
    """A query of the practice; `nearer` is the target that should be chosen."""

    head: int
    left: int
    right: int
    nearer: int


class PracticeContent(TypedDict):
    """The queries of the practice."""

    queries: list[PracticeQuery]
    feedback: bool


class ShownQuestion(TypedDict):
    """A question of the comprehension check."""

    html: str
    options: list[str]


class ComprehensionContent(TypedDict):
    """The comprehension check."""

    questions: list[ShownQuestion]
    attempts: int
    attempts_left: int


class QuestionContent(TypedDict):
    """A question after the trials."""

    name: str
    html: str
    type: str
    options: list[str]
    points: int
    required: bool


class StepsContent(TypedDict):
    """What each step shows, in `order`; those that an experiment does not have are left out."""

    order: list[str]
    consent: NotRequired[ConsentText]
    instructions: NotRequired[list[InstructionPage]]
    practice: NotRequired[PracticeContent]
    comprehension: NotRequired[ComprehensionContent]
    questions: NotRequired[list[QuestionContent]]


class ShownTarget(TypedDict):
    """A target as the participant page shows it; never its file name, which may tell the condition."""

    kind: TargetKind
    source: NotRequired[str]
    alt: NotRequired[str]
    width: NotRequired[int]
    height: NotRequired[int]
    text: NotRequired[str]
    html: NotRequired[str]


class ArrivalReply(TypedDict):
    """All that the participant page needs to begin or to go on."""

    numbers: TurnNumbers
    session: str
    tryout: bool
    participant: str
    status: str
    answers: int
    step: str
    resumed: bool
    review: bool
    language: str
    page: PageSettings
    steps: StepsContent
    targets: list[ShownTarget]
    load_all: bool
    soon: list[int]


class StepReply(StepOutcome):
    """The status after a step, and the next step."""

    status: str
    next: str


class SkippedReply(TypedDict):
    """Said when a try-out has gone to its end."""

    skipped: bool


class FinishReply(TypedDict):
    """How many answers are stored, and how many trials are missing; with the way out once none is."""

    stored: int
    complete: bool
    missing: NotRequired[int]
    save_incomplete: NotRequired[bool]
    debrief: NotRequired[str]
    participant: NotRequired[str]
    code: NotRequired[str | None]
    redirect: NotRequired[str | None]
    form: NotRequired[tuple[str, dict[str, str]] | None]
    credited: NotRequired[bool]
    out: NotRequired[str]


class QueryReply(TypedDict, total=False):
    """A query with its token, or `done`, `over` or `none` in its place."""

    token: str
    head: int
    left: int
    right: int
    sampler: str
    score: float
    trial: int
    soon: list[int]
    done: bool
    over: bool
    none: bool
    answers: int
    out: str


class ErrorContent(TypedDict):
    """An error: what happened, where, and what to do."""

    code: str
    message: str
    where: str
    hint: str


class AnswerReply(TypedDict):
    """What became of one answer: whether it is stored, or its error."""

    token: str
    recorded: NotRequired[bool]
    duplicate: NotRequired[bool]
    count: NotRequired[int]
    error: NotRequired[ErrorContent]
    warn: NotRequired[bool]
    out: NotRequired[str]


class AnswersReply(TypedDict):
    """What became of each answer."""

    results: list[AnswerReply]


class WithdrawnReply(TypedDict):
    """The status of somebody who wanted to withdraw: `withdrawn`, or how their part had ended before."""

    status: str


class StoredReply(TypedDict):
    """How many events were stored."""

    stored: int


class ParticipantSetting(TypedDict):
    """What the participant page's program needs before it arrives."""

    strings: dict[str, str]
    language: str
    background: str
    stimulus_size: str
    preview: bool


#: Texts that a file did not write are spoken by the page, in its own language.
_UNWRITTEN = Html()
_PLACES = ("top", "middle", "bottom", "standalone")
_JQUERY = re.compile(r"\$\s*[.(]|\bjQuery\b|data-(?:toggle|dismiss|target)\b")
_BOOTSTRAP = re.compile(
    r"""class\s*=\s*["'][^"']*\b(?:btn|row|col|container|card|alert|modal|badge|table|form|navbar|list-group|jumbotron"""
    r"""|[mp][trblxy]?-[0-5]|text-(?:center|left|right|muted)|bg-[a-z]+|d-(?:flex|none|block))\b"""
    r"""|\.(?:modal|tooltip|popover|collapse|carousel|tab|dropdown|alert|button)\(|data-(?:toggle|dismiss)\b"""
)


def text_of(spec: Spec, name: str, language: str) -> str:
    """Return a text of `html` (title, instructions, debrief) as cleaned HTML; the
    catalogue's where the file has none.
    """
    written = getattr(spec.html, name)
    ours = {"title": "title", "instructions": "question", "debrief": "thanks"}[name]
    if written != getattr(_UNWRITTEN, name):
        return clean(written, trusted=spec.page.trusted)
    return strings_of(language, spec.page.strings)[ours]


def page_of(spec: Spec, language: str) -> PageSettings:
    """Return how the page looks and what it takes as an answer."""
    return {
        "title": text_of(spec, "title", language),
        "instructions": text_of(spec, "instructions", language),
        "max_queries": max(spec.html.max_queries, 0),
        "skip_button": spec.html.skip_button,
        "keys": list(spec.page.keys) if spec.html.arrow_keys else [],
        "fixation_ms": spec.page.fixation_ms,
        "blank_ms": spec.page.blank_ms,
        "min_rt_ms": spec.page.min_rt_ms,
        "warn_rt_ms": spec.page.warn_rt_ms,
        "max_trial_ms": spec.page.max_trial_ms,
        "enlarge": spec.page.enlarge,
        "stimulus_size": spec.page.stimulus_size,
        "background": spec.page.background,
        "fullscreen": spec.page.fullscreen == "optional",
        "devices": list(spec.page.devices),
        "min_viewport": list(spec.page.min_viewport or (0, 0)),
    }


def steps_of(parsed: ServedExperiment | ParsedRevision, participant: Participant, *, mount: str) -> StepsContent:
    """Return what each step around the trials shows; the right options of the comprehension stay on the server."""
    spec, trusted, manifest = parsed.spec, parsed.spec.page.trusted, parsed.manifest

    def prose_of(text: str) -> str:
        text = manifest.address_files(text) if manifest is not None else text
        return place_media(prose(text, trusted=trusted), mount)

    content: StepsContent = {"order": list(steps.steps_of(spec))}
    if spec.consent is not None:
        content["consent"] = {
            "html": prose_of(spec.consent.text),
            "version": steps.consent_version(spec),
            "decline_url": spec.consent.decline_url,
        }
    if spec.instructions:
        pictures = manifest.files() if manifest is not None else {}
        content["instructions"] = [
            {
                "html": prose_of(page.text),
                "image": f"{mount}/media/{pictures[page.image]}" if page.image in pictures else None,
            }
            for page in spec.instructions
        ]
    if spec.practice is not None:
        content["practice"] = {
            "queries": [
                {"head": head, "left": left, "right": right, "nearer": nearer}
                for head, left, right, nearer in spec.practice.queries
            ],
            "feedback": spec.practice.feedback,
        }
    if spec.comprehension is not None:
        content["comprehension"] = {
            "questions": [
                {"html": prose_of(question.text), "options": list(question.options)}
                for question in spec.comprehension.questions
            ],
            "attempts": spec.comprehension.attempts,
            "attempts_left": steps.attempts_left(spec, participant),
        }
    if spec.questions:
        content["questions"] = [
            {
                "name": question.name,
                "html": prose_of(question.text),
                "type": question.type,
                "options": list(question.options),
                "points": question.points,
                "required": question.required,
            }
            for question in spec.questions
        ]
    return content


def target_of(target: TargetSpec, *, trusted: bool, mount: str) -> ShownTarget:
    """Return a target as the page shows it; never its file name, which may tell the condition."""
    if target.media:
        return {
            "kind": target.kind,
            "source": f"{mount}/media/{target.media}",
            "alt": target.alt,
            "width": target.width_px,
            "height": target.height_px,
        }
    if target.kind == "text":
        return {"kind": "text", "text": target.html}
    shown: ShownTarget = {"kind": "html", "html": place_media(clean(target.html, trusted=trusted), mount)}
    if target.alt:
        shown["alt"] = target.alt
    return shown


def sample_of(parsed: ServedExperiment | ParsedRevision, *, mount: str) -> tuple[str, str, str]:
    """Return the first three targets as HTML: what a preview shows, before anything is stored."""
    head, left, right = parsed.targets[:3]
    trusted = parsed.spec.page.trusted

    def show(target: TargetSpec) -> str:
        still = target.html.replace(" autoplay", "").replace("alt=''", f"alt='{html.escape(target.alt)}'")
        return place_media(still if target.media else clean(target.html, trusted=trusted), mount)

    return show(head), show(left), show(right)


def policy_of(parsed: ServedExperiment | ParsedRevision) -> str:
    """Return the page's content security policy: as narrow as what the experimenter wrote allows."""
    spec = parsed.spec
    written = [target.html for target in parsed.targets if not target.media]
    written += [spec.html.instructions, spec.html.debrief, spec.html.css, spec.html.element_top]
    written += [spec.html.element_middle, spec.html.element_bottom, spec.html.element_standalone]
    written += [page.text for page in spec.instructions]
    for group in spec.groups.values():
        written += [group.question or "", *(page.text for page in group.instructions or ())]
    return participant_policy(
        trusted=spec.page.trusted,
        scripted=bool(spec.html.js.strip()),
        elsewhere=any(refers_elsewhere(text) for text in written),
        in_mturk=spec.recruitment.platform == "mturk",
        shown_by=spec.security.origins,
    )


def elements_of(spec: Spec) -> dict[str, str]:
    """Return the experimenter's pieces of HTML by their place, cleaned unless the spec is trusted."""
    return {place: clean(getattr(spec.html, f"element_{place}"), trusted=spec.page.trusted) for place in _PLACES}


def hooks_of(spec: Spec) -> frozenset[str]:
    """Return which of `style`, `script`, `jquery`, `bootstrap` the page has to load."""
    elements = " ".join(elements_of(spec).values())
    code = f"{spec.html.js} {elements}"
    bootstrap = bool(_BOOTSTRAP.search(code))
    wanted = {
        "style": bool(spec.html.css.strip()),
        "script": bool(spec.html.js.strip()) or (spec.page.trusted and "<script" in elements),
        "jquery": bootstrap or bool(_JQUERY.search(code)),
        "bootstrap": bootstrap,
    }
    return frozenset(name for name, needed in wanted.items() if needed)
