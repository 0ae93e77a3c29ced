"""How often a plan's bands hold: plans of a few simulated studies against many further ones.

    OMP_NUM_THREADS=1 python -m benchmarks.planning --studies 50

A plan is made of some runs, as `salmon plan` makes it. Each further study, in a world of its own and with other people,
is compared with the bands of a plan made from other seeds: its accuracy at a third, two thirds and all of its answers,
and the number of answers at which it reached the level that the plan proposes. 80 % are wanted.
"""

import numpy as np

from benchmarks.report import Report, arguments
from salmon.planning import RANDOM, PlannedStudy, answers_to, simulate
from salmon.spec import SamplerSpec

COLUMNS = ("targets", "d", "what", "at a third", "at two thirds", "at the end", "answers needed", "studies")
ADAPTIVE = SamplerSpec(name="Adaptive", sampler_class="Adaptive")


def main():
    options = arguments(
        __doc__,
        clocks=False,
        studies={"type": int, "default": 50},
        runs={"type": int, "default": 6},
        sizes={"type": int, "nargs": "*", "default": [12, 30]},
        dimensions={"type": int, "nargs": "*", "default": [2]},
    )
    report = Report(
        f"Share of {options.studies} studies within the 80 % bands of plans from {options.runs} runs", COLUMNS
    )
    for n in options.sizes:
        for d in options.dimensions:
            measure(n, d, options, report)
    report.write(options.json)


def measure(n, d, options, report):
    sampler = ADAPTIVE.model_copy(update={"arguments": {"d": d}})
    inside = {RANDOM: [], "Adaptive": []}
    for number in range(options.studies):
        *_, plan = simulate(PlannedStudy(n, d, sampler, seed=2 * number), options.runs)
        (outcome,) = simulate(PlannedStudy(n, d, sampler, seed=2 * number + 1), 1)
        level = plan.usual_level()
        places = [round(share * (len(plan.answers) - 1)) for share in (1 / 3, 2 / 3, 1)]
        for name, rows in inside.items():
            band, seen = plan.accuracy[name], outcome.values[name][0]
            needed, took = plan.needed(name, level), answers_to(plan.answers, seen, level)
            held = [band.low[place] <= seen[place] <= band.high[place] for place in places]
            rows.append([*held, needed.low <= took <= needed.high])
    for name, rows in inside.items():
        shares = np.mean(rows, axis=0)
        report.add(targets=n, d=d, what=name, studies=len(rows), **dict(zip(COLUMNS[3:7], shares, strict=True)))


if __name__ == "__main__":
    main()
