"""Payments at Prolific: approvals and bonuses, shown with their sum before anything is paid, and paid once.

A payment is kept in the store before the first request, under a key that the page has drawn. Whoever sends it again,
because the reply was lost, continues the same payment. Prolific pays a list of bonuses whenever it is asked to, so that
request is sent once: when its reply is lost, the submissions say whether it was carried out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import Field
from typing_extensions import TypedDict

from frontend.auth import EditableExperiment, Experimenter, InPerson, WithExperimenter
from frontend.console.prolific import Cents, ProlificReply, open_study, reply_of, spending_for, tell
from frontend.context import Context, WithContext
from frontend.errors import ConflictError, LostReplyError, NotFoundError, PlatformError
from frontend.experiments import ServedExperiment
from frontend.prolific.payments import (
    MOST_AT_ONCE,
    SETTLED_MS,
    PaidAction,
    PaymentOrder,
    PaymentPlan,
    PaymentState,
    Spending,
    mark_of,
    plan_approvals,
    plan_bonuses,
)
from frontend.prolific.platform import Prolific, Study, Submission, decimal_of
from frontend.schemas import Body
from frontend.submissions import read_submissions

router = APIRouter(prefix="/api/experiments/{slug}/prolific")

#: Submissions of a payment that are looked at to find out whether its bonuses were paid.
_LOOKED_AT = 20
ParticipantId = Annotated[str, Field(pattern=r"^[a-z0-9]{12}$")]
_COUNTERS: Mapping[PaidAction, str] = {"approve": "approved", "bonus": "bonuses"}


class PlanBody(Body):
    """What is to be paid: whose submissions are approved, or the bonus of each in hundredths."""

    action: PaidAction
    participants: Annotated[tuple[ParticipantId, ...], Field(max_length=MOST_AT_ONCE)] = ()
    bonuses: Annotated[
        dict[ParticipantId, Annotated[int, Field(ge=1, le=1_000_000)]], Field(max_length=MOST_AT_ONCE)
    ] = Field(default_factory=dict)


class PayBody(PlanBody):
    """The same with the key of the payment, and what the page showed: how many submissions and which sum."""

    key: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{16,64}$")]
    count: Annotated[int, Field(ge=0, le=MOST_AT_ONCE)]
    sum: Cents


class LeftOutRow(TypedDict):
    """Somebody who is not paid by this, and why."""

    participant: str
    why: str


class PlanReply(TypedDict):
    """What a payment would do. Amounts are in hundredths, without Prolific's fees; `problem` is why it is refused."""

    action: PaidAction
    count: int
    sum: int
    currency: str
    left_out: list[LeftOutRow]
    committed: int
    limit: int | None
    problem: str


@dataclass(frozen=True)
class _Desired:
    """A plan with what it was made from: the study as it is now, its submissions, and whose each is."""

    plan: PaymentPlan
    study: Study
    submissions: tuple[Submission, ...]
    people: Mapping[str, str]


@router.post("/payments/plan")
async def plan_payment(
    body: PlanBody, experiment: EditableExperiment, context: WithContext, experimenter: WithExperimenter
) -> PlanReply:
    """Return what a payment would do, from the submissions as they are at Prolific now; nothing is paid."""
    desired = await _plan(context, experimenter, experiment, body)
    records = await context.store.prolific.read(experiment.id)
    spending = spending_for(experiment.spec, desired.study, records)
    problem = ""
    try:
        _check_currency(experiment, desired.study)
        _check_limit(spending, body.action, desired.plan)
    except ConflictError as error:
        problem = f"{error.message} {error.hint}"
    return {
        "action": body.action,
        "count": len(desired.plan.amounts),
        "sum": desired.plan.sum,
        "currency": desired.study.currency,
        "left_out": [
            {"participant": desired.people.get(each, each), "why": why} for each, why in desired.plan.left_out.items()
        ],
        "committed": spending.committed,
        "limit": spending.most,
        "problem": problem,
    }


@router.post("/payments")
async def pay(
    request: Request, body: PayBody, experiment: EditableExperiment, context: WithContext, experimenter: InPerson
) -> ProlificReply:
    """Pay what the page has shown, if it is still so; sent again with the same key, nothing is paid twice."""
    records = await context.store.prolific.read(experiment.id)
    kept = records.payments.get(body.key, "")
    if not kept:
        desired = await _plan(context, experimenter, experiment, body)
        _check_shown(body, desired.plan)
        _check_currency(experiment, desired.study)
        records = await context.store.prolific.read(experiment.id)
        most = _check_limit(spending_for(experiment.spec, desired.study, records), body.action, desired.plan)
        count, total, now_ms = len(desired.plan.amounts), desired.plan.sum, context.now_ms()
        payment = PaymentOrder(body.key, body.action, count, total, experimenter.name, now_ms)
        kept = await context.store.prolific.claim(
            experiment.id,
            body.key,
            payment.encode(),
            {mark_of(body.action, each): amount for each, amount in desired.plan.amounts.items()},
            counter=_COUNTERS[body.action],
            more=_weight(payment),
            most=most,
        )
        if not kept:
            detail = f"{count} submissions, {decimal_of(total)} {desired.study.currency}".strip()
            await tell(request, context, experimenter, experiment, f"{body.action} ordered", detail)
            platform, _ = await open_study(context, experimenter, experiment)
            await _carry_out(context, experiment, platform, desired.study, payment, desired.plan.amounts)
            return await _finish(request, context, experimenter, experiment, payment)
    return await _continue(request, context, experimenter, experiment, PaymentOrder.decode(kept))


@router.post("/payments/{key}/check")
async def check_payment(
    request: Request, key: str, experiment: EditableExperiment, context: WithContext, experimenter: InPerson
) -> ProlificReply:
    """Continue a payment whose reply was lost: find out at Prolific what was done, and do what is missing."""
    return await _continue(request, context, experimenter, experiment, await _find(context, experiment, key))


@router.delete("/payments/{key}")
async def give_up(
    request: Request, key: str, experiment: EditableExperiment, context: WithContext, experimenter: InPerson
) -> ProlificReply:
    """Give up a payment that Prolific has not carried out, so that its submissions can be paid by another."""
    payment = await _find(context, experiment, key)
    if payment.state in {"done", "refused"}:
        raise ConflictError("This payment has ended.", hint="Nothing was changed.")
    if payment.state == "paying" and context.now_ms() - payment.at_ms < SETTLED_MS:
        raise ConflictError(
            "Prolific may still be paying these bonuses.",
            hint=f"Wait {SETTLED_MS // 60_000} minutes, then check on Prolific whether they were paid.",
        )
    platform, record = await open_study(context, experimenter, experiment)
    amounts = await _amounts_of(context, experiment, platform, record.id, payment)
    if payment.state == "paying" and await _were_paid(platform, amounts):
        raise ConflictError("Prolific has paid these bonuses.", hint="Press Check instead.")
    if not await _refuse(context, experiment, payment, amounts):
        raise _is_under_way()
    await tell(request, context, experimenter, experiment, f"{payment.action} given up", _words(payment))
    return await reply_of(context, experimenter, experiment)


async def _plan(context: Context, experimenter: Experimenter, experiment: ServedExperiment, body: PlanBody) -> _Desired:
    """Return what is to be paid, from the submissions as they are at Prolific now."""
    platform, record = await open_study(context, experimenter, experiment)
    study, submissions, _ = await read_submissions(context, platform, experiment.id, record)
    marks = (await context.store.prolific.read(experiment.id)).marks
    asked = body.bonuses if body.action == "bonus" else body.participants
    people, missing = await _submissions_of(context, experiment, asked)
    chosen = list(people)[:MOST_AT_ONCE]
    if body.action == "approve":
        plan = plan_approvals(chosen, submissions, marks, reward=study.reward)
    else:
        plan = plan_bonuses({each: body.bonuses[people[each]] for each in chosen}, submissions, marks)
    left_out = {**missing, **plan.left_out} | dict.fromkeys(list(people)[MOST_AT_ONCE:], "Pay the others first.")
    return _Desired(replace(plan, left_out=left_out), study, submissions, people)


async def _submissions_of(
    context: Context, experiment: ServedExperiment, participants: Mapping[str, int] | tuple[str, ...]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return (submission → participant) and (participant → why there is none) of those who were asked for."""
    people: dict[str, str] = {}
    missing: dict[str, str] = {}
    for each in participants:
        found = await context.store.participants.read(experiment.id, each)
        submission = found.companions.get("SESSION_ID", "") if found and found.source == "prolific" else ""
        if submission:
            people[submission] = each
        else:
            missing[each] = "Nothing is known of a submission at Prolific."
    return people, missing


async def _continue(
    request: Request, context: Context, experimenter: Experimenter, experiment: ServedExperiment, payment: PaymentOrder
) -> ProlificReply:
    """Continue a payment from the state that it is in."""
    if payment.state == "done":
        return await reply_of(context, experimenter, experiment)
    if payment.state == "refused":
        raise ConflictError("Prolific has refused this payment.", hint="Nothing was paid. Begin a new one.")
    platform, record = await open_study(context, experimenter, experiment)
    study, submissions, _ = await read_submissions(context, platform, experiment.id, record)
    amounts = await _marked(context, experiment, payment, submissions)
    if payment.state == "paying":
        if not await _were_paid(platform, amounts):
            raise ConflictError(
                "Prolific has not confirmed these bonuses.",
                hint="Nothing was sent again. Check once more in some minutes, or look on Prolific whether they were paid.",
            )
        await _settle(context, experiment, payment, "done")
    else:
        waiting = {each.id for each in submissions if each.status == "AWAITING_REVIEW"}
        missing = amounts if payment.action == "bonus" else {each: amounts[each] for each in amounts if each in waiting}
        await _carry_out(context, experiment, platform, study, payment, missing)
    return await _finish(request, context, experimenter, experiment, payment)


async def _carry_out(
    context: Context,
    experiment: ServedExperiment,
    platform: Prolific,
    study: Study,
    payment: PaymentOrder,
    amounts: Mapping[str, int],
) -> None:
    """Send the requests of a payment and keep what became of it.

    A refusal gives its submissions back. After a lost reply the payment stays open, and the error says how to continue.
    """
    try:
        if payment.action == "approve":
            if amounts:
                await platform.approve(tuple(amounts))
        else:
            if payment.state == "begun":
                batch = await platform.prepare_bonuses(study.id, amounts)
                payment = await _settle(context, experiment, payment, "prepared", batch=batch)
            payment = await _settle(context, experiment, payment, "paying")
            await platform.pay_bonuses(payment.batch)
    except LostReplyError as error:
        raise LostReplyError(
            f"{error.message} It is not known whether Prolific has carried out this payment.",
            hint="Press “Check” beside it in some minutes; nothing is paid twice.",
        ) from error
    except PlatformError:
        await _refuse(context, experiment, payment, amounts)
        raise
    await _settle(context, experiment, payment, "done")


async def _were_paid(platform: Prolific, amounts: Mapping[str, int]) -> bool:
    """Return whether Prolific shows the bonuses of a payment; of a long one, some of the submissions are looked at."""
    for each in list(amounts)[:_LOOKED_AT]:
        if amounts[each] not in (await platform.read_submission(each)).bonuses:
            return False
    return bool(amounts)


async def _amounts_of(
    context: Context, experiment: ServedExperiment, platform: Prolific, study: str, payment: PaymentOrder
) -> dict[str, int]:
    return await _marked(context, experiment, payment, await platform.list_submissions(study))


async def _marked(
    context: Context, experiment: ServedExperiment, payment: PaymentOrder, submissions: tuple[Submission, ...]
) -> dict[str, int]:
    """Return the amount of each submission of a payment, by the marks that are kept of it."""
    marks = (await context.store.prolific.read(experiment.id)).marks
    amounts: dict[str, int] = {}
    for each in submissions:
        key, _, amount = marks.get(mark_of(payment.action, each.id), "").partition("|")
        if key == payment.key:
            amounts[each.id] = int(amount)
    return amounts


async def _settle(
    context: Context, experiment: ServedExperiment, payment: PaymentOrder, state: PaymentState, *, batch: str = ""
) -> PaymentOrder:
    """Keep the next state of a payment and return it; ConflictError where another request has changed it meanwhile."""
    at_ms = context.now_ms() if state == "paying" else payment.at_ms
    after = replace(payment, state=state, batch=batch or payment.batch, at_ms=at_ms)
    settled = await context.store.prolific.settle(
        experiment.id, payment.key, before=payment.encode(), after=after.encode()
    )
    if not settled:
        raise _is_under_way()
    return after


async def _refuse(
    context: Context, experiment: ServedExperiment, payment: PaymentOrder, amounts: Mapping[str, int]
) -> bool:
    """Keep that a payment was not carried out, and let its submissions be paid by another."""
    return await context.store.prolific.settle(
        experiment.id,
        payment.key,
        before=payment.encode(),
        after=replace(payment, state="refused").encode(),
        released=tuple(mark_of(payment.action, each) for each in amounts),
        counter=_COUNTERS[payment.action],
        less=_weight(payment),
    )


async def _find(context: Context, experiment: ServedExperiment, key: str) -> PaymentOrder:
    kept = (await context.store.prolific.read(experiment.id)).payments.get(key)
    if kept is None:
        raise NotFoundError("There is no such payment.", hint="Reload the page.")
    return PaymentOrder.decode(kept)


async def _finish(
    request: Request, context: Context, experimenter: Experimenter, experiment: ServedExperiment, payment: PaymentOrder
) -> ProlificReply:
    """Note that a payment was confirmed, and return the experiment at Prolific."""
    await tell(request, context, experimenter, experiment, f"{payment.action} confirmed", _words(payment))
    return await reply_of(context, experimenter, experiment)


def _check_shown(body: PayBody, plan: PaymentPlan) -> None:
    if not plan.amounts:
        raise ConflictError("There is nobody to pay.", hint="Nothing was paid. Look at the list again.")
    if (body.count, body.sum) != (len(plan.amounts), plan.sum):
        raise ConflictError(
            f"This would now pay {len(plan.amounts)} submissions {decimal_of(plan.sum)} together; the page showed"
            f" {body.count} and {decimal_of(body.sum)}.",
            hint="Nothing was paid. Look at the new sum, then confirm it.",
        )


def _check_currency(experiment: ServedExperiment, study: Study) -> None:
    """Raise ConflictError where the amounts of the file are not in the currency in which Prolific pays."""
    written = experiment.spec.payment.currency
    if study.currency and study.currency != written:
        raise ConflictError(
            f"Prolific pays this study in {study.currency}, and the file says {written}.",
            hint="Nothing was paid. Correct payment.currency and the amounts in the file.",
            where="payment.currency",
        )


def _check_limit(spending: Spending, action: PaidAction, plan: PaymentPlan) -> int:
    """Return the bound of the counter of an action; ConflictError where the plan would be above the file's limit."""
    if action == "approve":
        return spending.check_approvals(len(plan.amounts))
    return spending.check_bonuses(plan.sum)


def _weight(payment: PaymentOrder) -> int:
    """Return what a payment adds to its counter: approvals are counted, and bonuses are summed."""
    return payment.count if payment.action == "approve" else payment.sum


def _words(payment: PaymentOrder) -> str:
    return f"{payment.count} submissions, {decimal_of(payment.sum)}"


def _is_under_way() -> ConflictError:
    return ConflictError("This payment is under way in another window.", hint="Reload the page in a moment.")
