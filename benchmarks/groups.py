"""How often groups of people are found where there are two, and where there is one.

OMP_NUM_THREADS=1 python -m benchmarks.groups
"""

import numpy as np
from sklearn.metrics import adjusted_rand_score

from benchmarks.report import Report, arguments
from salmon.estimator.groups import find_groups
from salmon.simulate import SimulatedParticipant, random_world

N, PEOPLE, EACH, LAPSE = 30, 20, 200, 0.05
COLUMNS = ("groups", "studies", "found right", "least adjusted Rand index")


def main():
    options = arguments(__doc__, clocks=False, two={"type": int, "default": 20}, one={"type": int, "default": 100})
    report = Report(f"{PEOPLE} people with {EACH} answers each about {N} targets", COLUMNS)
    for worlds, studies in ((2, options.two), (1, options.one)):
        truth = np.arange(PEOPLE) % worlds
        found = [find_groups(*answers(seed, worlds), N, seed=seed) for seed in range(studies)]
        right = sum(one.count == worlds for one in found)
        least = min(adjusted_rand_score(truth, one.of) for one in found)
        report.add(**dict(zip(COLUMNS, (worlds, studies, right, least), strict=True)))
    report.write(options.json)


def answers(seed, worlds):
    """Return the answers of people who live in one of some worlds by turns, and who gave each."""
    rng = np.random.default_rng([seed, worlds])
    people = [SimulatedParticipant(random_world(N, 2, 100 * seed + place), lapse=LAPSE) for place in range(worlds)]
    rows = []
    for number in range(PEOPLE):
        own = people[number % worlds]
        rows.append(own.react_all(own.world.random_queries(EACH, rng), rng)[0])
    return np.concatenate(rows), np.repeat(np.arange(PEOPLE), EACH)


if __name__ == "__main__":
    main()
