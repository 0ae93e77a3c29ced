"""One experiment as the learning process follows it: its log of answers and its learners."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from backend.answer_log import AnswerLog, Entry, entry_of
from backend.learner import Learner, Piece
from backend.store import Followed, Store
from salmon.logs import fields
from salmon.records import Answer
from salmon.samplers.registry import ACTIVE, active_sampler
from salmon.spec import Manifest, Spec, read_stored_spec, targets_of

log = logging.getLogger("salmon.backend")

#: Answers replayed at once.
_PIECE = 5000


@dataclass
class Experiment:
    """An open experiment: answers go to its log once, whatever its learners do."""

    followed: Followed
    fence: int
    tests: frozenset[str]
    n: int
    answers: AnswerLog
    learners: dict[str, Learner] = field(default_factory=dict[str, Learner])

    @property
    def cursor(self) -> str:
        """The last entry of the stream that was read."""
        return self.answers.cursor

    def absorb(self, answers: Iterable[tuple[str, Answer]], *, live_at: float | None) -> None:
        """Take answers in the order of the stream: learners predict the random ones, then the log has them.

        What was taken before is passed over, so reading something twice changes nothing. `live_at` is the time of
        answers that come in now; None where they are replayed.
        """
        entries: list[Entry] = []
        last = self.answers.cursor
        for stream_id, answer in answers:
            if not is_later(stream_id, last):
                continue
            last = stream_id
            entry = entry_of(stream_id, answer, tests=self.tests)
            if entry is not None and max(entry.triplet) < self.n:
                entries.append(entry)
        for learner in self.learners.values():
            learner.judge(entries)
            if live_at is not None:
                learner.note_pace(len(entries), live_at)
        self.answers.append(entries)
        self.answers.cursor = last


def open_experiment(
    store: Store,
    followed: Followed,
    *,
    hand_out: Callable[[Piece], None],
    now_ms: Callable[[], int],
) -> Experiment:
    """Take an experiment over: its fence, its learners as they were published, and all answers, replayed.

    Answers up to a learner's cursor are in its published model already; those after it are predicted and absorbed now.
    """
    fence = store.take_over(followed.experiment)
    revision = store.read_revision(followed.experiment, followed.revision)
    manifest = Manifest.load(revision["manifest"]) if revision["manifest"] else None
    spec = read_stored_spec(revision["spec"], manifest)
    experiment = Experiment(
        followed=followed,
        fence=fence,
        tests=frozenset(name for name, sampler in spec.samplers.items() if sampler.test),
        n=len(targets_of(spec, manifest)),
        answers=AnswerLog(),
    )
    waiting = _learners(store, experiment, spec, hand_out=hand_out, now_ms=now_ms)
    piece: list[tuple[str, Answer]] = []
    for stream_id, answer in store.read_answers(followed.experiment, after="0"):
        # A learner joins the experiment where its published model ends, so that it judges only what it has not seen.
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
        learner.greet()
    log.info(
        "experiment followed",
        extra=fields(
            experiment=followed.experiment,
            slug=followed.slug,
            fence=fence,
            answers=len(experiment.answers),
            learners=len(experiment.learners),
        ),
    )
    return experiment


def _learners(
    store: Store,
    experiment: Experiment,
    spec: Spec,
    *,
    hand_out: Callable[[Piece], None],
    now_ms: Callable[[], int],
) -> dict[Learner, str]:
    """Every active sampler's learner, and the cursor of the model it published last."""
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
            fence=experiment.fence,
            answers=experiment.answers,
            hand_out=hand_out,
            now_ms=now_ms,
        )
        found[learner] = learner.resume(store.read_model(experiment.followed.experiment, name))
    return found


def is_later(stream_id: str, cursor: str) -> bool:
    """Whether an entry of a stream comes after a cursor."""
    return _place(stream_id) > _place(cursor)


def _place(stream_id: str) -> tuple[int, int]:
    milliseconds, _, number = stream_id.partition("-")
    return int(milliseconds), int(number or 0)
