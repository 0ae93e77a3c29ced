"""The answers that a job reads: with who gave each, and whether its query was drawn blindly."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from backend.learner import Rows, to_entry
from salmon.records import DRAWN_BLINDLY, REPEATABLE, Answer

#: The progress is reported after every so many answers.
_PIECE = 5000


@dataclass(frozen=True)
class AnswerSet:
    """All answers that may be fitted, in the order of the stream.

    `triplets` (m, 3); `participants` (m,) counts into `names`; `random` (m,) where the query was chosen without looking
    at any answer, so that accuracy on it is unbiased; `repeatable` (m,) where it can come again by chance or on
    purpose, but not because people disagreed about it. `cursor` is the place of the last one in the stream.

    `unfitted` (k, 3) are answers of `unfitted_by` (k,) that are held out: they show only how much people agree.
    """

    triplets: Rows
    participants: NDArray[np.int32]
    random: NDArray[np.bool_]
    repeatable: NDArray[np.bool_]
    names: tuple[str, ...]
    cursor: str
    unfitted: Rows = field(default_factory=lambda: np.zeros((0, 3), dtype=np.int32))
    unfitted_by: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, dtype=np.int32))

    def __len__(self) -> int:
        return len(self.triplets)

    def given_by(self, names: Iterable[str]) -> NDArray[np.bool_]:
        """Return (m,) whether one of these participants gave the answer."""
        return np.isin(self.participants, self._places(names))

    def for_ceiling(self, without: Iterable[str] = ()) -> Rows:
        """Return the triplets from which a noise ceiling can be estimated, but not those of some participants."""
        left_out = self._places(without)
        fitted = self.repeatable & ~np.isin(self.participants, left_out)
        return np.concatenate([self.triplets[fitted], self.unfitted[~np.isin(self.unfitted_by, left_out)]])

    def _places(self, names: Iterable[str]) -> list[int]:
        wanted = set(names)
        return [place for place, name in enumerate(self.names) if name in wanted]


def collect_answers(
    answers: Iterable[tuple[str, Answer]],
    *,
    tests: frozenset[str],
    n: int,
    at_most: int | None,
    on_progress: Callable[[int], None],
) -> AnswerSet:
    """Return the first `at_most` of the answers that may be fitted; `on_progress(count)` is called now and then."""
    rows: list[tuple[int, int, int]] = []
    people: list[int] = []
    kinds: list[str] = []
    names: dict[str, int] = {}
    unfitted: list[tuple[int, int, int]] = []
    unfitted_by: list[int] = []
    cursor = "0"
    for stream_id, answer in answers:
        if at_most is not None and len(rows) >= at_most:
            break
        entry = to_entry(stream_id, answer, tests=tests)
        if entry is None or max(entry.triplet) >= n:
            continue
        person = names.setdefault(answer.served.participant, len(names))
        if not entry.fitted:
            unfitted.append(entry.triplet)
            unfitted_by.append(person)
            continue
        cursor = stream_id
        rows.append(entry.triplet)
        people.append(person)
        kinds.append(answer.served.trial_type)
        if len(rows) % _PIECE == 0:
            on_progress(len(rows))
    return AnswerSet(
        triplets=np.array(rows, dtype=np.int32).reshape(-1, 3),
        participants=np.array(people, dtype=np.int32),
        random=np.isin(kinds, tuple(DRAWN_BLINDLY)),
        repeatable=np.isin(kinds, tuple(REPEATABLE)),
        names=tuple(names),
        cursor=cursor,
        unfitted=np.array(unfitted, dtype=np.int32).reshape(-1, 3),
        unfitted_by=np.array(unfitted_by, dtype=np.int32),
    )
