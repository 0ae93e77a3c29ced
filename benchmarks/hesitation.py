"""Whether people answer faster where the map's margin is large, measured on human answers.

Example: python -m benchmarks.hesitation --data alien-eggs-30-responses.csv.gz

The data have the columns participant, head, winner, loser, left, right and response_time_s. Each person is judged by a
map that their own answers were left out of, and compared with their own times in random order.
"""

import argparse
import csv
import gzip
from collections import defaultdict
from pathlib import Path

import numpy as np

from salmon.learning import fit
from salmon.noise import PowerTSTE
from salmon.quality import Evidence
from salmon.quality.combined import Hesitation, hesitations, margins_of
from salmon.records import Answer, Served, Timing

FOLDS = 10
COUNTS = (20, 50)


def main() -> None:
    """Print what was measured."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--data", type=Path, help="human answers with response times")
    given = options.parse_args()
    if given.data is None:
        print("Skipped: --data names no file of human answers.")
        return
    people: dict[str, list[tuple[int, int, int, float]]] = defaultdict(list)
    with gzip.open(given.data, "rt") as file:
        for row in csv.DictReader(file):
            people[row["participant"]].append(
                (int(row["head"]), int(row["winner"]), int(row["loser"]), float(row["response_time_s"] or -1))
            )
    names = sorted(people)
    n = 1 + max(max(row[:3]) for rows in people.values() for row in rows)
    maps = [_map_without(people, names[fold::FOLDS], n) for fold in range(FOLDS)]
    rng = np.random.default_rng(0)
    for count in COUNTS:
        true: list[Hesitation] = []
        shuffled: list[Hesitation] = []
        accuracy: list[float] = []
        for place, name in enumerate(names):
            rows = [row for row in people[name] if row[3] >= 0][:count]
            if len(rows) < count:
                continue
            coordinates = maps[place % FOLDS]
            answered = margins_of(_evidence(rows, [row[3] for row in rows], n), coordinates)
            others = margins_of(_evidence(rows, list(rng.permutation([row[3] for row in rows])), n), coordinates)
            if not (own := hesitations(answered)) or not (mixed := hesitations(others)):
                continue
            true.append(own["p"])
            shuffled.append(mixed["p"])
            accuracy.append(float(answered.right.mean()))
        rho = np.array([each.correlation for each in true])
        fits = np.array(accuracy)
        mixed_rho = np.array([each.correlation for each in shuffled])
        area = float((rho[:, None] < mixed_rho[None, :]).mean())
        below = np.mean([each.high < 0 for each in true])
        print(
            f"{count} answers each, {len(rho)} people: mean correlation {rho.mean():.2f}"
            f" ({rho[fits >= 0.65].mean():.2f} of the {int((fits >= 0.65).sum())} with accuracy .65 or more,"
            f" {rho[fits < 0.65].mean():.2f} of the {int((fits < 0.65).sum())} below);"
            f" area under the curve against shuffled times {area:.2f}; whole interval below 0: {below:.0%} of the people,"
            f" {np.mean([each.high < 0 for each in shuffled]):.0%} with shuffled times."
        )


def _map_without(people: dict[str, list[tuple[int, int, int, float]]], without: list[str], n: int) -> np.ndarray:
    rows = [row[:3] for name, answers in people.items() if name not in without for row in answers]
    noise = PowerTSTE(k=0.85, lapse=0.07)
    return fit(np.array(rows, np.int32), n, 2, noise=noise, ridge=0.03, n_starts=2, seed=0).coordinates


def _evidence(rows: list[tuple[int, int, int, float]], times: list[float], n: int) -> Evidence:
    evidence = Evidence(n)
    for (head, winner, loser, _), seconds in zip(rows, times, strict=True):
        served = Served("e", 1, "p", "s", 1, "S", head, winner, loser, 0.0, "random", 0.0, 1.0, 0, 0, 0, "t")
        evidence.add(Answer(served, winner, Timing(rt_ms=1000 * seconds), 0))
    return evidence


if __name__ == "__main__":
    main()
