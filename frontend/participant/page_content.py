"""Content of the participant page: texts, settings and targets, never file names and never what is secret.

An experimenter's own HTML, styles and scripts (`html.css`, `html.js`, `html.element_*`) are cleaned here unless the spec
is trusted. Those written for the first Salmon count on jQuery 3.2, Bootstrap 4.0 and a few global names: `hooks_of` says
which of these files a page needs. The page itself needs none of them.
"""

import html
import re

from frontend.experiments import ParsedRevision, ServedExperiment
from frontend.html import clean, prose, refers_elsewhere
from frontend.languages import strings_of
from frontend.pages import participant_policy
from frontend.participant import steps
from frontend.schemas import Json
from frontend.store.participants import Participant
from salmon.spec import Spec, TargetSpec
from salmon.spec.schema import Html

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
    """Return a text of `html` (title, instructions, debrief) as cleaned HTML; the catalogue's where the file has none."""
    written = getattr(spec.html, name)
    ours = {"title": "title", "instructions": "question", "debrief": "thanks"}[name]
    if written != getattr(_UNWRITTEN, name):
        return clean(written, trusted=spec.page.trusted)
    return strings_of(language, spec.page.strings)[ours]


def page_of(spec: Spec, language: str) -> Json:
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
        "stimulus_size": spec.page.stimulus_size,
        "background": spec.page.background,
        "fullscreen": spec.page.fullscreen == "optional",
        "devices": list(spec.page.devices),
        "min_viewport": list(spec.page.min_viewport or (0, 0)),
    }


def steps_of(parsed: ServedExperiment | ParsedRevision, participant: Participant) -> Json:
    """Return what each step around the trials shows; the right options of the comprehension stay on the server."""
    spec, trusted = parsed.spec, parsed.spec.page.trusted
    content: Json = {"order": list(steps.steps_of(spec))}
    if spec.consent is not None:
        content["consent"] = {
            "html": prose(spec.consent.text, trusted=trusted),
            "version": steps.consent_version(spec),
            "decline_url": spec.consent.decline_url,
        }
    if spec.instructions:
        pictures = {target.filename: target.media for target in parsed.targets if target.media}
        content["instructions"] = [
            {
                "html": prose(page.text, trusted=trusted),
                "image": f"/media/{pictures[page.image]}" if page.image in pictures else None,
            }
            for page in spec.instructions
        ]
    if spec.practice is not None:
        names = ("head", "left", "right", "nearer")
        content["practice"] = {
            "queries": [dict(zip(names, query, strict=True)) for query in spec.practice.queries],
            "feedback": spec.practice.feedback,
        }
    if spec.comprehension is not None:
        content["comprehension"] = {
            "questions": [
                {"html": prose(question.text, trusted=trusted), "options": list(question.options)}
                for question in spec.comprehension.questions
            ],
            "attempts": spec.comprehension.attempts,
            "attempts_left": steps.attempts_left(spec, participant),
        }
    if spec.questions:
        content["questions"] = [
            {
                "name": question.name,
                "html": prose(question.text, trusted=trusted),
                "type": question.type,
                "options": list(question.options),
                "required": question.required,
            }
            for question in spec.questions
        ]
    return content


def target_of(target: TargetSpec, *, trusted: bool) -> Json:
    """Return a target as the page shows it; never its file name, which may tell the condition."""
    if target.media:
        return {
            "kind": target.kind,
            "source": f"/media/{target.media}",
            "alt": target.alt,
            "width": target.width_px,
            "height": target.height_px,
        }
    if target.kind == "text":
        return {"kind": "text", "text": target.html}
    return {"kind": "html", "html": clean(target.html, trusted=trusted)} | ({"alt": target.alt} if target.alt else {})


def sample_of(parsed: ServedExperiment | ParsedRevision) -> tuple[str, str, str]:
    """Return the first three targets as HTML: what a preview shows, before anything is stored."""
    head, left, right = parsed.targets[:3]
    trusted = parsed.spec.page.trusted

    def show(target: TargetSpec) -> str:
        still = target.html.replace(" autoplay", "").replace("alt=''", f"alt='{html.escape(target.alt)}'")
        return still if target.media else clean(target.html, trusted=trusted)

    return show(head), show(left), show(right)


def policy_of(parsed: ServedExperiment | ParsedRevision) -> str:
    """Return the page's content security policy: as narrow as what the experimenter wrote allows."""
    spec = parsed.spec
    written = [target.html for target in parsed.targets if not target.media]
    written += [spec.html.instructions, spec.html.debrief, spec.html.css, spec.html.element_top]
    written += [spec.html.element_middle, spec.html.element_bottom, spec.html.element_standalone]
    written += [page.text for page in spec.instructions]
    return participant_policy(
        trusted=spec.page.trusted,
        elsewhere=any(refers_elsewhere(text) for text in written),
        in_mturk=spec.recruitment.platform == "mturk",
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
