"""What a learner should do next: a pure function of its progress and the time.

Refits, searches, reports and evaluations overlap. Each kind of task runs at most once at a time and starts from the
newest results of the others. Nothing here waits, computes or does I/O.
"""

from dataclasses import dataclass
from math import exp, inf

#: The share of one core that refits and searches of one learner may take while answers keep coming.
DUTY = 0.5
#: The shortest time between the starts of two refits, and of two reports.
REFIT_SECONDS = 0.1
REPORT_SECONDS = 2.0
#: The same of two evaluations, which fit ten times, and the share of one core that they may take.
EVALUATION_SECONDS = 5.0
EVALUATION_DUTY = 0.1
#: A list of queries should last for this many rounds at the present rate of answers; a round takes at least so long.
ROUNDS_KEPT = 4.0
SHORTEST_ROUND_SECONDS = 0.25
#: Limits of the list's length, however few targets there are and however fast answers come.
FEWEST_QUERIES = 20
MOST_QUERIES = 5000
#: While only random queries are asked none of them goes stale: enough for many participants who arrive at once.
OPENING_QUERIES = 500
#: The pause after a failure doubles up to this.
LONGEST_PAUSE_SECONDS = 60.0


@dataclass(frozen=True)
class Timed:
    """One kind of task: whether it runs, when it last began, how long it took (0: not known), and how often it failed
    in a row.
    """

    running: bool = False
    began: float = -inf
    seconds: float = 0.0
    failures: int = 0


@dataclass(frozen=True)
class Progress:
    """The progress of a learner. Answers are counted in the order of the log.

    `received` answers may be fitted; the model has seen `absorbed` of them, the reported embedding `reported`, the
    newest evaluation `evaluated`. `searched` is the generation that the newest search used (-1: none yet). `listed`
    queries are published and not taken; `rate` is how many are used per second. `opening` means that there are so few
    answers that all queries are random, `replaying` that not all answers have been read since the start.
    """

    n: int
    received: int
    absorbed: int
    generation: int
    searched: int
    reported: int
    listed: int
    rate: float
    opening: bool = False
    refit: Timed = Timed()
    search: Timed = Timed()
    report: Timed = Timed()
    evaluation: Timed = Timed()
    evaluated: int = 0
    replaying: bool = False


@dataclass(frozen=True)
class Refit:
    """Fit the embedding to all answers received."""


@dataclass(frozen=True)
class Search:
    """Search queries with the newest model: `count` of them, or `enough` where there is a newer model by then."""

    count: int
    enough: int


@dataclass(frozen=True)
class Report:
    """Fit the embedding that the console shows."""


@dataclass(frozen=True)
class Evaluate:
    """Judge the embedding by cross-validation on the answers to random queries."""


@dataclass(frozen=True)
class Rest:
    """Nothing to do before `until` (monotonic seconds; infinity: before something happens)."""

    until: float


Step = Refit | Search | Report | Evaluate | Rest


def next_steps(progress: Progress, now: float) -> tuple[Step, ...]:
    """Return every task that should start now, and last how long to rest.

    A model that was restored has seen more answers than have been replayed: until they are there, it only searches.
    What is shown and judged waits until all answers are there.
    """
    steps: list[Step] = []
    wake = inf
    evaluation_due = may_begin(progress.evaluation, EVALUATION_SECONDS, EVALUATION_DUTY)
    for wanted, timed, due, step in (
        (_search_is_due(progress), progress.search, may_begin(progress.search, 0.0), _search(progress)),
        (progress.received > progress.absorbed, progress.refit, _refit_may_begin(progress), Refit()),
        (progress.absorbed > progress.reported, progress.report, may_begin(progress.report, REPORT_SECONDS), Report()),
        # Not before the first model: what an evaluation publishes stands beside its generation and cursor.
        (
            progress.absorbed > 0 and progress.received > progress.evaluated,
            progress.evaluation,
            evaluation_due,
            Evaluate(),
        ),
    ):
        if not wanted or timed.running or (progress.replaying and isinstance(step, (Report, Evaluate))):
            continue
        if due <= now:
            steps.append(step)
        else:
            wake = min(wake, due)
    return (*steps, Rest(wake))


def may_begin(timed: Timed, gap: float, duty: float = DUTY) -> float:
    """Return when a kind of task may start again: not before its gap, its share of a core and its failures allow."""
    if timed.failures:
        return timed.began + timed.seconds + min(LONGEST_PAUSE_SECONDS, 0.5 * 2.0**timed.failures)
    return timed.began + max(gap, timed.seconds / duty)


def queries_wanted(progress: Progress) -> int:
    """Return how many queries to publish: one for every target, or what several rounds use at the present rate."""
    wanted = max(FEWEST_QUERIES, min(MOST_QUERIES, max(progress.n, _queries_used(progress))))
    return max(wanted, OPENING_QUERIES) if progress.opening else wanted


def _queries_used(progress: Progress) -> int:
    """Return how many queries several rounds use at the present rate."""
    round_seconds = progress.refit.seconds / DUTY + progress.search.seconds
    return round(ROUNDS_KEPT * progress.rate * max(round_seconds, SHORTEST_ROUND_SECONDS))


def _search(progress: Progress) -> Search:
    """Return a search for as many queries as are wanted; the first is not cut short, since nobody
    knows how long the next takes.
    """
    wanted = queries_wanted(progress)
    return Search(wanted, max(FEWEST_QUERIES, _queries_used(progress)) if progress.search.seconds else wanted)


def _search_is_due(progress: Progress) -> bool:
    """Return whether there is a newer model, or half of the published queries are gone.

    Where there are answers enough to choose by, not before the first model has seen them.
    """
    if progress.absorbed == 0 and progress.received > 0 and not progress.opening:
        return False
    return progress.searched < progress.generation or progress.listed < queries_wanted(progress) / 2


def _refit_may_begin(progress: Progress) -> float:
    """Return when a refit may start; while the newest model waits for its search, just in time for that search."""
    due = may_begin(progress.refit, REFIT_SECONDS)
    if progress.searched < progress.generation:
        return max(due, may_begin(progress.search, 0.0) - progress.refit.seconds)
    return due


#: Events older than about this no longer count.
_RATE_SECONDS = 5.0


@dataclass(frozen=True)
class Rate:
    """Events per second as of a moment, decaying exponentially when nothing happens."""

    per_second: float = 0.0
    moment: float = -inf

    def at(self, now: float) -> float:
        """Return the rate as of now."""
        return self.per_second * exp(-(now - self.moment) / _RATE_SECONDS) if self.moment > -inf else 0.0

    def add(self, count: int, now: float) -> "Rate":
        """Return this with more events."""
        return Rate(self.at(now) + count / _RATE_SECONDS, now)
