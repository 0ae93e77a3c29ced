"""One open experiment in the learning process: its log of answers and its learners."""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from backend.learner import AnswerLog, Entry, Learner, LearningTask, to_entries, to_entry
from backend.store import ExperimentRecord, Store
from salmon.learning.features import Features
from salmon.logs import fields
from salmon.records import Answer
from salmon.samplers.registry import ACTIVE, active_sampler
from salmon.spec import Spec
from salmon.wire.answer_pages import AnswerColumns
from salmon.wire.keys import place_of

log = logging.getLogger("salmon.backend")

#: Pages of answers that are replayed at once; meanwhile nothing else is done.
_PAGES = 5


@dataclass
class Experiment:
    """An open experiment. Each answer is appended once to each log that takes it, whatever the learners do.

    `logs` holds the answers to the queries of a set of samplers (the empty set: all answers): one log for each such
    set, where groups of participants are asked by samplers of their own. `pages` are the answers that were there when
    it was opened; while they are `replaying`, page by page, learners work with those that have been read.
    """

    followed: ExperimentRecord
    fence: int
    tests: frozenset[str]
    n: int
    logs: dict[frozenset[str], AnswerLog]
    learners: dict[str, Learner] = field(default_factory=dict[str, Learner])
    pages: Iterator[AnswerColumns] = field(default_factory=lambda: iter(()))
    replaying: bool = True

    @property
    def cursor(self) -> str:
        """The id of the last stream entry that was read."""
        return next(iter(self.logs.values())).cursor

    def log_of(self, fitted: frozenset[str]) -> AnswerLog:
        """Return the log of the answers to the queries of these samplers, which begins empty."""
        return self.logs.setdefault(fitted, AnswerLog())

    def absorb(self, answers: Iterable[tuple[str, Answer]], *, live_at: float, until: str = "") -> None:
        """Add answers in the order of the stream; learners predict those to random queries before the log has them.

        Answers that were absorbed before are skipped, so reading an entry twice changes nothing. `live_at` is the time
        at which they arrived. `until` is the place that was read to, where that may be after the last answer.
        """
        entries: list[Entry] = []
        last = self.cursor
        for stream_id, answer in answers:
            if not is_later(stream_id, last):
                continue
            last = stream_id
            entry = to_entry(stream_id, answer, tests=self.tests)
            if entry is not None:
                entries.append(entry)
        self._append(entries, until if until and is_later(until, last) else last, live_at=live_at)

    def replay(self) -> None:
        """Absorb the next pages of the answers that were there when the experiment was opened."""
        pages = list(islice(self.pages, _PAGES))
        for columns in pages:
            self._append(self._read(columns), columns.stream_ids[-1], live_at=None)
        if len(pages) < _PAGES:
            self.replaying = False
            for learner in self.learners.values():
                learner.replaying = False

    def _read(self, columns: AnswerColumns) -> list[Entry]:
        """Return the entries of a page; an answer that nothing can read must not end the learning."""
        try:
            return list(to_entries(columns, tests=self.tests))
        except (KeyError, ValueError):
            if len(columns) > 1:
                return [entry for each in columns.split() for entry in self._read(each)]
            answer = columns.stream_ids[0]
            log.exception("damaged answer left out", extra=fields(experiment=columns.experiment, answer=answer))
            return []

    def _append(self, given: Iterable[Entry], cursor: str, *, live_at: float | None) -> None:
        """Append entries to the logs that take them; what was read ends at the cursor."""
        entries = [entry for entry in given if max(entry.triplet) < self.n]
        taken = {names: [entry for entry in entries if not names or entry.sampler in names] for names in self.logs}
        for learner in self.learners.values():
            own = taken[learner.fitted]
            learner.judge(own)
            if live_at is not None:
                learner.note_rate(len(own), live_at)
        for names, kept in self.logs.items():
            kept.append(taken[names])
            kept.cursor = cursor


def open_experiment(
    store: Store,
    followed: ExperimentRecord,
    *,
    start_task: Callable[[LearningTask], None],
    now_ms: Callable[[], int],
) -> Experiment:
    """Take over an experiment: raise its fence, restore its learners from what they published, and replay its answers.

    A learner's published model contains the answers up to its cursor; later ones are predicted and absorbed now. Where
    there are many answers, only the first of them have been replayed when this returns.
    """
    fence = store.take_over(followed.experiment)
    spec, n = store.read_spec(followed.experiment, followed.revision)
    experiment = Experiment(
        followed=followed,
        fence=fence,
        tests=frozenset(name for name, sampler in spec.samplers.items() if sampler.test),
        n=n,
        logs={},
        pages=store.read_columns(followed.experiment, after="0"),
    )
    features = store.read_features(followed.experiment, followed.revision)
    _add_learners(store, experiment, spec, features, start_task=start_task, now_ms=now_ms)
    if not experiment.logs:
        experiment.log_of(frozenset())
    experiment.replay()
    for learner in experiment.learners.values():
        learner.seed_queue()
    log.info(
        "experiment followed",
        extra=fields(
            experiment=followed.experiment,
            slug=followed.slug,
            fence=fence,
            learners=len(experiment.learners),
        ),
    )
    return experiment


def _add_learners(
    store: Store,
    experiment: Experiment,
    spec: Spec,
    features: Features | None,
    *,
    start_task: Callable[[LearningTask], None],
    now_ms: Callable[[], int],
) -> None:
    """Add a learner for every active sampler, restored from what it published last."""
    for name, sampler in spec.samplers.items():
        if sampler.sampler_class not in ACTIVE:
            continue
        learner = Learner(
            store,
            experiment=experiment.followed.experiment,
            name=name,
            sampler=active_sampler(sampler.sampler_class, dict(sampler.arguments)),
            n=experiment.n,
            seed=spec.seed,
            features=features,
            fence=experiment.fence,
            fitted=(fitted := spec.fitted_by(name)),
            answers=experiment.log_of(fitted),
            start_task=start_task,
            now_ms=now_ms,
        )
        learner.resume(store.read_model(experiment.followed.experiment, name))
        experiment.learners[name] = learner


def is_later(stream_id: str, cursor: str) -> bool:
    """Return whether a stream entry comes after a cursor."""
    return place_of(stream_id) > place_of(cursor)
