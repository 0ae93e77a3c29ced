"""The list of payments: who is proposed what, for which reason, and the files for platforms."""

from decimal import Decimal
from typing import Any

import pytest

from frontend.console.payment import Action, PayRow, pay_list, sums_of, write_file
from frontend.store.participants import Participant
from frontend.store.statuses import PlatformStatus, Status
from salmon.quality import Figures, Verdict
from salmon.spec import Spec, parse_spec

SPEC = "targets: 9\nhtml: {max_queries: 20}\nsamplers: {Random: {}}\n"
PAID = SPEC + "payment: {reward: 1.50}\n"


def spec_of(text: str) -> Spec:
    return parse_spec(text).spec


def person(status: Status, platform: PlatformStatus | None = None, **values: Any) -> Participant:
    known = {"puid": "p" * 24, "source": "prolific", "answers": 20, "companions": {"SESSION_ID": "s1"}}
    return Participant("abc", status=status, platform=platform, **(known | values))


@pytest.mark.parametrize(
    ("who", "action", "words"),
    [
        (person(Status.COMPLETED), Action.PAY, "They finished."),
        (person(Status.REDIRECTED, PlatformStatus.AWAITING_REVIEW), Action.PAY, "They finished."),
        (person(Status.COMPLETED, PlatformStatus.APPROVED), Action.NOTHING, "has approved"),
        (person(Status.COMPLETED, PlatformStatus.REJECTED), Action.NOTHING, "nothing here asks for that"),
        (person(Status.COMPLETED, PlatformStatus.TIMED_OUT), Action.BY_HAND, "time on the platform had run out"),
        (person(Status.COMPLETED, given_unsaved=20, answers=12), Action.LOOK_AT, "20 answers were given, and 12 are stored"),
        (person(Status.RETURNED, PlatformStatus.RETURNED, completed_ms=5), Action.LOOK_AT, "ask them why"),
        (person(Status.RETURNED, PlatformStatus.RETURNED), Action.NOTHING, "their answers are kept"),
        (person(Status.ACTIVE), Action.BY_HAND, "lost the code"),
        (person(Status.ACTIVE, answers=19), Action.NOTHING, "have not finished"),
        (person(Status.ACTIVE, PlatformStatus.AWAITING_REVIEW, answers=3), Action.LOOK_AT, "waits for a decision"),
        (person(Status.TIMED_OUT, PlatformStatus.TIMED_OUT, answers=3), Action.NOTHING, "may still finish"),
        (person(Status.ABANDONED, answers=3), Action.NOTHING, "may still come back"),
        (person(Status.WITHDRAWN, answers=3), Action.LOOK_AT, "withdrew after 3 answers"),
        (person(Status.WITHDRAWN, answers=0), Action.NOTHING, "before the first answer"),
        (person(Status.DECLINED, answers=0), Action.NOTHING, "chose not to take part"),
        (person(Status.SCREENED_OUT, answers=0), Action.NOTHING, "asked to return"),
        (person(Status.FAILED_CHECKS), Action.LOOK_AT, "neither a code nor an amount"),
        (person(Status.REPLACED, answers=3), Action.NOTHING, "began again"),
    ],
)  # fmt: skip
def test_everybody_has_one_action_with_a_reason(who: Participant, action: Action, words: str) -> None:
    (row,) = pay_list([who], spec_of(PAID), {})
    assert row.action == action
    assert words in row.reason
    assert row.reason.endswith((".", "why."))
    assert row.amount == (Decimal("1.50") if action in {Action.PAY, Action.BY_HAND} else None)
    assert (row.platform_id, row.assignment) == ("p" * 24, "s1")


@pytest.mark.parametrize("status", Status)
@pytest.mark.parametrize("platform", [None, *PlatformStatus])
def test_whoever_returned_or_ran_out_of_time_is_never_paid_by_itself(
    status: Status, platform: PlatformStatus | None
) -> None:
    rows = pay_list([person(status, platform)], spec_of(PAID), {})
    paid = any(row.action == Action.PAY for row in rows)
    assert not paid or (status in {Status.COMPLETED, Status.REDIRECTED} and platform != PlatformStatus.TIMED_OUT)


def test_those_who_failed_the_checks_get_the_amount_of_the_file() -> None:
    checks = "checks: {catch: 10%, on_failure: screen_out}\npayment: {screened_out: 0.20}\n"
    (row,) = pay_list([person(Status.FAILED_CHECKS, answers=4)], spec_of(SPEC + checks), {})
    assert (row.action, row.amount) == (Action.SCREENED_OUT, Decimal("0.20"))


def judged(catch_accuracy: float | None) -> dict[str, Verdict]:
    return {"abc": Verdict(Figures(answers=20, catch_accuracy=catch_accuracy), ())}


@pytest.mark.parametrize(
    ("rule", "answers", "catch", "amount", "words"),
    [
        ("{amount: 0.50}", 20, None, "0.50", "they finished"),
        ("{amount: 0.50, answers: 20}", 20, None, "0.50", "20 answers, at least 20"),
        ("{amount: 0.50, answers: 20}", 19, None, None, ""),
        ("{amount: 0.50, catch_accuracy: 90%}", 20, 0.9, "0.50", "90 % of the catch trials right"),
        ("{amount: 0.50, catch_accuracy: 90%}", 20, 0.89, None, ""),
        ("{amount: 0.50, catch_accuracy: 90%}", 20, None, None, ""),
        ("{amount: 0.03, for_each_answer_above: 10}", 20, None, "0.30", "10 answers above 10"),
        ("{amount: 0.03, for_each_answer_above: 10, at_most: 0.25}", 20, None, "0.25", "10 answers above 10"),
        ("{amount: 0.03, for_each_answer_above: 10}", 10, None, None, ""),
    ],
)
def test_a_bonus_is_paid_where_every_condition_is_met(
    rule: str, answers: int, catch: float | None, amount: str | None, words: str
) -> None:
    spec = spec_of(SPEC + f"checks: {{catch: 10%}}\npayment: {{bonus: [{rule}]}}\n")
    rows = pay_list([person(Status.COMPLETED, answers=answers)], spec, judged(catch))
    bonuses = [row for row in rows if row.action == Action.BONUS]
    assert [row.amount for row in bonuses] == ([Decimal(amount)] if amount else [])
    assert all(words in row.reason for row in bonuses)


def test_nobody_who_has_not_finished_gets_a_bonus() -> None:
    spec = spec_of(SPEC + "payment: {bonus: [{amount: 1}]}\n")
    for status in set(Status) - {Status.COMPLETED, Status.REDIRECTED}:
        assert [row.action for row in pay_list([person(status)], spec, {})].count(Action.BONUS) == 0


ROWS = [
    PayRow("a", "W1", "mturk", "A1", Action.PAY, "They finished.", Decimal("1.5")),
    PayRow("a", "W1", "mturk", "A1", Action.BONUS, "Bonus: one.", Decimal("0.5")),
    PayRow("a", "W1", "mturk", "A1", Action.BONUS, "Bonus: two.", Decimal("0.25")),
    PayRow("b", "W2", "mturk", "A2", Action.BY_HAND, "Late.", Decimal("1.5")),
    PayRow("c", "=W3", "mturk", "A3", Action.NOTHING, "They left."),
]


@pytest.mark.parametrize(
    ("name", "platform", "lines"),
    [
        ("approve", "prolific", ["W1"]),
        ("approve", "mturk", ["WorkerId,AssignmentId", "W1,A1"]),
        ("approve", "connect", ["participantId", "W1"]),
        ("approve", "link", ["id", "W1"]),
        ("bonus", "prolific", ["W1,0.75"]),
        ("bonus", "mturk", ["id,amount", "W1,0.75"]),
    ],
)
def test_files_are_as_platforms_take_them(name: Any, platform: str, lines: list[str]) -> None:
    assert write_file(ROWS, name, platform=platform).splitlines() == lines


def test_the_whole_list_has_every_row_and_no_formula() -> None:
    lines = write_file(ROWS, "all", platform="mturk").splitlines()
    assert lines[0] == "participant,platform_id,source,assignment,action,amount,reason"
    assert lines[1] == "a,W1,mturk,A1,pay,1.5,They finished."
    assert lines[-1] == "c,'=W3,mturk,A3,nothing,,They left."


def test_the_sums_are_those_of_the_rows() -> None:
    sums = sums_of(ROWS)
    assert sums[Action.BONUS] == (2, Decimal("0.75"))
    assert sums[Action.LOOK_AT] == (0, Decimal(0))
