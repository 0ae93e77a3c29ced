"""The first line of the overview: whether there are enough answers, and how many are wanted, as
pure functions of what was read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import ceil, inf, log2
from typing import TYPE_CHECKING, Literal

from frontend.console.notices import Sentence
from frontend.metrics import Latency
from frontend.store.answers import Counts
from frontend.store.experiments import ExperimentState
from frontend.store.models import HeldOutAccuracy, HistoryLine
from frontend.store.places import Places
from salmon.spec import Spec, TargetSpec
from salmon.wire import Heartbeat

if TYPE_CHECKING:
    from salmon.learning_curve import Outlook

#: Answers that are usually enough, in units of n·d·log2 n, where all queries are random, and how much of that a sampler
#: that chooses its queries needs (docs/efficiency.md).
ENOUGH_RANDOM = 10
SHARE_ACTIVE = 0.55
#: More accuracy than this is worth further answers: one percentage point.
WORTH = 0.01


@dataclass(frozen=True)
class SamplerView:
    """What is known of one sampler: how many queries are listed and pending, and its newest generation."""

    name: str
    sampler_class: str
    active: bool
    listed: int
    pending: int
    last: HistoryLine | None
    outlook: Outlook | None = None
    held_out: HeldOutAccuracy | None = None


@dataclass(frozen=True)
class OverviewInputs:
    """Everything that the overview is made of, as it was read at `now_ms`.

    Of `proposed` participants the exclusion is proposed and nobody has decided.
    """

    state: ExperimentState
    spec: Spec
    n: int
    counts: Counts
    arrived: int
    samplers: tuple[SamplerView, ...]
    heartbeat: Heartbeat | None
    now_ms: int
    latencies: tuple[Latency, ...] = ()
    media_problems: tuple[str, ...] = ()
    places: Places = field(default_factory=Places)
    proposed: int = 0
    message_problems: tuple[str, ...] = ()
    targets: Sequence[TargetSpec] = ()


#: What the experimenter can do about a verdict, by the button beside it.
Action = Literal["", "open", "close", "invite"]


@dataclass(frozen=True)
class OverviewVerdict:
    """The first line of the overview: whether there are enough answers, why, and the button that follows."""

    level: Literal["good", "info", "warning", "error"]
    what: str
    why: str = ""
    action: Action = ""


def verdict(seen: OverviewInputs, said: Sequence[Sentence], *, total: int) -> OverviewVerdict:
    """Return whether there are enough answers, or that something is wrong."""
    state = seen.state.state
    if urgent := [sentence for sentence in said if sentence["level"] == "error"]:
        return OverviewVerdict("error", f"Something is wrong: {_begin_small(urgent[0]['what'])}", urgent[0]["hint"])
    if total == 0 and state == "open":
        return OverviewVerdict("info", "No answers yet.", "Send participants the link above.", "invite")
    if total == 0:
        return OverviewVerdict("info", "Not open yet.", "Try the experiment out in Settings, then open it.", "open")
    go_on: Action = "invite" if state == "open" else "" if state == "closed" else "open"
    found = _enough(seen, total)
    return replace(found, action=go_on if found.level == "info" else "" if state == "closed" else "close")


def _enough(seen: OverviewInputs, total: int) -> OverviewVerdict:
    """Return whether there are enough answers: by the experimenter's own goal, what is
    still to gain, or a rule of thumb.
    """
    goal = goal_of(seen)
    if goal.label == "your goal" and total >= goal.answers:
        return OverviewVerdict("good", f"Enough: your goal of {goal.answers:,} answers is reached.", goal.sentence)
    best = _best_known(seen)
    if best is None:
        return _by_rule_of_thumb(seen, goal, total)
    return _by_outlook(*best)


def _best_known(seen: OverviewInputs) -> tuple[Outlook, HeldOutAccuracy | None] | None:
    """Return what is to gain, and the held-out accuracy, of the sampler whose map has
    predicted most answers; None where it is too early to say.
    """
    known = [(view, view.outlook) for view in seen.samplers if view.outlook is not None]
    if not known or seen.counts.targets_without_answer(seen.n):
        return None
    view, found = max(known, key=lambda pair: pair[1].predictions)
    return _below_ceiling(found, view), view.held_out


def _below_ceiling(found: Outlook, view: SamplerView) -> Outlook:
    """Return an outlook with no more to gain than the noise ceiling leaves above the accuracy that pages show.

    The upper bound of the gain reaches from the lower end of the accuracy's interval to the upper end of the
    ceiling's: only together do they hold the truth as often as it says.
    """
    numbers, now = view.last.numbers if view.last else {}, view.held_out
    if now is None or "ceiling" not in numbers:
        return found
    return found.bounded(numbers["ceiling"] - now.accuracy, numbers.get("ceiling_high", inf) - now.low)


def _by_outlook(best: Outlook, now: HeldOutAccuracy | None) -> OverviewVerdict:
    # The outlook is what may be added to the accuracy that every page shows.
    accuracy = (
        f"The map predicts {_share_in_words(now.accuracy)} of people's answers that it has not seen" if now else ""
    )
    if best.gain_high <= WORTH:
        ever = (
            f"{accuracy}; it would predict about {_share_in_words(min(1.0, now.accuracy + best.gain))}" if now else ""
        )
        return OverviewVerdict(
            "good",
            f"Enough: closing now costs at most {_points(best.gain_high)} of accuracy (95 %).",
            f"{ever} if nobody ever stopped answering." if ever else "",
        )
    why = f"Further answers can still bring up to {_points(best.gain_high)} (95 %), about {_points(best.gain)}."
    return OverviewVerdict("info", f"Not yet: {_more_in_words(best)}.", f"{accuracy}. {why}" if accuracy else why)


def _more_in_words(best: Outlook) -> str:
    """Say how many more answers leave no more than a point to gain, with the interval of that number."""
    if best.more is None:
        return "far more answers are needed"
    low = f"{_rounded(best.more_low):,}" if best.more_low else "0"
    if best.more_high is None:
        return (
            f"about {_rounded(best.more):,} more answers (95 %: {low} or more)"
            if best.more
            else "it cannot be said yet"
        )
    high = f"{_rounded(best.more_high):,}"
    if best.more == 0:
        return f"it may be enough, or up to {high} more answers (95 %)"
    return f"about {_rounded(best.more):,} more answers (95 %: {low} to {high})"


def _by_rule_of_thumb(seen: OverviewInputs, goal: Goal, total: int) -> OverviewVerdict:
    """Return the verdict where nothing is known about accuracy."""
    if any(view.active for view in seen.samplers):
        return _before_the_curve(seen, goal, total)
    why = f"No sampler of this experiment fits a map while it runs. {goal.sentence}"
    if total < goal.answers:
        return _not_yet(goal, total, why)
    return OverviewVerdict("good", f"Enough by a rule of thumb: {goal.answers:,} answers.", why)


def _before_the_curve(seen: OverviewInputs, goal: Goal, total: int) -> OverviewVerdict:
    """Return the verdict while the map has predicted too little to say what further answers would bring."""
    from salmon.learning_curve import LEAST_ANSWERS, LEAST_PREDICTIONS  # loads numpy

    why = f"How good the map is can be said after {LEAST_PREDICTIONS} answers to random queries that it has predicted."
    without = seen.counts.targets_without_answer(seen.n)
    if total < LEAST_ANSWERS * seen.n:
        early = f"there are fewer than {LEAST_ANSWERS} answers a target"
    elif without:
        early = f"{without:,} of {seen.n:,} targets {'has' if without == 1 else 'have'} no answer yet"
    elif total < goal.answers:
        return _not_yet(goal, total, why)
    else:
        early = f"the map has predicted fewer than {LEAST_PREDICTIONS} answers"
    return OverviewVerdict("info", f"Too early to say: {early}.", why)


def _not_yet(goal: Goal, total: int, why: str) -> OverviewVerdict:
    return OverviewVerdict("info", f"Not yet: about {_rounded(goal.answers - total):,} more answers.", why)


def _begin_small(sentence: str) -> str:
    """Return a sentence as it goes on after a colon; names of samplers and files keep their capital."""
    return sentence[0].lower() + sentence[1:] if sentence.startswith(("The ", "A ", "An ", "No ")) else sentence


def _share_in_words(share: float) -> str:
    return f"{100 * share:.1f} %"


def _points(share: float) -> str:
    return f"{max(0.1, 100 * share):.1f} points"


def _rounded(count: int) -> int:
    """Return a count with two digits that mean something."""
    unit = 10 ** max(0, len(str(max(1, count))) - 2)
    return max(unit, round(count / unit) * unit)


@dataclass(frozen=True)
class Goal:
    """How many answers are wanted, and where that number comes from."""

    answers: int
    label: str
    sentence: str


def goal_of(seen: OverviewInputs) -> Goal:
    """Return the experimenter's own goal; where the file names none, what the curve of
    accuracy or a rule of thumb says.
    """
    stopping = seen.spec.stopping
    if stopping.answers is not None:
        return Goal(stopping.answers, "your goal", "From stopping.answers in your file.")
    if stopping.participants is not None and seen.spec.html.max_queries > 0:
        wanted = stopping.participants * seen.spec.html.max_queries
        return Goal(
            wanted,
            "your goal",
            f"{stopping.participants:,} participants with {seen.spec.html.max_queries} queries each.",
        )
    if best := _best_known(seen):
        outlook, _ = best
        total = seen.state.counters.get("answers", 0)
        more = 0 if outlook.gain_high <= WORTH else outlook.more or outlook.more_high
        if more is not None:
            return Goal(
                total + (_rounded(more) if more else 0),
                "estimate",
                "From the curve of accuracy: until at most one percentage point is left to gain.",
            )
    d = seen.spec.sampling.common.get("d", 2)
    unit = seen.n * int(d if isinstance(d, int) else 2) * log2(max(2, seen.n))
    active = any(view.active for view in seen.samplers)
    wanted = ceil(ENOUGH_RANDOM * unit * (SHARE_ACTIVE if active else 1.0))
    return Goal(
        wanted,
        "rule of thumb",
        f"Rule of thumb for {seen.n:,} targets in {d} dimensions. The accuracy figure is a better guide.",
    )
