"""What the overview says about the course of an experiment: that it ended by itself, is full,
opens later, or is removed soon.

Pure functions of the file, the state and the places; each returns no sentence where there is nothing to say.
"""

from collections.abc import Mapping
from datetime import UTC, datetime

from typing_extensions import TypedDict

from frontend.lifecycle import wanted_participants
from frontend.store.experiments import ExperimentState
from frontend.store.places import Places
from salmon.spec import Spec
from salmon.spec.values import duration_text


class Sentence(TypedDict):
    """Something that needs attention, and what to do about it: `link` is the words of a
    link to the experiment's `page`.
    """

    level: str
    what: str
    hint: str
    page: str
    link: str


def make_sentence(level: str, what: str, hint: str, *, page: str = "", link: str = "") -> Sentence:
    """Return a sentence with what to do about it."""
    return {"level": level, "what": what, "hint": hint, "page": page, "link": link}


def ended_by_itself(state: ExperimentState) -> list[Sentence]:
    """Return why the experiment closed or paused by itself, and when."""
    if not state.ended_by:
        return []
    at = f"{datetime.fromtimestamp(state.since_ms / 1000, UTC):%d %B %Y at %H:%M} UTC"
    if state.ended_by == "errors_above":
        return [
            make_sentence(
                "error",
                f"The experiment paused by itself on {at}, because the pages of too many participants reported a failure.",
                "Settings lists the numbers, and events.csv what failed. Try the experiment out, then resume it in Settings.",
            )
        ]
    return [
        make_sentence(
            "info",
            f"The experiment closed by itself on {at}: stopping.{state.ended_by} was reached.",
            "Whoever had begun may still finish. For more, change stopping in the file, then open it again in Settings.",
        )
    ]


def full(spec: Spec, state: ExperimentState, places: Places) -> list[Sentence]:
    """Return that no place is free, and how many are still answering."""
    wanted = wanted_participants(spec)
    if state.state != "open" or not wanted or places.held < wanted:
        return []
    return [
        make_sentence(
            "info",
            f"All {wanted:,} places are taken: {places.finished:,} have finished and {places.held - places.finished:,} are still answering.",
            "A place becomes free when somebody leaves, returns their submission or shows no sign for"
            f" {duration_text(spec.resume.abandoned_after)}.",
        )
    ]


def opens_later(spec: Spec, state: ExperimentState, *, now_ms: int) -> list[Sentence]:
    """Return when the first participant gets in."""
    opens = spec.recruitment.opens_at
    if state.state != "open" or opens is None or opens.timestamp() * 1000 <= now_ms:
        return []
    return [
        make_sentence(
            "info",
            f"Nobody gets in before {opens:%d %B %Y at %H:%M} UTC.",
            "Your file says so in recruitment.opens_at; whoever opens the link earlier is told the time.",
        )
    ]


def careless(proposed: int) -> list[Sentence]:
    """Return how many participants are proposed for exclusion and wait for a decision."""
    if not proposed:
        return []
    what = "1 participant looks careless." if proposed == 1 else f"{proposed:,} participants look careless."
    hint = "Excluding them is only proposed: you decide. Until then the files mark their answers."
    link = "Review them" if proposed > 1 else "Review the answers"
    return [make_sentence("warning", what, hint, page="participants", link=link)]


def retention(known: Mapping[str, int]) -> list[Sentence]:
    """Return what will be removed because it was kept long enough, with the day."""
    what = {
        "ids_due_ms": ("Platform ids and link parameters", "keep_ids"),
        "answers_due_ms": ("All answers and participants", "keep_answers"),
    }
    return [
        make_sentence(
            "info",
            f"{name} that were kept long enough are removed on {datetime.fromtimestamp(known[field] / 1000, UTC):%d %B %Y}.",
            f"Your file says so in privacy.{key}. Export what you need before that day, or change the file.",
        )
        for field, (name, key) in what.items()
        if known.get(field)
    ]
