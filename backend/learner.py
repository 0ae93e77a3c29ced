"""The learning state of one active sampler: starts the tasks that the plan asks for and publishes their outcomes.

All methods run in the service's thread. The tasks run on the workers, and their outcomes come back through `finish`.
After a crash `resume` continues from what was published last.

All learners of an experiment share one `AnswerLog`: every triplet is in it once, in the order of the stream.
`LiveAccuracy` is the share of answers to random queries that the model published before them predicted rightly.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isnan, sqrt
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from backend.plan import Evaluate, Progress, Rate, Refit, Report, Rest, Search, Step, Timed, next_steps, queries_wanted
from backend.store import Store, StoredModel
from salmon.learning.features import Features
from salmon.learning.objective import compared_distances
from salmon.logs import fields
from salmon.records import DRAWN_BLINDLY, NEVER_FITTED, NO_TRIPLETS, REPEATABLE, Answer, Query
from salmon.samplers.registry import ActiveSampler
from salmon.samplers.state import Round, State, random_round
from salmon.wire import encode_array
from salmon.wire.answer_pages import AnswerColumns
from salmon.wire.keys import place_of

#: Rows of a block: large enough that sending a block only once pays off, small enough that the tail stays short.
BLOCK = 4096

Rows = NDArray[np.int32]


@dataclass(frozen=True)
class Entry:
    """A triplet among the answers, with its stream id.

    `predicted` says that its query was drawn uniformly and served by this program, so that a model published before can
    predict it: answers that an import brings are fitted in one go. `repeatable` says that it can show how much people
    agree (see `salmon.records.REPEATABLE`). Where it is not `fitted`, that is all that it is used for. `sampler` is
    whose query it answers, and `participant` who gave it. `random` says that its query was chosen without looking at
    any answer, so that accuracy on it is unbiased.
    """

    stream_id: str
    sampler: str
    triplet: tuple[int, int, int]
    predicted: bool
    repeatable: bool
    fitted: bool = True
    participant: str = ""
    random: bool = False


def to_entry(stream_id: str, answer: Answer, *, tests: frozenset[str]) -> Entry | None:
    """Return the entry of an answer, or None for catch and practice trials and for samplers marked `test`."""
    served = answer.served
    if served.trial_type in NO_TRIPLETS or served.sampler in tests:
        return None
    return Entry(
        stream_id,
        served.sampler,
        (served.head, answer.winner, answer.loser),
        served.trial_type in {"random", "held_out"} and answer.signed,
        served.trial_type in REPEATABLE,
        served.trial_type not in NEVER_FITTED,
        served.participant,
        served.trial_type in DRAWN_BLINDLY,
    )


def to_entries(columns: AnswerColumns, *, tests: frozenset[str]) -> Iterator[Entry]:
    """Yield the entries of a page of answers: what `to_entry` returns for each of them, but None."""
    given = zip(
        columns.stream_ids,
        *map(columns.column, ("sampler", "trial_type", "participant", "head", "left", "right", "winner", "signed")),
        strict=True,
    )
    for stream_id, sampler, trial_type, participant, head, left, right, winner, signed in given:
        if trial_type not in NO_TRIPLETS and sampler not in tests:
            yield Entry(
                stream_id,
                sampler,
                (head, winner, right if winner == left else left),
                trial_type in {"random", "held_out"} and signed,
                trial_type in REPEATABLE,
                trial_type not in NEVER_FITTED,
                participant,
                trial_type in DRAWN_BLINDLY,
            )


@dataclass
class AnswerLog:
    """All triplets so far, as immutable blocks that are sent to the workers once, and a short tail.

    Rows are [head, winner, loser, person], and people are numbered in the order in which they first answered. `cursor`
    is the id of the last stream entry read, fitted or not.
    """

    cursor: str = "0"
    _blocks: list[Rows] = field(default_factory=list[Rows])
    _tail: list[tuple[int, int, int, int]] = field(default_factory=list[tuple[int, int, int, int]])
    _people: dict[str, int] = field(default_factory=dict[str, int])
    _repeatable: array[int] = field(default_factory=lambda: array("i"))
    _random: bytearray = field(default_factory=bytearray)

    def __len__(self) -> int:
        return BLOCK * len(self._blocks) + len(self._tail)

    def append(self, entries: Iterable[Entry]) -> None:
        """Add triplets at the end; those that are not fitted count for the noise ceiling only."""
        for entry in entries:
            if entry.fitted:
                self._tail.append((*entry.triplet, self._people.setdefault(entry.participant, len(self._people))))
                self._random.append(entry.random)
            if entry.repeatable:
                self._repeatable.extend(entry.triplet)
        while len(self._tail) >= BLOCK:
            self._blocks.append(np.array(self._tail[:BLOCK], dtype=np.int32))
            del self._tail[:BLOCK]

    def parts(self) -> tuple[tuple[Rows, ...], Rows]:
        """Return (full blocks, tail). The blocks are the same objects every time, so
        each is sent to the workers once.
        """
        return tuple(self._blocks), np.array(self._tail, dtype=np.int32).reshape(-1, 4)

    def random(self) -> NDArray[np.bool_]:
        """Return (m,) which of the triplets answer queries that were chosen without looking at any answer."""
        return np.array(self._random, dtype=np.bool_)

    def repeatable(self) -> Rows:
        """Return the triplets (m, 3) from which a noise ceiling can be estimated."""
        return np.array(self._repeatable, dtype=np.int32).reshape(-1, 3)


def no_rows() -> Rows:
    """Return no triplets."""
    return np.zeros((0, 3), np.int32)


#: Recent predictions are the later half of all, at least LEAST_RECENT and at most RECENT. The mistakes of an early
#: model say little about the present one.
LEAST_RECENT = 50
RECENT = 500
_Z = 1.959964  # 95 %


@dataclass(frozen=True)
class LiveAccuracy:
    """Predictions so far: `right` of `total` (ties count half); `recent` holds the last ones as letters r, w and t."""

    right: float = 0.0
    total: int = 0
    recent: str = ""

    def judge(self, coordinates: NDArray[np.float64], triplets: Sequence[tuple[int, int, int]]) -> LiveAccuracy:
        """Return this with the predictions of random answers by an embedding that has not seen them."""
        if not triplets:
            return self
        d2_winner, d2_loser = compared_distances(coordinates, np.array(triplets, dtype=np.int32))
        letters = "".join(np.where(d2_winner == d2_loser, "t", np.where(d2_winner < d2_loser, "r", "w")))
        return replace(
            self,
            right=self.right + letters.count("r") + letters.count("t") / 2,
            total=self.total + len(letters),
            recent=(self.recent + letters)[-RECENT:],
        )

    def numbers(self) -> dict[str, float | int | str]:
        """Return the fields to store."""
        return {"held_right": self.right, "held_total": self.total, "held_recent": self.recent}

    @staticmethod
    def of(numbers: dict[str, str]) -> LiveAccuracy:
        """Return the value of stored fields."""
        return LiveAccuracy(
            float(numbers.get("held_right", 0)), int(numbers.get("held_total", 0)), numbers.get("held_recent", "")
        )

    def recent_interval(self) -> tuple[float, float, float]:
        """Return (accuracy, low, high) of the recent predictions with Wilson's 95 % interval; NaN before the first."""
        recent = self.recent[-max(LEAST_RECENT, self.total // 2) :]
        count = len(recent)
        if not count:
            return float("nan"), float("nan"), float("nan")
        share = (recent.count("r") + recent.count("t") / 2) / count
        middle = (share + _Z**2 / (2 * count)) / (1 + _Z**2 / count)
        half = _Z / (1 + _Z**2 / count) * sqrt(share * (1 - share) / count + _Z**2 / (4 * count**2))
        return share, middle - half, middle + half


log = logging.getLogger("salmon.learner")

Kind = Literal["refit", "search", "report", "evaluate"]
#: A history line carries coordinates if the answers have grown by this factor since the last one that did: about 200
#: such lines from the first answer to a million.
_THINNING = 1.06
#: The reported embedding predicts answers while it has seen at least this share of the answers in the newest model.
_FRESH = 0.95


@dataclass(frozen=True)
class LearningTask:
    """A refit, search, report or evaluation to run on the workers, with the answers that the log holds when it starts.

    `left_out` are the numbers of people whose answers are not fitted.
    """

    kind: Kind
    learner: Learner
    state: State
    left_out: tuple[int, ...] = ()
    pending: Rows = field(default_factory=no_rows)
    count: int = 0
    enough: int = 0
    repeatable: Rows = field(default_factory=no_rows)
    random: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))


@dataclass(frozen=True)
class Model:
    """A sampler's state, the cursor of the last answer it has seen, and the live accuracy at that cursor."""

    state: State
    cursor: str
    live_accuracy: LiveAccuracy


class Learner:
    """The learner of one active sampler.

    `start_task(task)` returns at once; the outcome comes back through `finish` or `fail`.
    """

    def __init__(
        self,
        store: Store,
        *,
        experiment: str,
        name: str,
        sampler: ActiveSampler,
        n: int,
        seed: int,
        features: Features | None,
        fence: int,
        fitted: frozenset[str],
        answers: AnswerLog,
        start_task: Callable[[LearningTask], None],
        now_ms: Callable[[], int],
    ) -> None:
        self.experiment = experiment
        self.name = name
        self.sampler = sampler
        self.n = n
        self.fitted = fitted
        self.answers = answers
        self.stale = False  # another backend has taken over
        self.replaying = True  # the log does not hold all answers yet
        self.error = ""
        self._store = store
        self._fence = fence
        self._hand_out = start_task
        self._now_ms = now_ms
        self._timed: dict[Kind, Timed] = {kind: Timed() for kind in ("refit", "search", "report", "evaluate")}
        self._model = Model(replace(sampler.start(n, seed), features=features), "0", LiveAccuracy())
        self._candidate = self._model  # replaced by the outcome of the running refit
        self._searched = -1
        self._reported: NDArray[np.float64] | None = None
        self._reported_to = 0
        self._reporting_to = 0
        self._evaluated = 0
        self._evaluating = 0
        self._ceiling = self._ceiling_high = float("nan")
        self._left_out: tuple[int, ...] = ()
        self._live_accuracy = LiveAccuracy()
        self._answered = Rate()
        self._taken = Rate()
        self._listed = 0
        self._thinned_at = 0
        self._was_cut = False
        self._resumed_after = (0, 0)
        self._begins_again = False

    def resume(self, stored: StoredModel | None) -> None:
        """Restore what was published last."""
        if stored is None:
            return
        numbers = stored.numbers
        start = self._model.state
        known = min(len(stored.coordinates), self.n)
        coordinates = start.coordinates.copy()
        if stored.coordinates.shape[1] == start.d:
            coordinates[:known] = stored.coordinates[:known]
        state = replace(
            start,
            coordinates=coordinates,
            generation=int(numbers["generation"]),
            absorbed=int(numbers["absorbed"]),
            loss=float(numbers["loss"]),
        )
        self._live_accuracy = LiveAccuracy.of(numbers)
        self._model = Model(state, numbers["cursor"], self._live_accuracy)
        self._thinned_at = int(numbers.get("thinned_at", 0))
        self._evaluated = int(numbers.get("evaluated", 0))
        self._reported = stored.reported if stored.reported is not None and len(stored.reported) == self.n else None
        self._resumed_after = place_of(numbers["cursor"])

    def is_stale(self, task: LearningTask, found: int) -> bool:
        """Return whether a search that has found so many queries should stop because there is a newer model.

        They must be enough for some rounds. Where fewer queries were compared because of it, it does not happen twice
        in a row: where refits are faster than searches, no search would ever compare all.
        """
        newer = self._model.state.generation > task.state.generation
        return newer and found >= task.enough and not self._was_cut

    def seed_queue(self) -> None:
        """Publish random queries, recorded as such, if there are none yet: the workers may still be starting."""
        if self._store.count_queries(self.experiment, self.name) == 0:
            model, wanted = self._model, queries_wanted(self._progress(0.0))
            drawn = random_round(model.state, wanted, len(self.answers))
            self._publish(queries=to_queries(drawn, generation=drawn.generation, now_ms=self._now_ms()))
            if len(self.answers) == 0:
                self._searched = model.state.generation  # before any answer there is nothing better to find

    @property
    def state(self) -> State:
        """The state of the newest model."""
        return self._model.state

    def judge(self, entries: Sequence[Entry]) -> None:
        """Predict the answers to random queries; called before they are appended to the log.

        Those that the restored model has seen are not predicted again. The reported embedding predicts, unless it lags
        behind the newest model: early in a run a few dozen answers change everything. Where the learning begins again
        with many answers, as after an erasure, nothing is predicted before the first refit.
        """
        state = self._model.state
        if self.replaying and entries and state.generation == 0:
            self._begins_again = True
        if self._begins_again and state.generation == 0:
            return  # coordinates that were drawn at random would predict answers of the whole experiment
        fresh = self._reported is not None and self._reported_to >= _FRESH * state.absorbed
        shown = self._reported if self._reported is not None and fresh else state.coordinates
        unseen = [
            entry.triplet for entry in entries if entry.predicted and place_of(entry.stream_id) > self._resumed_after
        ]
        self._live_accuracy = self._live_accuracy.judge(shown, unseen)

    def note_rate(self, count: int, now: float) -> None:
        """Update the rate at which answers arrive."""
        self._answered = self._answered.add(count, now)

    def tick(self, now: float) -> float:
        """Start every task that is due; return when to call this again at the latest (monotonic seconds)."""
        while not self.stale:
            *steps, rest = next_steps(self._progress(now), now)
            for step in steps:
                self._take(step, now)
            if not steps:
                return rest.until if isinstance(rest, Rest) else inf
        return inf

    def finish(self, kind: Kind, outcome: Any, seconds: float) -> None:
        """Take over the outcome of a task and publish it."""
        # A round of random queries does not say how long it takes to choose them.
        drawn = kind == "search" and "active" not in outcome.trial_types
        self._timed[kind] = replace(self._timed[kind], running=False, seconds=0.0 if drawn else seconds, failures=0)
        self.error = ""
        match kind:
            case "refit":
                self._model = replace(self._candidate, state=outcome)
                self._publish_model()
            case "search":
                self._was_cut = not (outcome.complete or outcome.exact)
                self._publish(queries=to_queries(outcome, generation=outcome.generation, now_ms=self._now_ms()))
            case "report":
                self._reported = outcome.coordinates
                self._ceiling, self._ceiling_high = outcome.ceiling, outcome.ceiling_high
                self._reported_to, self._left_out = self._reporting_to, outcome.left_out
                weight = outcome.feature_weight
                self._publish(
                    model={
                        "left_out": len(outcome.left_out),
                        "feature_weight": float("nan") if weight is None else weight,
                        "reported": encode_array(outcome.coordinates),
                        "spread": encode_array(outcome.spread),
                        "ceiling": self._ceiling,
                        "reported_of": self._reporting_to,
                    }
                )
            case "evaluate":
                self._evaluated = self._evaluating
                self._publish(model={"evaluated": self._evaluated, **outcome})

    def fail(self, kind: Kind, error: Exception, seconds: float) -> None:
        """Record and log the failure of a task; the plan tries again after a pause."""
        failures = self._timed[kind].failures + 1
        self._timed[kind] = replace(self._timed[kind], running=False, seconds=seconds, failures=failures)
        if kind == "search":
            self._searched = min(self._searched, self._model.state.generation - 1)
        self.error = f"{self.name}: the {kind} failed ({type(error).__name__}: {error})"
        log.error(
            "learner failed",
            exc_info=error,
            extra=fields(experiment=self.experiment, sampler=self.name, work=kind, failures=failures),
        )

    def _take(self, step: Step, now: float) -> None:
        state = self._model.state
        match step:
            case Refit():
                self._candidate = Model(state, self.answers.cursor, self._live_accuracy)
                self._begin(LearningTask("refit", self, state, self._left_out), now)
            case Search(count, enough):
                self._searched = state.generation
                pending = self._store.read_pending(self.experiment, self.name, now_ms=self._now_ms())
                pending = pending[(pending < self.n).all(axis=1)]
                self._begin(LearningTask("search", self, state, self._left_out, pending, count, enough), now)
            case Report():
                self._reporting_to = len(self.answers)
                self._begin(LearningTask("report", self, state, repeatable=self.answers.repeatable()), now)
            case Evaluate():
                self._evaluating = len(self.answers)
                self._begin(LearningTask("evaluate", self, state, random=self.answers.random()), now)
            case Rest():
                pass

    def _begin(self, task: LearningTask, now: float) -> None:
        self._timed[task.kind] = replace(self._timed[task.kind], running=True, began=now)
        self._hand_out(task)

    def _progress(self, now: float) -> Progress:
        state = self._model.state
        listed = self._store.count_queries(self.experiment, self.name)
        # Participants who arrive take queries before they answer any, so the list shrinks first.
        self._taken = self._taken.add(max(0, self._listed - listed), now)
        self._listed = listed
        return Progress(
            n=self.n,
            received=len(self.answers),
            absorbed=state.absorbed,
            generation=state.generation,
            searched=self._searched,
            reported=self._reported_to,
            evaluated=self._evaluated,
            listed=listed,
            rate=max(self._taken.at(now), self._answered.at(now)),
            opening=len(self.answers) < self.sampler.R * self.n,
            replaying=self.replaying,
            refit=self._timed["refit"],
            search=self._timed["search"],
            report=self._timed["report"],
            evaluation=self._timed["evaluate"],
        )

    def _publish_model(self) -> None:
        """Publish the newest model and a history line in one call."""
        model, state = self._model, self._model.state
        accuracy, low, high = model.live_accuracy.recent_interval()
        numbers: dict[str, Any] = {
            "generation": state.generation,
            "cursor": model.cursor,
            "absorbed": state.absorbed,
            "loss": state.loss,
            "published_ms": self._now_ms(),
            "held_right": model.live_accuracy.right,
            "held_total": model.live_accuracy.total,
        }
        line = numbers | {
            "accuracy": accuracy,
            "accuracy_low": low,
            "accuracy_high": high,
            "ceiling": "" if isnan(self._ceiling) else self._ceiling,
            "ceiling_high": "" if isnan(self._ceiling_high) else self._ceiling_high,
            "refit_ms": round(1000 * self._timed["refit"].seconds, 1),
            "search_ms": round(1000 * self._timed["search"].seconds, 1),
        }
        if state.absorbed >= _THINNING * self._thinned_at:
            self._thinned_at = max(1, state.absorbed)
            shown = self._reported if self._reported is not None else state.coordinates
            line["coordinates"] = encode_array(shown.astype(np.float32))
        stored = numbers | {
            "coordinates": encode_array(state.coordinates),
            "held_recent": model.live_accuracy.recent,
            "thinned_at": self._thinned_at,
        }
        self._publish(model=stored, line=line)

    def _publish(
        self,
        *,
        queries: Sequence[Query] = (),
        model: Mapping[str, Any] | None = None,
        line: Mapping[str, Any] | None = None,
    ) -> None:
        """Publish; if another backend has taken over, nothing is written and this learner becomes stale."""
        length = self._store.publish(self.experiment, self.name, self._fence, queries=queries, model=model, line=line)
        self._listed = length or 0
        if length is None and not self.stale:
            self.stale = True
            log.warning(
                "another backend has taken over",
                extra=fields(experiment=self.experiment, sampler=self.name, fence=self._fence),
            )


def to_queries(found: Round, *, generation: int, now_ms: int) -> list[Query]:
    """Return a round as the queries to publish, best first."""
    return [
        Query(
            head=int(head),
            feet=(int(first), int(second)),
            score=float(score),
            trial_type=kind,
            probability=float(probability),
            generation=generation,
            published_ms=now_ms,
        )
        for (head, first, second), score, kind, probability in zip(
            found.queries, found.scores, found.trial_types, found.probabilities, strict=True
        )
    ]
