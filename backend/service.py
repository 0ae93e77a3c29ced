"""The main loop of the learning process: read new answers and give every learner of every open experiment its turn.

Two kinds of event wake the loop: entries of the streams (new answers, new experiments), which one thread reads by
blocking in Redis, and finished tasks. All decisions are made in one thread, so nothing here needs a lock. A second
thread publishes a heartbeat every few seconds.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from backend.experiment import Experiment, open_experiment
from backend.jobs import JobRunner
from backend.learner import LearningTask
from backend.store import Entries, ExperimentRecord, Store, decode_intact
from backend.workers import WorkerPool
from salmon import parent_watch
from salmon.errors import SalmonError, StoreError
from salmon.logs import fields
from salmon.parallel import Executor
from salmon.wire import REQUESTS, Heartbeat, Keys, Request

log = logging.getLogger("salmon.backend")

#: How long the reader blocks in Redis when nothing happens; a new entry wakes it at once.
SLEEP_MS = 1000
#: The pause after the store has not answered.
RETRY_SECONDS = 1.0


@dataclass(frozen=True)
class _Read:
    """New entries of the streams. The reader waits until they are absorbed, so that its cursors are up to date."""

    entries: dict[str, Entries]
    taken: threading.Event


@dataclass(frozen=True)
class _Done:
    """A finished task with its outcome."""

    task: LearningTask
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
        self._workers = WorkerPool(open_executor, self._note_done)
        self._jobs = JobRunner(store, self._workers.executor, self._workers.recover, now_ms=now_ms)
        self._experiments: dict[str, Experiment] = {}
        self._unusable: dict[str, str] = {}
        self._requests = "0"
        self._reading = 0  # which reader is the present one
        self._reader: threading.Thread | None = None
        self._stopping = False
        self._away = ""

    def run(self) -> None:
        """Learn until `stop` is called. When the store is away, wait for it and start again from what it holds."""
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
                self._experiments.clear()  # `begin` replays them from the store
                time.sleep(RETRY_SECONDS)
        self.close()

    def close(self) -> None:
        """Release everything. Whatever was not published is done again by the next service."""
        self._stopping = True
        self._experiments.clear()
        if self._reader is not None:
            self._reader.join(2 * SLEEP_MS / 1000)
        self._jobs.close()
        self._workers.close()

    def stop(self) -> None:
        """Return from `run` soon; safe inside a signal handler."""
        self._stopping = True
        self._events.put(None)

    def begin(self) -> None:
        """Take over the open experiments and start reading their answers."""
        self._requests = self._store.last_request()
        self._follow()
        self._jobs.take(self._store.unended_requests())
        self._reading += 1
        self._reader = threading.Thread(target=self._read, args=(self._reading,), name="reader", daemon=True)
        self._reader.start()

    def step(self, wake: float) -> float:
        """Handle one event, or sleep until `wake`; then let every learner start what is
        due. Return when to wake next.
        """
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
            case _Done(task, outcome, seconds):
                self._take_outcome(task, outcome, seconds)
            case StoreError():
                raise event
            case None:
                pass
        for item in self._experiments.values():
            if item.replaying:
                item.replay()
        now = time.monotonic()
        wake = min(
            (learner.tick(now) for item in self._experiments.values() for learner in item.learners.values()),
            default=inf,
        )
        return now if any(item.replaying for item in self._experiments.values()) else wake

    def report(self) -> Heartbeat:
        """Return the state of this backend for its heartbeat."""
        learners = [learner for item in list(self._experiments.values()) for learner in list(item.learners.values())]
        return Heartbeat(
            started_ms=self._started_ms,
            beat_ms=self._started_ms,
            experiments=len(self._experiments),
            learners=len(learners),
            workers=self._workers.workers,
            errors=tuple(
                filter(None, (self._away, *self._unusable.values(), *(learner.error for learner in learners)))
            ),
        )

    @property
    def experiments(self) -> dict[str, Experiment]:
        """The open experiments, by id."""
        return dict(self._experiments)

    def _read(self, number: int) -> None:
        """The reader thread: block in Redis and pass on what comes, until the store fails
        or a newer reader has started.
        """
        while not self._stopping and number == self._reading:
            cursors = {REQUESTS: self._requests}
            cursors |= {
                Keys(e).answers: item.cursor for e, item in list(self._experiments.items()) if not item.replaying
            }
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
                answers = decode_intact(item.followed.experiment, page)
                item.absorb(answers, live_at=time.monotonic(), until=page[-1][0])
        asked = [found for _, entry in announced if (found := Request.decode(entry))]
        if asked:
            self._jobs.take(asked)
        if len(asked) < len(announced):
            self._follow()

    def _take_outcome(self, task: LearningTask, outcome: Any, seconds: float) -> None:
        learner = task.learner
        item = self._experiments.get(learner.experiment)
        if item is None or item.learners.get(learner.name) is not learner:
            return  # the experiment was closed, revised or taken over while the work was done
        if isinstance(outcome, Exception):
            learner.fail(task.kind, outcome, seconds)
        else:
            learner.finish(task.kind, outcome, seconds)

    def _note_done(self, task: LearningTask, outcome: Any, seconds: float) -> None:
        self._events.put(_Done(task, outcome, seconds))

    def _follow(self) -> None:
        """Take over experiments that are new, revised or without some of their answers,
        and drop those not open any more.
        """
        opened = {item.experiment: item for item in self._store.list_experiments() if item.state == "open"}
        for experiment in list(self._experiments):
            if opened.get(experiment) != self._experiments[experiment].followed:
                del self._experiments[experiment]
                log.info("experiment left", extra=fields(experiment=experiment))
        for experiment, item in opened.items():
            if experiment not in self._experiments:
                self._open(item)

    def _open(self, item: ExperimentRecord) -> None:
        try:
            opened = open_experiment(self._store, item, start_task=self._workers.take, now_ms=self._now_ms)
        except StoreError:
            raise
        except SalmonError as error:
            # One unusable experiment must not stop the others.
            self._unusable[item.experiment] = f"{item.slug}: {error}"
            log.error("experiment unusable", extra=fields(experiment=item.experiment, slug=item.slug, error=str(error)))
            return
        self._unusable.pop(item.experiment, None)
        self._experiments[item.experiment] = opened
        if opened.learners:
            self._workers.warm_up(opened.n)


#: The interval of the heartbeat, and its time to live: two missed beats are tolerated.
BEAT_SECONDS = 4.0
LIVES_SECONDS = 14


class HeartbeatThread:
    """Publishes the heartbeat from its own thread and connection, so that a long refit does not delay it.

    It shows the supervisor, too, that this process is alive. Nothing ends the thread but `stop`.
    """

    def __init__(self, store: Store, report: Callable[[], Heartbeat]) -> None:
        self._store = store
        self._report = report
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread."""
        self._stop.set()
        self._thread.join(BEAT_SECONDS)

    def _beat(self) -> None:
        silent = False
        while not self._stop.is_set():
            parent_watch.show_life()
            try:
                self._store.beat(
                    replace(self._report(), beat_ms=time.time_ns() // 1_000_000), lives_seconds=LIVES_SECONDS
                )
                silent = False
            except Exception as error:  # noqa: BLE001 - the thread's outermost loop: a cluster that is lost raises anything
                if not silent:
                    log.error("heartbeat not published", extra=fields(error=f"{type(error).__name__}: {error}"))
                silent = True
            self._stop.wait(BEAT_SECONDS)
