"""Whom to pay: the list of payments of an experiment, as a pure function, and its files
in the form that platforms take.

`pay_list` decides about everybody who has arrived, from our status, what the platform says about the submission, and
the amounts of the file. It never proposes to reject anybody, and nothing is paid here.
"""

import csv
import io
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Literal

from fastapi import APIRouter
from starlette.responses import Response
from typing_extensions import TypedDict

from frontend.auth import EditableExperiment
from frontend.console.participants import find_verdicts
from frontend.context import WithContext
from frontend.store.participants import Participant
from frontend.store.statuses import FINISHED, PlatformStatus, Status
from frontend.transfer.subprocesses import WithSubprocesses
from salmon.quality import Verdict
from salmon.spec import Spec
from salmon.spec.schema import Bonus

router = APIRouter(prefix="/api/experiments/{slug}")


class Action(StrEnum):
    """What to do about a participant's payment."""

    PAY = "pay"
    BY_HAND = "pay by hand"
    BONUS = "bonus"
    SCREENED_OUT = "screened out"
    LOOK_AT = "look at"
    NOTHING = "nothing"


@dataclass(frozen=True)
class PayRow:
    """One thing to do about one participant, with the reason as a sentence; `amount` where the file gives one.

    `platform_id` is the platform's id of the person, and `assignment` that of the submission.
    """

    participant: str
    platform_id: str
    source: str
    assignment: str
    action: Action
    reason: str
    amount: Decimal | None = None


#: Parameters of links in which platforms name the submission.
_SUBMISSIONS = ("SESSION_ID", "assignmentId")
#: What a platform says of a submission that it has dealt with -> a sentence.
_SETTLED: Mapping[PlatformStatus, str] = {
    PlatformStatus.APPROVED: "The platform has approved the submission.",
    PlatformStatus.REJECTED: "The submission was rejected on the platform; nothing here asks for that.",
    PlatformStatus.SCREENED_OUT: "The platform has paid them as screened out.",
}


def pay_list(people: Iterable[Participant], spec: Spec, verdicts: Mapping[str, Verdict]) -> list[PayRow]:
    """Return what to do about everybody who has arrived: one row each, and another for each bonus."""
    rows: list[PayRow] = []
    for person in people:
        action, reason, amount = _decide(person, spec)
        rows.append(_row(person, action, reason, amount))
        if person.status in FINISHED and person.platform != PlatformStatus.REJECTED:
            rows += [
                _row(person, Action.BONUS, why, of_rule)
                for rule in spec.payment.bonus
                for why, of_rule in _bonus(person, rule, verdicts.get(person.id))
            ]
    return rows


def sums_of(rows: Iterable[PayRow]) -> dict[Action, tuple[int, Decimal]]:
    """Return how many rows each action has, and the sum of their amounts."""
    found: dict[Action, tuple[int, Decimal]] = dict.fromkeys(Action, (0, Decimal(0)))
    for row in rows:
        count, total = found[row.action]
        found[row.action] = (count + 1, total + (row.amount or 0))
    return found


def _row(person: Participant, action: Action, reason: str, amount: Decimal | None) -> PayRow:
    assignment = next((person.companions[name] for name in _SUBMISSIONS if name in person.companions), "")
    return PayRow(person.id, person.puid, person.source, assignment, action, reason, amount)


def _decide(person: Participant, spec: Spec) -> tuple[Action, str, Decimal | None]:
    """Return what to do about one participant without any bonus, why, and the amount."""
    if person.platform is not None and person.platform in _SETTLED:
        return Action.NOTHING, _SETTLED[person.platform], None
    if person.status == Status.FAILED_CHECKS:
        return _of_screened_out(spec)
    if person.credit == "granted":
        return Action.NOTHING, "SONA has granted the credit.", None
    finished = person.status in FINISHED or (person.status == Status.RETURNED and person.completed_ms > 0)
    action, reason = _of_finished(person) if finished else _of_unfinished(person, spec)
    return action, reason, spec.payment.reward if action in {Action.PAY, Action.BY_HAND} else None


def _of_screened_out(spec: Spec) -> tuple[Action, str, Decimal | None]:
    amount = spec.payment.screened_out
    if spec.recruitment.screen_out_code or amount is not None:
        return Action.SCREENED_OUT, "They failed the checks, and were shown the end.", amount
    return Action.LOOK_AT, "They failed the checks, and the file gives neither a code nor an amount for that.", None


def _of_unfinished(person: Participant, spec: Spec) -> tuple[Action, str]:
    if person.status == Status.RETURNED:
        return Action.NOTHING, "They returned their submission; their answers are kept."
    if 0 < spec.html.max_queries <= person.answers and person.status != Status.WITHDRAWN:
        return Action.BY_HAND, "They answered every question, and did not reach the end: they may have lost the code."
    if person.status == Status.WITHDRAWN and person.answers:
        return Action.LOOK_AT, f"They withdrew after {person.answers} answers: whether that is paid is up to you."
    reason = _UNFINISHED.get(person.status, "They have not finished.")
    if person.platform == PlatformStatus.AWAITING_REVIEW:
        return Action.LOOK_AT, f"The platform waits for a decision about the submission. {reason}"
    return Action.NOTHING, reason


_UNFINISHED: Mapping[Status, str] = {
    Status.DECLINED: "They chose not to take part.",
    Status.SCREENED_OUT: "They did not pass the questions about the instructions, and were asked to return.",
    Status.TIMED_OUT: "Their time on the platform ran out before they had finished; they may still finish.",
    Status.ABANDONED: "They went away before they had finished; they may still come back.",
    Status.WITHDRAWN: "They withdrew before the first answer.",
    Status.REPLACED: "They began again, and are listed a second time.",
}


def _of_finished(person: Participant) -> tuple[Action, str]:
    if person.status == Status.RETURNED:
        return Action.LOOK_AT, "They finished here and returned their submission on the platform: ask them why."
    if person.given_unsaved is not None:
        reason = f"The page says that {person.given_unsaved} answers were given, and {person.answers} are stored."
        return Action.LOOK_AT, reason
    if person.credit:
        why = person.credit_reason or "It is not known whether SONA granted the credit."
        return Action.BY_HAND, f"{why} They were shown SONA's own link instead: see in SONA whether they used it."
    if person.platform == PlatformStatus.TIMED_OUT:
        return Action.BY_HAND, "They finished after their time on the platform had run out."
    return Action.PAY, "They finished."


def _bonus(person: Participant, rule: Bonus, verdict: Verdict | None) -> Iterable[tuple[str, Decimal]]:
    """Yield the reason and the amount where one person gets the bonus of a rule."""
    reasons: list[str] = []
    if rule.answers is not None:
        if person.answers < rule.answers:
            return
        reasons.append(f"{person.answers} answers, at least {rule.answers}")
    if rule.catch_accuracy is not None:
        right = verdict.figures.catch_accuracy if verdict is not None else None
        if right is None or right < rule.catch_accuracy:
            return
        reasons.append(f"{100 * right:.0f} % of the catch trials right ({100 * rule.catch_accuracy:.0f} % asked for)")
    amount = rule.amount
    if rule.for_each_answer_above is not None:
        more = person.answers - rule.for_each_answer_above
        if more <= 0:
            return
        amount = min(amount * more, rule.at_most or amount * more)
        reasons.append(f"{more} answers above {rule.for_each_answer_above}")
    yield f"Bonus: {', '.join(reasons) or 'they finished'}.", amount


PayFile = Literal["approve", "bonus", "all"]


def write_file(rows: Sequence[PayRow], name: PayFile, *, platform: str) -> str:
    """Return one of the files that platforms take, as CSV.

    `approve` lists those to pay: ids alone for Prolific, with a heading elsewhere. `bonus` lists `id,amount`, one line
    a person. `all` has every row with its reason.
    """
    written = io.StringIO()
    table = csv.writer(written, lineterminator="\n")
    if name == "all":
        table.writerow(["participant", "platform_id", "source", "assignment", "action", "amount", "reason"])
        for row in rows:
            ids = [_as_text(each) for each in (row.platform_id, row.source, row.assignment)]
            table.writerow([row.participant, *ids, row.action, "" if row.amount is None else row.amount, row.reason])
    elif name == "approve":
        heading = {"prolific": [], "mturk": ["WorkerId", "AssignmentId"], "connect": ["participantId"]}
        columns = heading.get(platform, ["id"])
        table.writerows([columns] if columns else [])
        table.writerows(_ids(row, platform) for row in _once(rows, {Action.PAY}))
    else:
        sums: dict[str, Decimal] = {}
        for row in rows:
            if row.action == Action.BONUS and row.amount is not None:
                sums[row.platform_id] = sums.get(row.platform_id, Decimal(0)) + row.amount
        table.writerows([] if platform == "prolific" else [["id", "amount"]])
        table.writerows([person, f"{amount:.2f}"] for person, amount in sums.items())
    return written.getvalue()


def _ids(row: PayRow, platform: str) -> list[str]:
    return [row.platform_id, row.assignment] if platform == "mturk" else [row.platform_id]


def _once(rows: Iterable[PayRow], actions: Collection[Action]) -> Iterable[PayRow]:
    """Yield the rows with one of these actions, one for each submission."""
    seen: set[tuple[str, str]] = set()
    for row in rows:
        if row.action in actions and (row.platform_id, row.assignment) not in seen:
            seen.add((row.platform_id, row.assignment))
            yield row


def _as_text(value: str) -> str:
    """Return an id from a link as spreadsheets show it, never as a formula."""
    return f"'{value}" if value.startswith(("=", "+", "-", "@")) else value


class PayRowReply(TypedDict):
    """One thing to do about one participant; `amount` is a decimal number as text, None where the file gives none."""

    participant: str
    platform_id: str
    assignment: str
    status: str
    platform_status: str
    action: Action
    amount: str | None
    reason: str


class PaySum(TypedDict):
    """How many rows have an action, and the sum of their amounts."""

    action: Action
    count: int
    amount: str


class PaymentReply(TypedDict):
    """The list of payments; `fresh` is false where the catch trials of somebody are still being counted."""

    platform: str
    currency: str
    fresh: bool
    sums: list[PaySum]
    rows: list[PayRowReply]


@dataclass(frozen=True)
class _Listed:
    """The list of payments with the people whom it is about."""

    rows: list[PayRow]
    people: Mapping[str, Participant]
    fresh: bool


@router.get("/payment")
async def read_payment(
    experiment: EditableExperiment, context: WithContext, subprocesses: WithSubprocesses
) -> PaymentReply:
    """Return what to do about everybody's payment, with reasons and sums; for those who may change the experiment."""
    listed = await _read(experiment, context, subprocesses)
    return {
        "platform": experiment.spec.recruitment.platform,
        "currency": experiment.spec.payment.currency,
        "fresh": listed.fresh,
        "sums": [
            {"action": action, "count": count, "amount": f"{amount:.2f}"}
            for action, (count, amount) in sums_of(listed.rows).items()
        ],
        "rows": [
            {
                "participant": row.participant,
                "platform_id": row.platform_id,
                "assignment": row.assignment,
                "status": listed.people[row.participant].status,
                "platform_status": listed.people[row.participant].platform or "",
                "action": row.action,
                "amount": None if row.amount is None else f"{row.amount:.2f}",
                "reason": row.reason,
            }
            for row in listed.rows
        ],
    }


@router.get("/payment/{name}.csv", response_class=Response)
async def read_payment_file(
    experiment: EditableExperiment, name: PayFile, context: WithContext, subprocesses: WithSubprocesses
) -> Response:
    """Return the list to approve, the list of bonuses, or every row with its reason, as a platform takes it."""
    listed = await _read(experiment, context, subprocesses)
    content = write_file(listed.rows, name, platform=experiment.spec.recruitment.platform)
    headers = {
        "Content-Disposition": f'attachment; filename="{experiment.state.slug}-{name}.csv"',
        "Cache-Control": "no-store",
    }
    return Response(content, media_type="text/csv; charset=utf-8", headers=headers)


async def _read(experiment: EditableExperiment, context: WithContext, subprocesses: WithSubprocesses) -> _Listed:
    """Read the list; the figures of catch trials only where a bonus depends on them, and then of this moment."""
    verdicts: Mapping[str, Verdict] = {}
    fresh = True
    if any(rule.catch_accuracy is not None for rule in experiment.spec.payment.bonus):
        quality, fresh = await find_verdicts(context, experiment, subprocesses, wait=True)
        verdicts = quality.verdicts if quality else {}
    arrivals = await context.store.export_reader.read_arrivals(experiment.id)
    people: dict[str, Participant] = {}
    async for page in context.store.export_reader.read_people(experiment.id, sorted(set(arrivals.values()))):
        people |= {person.id: person for person in page if person.stored}
    ordered = sorted(people.values(), key=lambda person: (person.first_ms, person.id))
    return _Listed(pay_list(ordered, experiment.spec, verdicts), people, fresh)
