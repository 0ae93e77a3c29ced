"""What a learner should do next: a pure function of its progress and of the time.

Refitting, searching and reporting overlap: each kind of work runs at most once at a time, and every kind starts from the
newest of what the others have published so far. Nothing here waits, computes or speaks to anybody.

How fast something comes, remembered for a few seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, inf

#: The share of one core that refits and searches of one learner may take while answers keep coming.
DUTY = 0.5
#: The shortest time between the starts of two refits, and of two reports.
REFIT_SECONDS = 0.1
REPORT_SECONDS = 2.0
#: A list of queries should last for this many rounds at the present pace of answers, a round taking at least so long.
ROUNDS_KEPT = 4.0
SHORTEST_ROUND_SECONDS = 0.25
#: However few targets there are, and however fast answers come.
FEWEST_QUERIES = 20
MOST_QUERIES = 5000
#: While only random queries are asked they cannot grow stale: enough for a crowd that arrives at once.
OPENING_QUERIES = 500
#: The pause after a failure doubles up to this.
LONGEST_PAUSE_SECONDS = 60.0


@dataclass(frozen=True)
class Timed:
    """One kind of work of a learner: whether it runs, when it last began, how long it takes, how often it failed in a row."""

    running: bool = False
    began: float = -inf
    seconds: float = 0.0
    failures: int = 0


@dataclass(frozen=True)
class Progress:
    """How far a learner is. Answers are counted in the order of the log.

    `received` answers may be fitted; the model has seen `absorbed` of them, the reported embedding `reported`.
    `searched` is the generation that the newest search used (-1: none yet). `listed` queries are published and not
    taken; `pace` is how many are used a second. `opening`: so few answers are in that only random queries are asked.
    """

    n: int
    received: int
    absorbed: int
    generation: int
    searched: int
    reported: int
    listed: int
    pace: float
    opening: bool = False
    refit: Timed = Timed()
    search: Timed = Timed()
    report: Timed = Timed()


@dataclass(frozen=True)
class Refit:
    """Fit the embedding to all answers received."""


@dataclass(frozen=True)
class Search:
    """Search queries with the newest model; `count` of them."""

    count: int


@dataclass(frozen=True)
class Report:
    """Fit the embedding that is shown."""


@dataclass(frozen=True)
class Rest:
    """Nothing to do before `until` (monotonic seconds; infinity: before something happens)."""

    until: float


Step = Refit | Search | Report | Rest


def next_steps(progress: Progress, now: float) -> tuple[Step, ...]:
    """Everything that should begin now, and last how long to rest."""
    steps: list[Step] = []
    wake = inf
    for wanted, timed, due, step in (
        (_search_is_due(progress), progress.search, may_begin(progress.search, 0.0), Search(queries_wanted(progress))),
        (progress.received > progress.absorbed, progress.refit, _refit_may_begin(progress), Refit()),
        (progress.absorbed > progress.reported, progress.report, may_begin(progress.report, REPORT_SECONDS), Report()),
    ):
        if not wanted or timed.running:
            continue
        if due <= now:
            steps.append(step)
        else:
            wake = min(wake, due)
    return (*steps, Rest(wake))


def may_begin(timed: Timed, gap: float) -> float:
    """When a kind of work may begin again: not sooner than its gap, its share of a core and its failures allow."""
    if timed.failures:
        return timed.began + timed.seconds + min(LONGEST_PAUSE_SECONDS, 0.5 * 2.0**timed.failures)
    return timed.began + max(gap, timed.seconds / DUTY)


def queries_wanted(progress: Progress) -> int:
    """How long a list should be: a query for every target, or what several rounds use up at the present pace."""
    round_seconds = progress.refit.seconds / DUTY + progress.search.seconds
    used = ROUNDS_KEPT * progress.pace * max(round_seconds, SHORTEST_ROUND_SECONDS)
    wanted = max(FEWEST_QUERIES, min(MOST_QUERIES, max(progress.n, round(used))))
    return max(wanted, OPENING_QUERIES) if progress.opening else wanted


def _search_is_due(progress: Progress) -> bool:
    """A newer model is there, or the list runs short: half of it is gone."""
    return progress.searched < progress.generation or progress.listed < queries_wanted(progress) / 2


def _refit_may_begin(progress: Progress) -> float:
    """While the newest model still waits for its search, the next one is fitted just in time for that search."""
    due = may_begin(progress.refit, REFIT_SECONDS)
    if progress.searched < progress.generation:
        return max(due, may_begin(progress.search, 0.0) - progress.refit.seconds)
    return due


#: The pace is remembered for about this long.
_PACE_SECONDS = 5.0


@dataclass(frozen=True)
class Pace:
    """Events a second, as remembered at a moment; it fades when nothing happens."""

    per_second: float = 0.0
    moment: float = -inf

    def at(self, now: float) -> float:
        """What is left of it by now."""
        return self.per_second * exp(-(now - self.moment) / _PACE_SECONDS) if self.moment > -inf else 0.0

    def add(self, count: int, now: float) -> Pace:
        """With these events."""
        return Pace(self.at(now) + count / _PACE_SECONDS, now)
