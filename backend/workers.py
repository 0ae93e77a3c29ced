"""The pieces of work that travel to the workers: plain functions of plain values.

The workers: a Dask cluster of this machine or one that is joined, and the threads that wait for it.

Small experiments send each piece of work whole to one worker. Large ones keep the lead here and spread the heavy parts
over all workers. When the cluster is lost it is made or joined anew, and the blocks are sent again.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.answer_log import Rows, join
from backend.learner import Piece
from salmon.learning import laplace
from salmon.logs import fields
from salmon.parallel import Executor
from salmon.samplers.registry import ActiveSampler
from salmon.samplers.state import Round, State

#: The prior under which the certainty of the shown embedding is judged.
_SHOWN_RIDGE = 1.0


def refit(sampler: ActiveSampler, state: State, blocks: Sequence[Rows], tail: Rows) -> State:
    """The state after all answers of the log."""
    return sampler.refit(state, join((*blocks, tail)))


def search(
    sampler: ActiveSampler, state: State, blocks: Sequence[Rows], tail: Rows, pending: Rows, count: int
) -> Round:
    """Queries to be asked next."""
    return sampler.search(state, join((*blocks, tail)), pending, count)


@dataclass(frozen=True)
class Reported:
    """The embedding that is shown: `coordinates` (n, d), the covariance of each target `spread` (n, d, d), and how well
    any embedding could predict these answers: NaN where hardly a query was answered twice.
    """

    coordinates: NDArray[np.float64]
    spread: NDArray[np.float32]
    ceiling: float


def report(
    sampler: ActiveSampler,
    state: State,
    blocks: Sequence[Rows],
    tail: Rows,
    repeatable: Rows,
    executor: Executor | None = None,
) -> Reported:
    """The embedding that is shown, with what is known of its certainty."""
    rows = join((*blocks, tail))
    coordinates = sampler.report(state, rows, executor)
    # The prior of the search: without one, targets that were hardly asked about would fill the map.
    posterior = laplace(coordinates, rows, sampler.shown_model, ridge=_SHOWN_RIDGE)
    return Reported(coordinates, posterior.target_covariance().astype(np.float32), ceiling(repeatable))


def ceiling(rows: Rows) -> float:
    """How well any embedding could predict, from answers to queries that came again."""
    from salmon.estimator.noise_ceiling import noise_ceiling  # loads scikit-learn, which only the workers need

    found = noise_ceiling(rows)
    return found.ceiling.value if found else float("nan")


log = logging.getLogger("salmon.cluster")

#: From this many targets a single refit or search is worth spreading over workers.
SPREAD_FROM = 300
#: Pieces of work that may be waited for at once.
WAITING = 16
#: Workers started on one machine: one a core, and at least two so that a search goes on while a refit runs.
MOST_WORKERS = 8
#: So many failures in a row mean that the cluster itself is gone.
FAILURES_TO_REOPEN = 3

#: What an idle cluster does not need to do many times a second (the defaults cost several percent of a core).
QUIET = {
    "distributed.worker.profile.enabled": False,
    "distributed.worker.profile.interval": "1s",
    "distributed.worker.profile.cycle": "60s",
    "distributed.admin.tick.interval": "2s",
    "distributed.admin.tick.cycle": "10s",
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.admin.system-monitor.disk": False,
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.scheduler.work-stealing-interval": "1s",
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.worker.memory.monitor-interval": "5s",
    "distributed.diagnostics.nvml": False,
}

Done = Callable[[Piece, Any, float], None]


class Workshop:
    """Does pieces of work elsewhere and says when they are done; the cluster starts with the first piece."""

    def __init__(self, open_executor: Callable[[], Executor], done: Done) -> None:
        self._open_executor = open_executor
        self._done = done
        self._executor: Executor | None = None
        self._failures = 0
        self._lock = threading.Lock()
        #: Handle of each block that the workers have, by the identity of the block; the block itself keeps it valid.
        self._sent: dict[int, tuple[Rows, Any]] = {}
        self._threads = ThreadPoolExecutor(WAITING, thread_name_prefix="work")

    @property
    def workers(self) -> int:
        """How many workers there are now; 0 before the first piece of work."""
        return self._executor.workers if self._executor is not None else 0

    def warm_up(self) -> None:
        """Start the cluster now, so that the first piece need not wait for it."""
        self._threads.submit(self.executor)

    def take(self, piece: Piece) -> None:
        """Begin a piece of work and return at once."""
        blocks, tail = piece.learner.answers.pieces()
        self._threads.submit(self._do, piece, blocks, tail)

    def executor(self) -> Executor:
        """The workers; the cluster is started, or joined, where it is not there yet."""
        with self._lock:
            if self._executor is None:
                started = time.monotonic()
                self._executor = self._open_executor()
                seconds = round(time.monotonic() - started, 2)
                log.info("workers ready", extra=fields(workers=self._executor.workers, seconds=seconds))
            return self._executor

    def recover(self) -> None:
        """Workers that held blocks may be gone: send them again. After several failures, open the cluster again."""
        with self._lock:
            self._failures += 1
            self._sent.clear()
            if self._failures >= FAILURES_TO_REOPEN and self._executor is not None:
                lost, self._executor = self._executor, None
                threading.Thread(target=lost.close, daemon=True).start()
                log.warning("workers lost", extra=fields(failures=self._failures))

    def close(self) -> None:
        """Leave the cluster, and end it if it was started here; what still runs is given up."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._executor is not None:
            self._executor.close()

    def _do(self, piece: Piece, blocks: tuple[Rows, ...], tail: Rows) -> None:
        began = time.monotonic()
        try:
            executor = self.executor()
            began = time.monotonic()  # how long the cluster took to start says nothing about the work
            outcome = self._outcome(piece, blocks, tail, executor)
            self._failures = 0
        except Exception as error:  # noqa: BLE001 - the outermost loop of the work: what goes wrong is an outcome too
            outcome = error
            self.recover()
        self._done(piece, outcome, time.monotonic() - began)

    def _outcome(self, piece: Piece, blocks: tuple[Rows, ...], tail: Rows, executor: Executor) -> Any:
        learner = piece.learner
        if learner.n >= SPREAD_FROM:
            return _lead(piece, join((*blocks, tail)), executor)
        arguments = (learner.sampler, piece.state, [self._handle(block, executor) for block in blocks], tail)
        match piece.kind:
            case "refit":
                return executor.submit(refit, *arguments, priority=2).result()
            case "search":
                return executor.submit(search, *arguments, piece.pending, piece.count, priority=3).result()
            case "report":
                return executor.submit(report, *arguments, piece.repeatable, priority=1).result()

    def _handle(self, block: Rows, executor: Executor) -> Any:
        with self._lock:
            if id(block) not in self._sent:
                self._sent[id(block)] = block, executor.scatter(block)
            return self._sent[id(block)][1]


def _lead(piece: Piece, rows: Rows, executor: Executor) -> Any:
    """A large experiment: this thread leads and the workers do the parts; a newer model cuts a search short."""
    learner, generation = piece.learner, piece.state.generation
    match piece.kind:
        case "refit":
            return learner.sampler.refit(piece.state, rows, executor)
        case "search":
            pending = piece.pending if piece.pending is not None else rows[:0]
            return learner.sampler.search(
                piece.state, rows, pending, piece.count, executor, stop=lambda: learner.is_stale(generation)
            )
        case "report":
            repeatable = piece.repeatable if piece.repeatable is not None else rows[:0]
            return report(learner.sampler, piece.state, (), rows, repeatable, executor)


def opener(scheduler: str) -> Callable[[], Executor]:
    """How the executor is opened: by joining a scheduler, or by starting workers sized to this machine."""

    def open_executor() -> Executor:
        import dask.config

        from salmon.parallel.dask import join_cluster, local_cluster

        for name in [name for name in logging.root.manager.loggerDict if name.startswith("distributed")]:
            logging.getLogger(name).setLevel(logging.WARNING)  # Dask tells every connection at INFO
        dask.config.set(QUIET)
        os.environ.update(
            {f"DASK_{name.upper().replace('.', '__').replace('-', '_')}": str(QUIET[name]) for name in QUIET}
        )
        if scheduler:
            return join_cluster(scheduler)
        return local_cluster(max(2, min(MOST_WORKERS, os.cpu_count() or 2)))

    return open_executor
