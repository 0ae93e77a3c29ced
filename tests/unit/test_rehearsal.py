"""The people of a rehearsal: who they are, which links they open, and what they answer."""

from collections import Counter
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest

from frontend.participant.arrival import link_for, read_arrival
from frontend.participant.steps import carry_out
from frontend.schemas import StepBody
from frontend.store.participants import Participant, Status
from salmon.cli.rehearse import payment_line, report_lines
from salmon.client import ServedQuery
from salmon.errors import SalmonError
from salmon.rehearsal import KINDS, SimulatedPerson, Walk, draw_people, fill_in, react, reply_to
from salmon.simulate import SimulatedParticipant, random_world
from salmon.spec import parse_spec

WORLD = random_world(12, 2, 5)
SHARES = {"coin": 0.1, "fast": 0.05, "rule": 0.05, "leaving": 0.05}
LINK = "http://localhost/e/colors/"


def person(kind: str, lapse: float = 0.0) -> SimulatedPerson:
    return SimulatedPerson("p", kind, LINK, SimulatedParticipant(WORLD, lapse=lapse), np.random.default_rng(3))  # pyright: ignore[reportArgumentType]


def test_kinds_come_in_the_shares_asked_for_and_in_the_same_order_again() -> None:
    people = draw_people(WORLD, [LINK] * 100, SHARES, seed=4)  # pyright: ignore[reportArgumentType]
    again = draw_people(WORLD, [LINK] * 100, SHARES, seed=4)  # pyright: ignore[reportArgumentType]
    other = draw_people(WORLD, [LINK] * 100, SHARES, seed=5)  # pyright: ignore[reportArgumentType]
    assert Counter(each.kind for each in people) == {"careful": 75, "coin": 10, "fast": 5, "rule": 5, "leaving": 5}
    assert [each.kind for each in people] == [each.kind for each in again]
    assert [each.kind for each in people] != [each.kind for each in other]
    assert set(KINDS) == {each.kind for each in people}


@pytest.mark.parametrize("shares", [{"coin": 0.7, "fast": 0.6}, {"coin": -0.1}])
def test_shares_that_cannot_be_are_refused(shares: dict[str, float]) -> None:
    with pytest.raises(SalmonError, match="more than 100 %"):
        draw_people(WORLD, [LINK], shares, seed=0)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("platform", ["prolific", "connect", "sona", "mturk"])
def test_the_link_of_each_platform_arrives_as_one_person_of_it(platform: str) -> None:
    arrivals = []
    for number in (1, 2):
        link = fill_in(link_for(LINK, platform), platform, number)
        parameters = {name: values[0] for name, values in parse_qs(urlsplit(link).query).items()}
        arrivals.append(read_arrival(parameters, fresh="nobody", platform=platform))
    assert [arrival.source for arrival in arrivals] == [platform, platform]
    assert arrivals[0].puid != arrivals[1].puid
    assert fill_in(LINK, "link", 3) == LINK


def test_careful_people_know_the_head_again_and_others_follow_their_rule() -> None:
    catch = [ServedQuery(number, 4, *((4, 9) if number % 2 else (9, 4)), "t") for number in range(50)]
    careful, rule = person("careful"), person("rule", lapse=1.0)
    assert {react(careful, query).winner for query in catch} == {4}
    assert {react(rule, ServedQuery(1, 4, left, right, "t")).winner for left, right in ((9, 2), (2, 9))} == {2}
    coin = [react(person("coin", lapse=1.0), query).winner for query in catch[:1]]
    assert coin[0] in {4, 9}


def test_the_replies_are_such_as_the_server_accepts() -> None:
    spec = parse_spec(
        "targets: 5\nquestions:\n"
        "  - {name: age, text: Age?, type: number, required: true}\n"
        "  - {name: hand, text: Hand?, type: choice, options: [left, right], required: true}\n"
        "  - {name: sure, text: Sure?, type: likert, points: 5, required: true}\n"
        "  - {name: saw, text: Saw?, type: multiple, options: [x, y], required: true}\n"
        "  - {name: more, text: More?, required: true}\n"
    ).spec
    rng = np.random.default_rng(1)
    replies = {question.name: reply_to(question, rng) for question in spec.questions}
    after_trials = Participant(
        "p", status=Status.ACTIVE, answers=50, steps={"welcome": 1, "trials": 1}, given_unsaved=None
    )
    assert carry_out(spec, after_trials, "questions", StepBody(replies=replies), now_ms=1).change is not None


def test_the_report_counts_and_names_what_stopped_people() -> None:
    walks = [
        Walk(person("careful"), "completed", "ann", 3, "https://example.org/?id=ann", (0.01,) * 3),
        Walk(person("careful"), "completed", "bob", 3, "https://example.org/?id=bob", (0.02,) * 3),
        Walk(person("coin"), "failed", "cid", 1, "The study is full.", (0.03,)),
    ]
    rows = [{"status": "redirected"}, {"status": "redirected"}, {"status": "failed_checks"}]
    overview = {"answers": {"total": 7}, "samplers": [{"name": "Adaptive", "accuracy": 0.75, "evaluated": 7}]}
    lines = list(report_lines(walks, rows, overview, 2.0, 0.8))
    assert lines[0] == "3 people: 2 completed, 0 screened out, 0 left in the middle, 1 stopped by an error."
    assert lines[1] == "7 answers were given in 2 s, and 7 are stored."
    assert "The way out of 2 people: https://example.org/?id={id}." in lines
    assert "The console shows 2 redirected and 1 failed checks." in lines
    assert lines[-1] == "1 of 3 people were stopped: The study is full."


def test_payment_is_said_by_action_with_its_sum() -> None:
    sums = [
        {"action": "pay", "count": 40, "amount": "100.00"},
        {"action": "look_at", "count": 2, "amount": "0.00"},
        {"action": "bonus", "count": 0, "amount": "0.00"},
    ]
    assert payment_line({"currency": "GBP", "sums": sums}) == "Payment: 40 pay (100.00 GBP) and 2 look at."
    assert payment_line({"currency": "GBP", "sums": []}) == "Payment: nothing to do about anybody."
