"""The overview of an experiment, as pure functions of its counters, state and history."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, log2
from typing import Any

from frontend.metrics import Latency
from frontend.store.answers import MINUTE_MS, Counts, bin_start_ms
from frontend.store.experiments import ExperimentState
from frontend.store.models import HistoryLine
from salmon.spec import Spec
from salmon.spec.consistency import unbuilt_values
from salmon.wire import Heartbeat

Json = dict[str, Any]

#: A series over time has at most this many bins; a bin is one of these many minutes.
MOST_BINS = 240
_BIN_MINUTES = (1, 2, 5, 10, 15, 30, 60, 120, 240, 480, 720, 1440)
#: The rate of answers is that of the last so many minutes.
RECENT_MINUTES = 30
#: Answers that are usually enough, in units of n·d·log2 n, where all queries are random, and how much of that a sampler
#: that chooses its queries needs (docs/efficiency.md).
ENOUGH_RANDOM = 10
SHARE_ACTIVE = 0.55
#: Shares that an experimenter should look at.
MANY_FALLBACKS = 0.02
MANY_LATE = 0.05


@dataclass(frozen=True)
class SamplerView:
    """What is known of one sampler: how many queries are listed and pending, and its newest generation."""

    name: str
    sampler_class: str
    active: bool
    listed: int
    pending: int
    last: HistoryLine | None


@dataclass(frozen=True)
class OverviewInputs:
    """Everything that the overview is made of, as it was read at `now_ms`."""

    state: ExperimentState
    spec: Spec
    n: int
    counts: Counts
    arrived: int
    samplers: tuple[SamplerView, ...]
    heartbeat: Heartbeat | None
    now_ms: int
    latencies: tuple[Latency, ...] = ()


def overview(seen: OverviewInputs) -> Json:
    """Return the page's numbers, series and sentences."""
    counts, state = seen.counts, seen.state
    total = state.counters.get("answers", 0)
    fallbacks = sum(count for name, count in state.counters.items() if name.startswith("fallbacks:"))
    rate = _rate_a_minute(counts, seen.now_ms)
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
        },
        "times": {
            name: {share: counts.quantile_ms(kind, value) for share, value in (("median", 0.5), ("p95", 0.95))}
            for name, kind in (("response", "rt"), ("wait", "wait"), ("network", "net"))
        },
        "fallbacks": {"count": fallbacks, "share": _share(fallbacks, total)},
        "late": counts.late,
        "types": dict(counts.types),
        "backend": _backend(seen),
        "samplers": [_sampler(view, seen) for view in seen.samplers],
        "server": [vars(latency) for latency in seen.latencies],
        "series": _series(counts),
        "histograms": {name: _histogram(counts, kind) for name, kind in (("response", "rt"), ("wait", "wait"))},
        "targets_asked": {
            kind: [counts.get(kind).get(target, 0) for target in range(seen.n)] for kind in ("head", "foot", "won")
        },
        "sentences": sentences(seen, fallbacks=fallbacks, total=total),
    }


@dataclass(frozen=True)
class Goal:
    """How many answers are wanted, and where that number comes from."""

    answers: int
    label: str
    sentence: str


def goal_of(seen: OverviewInputs) -> Goal:
    """Return the experimenter's own goal, or a rule of thumb where the file names none."""
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
    d = seen.spec.sampling.common.get("d", 2)
    unit = seen.n * int(d if isinstance(d, int) else 2) * log2(max(2, seen.n))
    active = any(view.active for view in seen.samplers)
    wanted = ceil(ENOUGH_RANDOM * unit * (SHARE_ACTIVE if active else 1.0))
    return Goal(
        wanted,
        "rule of thumb",
        f"Rule of thumb for {seen.n:,} targets in {d} dimensions. The accuracy figure is a better guide.",
    )


def sentences(seen: OverviewInputs, *, fallbacks: int, total: int) -> list[Json]:
    """Return what needs attention, most urgent first; an empty list is good news."""
    found: list[Json] = []
    has_active = any(view.active for view in seen.samplers)
    found += [
        _sentence("warning", sentence, "It was accepted when this experiment was created, but it has no effect.")
        for sentence in unbuilt_values(seen.spec).values()
    ]
    if seen.heartbeat is None and has_active and seen.state.state == "open":
        found.append(
            _sentence(
                "error",
                "The learning process is not running.",
                "Participants get random queries until it runs again. No answers are lost. Check the server's log.",
            )
        )
    if seen.heartbeat is not None:
        found += [
            _sentence("error", f"{error}.".replace("..", "."), "Salmon retries this automatically.")
            for error in seen.heartbeat.errors
        ]
    if total >= 10 * seen.n and fallbacks > MANY_FALLBACKS * total:
        found.append(
            _sentence(
                "warning",
                f"{_percent(fallbacks, total)} of the queries were random because the queue was empty.",
                "Invite fewer participants at a time or add workers, so that the search keeps up.",
            )
        )
    if total > 100 and seen.counts.late > MANY_LATE * total:
        found.append(
            _sentence(
                "warning",
                f"{_percent(seen.counts.late, total)} of the answers came more than ten minutes after their query.",
                "Participants may have been interrupted, or their connections may be poor.",
            )
        )
    asked = seen.counts.get("head")
    if total > 20 * seen.n and (never := [target for target in range(seen.n) if not asked.get(target)]):
        found.append(
            _sentence(
                "warning",
                f"Targets that were never the head of a query: {len(never)} of {seen.n}.",
                "See the figure of answers per target.",
            )
        )
    return sorted(found, key=lambda sentence: sentence["level"] != "error")


def _sentence(level: str, what: str, hint: str) -> Json:
    return {"level": level, "what": what, "hint": hint}


def _backend(seen: OverviewInputs) -> Json:
    beat = seen.heartbeat
    if beat is None:
        return {"alive": False, "workers": 0, "errors": []}
    return {"alive": True, "workers": beat.workers, "errors": list(beat.errors)}


def _sampler(view: SamplerView, seen: OverviewInputs) -> Json:
    numbers: Mapping[str, float] = view.last.numbers if view.last else {}
    counters = seen.state.counters
    return {
        "name": view.name,
        "class": view.sampler_class,
        "active": view.active,
        "share": seen.spec.probabilities.get(view.name, 0),
        "answers": counters.get(f"answers:{view.name}", 0),
        "queue": view.listed,
        "pending": view.pending,
        "fallbacks": counters.get(f"fallbacks:{view.name}", 0),
        **{name: numbers.get(name) for name in POINT},
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


def _rate_a_minute(counts: Counts, now_ms: int) -> float:
    """Return answers a minute: of the last half hour, since the first of its answers came."""
    now = now_ms // MINUTE_MS
    recent = {minute: count for minute, count in counts.get("minute").items() if now - RECENT_MINUTES < minute <= now}
    return sum(recent.values()) / max(1, now - min(recent) + 1) if recent else 0.0


def _finish_ms(to_go: int, rate: float, now_ms: int) -> int | None:
    """Return when the goal is reached at this rate; None when nobody answers, or it is reached."""
    return now_ms + round(to_go / rate * MINUTE_MS) if rate > 0 and to_go > 0 else None


def _series(counts: Counts) -> Json:
    """Return answers, first answers and completions over time: rows [start of the bin (ms), answers, began, completed]."""
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


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _percent(part: int, whole: int) -> str:
    return f"{100 * _share(part, whole):.1f} %"
