"""How often a race between samplers names a wrong winner when it is looked at again and
again, and how often the right one.

OMP_NUM_THREADS=1 python -m benchmarks.race [--null 500] [--real 30]

Everything is real: participants who each meet one sampler, held-out trials, maps that are refitted, the confidence
sequence. In the null world both samplers draw random queries. In the others one of them is Adaptive, which chooses
among all queries with what it has learned from its own participants alone, as in an experiment; or both are random, and
one is given a dimension too few.
"""

from time import process_time

import numpy as np

from benchmarks.report import Report, arguments
from salmon.estimator.race import Race, begin, between_people, confidence_sequence, run_stage
from salmon.samplers.registry import active_sampler
from salmon.simulate import SimulatedParticipant, random_world, stream

SAME, DIMENSIONS = ("Random", "Random again"), ("Random in 2 dimensions", "Random in 1 dimension")
N, D, EACH, HELD_OUT, LAPSE, LOOKS = 30, 2, 50, 0.3, 0.05, 50
COLUMNS = (
    *("samplers", "participants", "held-out answers", "races", "a winner is named", "the wrong one"),
    *("interval misses the truth", "final width (points)", "final lead (points)", "seconds a race"),
)


def main():
    options = arguments(
        __doc__,
        clocks=False,
        null={"type": int, "default": 500},
        real={"type": int, "default": 30},
        people={"type": int, "default": 120},
    )
    report = Report(f"{LOOKS} looks; {N} targets, {EACH} answers each, {HELD_OUT:.0%} of them held out", COLUMNS)
    for names, races in ((SAME, options.null), (("Adaptive", "Random"), options.real), (DIMENSIONS, options.real)):
        began = process_time()
        found = []
        for seed in range(races):
            found.append(one_race(seed, names, options.people))
            if len(found) % 50 == 0:
                report.note(
                    f"{' and '.join(names)}: a winner is named in {sum(one[0] for one in found)} of {len(found)}"
                )
        if not found:
            continue
        named, wrong, missed, width, lead, held_out = (np.array(column) for column in zip(*found, strict=True))
        report.add(
            **dict(
                zip(
                    COLUMNS,
                    (
                        *(" and ".join(names), options.people, round(held_out.mean()), races),
                        *(f"{named.mean():.1%}", f"{wrong.mean():.1%}", f"{missed.mean():.1%}"),
                        *(f"{100 * width.mean():.1f}", f"{100 * lead.mean():+.1f}"),
                        f"{(process_time() - began) / races:.1f}",
                    ),
                    strict=True,
                )
            )
        )
    report.write(options.json)


def one_race(seed, names, people):
    """Return (whether a winner was named at any look, whether a wrong one was, whether the interval ever missed the
    expected lead, its last width, the last lead, held-out answers).
    """
    race, person = simulated(seed, names, people)
    state, expected = begin(race), []
    for stage in race.stages():
        state = run_stage(race, stage, state)
        judged = race.triplets[list(stage.answers)]
        chance = person.left_wins(judged)  # that the foot that won would win
        sides = [sides_of(coordinates, judged) for coordinates in state.maps]
        expected.append((2 * chance - 1) * (sides[0] - sides[1]) / 2)
    differences = state.hits[:, 0] - state.hits[:, 1]
    mean, low, high = confidence_sequence(differences, between_people(state.without).sum(axis=1))
    _, low_alone, high_alone = confidence_sequence(differences)
    truth = np.cumsum(np.concatenate(expected)) / np.arange(1, len(mean) + 1)
    looks = np.unique(np.linspace(1, len(mean), LOOKS).astype(int)) - 1
    ahead, behind = (low[looks] > 0).any(), (high[looks] < 0).any()
    missed = ((truth[looks] < low_alone[looks]) | (truth[looks] > high_alone[looks])).any()
    return ahead or behind, behind or (names == SAME and ahead), missed, high[-1] - low[-1], mean[-1], len(mean)


def simulated(seed, names, people):
    """Return the race of people who come one after the other, and the person whom all of them answer as."""
    person = SimulatedParticipant(random_world(N, D, seed), lapse=LAPSE)
    rng = stream(seed, "answers")
    rows, samplers, held_out = [], [], []
    adaptive = active_sampler("Adaptive", {"d": D})
    state = adaptive.start(N, seed)
    for _ in range(people):
        arm = int(rng.integers(2))
        blind = rng.random(EACH) < HELD_OUT
        queries = person.world.random_queries(EACH, rng)
        if names[arm] == "Adaptive":
            own = np.concatenate(
                [np.zeros((0, 3), np.int32), *(r for r, s in zip(rows, samplers, strict=True) if s[0] == arm)]
            )
            state = adaptive.refit(state, own) if len(own) else state
            chosen = np.asarray(adaptive.search(state, own, own[:0], EACH).queries)[: (~blind).sum()]
            queries[np.flatnonzero(~blind)[: len(chosen)]] = chosen
        rows.append(person.react_all(queries, rng)[0])
        samplers.append(np.full(EACH, arm))
        held_out.append(blind)
    race = Race(
        names,
        (D, 1 if names == DIMENSIONS else D),
        np.concatenate(rows).astype(np.int32),
        np.concatenate(samplers),
        np.repeat(np.arange(people), EACH),
        np.concatenate(held_out),
        N,
        seed,
    )
    return race, person


def sides_of(coordinates, triplets):
    """Return 1 where a map puts the first foot nearer, −1 where the second."""
    heads, first, second = coordinates[triplets.T]
    return np.sign(((heads - second) ** 2).sum(axis=1) - ((heads - first) ** 2).sum(axis=1))


if __name__ == "__main__":
    main()
