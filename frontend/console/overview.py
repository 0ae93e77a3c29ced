"""The overview of an experiment, as pure functions of its counters, state and history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Literal

from typing_extensions import TypedDict

from frontend.console.notices import Sentence, careless, ended_by_itself, full, make_sentence, opens_later, retention
from frontend.console.verdict import OverviewInputs, SamplerView, goal_of, verdict
from frontend.lifecycle import wanted_participants
from frontend.metrics import Latency
from frontend.store.answers import MINUTE_MS, Counts, bin_start_ms
from frontend.store.experiments import State
from frontend.store.models import HistoryLine
from salmon.errors import shown
from salmon.spec.consistency import unbuilt_values


class AnswersTile(TypedDict):
    """How many answers there are, how many are wanted, and when they will be there."""

    total: int
    a_minute: float
    goal: int
    goal_is: str
    goal_from: str
    to_go: int
    finish_ms: int | None


class ParticipantsTile(TypedDict):
    """How many people opened the link, began and finished; how many hold a place, and how many places there are.

    `wanted` is 0 where the file names no number.
    """

    arrived: int
    began: int
    completed: int
    held: int
    wanted: int


class Quantiles(TypedDict):
    """The median and the 95th percentile of times in milliseconds."""

    median: float | None
    p95: float | None


class Times(TypedDict):
    """Response times, times between trials, and times on the network."""

    response: Quantiles
    wait: Quantiles
    network: Quantiles


class Share(TypedDict):
    """A count, and its share of all answers."""

    count: int
    share: float


class BackendState(TypedDict):
    """Whether the learning process runs."""

    alive: bool
    workers: int
    errors: list[str]


#: A sampler with the numbers of its newest generation. Its held-out accuracy, `accuracy`, is on `judged` answers to
#: random queries, when there were `evaluated` answers in all.
SamplerRow = TypedDict(
    "SamplerRow",
    {
        "name": str,
        "class": str,
        "active": bool,
        "share": float,
        "answers": int,
        "queue": int,
        "pending": int,
        "fallbacks": int,
        "generation": float | None,
        "absorbed": float | None,
        "accuracy": float | None,
        "accuracy_low": float | None,
        "accuracy_high": float | None,
        "judged": int,
        "evaluated": int,
        "ceiling": float | None,
        "loss": float | None,
        "refit_ms": float | None,
        "search_ms": float | None,
        "published_ms": float | None,
        "held_total": float | None,
    },
)


class Series(TypedDict):
    """Answers over time: rows of the start of the bin (ms), answers, first answers and completions."""

    minutes: int
    rows: list[list[float]]


class Histograms(TypedDict):
    """Rows of [from (ms), to (ms), count]."""

    response: list[list[float]]
    wait: list[list[float]]


class TargetsAsked(TypedDict):
    """For each target, how often it was the head, a foot, and the winner."""

    head: list[int]
    foot: list[int]
    won: list[int]


class VerdictRow(TypedDict):
    """The first line of the overview, and the button that follows from it."""

    level: Literal["good", "info", "warning", "error"]
    what: str
    why: str
    action: Literal["", "open", "close", "invite"]


class OverviewReply(TypedDict):
    """The overview of an experiment, which the stream sends, too."""

    slug: str
    title: str
    state: State
    revision: int
    now_ms: int
    opened_ms: int
    targets: int
    answers: AnswersTile
    participants: ParticipantsTile
    times: Times
    fallbacks: Share
    late: int
    types: dict[str, int]
    backend: BackendState
    samplers: list[SamplerRow]
    server: list[Latency]
    series: Series
    histograms: Histograms
    targets_asked: TargetsAsked
    verdict: VerdictRow
    sentences: list[Sentence]


#: A series over time has at most this many bins; a bin is one of these many minutes.
MOST_BINS = 240
_BIN_MINUTES = (1, 2, 5, 10, 15, 30, 60, 120, 240, 480, 720, 1440)
#: The rate of answers is that of the last so many minutes.
RECENT_MINUTES = 30
#: Shares that an experimenter should look at.
MANY_FALLBACKS = 0.02
MANY_LATE = 0.05
#: Reports that a file could not be shown from which on it is named: so many, and so many for each participant.
FEWEST_UNLOADED = 3
MANY_UNLOADED = 0.05
#: Files of targets that are named.
_MOST_FILES = 10


def overview(seen: OverviewInputs) -> OverviewReply:
    """Return the page's numbers, series and sentences."""
    counts, state = seen.counts, seen.state
    total = state.counters.get("answers", 0)
    fallbacks = counts.types.get("fallback", 0)
    said = sentences(seen, fallbacks=fallbacks, total=total)
    line = verdict(seen, said, total=total)
    # An import says when its answers began, and is created later.
    since_ms = max(state.opened_ms, state.created_ms)
    rate = _rate_a_minute(counts, since_ms=since_ms, now_ms=seen.now_ms) if state.state == "open" else 0.0
    goal = goal_of(seen)
    return {
        "slug": state.slug,
        "title": seen.spec.title,
        "state": state.state,
        "revision": state.revision,
        "now_ms": seen.now_ms,
        "opened_ms": state.opened_ms,
        "targets": seen.n,
        "answers": {
            "total": total,
            "a_minute": round(rate, 2),
            "goal": goal.answers,
            "goal_is": goal.label,
            "goal_from": goal.sentence,
            "to_go": max(0, goal.answers - total),
            "finish_ms": _finish_ms(goal.answers - total, rate, seen.now_ms),
        },
        "participants": {
            "arrived": seen.arrived,
            "began": sum(counts.get("began").values()),
            "completed": sum(counts.get("completed").values()),
            "held": seen.places.held,
            "wanted": wanted_participants(seen.spec),
        },
        "times": {
            "response": _quantiles(counts, "rt"),
            "wait": _quantiles(counts, "wait"),
            "network": _quantiles(counts, "net"),
        },
        "fallbacks": {"count": fallbacks, "share": _share(fallbacks, total)},
        "late": counts.late,
        "types": dict(counts.types),
        "backend": _backend(seen),
        "samplers": [_sampler(view, seen) for view in seen.samplers],
        "server": list(seen.latencies),
        "series": _series(counts),
        "histograms": {"response": _histogram(counts, "rt"), "wait": _histogram(counts, "wait")},
        "targets_asked": {
            "head": _of_each(counts, "head", seen.n),
            "foot": _of_each(counts, "foot", seen.n),
            "won": _of_each(counts, "won", seen.n),
        },
        "verdict": {"level": line.level, "what": line.what, "why": line.why, "action": line.action},
        "sentences": said,
    }


def sentences(seen: OverviewInputs, *, fallbacks: int, total: int) -> list[Sentence]:
    """Return what needs attention, most urgent first; an empty list is good news."""
    found: list[Sentence] = []
    has_active = any(view.active for view in seen.samplers)
    found += [
        make_sentence("warning", sentence, "It was accepted when this experiment was created, but it has no effect.")
        for sentence in unbuilt_values(seen.spec).values()
    ]
    found += [
        make_sentence(
            "error", problem, "Participants do not see it. Upload the same file again, or restore it from a backup."
        )
        for problem in seen.media_problems[:_MOST_FILES]
    ]
    found += unloaded(seen)
    found += [make_sentence("warning", problem, "The file names it under notify.") for problem in seen.message_problems]
    found += [
        *ended_by_itself(seen.state),
        *full(seen.spec, seen.state, seen.places),
        *opens_later(seen.spec, seen.state, now_ms=seen.now_ms),
        *careless(seen.proposed),
        *retention(seen.state.counters),
    ]
    if seen.heartbeat is None and has_active and seen.state.state == "open":
        found.append(
            make_sentence(
                "error",
                "The learning process is not running.",
                "Participants get random queries until it runs again. No answers are lost. Check the server's log.",
            )
        )
    if seen.heartbeat is not None:
        found += [
            make_sentence("error", f"{error}.".replace("..", "."), "Salmon retries this automatically.")
            for error in seen.heartbeat.errors
        ]
    if total >= 10 * seen.n and fallbacks > MANY_FALLBACKS * total:
        found.append(
            make_sentence(
                "warning",
                f"{_percent(fallbacks, total)} of the answers are to random queries that stood in for better ones.",
                "The search or the connection was too slow. Invite fewer participants at a time, or add workers.",
            )
        )
    if total > 100 and seen.counts.late > MANY_LATE * total:
        found.append(
            make_sentence(
                "warning",
                f"{_percent(seen.counts.late, total)} of the answers came more than ten minutes after their query.",
                "Participants may have been interrupted, or their connections may be poor.",
            )
        )
    asked = seen.counts.get("head")
    if total > 20 * seen.n and (never := [target for target in range(seen.n) if not asked.get(target)]):
        found.append(
            make_sentence(
                "warning",
                f"Targets that were never the head of a query: {len(never)} of {seen.n}.",
                "See the figure of answers per target.",
            )
        )
    return sorted(found, key=lambda sentence: sentence["level"] != "error")


def unloaded(seen: OverviewInputs) -> list[Sentence]:
    """Return which targets could not be loaded or shown on pages of participants, the most frequent first.

    A few reports of many participants are poor connections.
    """
    counted = seen.counts.get("load_failed")
    fewest = max(FEWEST_UNLOADED, MANY_UNLOADED * seen.arrived)
    failed = [target for target, count in counted.items() if count >= fewest and target < len(seen.targets)]
    failed.sort(key=lambda target: -counted[target])
    return [
        make_sentence(
            "error",
            f"{shown(seen.targets[target].filename)} could not be shown: pages reported it {counted[target]:,} times.",
            "Participants are offered to go on without it, and then give no answers about it."
            " Look at the file and replace it; if it is right, their connections may be poor.",
            page="targets",
            link="Look at the targets",
        )
        for target in failed[:_MOST_FILES]
    ]


def _backend(seen: OverviewInputs) -> BackendState:
    beat = seen.heartbeat
    if beat is None:
        return {"alive": False, "workers": 0, "errors": []}
    return {"alive": True, "workers": beat.workers, "errors": list(beat.errors)}


def _sampler(view: SamplerView, seen: OverviewInputs) -> SamplerRow:
    numbers: Mapping[str, float] = view.last.numbers if view.last else {}
    counters, held_out = seen.state.counters, view.held_out
    return {
        "name": view.name,
        "class": view.sampler_class,
        "active": view.active,
        "share": seen.spec.probabilities.get(view.name, 0),
        "answers": counters.get(f"answers:{view.name}", 0),
        "queue": view.listed,
        "pending": view.pending,
        "fallbacks": counters.get(f"fallbacks:{view.name}", 0),
        "generation": numbers.get("generation"),
        "absorbed": numbers.get("absorbed"),
        "accuracy": held_out.accuracy if held_out else None,
        "accuracy_low": held_out.low if held_out else None,
        "accuracy_high": held_out.high if held_out else None,
        "judged": held_out.judged if held_out else 0,
        "evaluated": held_out.answers if held_out else 0,
        "ceiling": numbers.get("ceiling"),
        "loss": numbers.get("loss"),
        "refit_ms": numbers.get("refit_ms"),
        "search_ms": numbers.get("search_ms"),
        "published_ms": numbers.get("published_ms"),
        "held_total": numbers.get("held_total"),
    }


#: The numbers of a generation that figures are drawn from, in the order of a point.
POINT = (
    "generation",
    "absorbed",
    "accuracy",
    "accuracy_low",
    "accuracy_high",
    "ceiling",
    "loss",
    "refit_ms",
    "search_ms",
    "published_ms",
    "held_total",
)


def points_of(lines: Sequence[HistoryLine]) -> list[list[float | None]]:
    """Return generations as rows of `POINT`; what was not known then is None."""
    return [[line.numbers.get(name) for name in POINT] for line in lines]


def _rate_a_minute(counts: Counts, *, since_ms: int, now_ms: int) -> float:
    """Return answers a minute: of the last half hour, since the first of its answers came.

    Answers from before `since_ms` are those of an import, which says nothing about the pace. So may those of that
    minute be: only the minutes after it count.
    """
    now = now_ms // MINUTE_MS
    first = max(now - RECENT_MINUTES + 1, -(-since_ms // MINUTE_MS))
    recent = {minute: count for minute, count in counts.get("minute").items() if first <= minute <= now}
    return sum(recent.values()) / max(1, now - min(recent) + 1) if recent else 0.0


def _finish_ms(to_go: int, rate: float, now_ms: int) -> int | None:
    """Return when the goal is reached at this rate; None when nobody answers, or it is reached."""
    return now_ms + round(to_go / rate * MINUTE_MS) if rate > 0 and to_go > 0 else None


def _series(counts: Counts) -> Series:
    """Return answers, first answers and completions over time: rows [start of the bin
    (ms), answers, began, completed].
    """
    minutes = counts.get("minute")
    if not minutes:
        return {"minutes": 1, "rows": []}
    first, last = min(minutes), max((*minutes, *counts.get("completed")))
    fitting = (width for width in _BIN_MINUTES if (last - first) / width < MOST_BINS)
    width = next(fitting, ceil((last - first) / MOST_BINS))
    rows: dict[int, list[int]] = {}
    for column, kind in enumerate(("minute", "began", "completed")):
        for minute, count in counts.get(kind).items():
            rows.setdefault(minute // width, [0, 0, 0])[column] += count
    places = range(first // width, last // width + 1)
    return {"minutes": width, "rows": [[place * width * MINUTE_MS, *rows.get(place, [0, 0, 0])] for place in places]}


def _histogram(counts: Counts, kind: str) -> list[list[float]]:
    """Return rows [from (ms), to (ms), count] of every bin between the first and the last that has any."""
    counted = counts.get(kind)
    if not counted:
        return []
    return [
        [round(bin_start_ms(place), 1), round(bin_start_ms(place + 1), 1), counted.get(place, 0)]
        for place in range(min(counted), max(counted) + 1)
    ]


def _quantiles(counts: Counts, kind: str) -> Quantiles:
    return {"median": counts.quantile_ms(kind, 0.5), "p95": counts.quantile_ms(kind, 0.95)}


def _of_each(counts: Counts, kind: str, n: int) -> list[int]:
    counted = counts.get(kind)
    return [counted.get(target, 0) for target in range(n)]


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _percent(part: int, whole: int) -> str:
    return f"{100 * _share(part, whole):.1f} %"
