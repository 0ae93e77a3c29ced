"""People's recorded answers in place of a world: a query can be asked as often as it was answered."""

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from salmon.answer_files.answer_table import AnswerTable, read_bytes
from salmon.learning import accuracy
from salmon.simulate import stream

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]

# So many times the queries that are wanted are asked for at most: those that nobody answered are passed over.
_ATTEMPTS = 40


class Pool:
    """The answers of a file. Those of its test set judge; the others are drawn from, each answer once.

    A sampler may propose queries that nobody was asked: they are passed over, and it goes on as if they were pending.
    """

    def __init__(self, table: AnswerTable, seed: int) -> None:
        self.n = table.n
        self._test = table.triplets[table.test]
        self._rng = stream(seed, "queries")
        rows = table.triplets[~table.test]
        order = self._rng.permutation(len(rows))
        self._random = [rows[index] for index in order if table.random[~table.test][index]]
        self._answers: dict[tuple[int, int, int], list[Ints]] = defaultdict(list)
        for index in order:
            self._answers[_key(rows[index])].append(rows[index])

    def first(self, count: int) -> Ints:
        """Answers to random queries."""
        return np.array([self._take(_key(self._random.pop())) for _ in range(count)], dtype=np.int32)

    def answer(self, ask: Callable[[int], Ints], count: int) -> tuple[Ints, Ints]:
        """The recorded answers to the queries asked, until there are `count` of them."""
        answers: list[Ints] = []
        for _ in range(_ATTEMPTS):
            asked = ask(count - len(answers))
            # One query at a time: a query asked twice takes two answers.
            answers.extend(self._take(_key(query)) for query in asked if self._answers[_key(query)])
            if len(answers) == count:
                break
        rows = np.array(answers, dtype=np.int32)
        return rows, rows

    def judge(self, coordinates: Floats) -> dict[str, float]:
        """The accuracy on the test set."""
        return {"accuracy": accuracy(coordinates, self._test)}

    def _take(self, key: tuple[int, int, int]) -> Ints:
        return self._answers[key].pop()


def read_pool(path: Path) -> AnswerTable:
    """The table of a file of answers, which needs a test set (a sampler called Test, or named with `--test`)."""
    table = read_bytes(path.read_bytes(), name=str(path))
    if not table.test.any():
        raise SystemExit(f"{path} has no answers of a sampler called Test, so nothing can judge a replay of it.")
    return table


def _key(row: Ints) -> tuple[int, int, int]:
    head, first, second = (int(target) for target in row)
    return head, min(first, second), max(first, second)
