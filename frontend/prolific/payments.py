"""What may be paid at Prolific, and what of it was: plans with their sums, the limit of the
file, and the records of payments.

Pure functions and values. Amounts are in hundredths. A submission is approved once and gets one bonus at most through
Salmon; what was paid is known by digests of the submissions' ids, so the records hold no id of anybody.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import Any, Literal

from frontend.errors import ConflictError
from frontend.prolific.platform import Study, Submission, decimal_of
from salmon.spec import Spec
from salmon.spec.schema import ProlificStudy
from salmon.wire import decode_json, encode_json

PaidAction = Literal["approve", "bonus"]
#: `begun` is claimed in the store, `prepared` has a list of bonuses at Prolific, and `paying` is being paid, which a
#: lost reply does not end. `done` is confirmed, and `refused` was paid by nobody.
PaymentState = Literal["begun", "prepared", "paying", "done", "refused"]

#: Submissions of one payment, and the longest time (ms) that Prolific takes to pay bonuses.
MOST_AT_ONCE = 500
SETTLED_MS = 30 * 60_000


@dataclass(frozen=True)
class PaymentOrder:
    """One payment, from before the first request until Prolific has confirmed it.
    `batch` is its list of bonuses there.
    """

    key: str
    action: PaidAction
    count: int
    sum: int
    by: str
    at_ms: int
    state: PaymentState = "begun"
    batch: str = ""

    def encode(self) -> str:
        """Return the JSON that is stored."""
        return encode_json(asdict(self))

    @staticmethod
    def decode(text: str) -> "PaymentOrder":
        """Return the payment of that JSON."""
        values: dict[str, Any] = decode_json(text)
        return PaymentOrder(**values)


@dataclass(frozen=True)
class PaymentPlan:
    """What a payment would do: the amount of each submission, and why others that were asked for are left out."""

    amounts: Mapping[str, int]
    left_out: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def sum(self) -> int:
        """The sum of all amounts, without Prolific's fees."""
        return sum(self.amounts.values())


@dataclass(frozen=True)
class Spending:
    """What a study may cost and what it was promised already, without Prolific's fees; `most` is None without a limit.

    Places count in full, because whoever takes one has to be paid.
    """

    most: int | None
    reward: int
    places: int
    screen_outs: int
    approved: int
    bonuses: int

    @property
    def committed(self) -> int:
        """What is promised and paid."""
        return self._with()

    def check_places(self, places: int) -> None:
        """Raise ConflictError where so many places would cost more than the limit."""
        self._check(self._with(places=places), f"{places} places")

    def check_bonuses(self, more: int) -> int:
        """Return how much all bonuses may be together; ConflictError where `more` would be beyond the limit."""
        self._check(self._with(bonuses=self.bonuses + more), f"bonuses of {decimal_of(more)}")
        return (self.most or 0) - self._with(bonuses=0)

    def check_approvals(self, more: int) -> int:
        """Return how many approvals there may be in all; ConflictError where so many
        `more` would be beyond the limit.
        """
        self._check(self._with(approved=self.approved + more), f"{more} approvals")
        left = (self.most or 0) - self.screen_outs - self.bonuses
        return max(self.places, left // self.reward if self.reward else self.places)

    def _with(self, *, places: int = 0, approved: int = 0, bonuses: int | None = None) -> int:
        people = max(places or self.places, approved, self.approved)
        return people * self.reward + self.screen_outs + (self.bonuses if bonuses is None else bonuses)

    def _check(self, total: int, what: str) -> None:
        if self.most is None:
            raise ConflictError(
                "Salmon pays nothing before the file says how much it may spend.",
                hint="Write recruitment: {prolific: {spend_at_most: …}}, in the currency of your Prolific account.",
                where="recruitment.prolific.spend_at_most",
            )
        if total > self.most:
            raise ConflictError(
                f"With {what} the study would cost {decimal_of(total)}; spend_at_most is {decimal_of(self.most)}.",
                hint="Nothing was paid. Raise spend_at_most in the file, or pay less.",
                where="recruitment.prolific.spend_at_most",
            )


def cents_of(amount: Any) -> int:
    """Return an amount of the file in hundredths; 0 where there is none."""
    return round(amount * 100) if amount is not None else 0


def spending_of(
    spec: Spec, terms: ProlificStudy, study: Study | None, *, screen_outs: int, approved: int, bonuses: int
) -> Spending:
    """Return the spending of a study with the terms of the file; before there is a
    study, of what the file would make.
    """
    return Spending(
        most=cents_of(terms.spend_at_most) if terms.spend_at_most is not None else None,
        reward=study.reward if study else cents_of(spec.payment.reward),
        places=study.places if study else terms.places,
        screen_outs=screen_outs,
        approved=approved,
        bonuses=bonuses,
    )


def cost_of_screen_outs(spec: Spec, terms: ProlificStudy) -> int:
    """Return what may be paid to those who fail the checks, in hundredths."""
    return cents_of(spec.payment.screened_out) * terms.screen_out_places


def plan_approvals(
    wanted: Iterable[str], submissions: Sequence[Submission], marks: Mapping[str, str], *, reward: int
) -> PaymentPlan:
    """Return the plan that approves the wanted submissions which wait for it, each at the study's reward."""
    known = {each.id: each for each in submissions}
    amounts: dict[str, int] = {}
    left_out: dict[str, str] = {}
    for each in dict.fromkeys(wanted):
        if each not in known:
            left_out[each] = "Prolific has no such submission in this study."
        elif known[each].status == "APPROVED":
            left_out[each] = "It is approved already."
        elif known[each].status != "AWAITING_REVIEW":
            left_out[each] = f"Prolific says {spoken(known[each].status)}: decide about it there."
        elif mark_of("approve", each) in marks:
            left_out[each] = "Its approval is under way."
        else:
            amounts[each] = reward
    return PaymentPlan(amounts, left_out)


def plan_bonuses(wanted: Mapping[str, int], submissions: Sequence[Submission], marks: Mapping[str, str]) -> PaymentPlan:
    """Return the plan that pays a bonus for each wanted submission that is approved or waits for it."""
    known = {each.id: each for each in submissions}
    amounts: dict[str, int] = {}
    left_out: dict[str, str] = {}
    for each, amount in wanted.items():
        if each not in known:
            left_out[each] = "Prolific has no such submission in this study."
        elif mark_of("bonus", each) in marks:
            left_out[each] = "It has a bonus already, or its bonus is under way."
        elif known[each].bonuses:
            left_out[each] = "Prolific shows a bonus for it already."
        elif known[each].status not in {"APPROVED", "AWAITING_REVIEW"}:
            left_out[each] = f"Prolific says {spoken(known[each].status)}: pay a bonus there, if any."
        else:
            amounts[each] = amount
    return PaymentPlan(amounts, left_out)


def mark_of(action: PaidAction, submission: str) -> str:
    """Return the mark by which it is known that a submission was approved or got its bonus."""
    return f"{action}:{sha256(submission.encode()).hexdigest()[:32]}"


def spoken(status: str) -> str:
    """Return a status in the words of people."""
    return status.replace("_", " ").lower()
