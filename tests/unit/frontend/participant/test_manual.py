"""The manual of the participant page says what is so: its texts, keys, steps, ids, events and platforms."""

import re

import pytest

from frontend.languages import LANGUAGES, catalogue
from frontend.participant.arrival import read_arrival
from frontend.participant.steps import STEPS
from salmon.spec.schema import Comprehension, Consent, Instruction, Page, Practice, Question, Resume
from tests.program import REPOSITORY

MANUAL = (REPOSITORY / "docs" / "participants.md").read_text()
PAGE = (REPOSITORY / "templates" / "participant.html").read_text()
SCRIPTS = "".join(
    path.read_text() for path in sorted((REPOSITORY / "frontend" / "static" / "participant").glob("*.js"))
)


def row(first: str) -> str:
    """The row of a table whose first cell is this."""
    return next(line for line in MANUAL.splitlines() if line.startswith(f"| {first} |"))


def test_every_text_stands_there_with_its_words() -> None:
    written = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", MANUAL.partition("| name | text")[2], re.MULTILINE))
    assert written == catalogue("en")


def test_every_key_of_the_page_and_of_the_steps_is_there() -> None:
    for name in Page.model_fields:
        assert row(f"`{name}`"), name
    for model in (Consent, Instruction, Practice, Comprehension, Question, Resume):
        for name in model.model_fields:
            if name != "answer":  # of a question inside of the comprehension
                assert re.search(rf"\b{name}\b", MANUAL), f"{model.__name__}.{name}"


def test_every_step_has_a_row_in_the_order_in_which_they_come() -> None:
    places = [MANUAL.index(row(step)) for step in STEPS]
    assert places == sorted(places)


def test_every_language_is_named() -> None:
    assert all(f"(`{language}`)" in MANUAL for language in LANGUAGES)


def test_ids_classes_and_events_that_are_promised_are_given() -> None:
    for kind, given in (("ids", 'id="{}"|id: "{}"'), ("classes", r'["\s]{}["\s]')):
        for name in re.findall(r"`([\w-]+)`", row(kind)):
            assert re.search(given.replace("{}", re.escape(name)), PAGE + SCRIPTS), name
    promised = re.findall(r"`(salmon:\w+)`", row("events of `document`"))
    assert len(promised) == 4
    assert all(f'CustomEvent("{name}"' in SCRIPTS for name in promised)


@pytest.mark.parametrize("platform", ["prolific", "connect", "sona", "mturk", "link"])
def test_the_parameters_of_each_platform_are_those_that_are_read(platform: str) -> None:
    _, _, who, also, *_ = row(f"`{platform}`").split("|")
    name = re.findall(r"`(\w+)`", who)[0]
    parameters = {name: "4711"} | dict.fromkeys(re.findall(r"`(\w+)`", also), "x1")
    if "turkSubmitTo" in parameters:
        parameters["turkSubmitTo"] = "https://www.mturk.com"
    arrival = read_arrival(parameters, fresh="new", platform=platform)
    assert (arrival.source, arrival.puid, set(arrival.companions)) == (platform, "4711", set(parameters) - {name})
