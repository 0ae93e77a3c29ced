"""One open experiment in the learning process: its log of answers and its learners."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from backend.learner import AnswerLog, Entry, Learner, LearningTask, to_entry
from backend.store import ExperimentRecord, Store
from salmon.learning.features import Features
from salmon.logs import fields
from salmon.records import Answer
from salmon.samplers.registry import ACTIVE, active_sampler
from salmon.spec import Spec
from salmon.wire.keys import place_of

log = logging.getLogger("salmon.backend")

#: Answers absorbed at once when they are replayed.
_PIECE = 5000


@dataclass
class Experiment:
    """An open experiment. Each answer is appended once to each log that takes it, whatever the learners do.

    `logs` holds the answers to the queries of a set of samplers (the empty set: all answers): one log for each such set,
    where groups of participants are asked by samplers of their own.
    """

    followed: ExperimentRecord
    fence: int
    tests: frozenset[str]
    n: int
    logs: dict[frozenset[str], AnswerLog]
    learners: dict[str, Learner] = field(default_factory=dict[str, Learner])

    @property
    def cursor(self) -> str:
        """The id of the last stream entry that was read."""
        return next(iter(self.logs.values())).cursor

    def log_of(self, fitted: frozenset[str]) -> AnswerLog:
        """Return the log of the answers to the queries of these samplers, which begins empty."""
        return self.logs.setdefault(fitted, AnswerLog())

    def absorb(self, answers: Iterable[tuple[str, Answer]], *, live_at: float | None, until: str = "") -> None:
        """Add answers in the order of the stream; learners predict those to random queries before the log has them.

        Answers that were absorbed before are skipped, so reading an entry twice changes nothing. `live_at` is the time
        at which live answers arrived, and None for replayed ones. `until` is the place that was read to, where that may be
        after the last answer.
        """
        entries: list[Entry] = []
        last = self.cursor
        for stream_id, answer in answers:
            if not is_later(stream_id, last):
                continue
            last = stream_id
            entry = to_entry(stream_id, answer, tests=self.tests)
            if entry is not None and max(entry.triplet) < self.n:
                entries.append(entry)
        taken = {names: [entry for entry in entries if not names or entry.sampler in names] for names in self.logs}
        for learner in self.learners.values():
            own = taken[learner.fitted]
            learner.judge(own)
            if live_at is not None:
                learner.note_rate(len(own), live_at)
        for names, kept in self.logs.items():
            kept.append(taken[names])
            kept.cursor = until if until and is_later(until, last) else last


def open_experiment(
    store: Store,
    followed: ExperimentRecord,
    *,
    start_task: Callable[[LearningTask], None],
    now_ms: Callable[[], int],
) -> Experiment:
    """Take over an experiment: raise its fence, restore its learners from what they published, and replay its answers.

    A learner's published model contains the answers up to its cursor; later ones are predicted and absorbed now.
    """
    fence = store.take_over(followed.experiment)
    spec, n = store.read_spec(followed.experiment, followed.revision)
    experiment = Experiment(
        followed=followed,
        fence=fence,
        tests=frozenset(name for name, sampler in spec.samplers.items() if sampler.test),
        n=n,
        logs={},
    )
    features = store.read_features(followed.experiment, followed.revision)
    waiting = _learners(store, experiment, spec, features, start_task=start_task, now_ms=now_ms)
    if not experiment.logs:
        experiment.log_of(frozenset())
    piece: list[tuple[str, Answer]] = []
    for stream_id, answer in store.read_answers(followed.experiment, after="0"):
        # A learner joins where its published model ends, so that it predicts only answers it has not seen.
        joining = [learner for learner, cursor in waiting.items() if is_later(stream_id, cursor)]
        if joining or len(piece) >= _PIECE:
            experiment.absorb(piece, live_at=None)
            piece.clear()
        for learner in joining:
            experiment.learners[learner.name] = learner
            del waiting[learner]
        piece.append((stream_id, answer))
    experiment.absorb(piece, live_at=None)
    experiment.learners.update({learner.name: learner for learner in waiting})
    for learner in experiment.learners.values():
        learner.seed_queue()
    log.info(
        "experiment followed",
        extra=fields(
            experiment=followed.experiment,
            slug=followed.slug,
            fence=fence,
            answers=sum(map(len, experiment.logs.values())),
            learners=len(experiment.learners),
        ),
    )
    return experiment


def _learners(
    store: Store,
    experiment: Experiment,
    spec: Spec,
    features: Features | None,
    *,
    start_task: Callable[[LearningTask], None],
    now_ms: Callable[[], int],
) -> dict[Learner, str]:
    """Return a learner for every active sampler, with the cursor of the model it published last."""
    found: dict[Learner, str] = {}
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
        found[learner] = learner.resume(store.read_model(experiment.followed.experiment, name))
    return found


def is_later(stream_id: str, cursor: str) -> bool:
    """Return whether a stream entry comes after a cursor."""
    return place_of(stream_id) > place_of(cursor)
