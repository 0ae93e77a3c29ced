"""How often "enough yet?" is right: the interval of further answers at half-time, and a rule that closes experiments.

    OMP_NUM_THREADS=1 python -m benchmarks.enough --studies 50

Every simulated experiment goes on until its map is within a point of what the truth predicts; the number of answers at
which it was there is known then. Looking back, the interval is the one that the overview showed when half of them had
come: 80 % should hold the truth. The rule `stopping.accuracy_gain_below` is followed from the first answer, with a look
whenever the answers have grown by a fifth: it closed too early where the next `per` answers would have brought more
than the threshold, and that may happen to 5 %.
"""

import numpy as np

from benchmarks.report import Report, arguments
from salmon.estimator import RECOMMENDED_NOISE
from salmon.learning import fit
from salmon.learning.noise_learning import RECOMMENDED_RIDGE
from salmon.learning_curve import last_look, learning_curve
from salmon.planning import PEOPLE, RANDOM, PlannedStudy
from salmon.samplers.registry import active_sampler
from salmon.simulate import stream
from salmon.spec import SamplerSpec

COLUMNS = (
    "targets",
    "what",
    "people",
    "within 80 %",
    "within 95 %",
    "needed, median",
    "closed",
    "too early",
    "after, median",
    "studies",
)
ADAPTIVE = SamplerSpec(name="Adaptive", sampler_class="Adaptive", arguments={"d": 2})
WORTH = 0.01
JUDGED = 20_000


def main():
    options = arguments(
        __doc__,
        clocks=False,
        studies={"type": int, "default": 50},
        sizes={"type": int, "nargs": "*", "default": [12, 30]},
        gain={"type": float, "default": 0.005},
        per={"type": int, "default": 500},
        most={"type": int, "default": 200},
    )
    report = Report(
        f"Intervals of further answers at half-time, and closing below {options.gain:.1%} a {options.per:,} answers",
        COLUMNS,
    )
    for n in options.sizes:
        for name in (RANDOM, "Adaptive"):
            for people in PEOPLE:
                measure(n, name, people, options, report)
    report.write(options.json)


def measure(n, name, people, options, report):
    inside, needed, stops, early = [], [], [], []
    for number in range(options.studies):
        study = PlannedStudy(n, 2, ADAPTIVE, people=people, seed=number)
        history, accuracy, best = live(study, name, options.most * n)
        answers = np.array([row[0] for row in history])
        # Accuracies of single maps go up and down: what the running experiment is on is their isotonic mean.
        smooth = rising(accuracy)
        there = np.flatnonzero(smooth >= best - WORTH)
        if len(there):
            truth = float(answers[there[0]])
            needed.append(truth)
            half = [row for row in history if row[0] <= truth / 2]
            curve = learning_curve(half, n=n, d=2)
            if curve is not None:
                left = truth - curve.answers
                inside.append(
                    [
                        curve.more_answers(WORTH, (1 - share) / 2) <= left <= curve.more_answers(WORTH, (1 + share) / 2)
                        for share in (0.8, 0.95)
                    ]
                )
        for end in range(1, len(history) + 1):
            look = last_look(history[:end], n=n, d=2, worth=options.gain, per=options.per)
            if look is not None and look.stops:
                stops.append(answers[end - 1])
                ahead = float(np.interp(answers[end - 1] + options.per, answers, smooth))
                early.append(ahead - smooth[end - 1] > options.gain)
                break
    shares = np.mean(inside, axis=0) if inside else (float("nan"),) * 2
    report.add(
        **dict(
            zip(
                COLUMNS,
                (
                    n, name, people, shares[0], shares[1], float(np.median(needed)) if needed else float("nan"),
                    len(stops), sum(early), float(np.median(stops)) if stops else float("nan"), options.studies,
                ),
                strict=True,
            )
        )
    )  # fmt: skip


def live(study, name, most):
    """Return the history of one experiment, the exact accuracy of its map at each line, and that of the truth."""
    person, seed = study.person(0)
    n = study.n
    sampler = active_sampler("Adaptive", {"d": study.d}) if name == "Adaptive" else None
    state = sampler.start(n, seed) if sampler else None
    triplets, shown = np.zeros((0, 3), np.int32), None
    right = made = 0
    history, accuracy = [], []
    best = None
    while len(triplets) < most:
        done = len(triplets)
        if sampler is None:
            queries = person.world.random_queries(n, stream(seed, "queries", done))
            is_random = np.ones(n, bool)
        else:
            state = sampler.refit(state, triplets) if done else state
            found = sampler.search(state, triplets, triplets[:0], n)
            queries, is_random = found.queries, np.array([kind == "random" for kind in found.trial_types])
        answers, _ = person.react_all(queries, stream(seed, "answers", done))
        if shown is not None:
            heads, won, lost = shown[answers[is_random].T]
            nearer = ((heads - won) ** 2).sum(axis=1) < ((heads - lost) ** 2).sum(axis=1)
            right, made = right + int(nearer.sum()), made + len(nearer)
        triplets = np.concatenate([triplets, answers])
        shown = fit(
            triplets, n, study.d, noise=RECOMMENDED_NOISE, ridge=RECOMMENDED_RIDGE, start=shown, n_starts=1,
            seed=int(stream(seed, "start").integers(2**31)),
        ).coordinates  # fmt: skip
        seen, best = judge(person, shown, seed)
        history.append((float(len(triplets)), float(right), float(made)))
        accuracy.append(seen)
        if seen > best - WORTH / 3:
            break
    return history, np.array(accuracy), best


def judge(person, coordinates, seed):
    """Return (expected accuracy of an embedding on random queries, the same of the truth)."""
    queries = person.world.random_queries(JUDGED, stream(seed, "judge"))
    chance = person.left_wins(queries)
    heads, first, second = coordinates[queries.T]
    nearer = np.sign(((heads - second) ** 2).sum(axis=1) - ((heads - first) ** 2).sum(axis=1))
    return float((0.5 + nearer * (chance - 0.5)).mean()), float(np.maximum(chance, 1 - chance).mean())


def rising(values):
    """Return the rising sequence that is nearest to the values (pool adjacent violators)."""
    blocks = []
    for value in values:
        blocks.append([value, 1])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            mean, weight = blocks.pop()
            blocks[-1] = [
                (blocks[-1][0] * blocks[-1][1] + mean * weight) / (blocks[-1][1] + weight),
                blocks[-1][1] + weight,
            ]
    return np.repeat([mean for mean, _ in blocks], [weight for _, weight in blocks])


if __name__ == "__main__":
    main()
