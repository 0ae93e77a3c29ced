"""Follows every open experiment and gives each its turn.

Two things wake it: the streams (new answers, new experiments), read by one thread that sleeps in Redis, and work that is
done. All decisions are made in one thread, so nothing here needs a lock.

Says every few seconds that the backend lives, and how it is, until told to stop.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from backend.experiment import Experiment, open_experiment
from backend.jobs import Jobs
from backend.learner import Piece
from backend.store import Entries, Followed, Store
from backend.workers import Workshop
from salmon.errors import SalmonError, StoreError
from salmon.logs import fields
from salmon.parallel import Executor
from salmon.wire import REQUESTS, Heartbeat, Keys, Request, decode_answer

log = logging.getLogger("salmon.backend")

#: How long the reader sleeps in Redis when nothing happens; an entry wakes it at once.
SLEEP_MS = 1000
#: The pause after the store did not answer.
RETRY_SECONDS = 1.0


@dataclass(frozen=True)
class _Read:
    """Entries of the streams; the reader waits until they have been taken, so that its cursors are up to date."""

    entries: dict[str, Entries]
    taken: threading.Event


@dataclass(frozen=True)
class _Done:
    """A piece of work has come back."""

    piece: Piece
    outcome: Any
    seconds: float


class Service:
    """The loop of the learning process."""

    def __init__(
        self,
        store: Store,
        open_executor: Callable[[], Executor],
        *,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._store = store
        self._now_ms = now_ms
        self._started_ms = now_ms()
        self._events: queue.SimpleQueue[_Read | _Done | StoreError | None] = queue.SimpleQueue()
        self._workshop = Workshop(open_executor, self._note_done)
        self._jobs = Jobs(store, self._workshop.executor, self._workshop.recover, now_ms=now_ms)
        self._experiments: dict[str, Experiment] = {}
        self._unusable: dict[str, str] = {}
        self._requests = "0"
        self._reading = 0  # which reader is the present one
        self._reader: threading.Thread | None = None
        self._stopping = False
        self._away = ""

    def run(self) -> None:
        """Follow the experiments until `stop` is called; when the store is away, wait for it and begin anew."""
        while not self._stopping:
            try:
                self.begin()
                self._away = ""
                wake = 0.0
                while not self._stopping:
                    wake = self.step(wake)
            except StoreError as error:
                if not self._away:
                    log.error("store away", extra=fields(error=str(error)))
                self._away = str(error)
                self._forget()
                time.sleep(RETRY_SECONDS)
        self.close()

    def close(self) -> None:
        """Let go of everything; what was not published is done again by the next service."""
        self._stopping = True
        self._forget()
        if self._reader is not None:
            self._reader.join(2 * SLEEP_MS / 1000)
        self._jobs.close()
        self._workshop.close()

    def stop(self) -> None:
        """Return from `run` soon; safe inside a signal handler."""
        self._stopping = True
        self._events.put(None)

    def begin(self) -> None:
        """Take over what is open, and start to read."""
        self._requests = self._store.last_request()
        self._follow()
        self._jobs.take(self._store.unended_requests())
        self._reading += 1
        self._reader = threading.Thread(target=self._read, args=(self._reading,), name="reader", daemon=True)
        self._reader.start()

    def step(self, wake: float) -> float:
        """Take one event, or rest until `wake`; then give every learner its turn. Returns when to wake next."""
        try:
            event = self._events.get(timeout=max(0.0, min(wake - time.monotonic(), SLEEP_MS / 1000)))
        except queue.Empty:
            event = None
        match event:
            case _Read(entries, taken):
                try:
                    self._take(entries)
                finally:
                    taken.set()
            case _Done(piece, outcome, seconds):
                self._take_outcome(piece, outcome, seconds)
            case StoreError():
                raise event
            case None:
                pass
        now = time.monotonic()
        learners = [learner for item in self._experiments.values() for learner in item.learners.values()]
        return min((learner.turn(now) for learner in learners), default=inf)

    def report(self) -> Heartbeat:
        """How this backend is."""
        learners = [learner for item in list(self._experiments.values()) for learner in list(item.learners.values())]
        errors = [self._away, *self._unusable.values(), *(learner.error for learner in learners)]
        return Heartbeat(
            started_ms=self._started_ms,
            beat_ms=self._started_ms,
            experiments=len(self._experiments),
            learners=len(learners),
            workers=self._workshop.workers,
            errors=tuple(error for error in errors if error),
        )

    @property
    def experiments(self) -> dict[str, Experiment]:
        """What is followed, by experiment."""
        return dict(self._experiments)

    def _read(self, number: int) -> None:
        """The reader's thread: sleeps in Redis and hands over what came, until it fails or another one is present."""
        while not self._stopping and number == self._reading:
            cursors = {REQUESTS: self._requests}
            cursors |= {Keys(e).answers: item.cursor for e, item in list(self._experiments.items())}
            try:
                found = self._store.wait(cursors, at_most_ms=SLEEP_MS)
            except StoreError as error:
                self._events.put(error)
                return
            if found:
                taken = threading.Event()
                self._events.put(_Read(found, taken))
                while not taken.wait(SLEEP_MS / 1000) and not self._stopping and number == self._reading:
                    pass

    def _take(self, entries: dict[str, Entries]) -> None:
        announced = entries.pop(REQUESTS, [])
        if announced:
            self._requests = announced[-1][0]
        by_stream = {Keys(e).answers: item for e, item in self._experiments.items()}
        for stream, page in entries.items():
            item = by_stream.get(stream)
            if item is not None:
                experiment = item.followed.experiment
                answers = ((i, decode_answer(experiment, entry)) for i, entry in page)
                item.absorb(answers, live_at=time.monotonic())
        asked = [found for _, entry in announced if (found := Request.decode(entry))]
        self._jobs.take(asked)
        if len(asked) < len(announced):
            self._follow()

    def _take_outcome(self, piece: Piece, outcome: Any, seconds: float) -> None:
        learner = piece.learner
        item = self._experiments.get(learner.experiment)
        if item is None or item.learners.get(learner.name) is not learner:
            return  # the experiment was closed, revised or taken over while the work was done
        if isinstance(outcome, Exception):
            learner.fail(piece.kind, outcome, seconds)
        else:
            learner.finish(piece.kind, outcome, seconds)

    def _note_done(self, piece: Piece, outcome: Any, seconds: float) -> None:
        self._events.put(_Done(piece, outcome, seconds))

    def _follow(self) -> None:
        """Take over what is open and new or revised; let go of what is open no more."""
        opened = {item.experiment: item for item in self._store.list_experiments() if item.state == "open"}
        for experiment in list(self._experiments):
            if (
                experiment not in opened
                or opened[experiment].revision != self._experiments[experiment].followed.revision
            ):
                del self._experiments[experiment]
                log.info("experiment left", extra=fields(experiment=experiment))
        for experiment, item in opened.items():
            if experiment not in self._experiments:
                self._open(item)

    def _open(self, item: Followed) -> None:
        try:
            opened = open_experiment(self._store, item, hand_out=self._workshop.take, now_ms=self._now_ms)
        except StoreError:
            raise
        except SalmonError as error:
            # One experiment that cannot be learned from must not stop the others.
            self._unusable[item.experiment] = f"{item.slug}: {error}"
            log.error("experiment unusable", extra=fields(experiment=item.experiment, slug=item.slug, error=str(error)))
            return
        self._unusable.pop(item.experiment, None)
        self._experiments[item.experiment] = opened
        if opened.learners:
            self._workshop.warm_up()

    def _forget(self) -> None:
        """Drop what is known; the next `begin` replays it from the store."""
        self._experiments.clear()


#: How often it speaks, and how long its word lasts: two missed beats are forgiven.
BEAT_SECONDS = 4.0
LIVES_SECONDS = 14


class Pulse:
    """A thread with a connection of its own, so that a long refit does not silence it."""

    def __init__(self, store: Store, report: Callable[[], Heartbeat]) -> None:
        self._store = store
        self._report = report
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Begin to beat."""
        self._thread.start()

    def stop(self) -> None:
        """Beat no more."""
        self._stop.set()
        self._thread.join(BEAT_SECONDS)

    def _beat(self) -> None:
        silent = False
        while not self._stop.is_set():
            try:
                beat = replace(self._report(), beat_ms=time.time_ns() // 1_000_000)
                self._store.beat(beat, lives_seconds=LIVES_SECONDS)
                silent = False
            except StoreError as error:
                if not silent:
                    log.error("heartbeat not heard", extra=fields(error=str(error)))
                silent = True
            self._stop.wait(BEAT_SECONDS)
