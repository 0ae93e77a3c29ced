"""The answers that a job reads: with who gave each, and whether its query was drawn blindly."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

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
    """

    triplets: Rows
    participants: NDArray[np.int32]
    random: NDArray[np.bool_]
    repeatable: NDArray[np.bool_]
    names: tuple[str, ...]
    cursor: str

    def __len__(self) -> int:
        return len(self.triplets)

    def given_by(self, names: Iterable[str]) -> NDArray[np.bool_]:
        """Return (m,) whether one of these participants gave the answer."""
        places = [place for place, name in enumerate(self.names) if name in set(names)]
        return np.isin(self.participants, places)


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
    cursor = "0"
    for stream_id, answer in answers:
        if at_most is not None and len(rows) >= at_most:
            break
        entry = to_entry(stream_id, answer, tests=tests)
        if entry is None or max(entry.triplet) >= n:
            continue
        cursor = stream_id
        rows.append(entry.triplet)
        people.append(names.setdefault(answer.served.participant, len(names)))
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
    )
