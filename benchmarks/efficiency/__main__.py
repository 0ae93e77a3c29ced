"""`python -m benchmarks.efficiency`: run, resume, and print the tables."""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.efficiency import findings
from benchmarks.efficiency.contenders import CONTENDERS, rounds_of
from benchmarks.efficiency.figure import draw_curves
from benchmarks.efficiency.protocol import setting
from benchmarks.efficiency.records import Records
from benchmarks.efficiency.replay import read_pool
from benchmarks.efficiency.runs import carry_out_all, task
from benchmarks.efficiency.tables import Level, levels_for, needed_table, ratio_table
from salmon.simulate import bayes_accuracy

QUICK = ("Random", "Adaptive")
QUICK_SEEDS, QUICK_ROUNDS = 8, 24
REPLAY_LEVELS = tuple(Level("accuracy", value) for value in (0.78, 0.80, 0.81, 0.82, 0.83))


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options(arguments)
    records = Records(options.output)
    if options.source:
        print("\n".join(findings.report(options, records)))
        return
    print("\n".join(contest(options, records)))


def contest(options: argparse.Namespace, records: Records) -> Iterator[str]:
    """All contenders in one world (or on people's answers), and the tables."""
    names = QUICK if options.quick else options.samplers or tuple(CONTENDERS)
    seeds = range(QUICK_SEEDS if options.quick else options.seeds)
    world, n = options.world, options.n
    data = str(options.data) if options.data else ""
    if data:
        world, n = "replay", read_pool(options.data).n
    queue = options.queue * n
    tasks = {
        name: [
            task(
                world, n, name, seed, options.rounds or (QUICK_ROUNDS if options.quick else rounds_of(name)),
                queue=queue, data=data,
            )
            for seed in seeds
        ]
        for name in names
    }  # fmt: skip
    # Seed by seed, so that a stopped benchmark has compared everybody on the seeds that it reached.
    carry_out_all([tasks[name][seed] for seed in seeds for name in names], records, options.jobs)
    rows = {name: records.measured(tasks[name]) for name in names}
    if data:
        levels: Sequence[Level] = REPLAY_LEVELS
        ceiling = float("nan")
    else:
        ceiling = float(np.mean([bayes_accuracy(setting(world, n).make(seed)) for seed in seeds]))
        levels = levels_for(world, n, ceiling)
    queued = f", {options.queue}n queries pending" if queue else ""
    title = f"{world}, n = {n}{queued}, {len(seeds)} paired seeds"
    yield from needed_table(title + (f" (Bayes accuracy {ceiling:.4f})" if not data else ""), rows, levels)
    yield from ratio_table(f"Answers compared with Random, {title}", rows, "Random", levels)
    yield from ratio_table(f"Answers compared with the published ARR, {title}", rows, "ARR R=10", levels)
    if options.svg:
        draw_curves(options.svg, {name: row["accuracy"] for name, row in rows.items()}, ceiling, title)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.efficiency", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="Random and Adaptive only, a few seeds, in under a minute")
    parser.add_argument("--source", action="store_true", help="the findings published about the old program's search")
    parser.add_argument("--world", default="eggs", choices=("eggs", "logistic", "clusters", "noisy"))
    parser.add_argument("--n", type=int, default=None, help="targets: 30, 90 or 300 eggs; 60 elsewhere")
    parser.add_argument("--samplers", nargs="+", choices=tuple(CONTENDERS), help="only these")
    parser.add_argument("--seeds", type=int, default=40, help="paired seeds (six decide nothing)")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time; give each one thread (OMP_NUM_THREADS=1)")
    parser.add_argument(
        "--rounds", type=int, default=0, help="rounds of n answers; default: as many as the levels need"
    )
    parser.add_argument("--queue", type=int, default=0, help="queries posted ahead, in multiples of n (1, 3)")
    parser.add_argument("--data", type=Path, help="a file of people's answers to replay, with a test set")
    parser.add_argument("--output", type=Path, help="JSON lines of finished runs; what is in it is not run again")
    parser.add_argument("--svg", type=Path, help="draw the accuracy curves into this file")
    options = parser.parse_args(arguments)
    if options.n is None:
        options.n = 90 if options.source else 30 if options.world == "eggs" else 60
    if options.data and not options.data.exists():
        parser.exit(0, f"Skipped: there is no file {options.data} to replay.\n")
    return options


if __name__ == "__main__":
    main()
