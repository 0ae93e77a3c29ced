"""The workers: a Dask cluster of this machine or one that is joined, its tasks, and the threads that wait for them.

Tasks are plain functions of plain values. A small experiment sends each task whole to one worker. For a large one a
thread of this process leads and spreads the heavy parts over all workers. When the cluster is lost, it is started or
joined again and the blocks of answers are sent again.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from backend.learner import LearningTask, Rows
from salmon.jobs import shown_noise
from salmon.learning.clickers import find_clickers
from salmon.learning.features import Features
from salmon.learning.uncertainty import laplace_covariance, position_covariance
from salmon.logs import fields
from salmon.parallel import ClusterAwayError, Executor
from salmon.samplers.registry import ActiveSampler
from salmon.samplers.state import Round, State
from salmon.search.design import WORTH_COMPILING, load_loops

if TYPE_CHECKING:
    from salmon.estimator.cross_validation import Evaluation

#: The ridge of the posterior of an embedding that has not converged, and so is not the minimum of any.
_UNCONVERGED_RIDGE = 1.0


def refit(
    sampler: ActiveSampler,
    state: State,
    blocks: Sequence[Rows],
    tail: Rows,
    left_out: tuple[int, ...],
    executor: Executor | None = None,
) -> State:
    """Return the sampler's state after a refit to all answers of the log but those of the people who are left out."""
    rows = join(blocks, tail)
    # What is left out was read too: it is no reason for another refit.
    return replace(sampler.refit(state, _kept(rows, left_out), executor), absorbed=len(rows))


def search(
    sampler: ActiveSampler,
    state: State,
    blocks: Sequence[Rows],
    tail: Rows,
    left_out: tuple[int, ...],
    pending: Rows,
    count: int,
    executor: Executor | None = None,
    stop: Callable[[int], bool] | None = None,
) -> Round:
    """Return the queries to ask next."""
    return sampler.search(state, _kept(join(blocks, tail), left_out), pending, count, executor, stop)


@dataclass(frozen=True)
class Reported:
    """The embedding that the console shows.

    `coordinates` (n, d); `spread` (n, d, d) is the covariance of each target; `ceiling` is how well any embedding could
    predict these answers, NaN where hardly any query was answered twice, and `ceiling_high` the upper end of its 95 %
    interval, NaN where too few were for an interval. `left_out` are the numbers of people who click
    blindly, whose answers the model is to be fitted without; `feature_weight` is how much features explain.
    """

    coordinates: NDArray[np.float64]
    spread: NDArray[np.float32]
    ceiling: float
    ceiling_high: float
    left_out: tuple[int, ...] = ()
    feature_weight: float | None = None


def report(
    sampler: ActiveSampler,
    state: State,
    blocks: Sequence[Rows],
    tail: Rows,
    repeatable: Rows,
    executor: Executor | None = None,
) -> Reported:
    """Return the embedding to show, with the uncertainty of its coordinates and the noise ceiling."""
    answers = join(blocks, tail)
    left_out: tuple[int, ...] = ()
    if sampler.leave_out == "clickers":
        left_out = find_clickers(
            answers[:, :3], answers[:, 3], state.coordinates, seed=state.seed, executor=executor
        ).people
    rows = _kept(answers, left_out)
    shown = sampler.report(state, rows, executor)
    if shown.ridge is None:
        spread = laplace_covariance(shown.coordinates, rows, shown.noise, ridge=_UNCONVERGED_RIDGE)
    else:
        spread = position_covariance(
            shown.coordinates, rows, shown.noise, ridge=shown.ridge, precision=shown.precision, seed=state.seed,
            executor=executor,
        )  # fmt: skip
    value, high = ceiling(repeatable)
    return Reported(shown.coordinates, spread.astype(np.float32), value, high, left_out, state.feature_weight)


def join(blocks: Sequence[Rows], tail: Rows) -> Rows:
    """Return the rows [head, winner, loser, person] of the log as one array."""
    return np.concatenate([*blocks, tail])


def _kept(answers: Rows, left_out: tuple[int, ...]) -> Rows:
    """Return the triplets of everybody who is not left out."""
    return answers[~np.isin(answers[:, 3], left_out), :3] if left_out else answers[:, :3]


@dataclass(frozen=True)
class JudgedFit:
    """What an evaluation fits and judges, but for the answers: embeddings of n targets in d dimensions.

    `random` (m,) are the answers that are judged, and `noise` names the noise model of the search. All answers are
    fitted and judged, also those of people whom the search leaves out, so that the figure is that of every page.
    """

    n: int
    d: int
    noise: str
    seed: int
    random: NDArray[np.bool_]
    features: Features | None = None


def judge_fold(asked: JudgedFit, blocks: Sequence[Rows], tail: Rows, fold: int) -> tuple[int, Any]:
    """Return how many folds there are, and what a fit without the answers of one fold
    predicts of them (None: no such fold).
    """
    from salmon.estimator.cross_validation import Candidate, noise_with_lapse

    evaluation = _evaluation(asked, blocks, tail)
    if fold >= evaluation.usable_folds:
        return evaluation.usable_folds, None
    candidate = Candidate(asked.d, noise_with_lapse(shown_noise(asked.noise)))
    return evaluation.usable_folds, evaluation.judge_fold(candidate, 0, fold)


def join_folds(asked: JudgedFit, blocks: Sequence[Rows], tail: Rows, found: Sequence[Any]) -> dict[str, float]:
    """Return the held-out accuracy with its 95 % interval, and how many answers were judged."""
    accuracy = _evaluation(asked, blocks, tail).join_folds([found]).accuracy
    return {
        "held_out": accuracy.value,
        "held_out_low": accuracy.low,
        "held_out_high": accuracy.high,
        "held_out_judged": int(asked.random.sum()),
    }


def _evaluation(asked: JudgedFit, blocks: Sequence[Rows], tail: Rows) -> "Evaluation":
    from salmon.estimator.cross_validation import Evaluation

    rows = join(blocks, tail)[:, :3]
    kept = np.ones(len(rows), dtype=np.bool_)
    return Evaluation(rows, asked.random, kept, asked.n, seed=asked.seed, features=asked.features)


#: The interval of a noise ceiling means something from so many repeated queries on: two that agree by chance have none.
_ENOUGH_REPEATED = 30


def ceiling(rows: Rows) -> tuple[float, float]:
    """Return the noise ceiling, how well any embedding could predict, and the upper end of its interval.

    Both come from answers to repeated queries; NaN where there are too few.
    """
    from salmon.estimator.cross_validation import noise_ceiling  # loads scikit-learn, which only the workers need

    found = noise_ceiling(rows)
    if found is None:
        return float("nan"), float("nan")
    return found.ceiling.value, found.ceiling.high if found.queries >= _ENOUGH_REPEATED else float("nan")


log = logging.getLogger("salmon.cluster")

#: From this many targets it pays to spread a single refit or search over the workers.
SPREAD_FROM = 300
#: Tasks that may be waited for at once.
WAITING = 16
#: Workers started on one machine: one per core, and at least two so that a search continues while a refit runs.
MOST_WORKERS = 8
#: After this many failures in a row the cluster itself is taken to be lost, whatever it said.
FAILURES_TO_REOPEN = 3
#: How often a cluster that is away is tried again.
REJOIN_SECONDS = 120.0

#: Settings that keep an idle cluster from waking many times a second; the defaults cost several percent of a core.
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

Done = Callable[[LearningTask, Any, float], None]


class WorkerPool:
    """Runs tasks on the cluster and reports their outcomes to `done`; the cluster starts with the first task."""

    def __init__(self, open_executor: Callable[[], Executor], done: Done) -> None:
        self._open_executor = open_executor
        self._done = done
        self._executor: Executor | None = None
        #: How many workers there were when the cluster was last heard of; 0 before the first task.
        self.workers = 0
        self._failures = 0
        self._lock = threading.Lock()
        #: Handle of each block that the workers have, by the identity of the block; the block itself keeps it valid.
        self._sent: dict[int, tuple[Rows, Any]] = {}
        self._threads = ThreadPoolExecutor(WAITING, thread_name_prefix="work")

    def warm_up(self, n: int) -> None:
        """Start the cluster now, and load there what searches among n targets need, so
        that the first task does not wait.
        """
        self._threads.submit(self._warm_up, n)

    def _warm_up(self, n: int) -> None:
        with suppress(Exception):  # a task that finds no workers says so, and learns elsewhere
            executor = self.executor()
            if n >= WORTH_COMPILING:
                executor.map(load_loops, range(executor.workers))
            if n >= SPREAD_FROM:
                load_loops()

    def take(self, task: LearningTask) -> None:
        """Start a task and return at once."""
        blocks, tail = task.learner.answers.parts()
        self._threads.submit(self._do, task, blocks, tail)

    def executor(self) -> Executor:
        """Return the executor; start or join the cluster if there is none yet."""
        with self._lock:
            self._rejoin()
            if self._executor is None:
                started = time.monotonic()
                self._executor = self._open_executor()
                seconds = round(time.monotonic() - started, 2)
                self.workers = self._executor.workers
                log.info("workers ready", extra=fields(workers=self.workers, seconds=seconds))
            return self._executor

    def _rejoin(self) -> None:
        """Go back to the cluster, from time to time while this machine stands in for it
        and the cluster is there again.
        """
        opener = self._open_executor
        if not isinstance(opener, ExecutorOpener) or opener.again_at is None or time.monotonic() < opener.again_at:
            return
        opener.again_at = time.monotonic() + REJOIN_SECONDS
        if (joined := opener.join()) is None:
            return
        stand_in, self._executor, opener.again_at = self._executor, joined, None
        self._sent.clear()
        if stand_in is not None:  # what runs there ends there
            leaving = threading.Timer(REJOIN_SECONDS, _leave, (stand_in,))
            leaving.daemon = True
            leaving.start()
        log.info("cluster joined again", extra=fields(workers=joined.workers))

    def recover(self, failed: Executor | None, error: Exception) -> None:
        """Take note that work failed on an executor (None: it could not be opened).

        The workers may have lost the blocks of answers. A cluster that is away, or on which several tasks in a row
        failed, is left: the next task opens one again.
        """
        with self._lock:
            if failed is not self._executor:
                return  # others have noted it, and this machine or a new cluster does the work by now
            self._failures += 1
            self._sent.clear()
            lost = isinstance(error, ClusterAwayError) or self._failures >= FAILURES_TO_REOPEN
            if lost and failed is not None:
                self._executor, self.workers = None, 0
                threading.Thread(target=_leave, args=(failed,), daemon=True).start()
                log.warning("workers lost", extra=fields(failures=self._failures, reason=str(error)))

    def close(self) -> None:
        """Leave the cluster, and stop it if it was started here; running tasks are abandoned."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._executor is not None:
            self._executor.close()

    def _do(self, task: LearningTask, blocks: tuple[Rows, ...], tail: Rows) -> None:
        began = time.monotonic()
        executor = None
        try:
            executor = self.executor()
            self.workers = executor.workers
            began = time.monotonic()  # the start of the cluster is not part of the task
            outcome = self._outcome(task, blocks, tail, executor)
            self._failures = 0
        except Exception as error:  # noqa: BLE001 - the outermost loop of a task: an error is an outcome too
            outcome = error
            self.recover(executor, error)
        self._done(task, outcome, time.monotonic() - began)

    def _outcome(self, task: LearningTask, blocks: tuple[Rows, ...], tail: Rows, executor: Executor) -> Any:
        learner = task.learner
        if task.kind != "evaluate" and learner.n >= SPREAD_FROM:
            return _lead(task, blocks, tail, executor)
        arguments = (learner.sampler, task.state, [self._handle(block, executor) for block in blocks], tail)
        match task.kind:
            case "refit":
                return executor.submit(refit, *arguments, task.left_out, priority=2).result()
            case "search":
                found = executor.submit(search, *arguments, task.left_out, task.pending, task.count, priority=3)
                return found.result()
            case "report":
                return executor.submit(report, *arguments, task.repeatable, priority=1).result()
            case "evaluate":
                return _evaluate(task, arguments[2], tail, executor)

    def _handle(self, block: Rows, executor: Executor) -> Any:
        with self._lock:
            if executor is not self._executor:
                raise ClusterAwayError("The workers of this task were left.", hint="The next ones do it.")
            if id(block) not in self._sent:
                self._sent[id(block)] = block, executor.scatter(block)
            return self._sent[id(block)][1]


def _leave(executor: Executor) -> None:
    """Close an executor that is not used any more: the outermost call of a thread."""
    with suppress(Exception):  # Dask raises anything where its scheduler goes away meanwhile
        executor.close()


def _evaluate(task: LearningTask, blocks: Sequence[Any], tail: Rows, executor: Executor) -> dict[str, float]:
    """Return the held-out accuracy; one fold at a time, so that a refit or a search
    never waits for more than one fit.
    """
    noise = type(task.learner.sampler.model).__name__
    asked = JudgedFit(task.learner.n, task.state.d, noise, task.state.seed, task.random, task.state.features)
    found: list[Any] = []
    folds = 1
    while len(found) < folds:
        folds, outcome = executor.submit(judge_fold, asked, blocks, tail, len(found), priority=0).result()
        found.append(outcome)
    return executor.submit(join_folds, asked, blocks, tail, found, priority=0).result() if folds else {}


def _lead(task: LearningTask, blocks: tuple[Rows, ...], tail: Rows, executor: Executor) -> Any:
    """Run the task of a large experiment: this thread leads, the workers do the parts; a
    newer model stops a search early.
    """
    learner = task.learner
    arguments = (learner.sampler, task.state, blocks, tail)
    if task.kind == "refit":
        return refit(*arguments, task.left_out, executor)
    if task.kind == "search":
        return search(
            *arguments, task.left_out, task.pending, task.count, executor, lambda found: learner.is_stale(task, found)
        )
    return report(*arguments, task.repeatable, executor)


@dataclass
class ExecutorOpener:
    """Opens the executor: it joins a scheduler, or starts workers sized to this machine.

    `tls` are the paths of the authority's certificate, of this client's, and of its key; they are for a scheduler that
    was started elsewhere. `dashboard` switches the pages of a cluster on that is started here. While nobody answers at
    the scheduler, or it has no workers, workers of this machine stand in.
    """

    scheduler: str = ""
    tls: tuple[str, str, str] | None = None
    dashboard: bool = False
    #: When the scheduler is tried again; None where nobody stands in for it.
    again_at: float | None = None

    def __call__(self) -> Executor:
        """Return an executor that was opened now."""
        import dask.config

        from salmon.parallel.dask import local_cluster

        for name in [name for name in logging.root.manager.loggerDict if name.startswith("distributed")]:
            logging.getLogger(name).setLevel(logging.WARNING)  # Dask logs every connection at INFO
        dask.config.set(QUIET)
        os.environ.update(
            {f"DASK_{name.upper().replace('.', '__').replace('-', '_')}": str(QUIET[name]) for name in QUIET}
        )
        self.again_at = None
        if self.scheduler:
            if (joined := self.join()) is not None:
                return joined
            self.again_at = time.monotonic() + REJOIN_SECONDS
        return local_cluster(max(2, min(MOST_WORKERS, os.cpu_count() or 2)), dashboard=self.dashboard)

    def join(self) -> Executor | None:
        """Return an executor on the scheduler; None while it is away or has no workers."""
        from salmon.parallel.dask import TlsFiles, join_cluster

        try:
            joined = join_cluster(self.scheduler, tls=TlsFiles(*self.tls) if self.tls else None)
        except ClusterAwayError as error:
            reason = error.message
        else:
            if joined.has_workers:
                return joined
            joined.close()
            reason = f"The Dask scheduler at {self.scheduler} has no workers."
        log.warning("cluster away, learning on this machine", extra=fields(reason=reason))
        return None
