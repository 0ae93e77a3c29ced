"""Read recorded human answers, and divide them into answers to fit and answers to judge by."""

import csv
import gzip
import io
from pathlib import Path

import numpy as np

from salmon.answer_files.answer_table import read_bytes
from salmon.estimator import triple_groups


def read_human(path):
    """Return (number of targets, (m, 3) triplets) of a file: answers one by one, or
    queries with counts of both choices.

    Answers of a test set are left out: they are not for choosing anything by.
    """
    content = path.read_bytes()
    text = gzip.decompress(content) if path.suffix == ".gz" else content
    table = list(csv.DictReader(io.StringIO(text.decode())))
    if table and "chose_first" in table[0]:
        names = ("head", "first", "second", "chose_first", "chose_second")
        head, first, second, chose_first, chose_second = np.array(
            [[int(row[name]) for name in names] for row in table]
        ).T
        parts = [(head, first, second, chose_first), (head, second, first, chose_second)]
        triplets = np.concatenate([np.repeat(np.stack(part[:3], axis=1), part[3], axis=0) for part in parts])
        return int(triplets.max()) + 1, triplets.astype(np.int32)
    answers = read_bytes(content, name=str(path))
    return answers.n, answers.triplets[~answers.test]


def divide(triplets, seed, share=0.2):
    """Return (answers to fit in random order, answers to judge by), with all answers about the
    same three targets on one side.
    """
    generator = np.random.default_rng([seed, 20])
    groups = triple_groups(triplets)
    order = generator.permutation(int(groups.max()) + 1)
    held_out = order[groups] < share * len(order)
    return generator.permutation(triplets[~held_out]), triplets[held_out]


def present(paths):
    """Return the files that exist; say which ones are left out."""
    for path in paths:
        if not path.exists():
            print(f"Skipped: there is no file {path}.")
    return [path for path in map(Path, paths) if path.exists()]
