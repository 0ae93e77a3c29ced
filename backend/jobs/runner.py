"""Carry out jobs one at a time, in the order in which they were asked for, in a thread of their own.

Live learning comes first: the steps of a job have a lower priority than any of its tasks, and at most one step is with
the workers at a time. The thread starts with the first job. When the store is away the job waits for it; when this
process ends in the middle of a job, the next backend begins it again.
"""

import logging
import queue
import secrets
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from backend.jobs.steps import JobStep, StepFailure, run_step, to_json_value
from backend.store import Store
from salmon.errors import SalmonError, StoreError
from salmon.logs import fields
from salmon.parallel import Executor, Task
from salmon.wire import Request

log = logging.getLogger("salmon.jobs")

#: Below the priorities of live tasks, which are at least 0.
PRIORITY = -10
#: How many backends may begin a job and end before it does.
MOST_TRIES = 3
#: How often answers are read again when the store went away in between.
_MOST_READINGS = 5
#: How often a step is sent to the workers before the job fails.
_MOST_SENDINGS = 5
#: How often to check whether a job was cancelled while a step runs.
LOOK_SECONDS = 0.5
#: The pause after the store or the workers did not answer.
RETRY_SECONDS = 1.0

_GIVEN_UP = (
    f"The learning process ended {MOST_TRIES} times while it carried this request out. "
    "Ask for less, or look at its log for the reason."
)
_LOST = "The workers were lost again and again while they carried this request out. Ask again when they are there."


class _LeftError(Exception):
    """The backend must leave the job: it was cancelled, it expired, or this process is stopping."""


class JobRunner:
    """Carries out jobs.

    `executor()` returns the workers, starting them if need be; `recover(executor, error)`
    reports that work failed on them.
    """

    def __init__(
        self,
        store: Store,
        executor: Callable[[], Executor],
        recover: Callable[[Executor | None, Exception], None],
        *,
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._executor = executor
        self._recover = recover
        self._now_ms = now_ms
        self._name = secrets.token_hex(6)
        self._asked: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._waiter = ThreadPoolExecutor(1, thread_name_prefix="step")

    def take(self, requests: Iterable[Request]) -> None:
        """Queue jobs and return at once. Jobs that have ended are skipped."""
        for asked in requests:
            self._asked.put(asked)
            if self._thread is None:
                self._thread = threading.Thread(target=self._live, name="jobs", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Release everything; the next backend begins the running and the waiting jobs again."""
        self._ending.set()
        self._asked.put(None)
        self._waiter.shutdown(wait=False, cancel_futures=True)
        if self._thread is not None:
            self._thread.join(2 * LOOK_SECONDS)

    def _live(self) -> None:
        while (asked := self._asked.get()) is not None and not self._ending.is_set():
            told = fields(request=asked.request, kind=asked.kind, experiment=asked.experiment)
            try:
                if self._begin(asked):
                    log.info("request begun", extra=told)
                    self._note(asked, {**self._ended(asked), "note": "", "ended_ms": self._now_ms()})
                    log.info("request ended", extra=told)
            except _LeftError:
                log.info("request left", extra=told)

    def _begin(self, asked: Request) -> bool:
        """Claim a job; return whether this backend is to carry it out."""
        state = self._insist(
            lambda: self._store.begin_request(
                asked.request, self._name, now_ms=self._now_ms(), most_tries=MOST_TRIES, given_up=_GIVEN_UP
            )
        )
        return state == "running"

    def _ended(self, asked: Request) -> dict[str, Any]:
        """Carry a job out; return its result, or the sentence of its error."""
        error = ""
        for _ in range(_MOST_READINGS):
            try:
                return {"state": "done", "progress": 1.0, "result": to_json_value(self._result(asked))}
            except StoreError as away:
                error = str(away)
                self._note(asked, {})  # returns when the store answers again
            except SalmonError as refused:
                error = str(refused)
                break
            except _LeftError:
                raise
            except Exception as mistake:
                # The outermost loop of this thread: a programming error ends one job and not all.
                log.exception("request failed", extra=fields(request=asked.request, kind=asked.kind))
                error = f"The request failed ({type(mistake).__name__}: {mistake})."
                break
        return {"state": "failed", "error": error}

    def _result(self, asked: Request) -> Any:
        from backend.jobs.plan import plan_job  # loads scikit-learn, which nobody needs before the first request

        self._note(asked, {"note": "reading the answers", "progress": 0.0})
        plan = plan_job(self._store, asked, lambda count: self._note(asked, {"note": f"{count:,} answers read"}))
        shared = _Shared(plan.shared)
        outcomes: list[Any] = []
        for done, step in enumerate(plan.steps):
            self._note(asked, {"note": step.note, "progress": done / len(plan.steps)})
            earlier = () if step.after is None else (outcomes[step.after],)
            outcomes.append(self._outcome(asked, step, shared, earlier))
            if step.after is not None:
                outcomes[step.after] = None
            if (known := plan.so_far(outcomes)) is not None:
                self._note(asked, {"result": to_json_value(known)})
        if self._store.find_experiment(asked.experiment) is None:
            raise SalmonError("The experiment was deleted while this request was carried out.")
        return plan.conclude(outcomes)

    def _outcome(self, asked: Request, step: JobStep, shared: "_Shared", earlier: tuple[Any, ...]) -> Any:
        """Return the outcome of a step; it is sent again if the workers were lost with it."""
        for sending in range(_MOST_SENDINGS):
            if sending:
                self._pause()
            executor = None
            try:
                executor = self._executor()
                arguments = (*shared.on(executor), *step.arguments, *earlier)
                task = executor.submit(run_step, step.function, *arguments, priority=PRIORITY)
                outcome = self._wait(asked, task, self._waiter.submit(task.result))
            except _LeftError:
                raise
            except Exception as error:  # noqa: BLE001 - whatever a cluster raises when it is lost
                log.warning("workers lost during a request", extra=fields(request=asked.request, error=str(error)))
                shared.forget()
                self._recover(executor, error)
                continue
            if isinstance(outcome, StepFailure):
                raise SalmonError(outcome.sentence)
            return outcome
        raise SalmonError(_LOST)

    def _wait(self, asked: Request, task: Task, outcome: Future[Any]) -> Any:
        """Return the outcome of a task, checking meanwhile whether the job was cancelled."""
        try:
            while not wait((outcome,), timeout=LOOK_SECONDS).done:
                self._note(asked, {})
        except _LeftError:
            task.cancel()  # a task that runs already may finish; its outcome is ignored
            raise
        return outcome.result()

    def _note(self, asked: Request, values: dict[str, Any]) -> None:
        """Write the progress of a job; raise _LeftError if it is no longer this backend's."""
        if self._ending.is_set():
            raise _LeftError
        state = self._insist(lambda: self._store.note_request(asked.request, self._name, values, now_ms=self._now_ms()))
        if state in {"cancelled", "lost"}:
            raise _LeftError

    def _insist(self, verb: Callable[[], Any]) -> Any:
        """Call a verb of the store until it answers."""
        while True:
            try:
                return verb()
            except StoreError as error:
                log.warning("store away during a request", extra=fields(error=str(error)))
                self._pause()

    def _pause(self) -> None:
        if self._ending.wait(RETRY_SECONDS):
            raise _LeftError


class _Shared:
    """The values that all steps of a job share, sent to the workers once."""

    def __init__(self, values: tuple[Any, ...]) -> None:
        self._values = values
        self._executor: Executor | None = None
        self._handles: tuple[Any, ...] = ()

    def on(self, executor: Executor) -> tuple[Any, ...]:
        """Return the handles that stand for the values in the arguments of a step."""
        if executor is not self._executor:
            self._handles = tuple(executor.scatter(value) for value in self._values)
            self._executor = executor
        return self._handles

    def forget(self) -> None:
        """Send the values again: workers that held them may be gone."""
        self._executor = None
