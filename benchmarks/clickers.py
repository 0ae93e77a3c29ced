"""What leaving out people who click blindly brings, and what it costs where nobody does.

    OMP_NUM_THREADS=1 python -m benchmarks.clickers --n 30 --seeds 40

People take part one after the other, several at a time, with so many answers each; a share of them clicks blindly, or
answers every other query without looking (half-careless). `Adaptive` asks; every n answers the people are judged, the
answers of those who are taken for clickers leave the model, and the embedding is judged by its accuracy on fresh
careful answers. Both contenders meet the same people. `found` and `wrongly` are the shares of blind people and of
careful ones who are left out at the end.
"""

import argparse

import numpy as np

from benchmarks.efficiency.levels import Curves
from benchmarks.efficiency.tables import Level, needed_table, ratio_table
from salmon.learning.clickers import find_clickers
from salmon.samplers.adaptive import Adaptive
from salmon.simulate import Judge, SimulatedParticipant, egg_world, stream

# People who answer at the same time.
AT_ONCE = 5
LAPSES = {"nobody careless": 0.0, "clickers": 1.0, "half-careless": 0.5}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=30, help="eggs: 30, 90 or 300")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=40, help="rounds of n answers")
    parser.add_argument("--each", type=int, default=60, help="answers a person")
    parser.add_argument("--share", type=float, default=0.2, help="share of careless people")
    parser.add_argument("--levels", type=float, nargs="+", default=[0.75, 0.78, 0.80, 0.81, 0.82])
    options = parser.parse_args()
    world = egg_world(options.n)
    judge = Judge.of(world)
    answers, seeds = np.arange(1.0, options.rounds + 1), tuple(range(options.seeds))
    levels = [Level("accuracy", level) for level in options.levels]
    for kind, lapse in LAPSES.items():
        rows, lines = {}, []
        for leave_out in ("nobody", "clickers"):
            found = [run(world, judge, lapse, leave_out, options, seed) for seed in seeds]
            rows[f"leave_out: {leave_out}"] = {
                "accuracy": Curves(answers, np.array([curve for curve, _ in found]), seeds)
            }
            lines.append(f"{leave_out}: found {rate(found, 0)}, wrongly {rate(found, 1)}")
        title = f"{kind}, n = {options.n}, {options.seeds} seeds" + (f" ({options.share:.0%})" if lapse else "")
        print("\n".join(needed_table(title, rows, levels)))
        print("\n".join(ratio_table("Compared with leaving out nobody", rows, "leave_out: nobody", levels)))
        print("\n" + "; ".join(lines), flush=True)


def run(world, judge, lapse, leave_out, options, seed):
    """Return the accuracy after every n answers, and who was left out at the end: pairs
    (left out, of) of careless and careful.
    """
    sampler, queries, generator = Adaptive(), stream(seed, "queries"), stream(seed, "answers")
    people, careful = [], SimulatedParticipant(world)
    state = sampler.start(world.n, int(stream(seed, "sampler").integers(2**31)))
    rows, given_by, left_out, curve = np.zeros((0, 3), np.int32), np.zeros(0, np.int64), (), []
    asked = world.random_queries(world.n, queries)
    while True:
        # The people of this round, in turn; whoever has given all their answers is followed by the next.
        numbers = len(rows) + np.arange(world.n)
        places = numbers // (AT_ONCE * options.each) * AT_ONCE + numbers % AT_ONCE
        for place in range(len(people), int(places.max()) + 1):
            careless = stream(seed, "sides", place).random() < (options.share if lapse else 0)
            people.append(SimulatedParticipant(world, lapse=lapse) if careless else careful)
        sided = np.where(generator.random(world.n)[:, None] < 0.5, asked, asked[:, [0, 2, 1]])
        fresh = [people[place].react_all([query], generator)[0] for place, query in zip(places, sided, strict=True)]
        rows, given_by = np.concatenate([rows, *fresh]), np.concatenate([given_by, places])
        kept = rows[~np.isin(given_by, left_out)]
        state = sampler.refit(state, kept)
        if leave_out == "clickers":
            left_out = find_clickers(rows, given_by, state.coordinates, seed=seed).people
            kept = rows[~np.isin(given_by, left_out)]
        curve.append(judge.accuracy(sampler.report(state, kept).coordinates))
        if len(curve) == options.rounds:
            blind = {place for place, person in enumerate(people) if person.lapse}
            sighted = set(range(len(people))) - blind
            return curve, ((len(blind & {*left_out}), len(blind)), (len(sighted & {*left_out}), len(sighted)))
        asked = sampler.search(state, kept, np.zeros((0, 3), np.int32), world.n).queries


def rate(found, which):
    left_out, everybody = np.array([counts[which] for _, counts in found]).sum(axis=0)
    return f"{left_out / everybody:.3f}" if everybody else "none"


if __name__ == "__main__":
    main()
