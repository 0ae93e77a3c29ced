"""The findings published about the old program's search, measured here (Sievert 2021, chapter 4 and appendix E)."""

import argparse
from collections.abc import Iterator

import numpy as np

from benchmarks.efficiency.contenders import PRIORITIES, SEARCHES
from benchmarks.efficiency.protocol import Simulated, setting
from benchmarks.efficiency.records import Records
from benchmarks.efficiency.runs import carry_out_all, task
from benchmarks.efficiency.source import all_ranked
from benchmarks.efficiency.tables import Level, needed_table, ratio_table
from salmon.samplers.arr import ARR

#: Answers to random queries behind the embedding whose queries are ranked, in multiples of n (1,800 at n = 90).
RANKED_AFTER = 20
POOLS = (1, 10, 100, 300, 1000, 3000, 10_000, 30_000, 100_000)
LEVELS = (*(Level("accuracy", value) for value in (0.75, 0.78, 0.80, 0.81, 0.82)), Level("rank_error", 5.0))
ROUNDS = 30
#: With priorities the queue is cut short by the next refit: so many refits while n answers come in.
REFITS_PER_N = 10


def report(options: argparse.Namespace, records: Records) -> Iterator[str]:
    """All findings as tables."""
    n, seeds, rounds = options.n, range(options.seeds), options.rounds or ROUNDS
    yield from unique_heads(n, seeds)
    tasks = {name: [task("eggs", n, name, seed, rounds) for seed in seeds] for name in SEARCHES}
    carry_out_all([tasks[name][seed] for seed in seeds for name in tasks], records, options.jobs)
    step = n // REFITS_PER_N
    ordered = {name: [task("eggs", n, name, seed, rounds, step=step) for seed in seeds] for name in PRIORITIES}
    carry_out_all([ordered[name][seed] for seed in seeds for name in ordered], records, options.jobs)
    for title, group in (
        ("Search length and head selection", tasks),
        (f"Priority schemes, {REFITS_PER_N} refits every n answers", {"Random": tasks["Random"], **ordered}),
    ):
        rows = {name: records.measured(each) for name, each in group.items()}
        yield from needed_table(f"{title}: eggs, n = {n}, {len(seeds)} paired seeds", rows, LEVELS)
        yield from ratio_table(f"{title}, compared with Random", rows, "Random", LEVELS)
    yield "\nHeads of the last n queries, mean over the second half of the run\n"
    yield "| sampler | unique heads (of n) | mean run of one head |\n| --- | --- | --- |"
    for name, each in {**tasks, **ordered}.items():
        heads, runs = records.curves("heads", each), records.curves("head_run", each)
        if heads is not None and runs is not None:
            half = heads.values.shape[1] // 2
            yield f"| {name} | {heads.values[:, half:].mean():.1f} | {runs.values[:, half:].mean():.1f} |"


def unique_heads(n: int, seeds: range) -> Iterator[str]:
    """How many heads the P most informative queries have, after so many answers to random queries."""
    counts = {size: [] for size in POOLS}
    constant: list[int] = []
    for seed in seeds:
        respondents = Simulated(setting("eggs", n).make(seed), seed)
        sampler = ARR(R=1)
        triplets, state = np.empty((0, 3), dtype=np.int32), sampler.start(n, seed)
        for _ in range(RANKED_AFTER):
            triplets = np.concatenate([triplets, respondents.first(n)])
            state = sampler.refit(state, triplets)
        heads = all_ranked(sampler, state, triplets).queries[:, 0]
        for size in POOLS:
            counts[size].append(len(np.unique(heads[:size])))
        constant.append(int(np.argmax(heads != heads[0])))
    yield f"\nUnique heads among the P most informative queries, n = {n}, {RANKED_AFTER * n:,} random answers\n"
    yield "| P | " + " | ".join(f"{size:,}" for size in POOLS) + " |\n|" + " --- |" * (len(POOLS) + 1)
    yield "| heads, mean | " + " | ".join(f"{np.mean(counts[size]):.1f}" for size in POOLS) + " |"
    yield "| fewest – most | " + " | ".join(f"{min(counts[size])}–{max(counts[size])}" for size in POOLS) + " |"
    yield f"\nThe best queries share one head for the first {np.median(constant):.0f} places (median; at most {max(constant)})."
