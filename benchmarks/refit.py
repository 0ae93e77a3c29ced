"""How soon a refit is as good as it gets, against mini-batch Adadelta and, where it is installed, cblearn.

    OMP_NUM_THREADS=1 python -m benchmarks.refit --json refit.json [--data responses.csv.gz]

Every contender gets the same answers. `to_best_s` is the time until its accuracy on held-out answers is within .002 of
the best that any contender reached in the end; `total_s` the time until it stops by itself. cblearn cannot be watched,
so its two times are the same. Adadelta is fitted as in published experiments: torch with autograd, batches of 512 drawn
without replacement, N(0, 1) · 1e-4 at first, learning rate 1; it never stops, so it gets a fixed time. Before them it
prints what one loss with its gradient costs with numpy and with torch, alternately; the library takes the quicker one
at each size. `--data` takes human answers with the columns head, winner, loser, sampler: fitted on RandomSampling,
judged on Test.
"""

import csv
import gzip
import importlib.util
import multiprocessing
import statistics
import time
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.report import Report, arguments, tste_world
from salmon.learning import accuracy, check_triplets, fit
from salmon.learning.objective import TENSORS_FROM, arithmetic_for, blocks_of, evaluate
from salmon.noise import TSTE, PowerTSTE
from salmon.samplers.state import random_queries
from salmon.simulate import egg_world

ENOUGH = 0.002
OURS = {"power t-STE": PowerTSTE(k=0.85, lapse=0.07), "t-STE": "TSTE", "STE": "STE", "CKL": "CKL", "SOE": "SOE"}
PEERS = ("STE", "TSTE", "CKL", "SOE")
SIMULATED = {30: 900, 90: 10_000, 300: 50_000}
LARGE = (10_000, 1_000_000)
#: (targets, answers) of single evaluations.
EVALUATED = ((30, 300), (30, 3_000), (300, 10_000), (300, 50_000), (10_000, 50_000), LARGE)


def main():
    options = arguments(
        __doc__,
        data={"type": Path, "default": None, "help": "human answers"},
        sizes={"type": int, "nargs": "*", "default": [*SIMULATED, LARGE[0]]},
        repeats={"type": int, "default": 5},
        patience={"type": float, "default": 6.0, "help": "seconds for Adadelta; ten times as many for the largest"},
    )
    import torch

    torch.set_num_threads(1)
    clock = time.process_time if options.cpu else time.perf_counter
    report = Report(
        "Refits in d = 2, one thread",
        ["answers", "n", "m", "contender", "to_best_s", "total_s", "accuracy", "runs_within"],
    )
    with threadpool_limits(1):
        for n, m in EVALUATED:
            if n == 30 or n in options.sizes:
                report.note(evaluations(n, m, options.repeats, clock))
        if options.data is None:
            report.note("Human answers: skipped, no --data.")
        else:
            compare(report, "human", *human(options.data), options.repeats, options.patience, clock)
        for n in options.sizes:
            if n in SIMULATED:
                compare(report, "eggs", *eggs(n, SIMULATED[n]), options.repeats, options.patience, clock)
            elif n == LARGE[0]:
                compare(report, "t-STE world", *large(), 1, 10 * options.patience, clock)
                report.note(alone(options.cpu))
    report.write(options.json)


def evaluations(n, m, repeats, clock):
    """A sentence on one loss with its gradient, as the library and the other way."""
    generator = np.random.default_rng([n, m])
    blocks = tuple(blocks_of(random_queries(n, m, generator), n))
    coordinates = generator.standard_normal((n, 2))
    times = {"numpy": [], "torch": []}
    for _ in range(repeats * max(2, min(100, 100_000 // m))):
        for name, triplets in (("numpy", 0), ("torch", TENSORS_FROM)):
            started = clock()
            with arithmetic_for(triplets) as use:
                evaluate(TSTE(), coordinates, blocks, use)
            times[name].append(clock() - started)
    cost = {name: 1000 * statistics.median(taken) for name, taken in times.items()}
    chosen = "numpy" if len(blocks[0]) < TENSORS_FROM else "torch"
    return (
        f"One loss with its gradient, n = {n}, m = {m}: numpy {cost['numpy']:.3f} ms, torch {cost['torch']:.3f} ms;"
        f" the library uses {chosen}."
    )


def compare(report, answers, n, train, test, repeats, patience, clock):
    runs = {name: [] for name in OURS}
    for repeat in range(repeats):
        for name, noise in OURS.items():
            runs[name].append(ours(train, n, noise, repeat, clock))
        for name in installed_peers(n):
            runs.setdefault(f"cblearn {name}", []).append(peer(train, name, repeat, clock))
        # Adadelta takes the longest by far, and its time hardly varies.
        if repeat < 2:
            runs.setdefault("Adadelta t-STE", []).append(adadelta(train, n, repeat, patience, clock))
    judged = {
        name: [[(at, accuracy(placed, test)) for at, placed in trace] for trace in traces]
        for name, traces in runs.items()
    }
    best = max(statistics.median(trace[-1][1] for trace in traces) for traces in judged.values())
    for name, traces in judged.items():
        reached = [next((at for at, score in trace if score >= best - ENOUGH), None) for trace in traces]
        times = [at for at in reached if at is not None]
        report.add(
            answers=answers,
            n=n,
            m=len(train),
            contender=name,
            to_best_s=statistics.median(times) if len(times) > len(reached) / 2 else None,
            total_s=statistics.median(trace[-1][0] for trace in traces),
            accuracy=statistics.median(trace[-1][1] for trace in traces),
            runs_within=f"{len(times)}/{len(reached)}",
        )


def ours(train, n, noise, seed, clock):
    """(seconds, coordinates) after every iteration and at the end."""
    trace = []
    started = clock()
    found = fit(
        train,
        n,
        2,
        noise=noise,
        seed=seed,
        callback=lambda placed, _: trace.append((clock() - started, placed.copy())),
    )
    return [*trace, (clock() - started, found.coordinates)]


def installed_peers(n):
    if importlib.util.find_spec("cblearn") is None:
        return ()
    # At the largest size the others take many minutes.
    return PEERS if n < LARGE[0] else ("STE",)


def peer(train, name, seed, clock):
    from cblearn import embedding

    started = clock()
    # Any seed but that of the answers: these estimators start from numbers that a simulation may have drawn as well.
    found = getattr(embedding, name)(2, random_state=1000 + seed).fit(train)
    return [(clock() - started, found.embedding_)]


def adadelta(train, n, seed, patience, clock):
    """As published experiments fitted, some fifty times looked at."""
    import torch

    generator = np.random.default_rng(seed)
    coordinates = torch.tensor(1e-4 * generator.standard_normal((n, 2)), dtype=torch.float32, requires_grad=True)
    optimizer = torch.optim.Adadelta([coordinates], lr=1.0)
    rows = torch.tensor(train, dtype=torch.int64)
    trace, spent = [], 0.0
    next_look = patience / 200
    while spent < patience:
        started = clock()
        batch = rows[generator.choice(len(rows), min(512, len(rows)), replace=False, shuffle=False)]
        head, winner, loser = (coordinates[batch[:, column]] for column in range(3))
        near, far = ((head - winner) ** 2).sum(dim=1), ((head - loser) ** 2).sum(dim=1)
        loss = torch.log1p((1 + near) / (1 + far)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        spent += clock() - started
        if spent >= next_look:
            trace.append((spent, coordinates.detach().numpy().astype(np.float64)))
            next_look = spent + patience / 200
    return trace


def human(path):
    reader = gzip.open if path.suffix == ".gz" else open
    with reader(path, "rt", newline="") as lines:
        table = list(csv.DictReader(lines))
    parts = [
        check_triplets(
            [[int(row[role]) for role in ("head", "winner", "loser")] for row in table if row["sampler"] == sampler]
        )
        for sampler in ("RandomSampling", "Test")
    ]
    return max(int(part.max()) for part in parts) + 1, *parts


def simulated(world, m, generator):
    """The number of targets, m answers to fit, and 50,000 to judge the fit by."""
    return world.n, *(
        check_triplets(world.answer(world.random_queries(count, generator), generator), world.n)
        for count in (m, 50_000)
    )


def eggs(n, m):
    return simulated(egg_world(n), m, np.random.default_rng([n, m]))


def large():
    n, m = LARGE
    generator = np.random.default_rng([n, m])
    return simulated(tste_world(n, 2, generator), m, generator)


def alone(cpu):
    """A sentence on the time and the memory of the largest refit in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        taken, peak = pool.apply(largest_refit, (cpu,))
    return f"A million answers about 10,000 targets: {taken:.2f} s, peak memory of the process {peak / 1e6:.0f} MB, answers included."


def largest_refit(cpu):
    clock = time.process_time if cpu else time.perf_counter
    n, train, _ = large()
    started = clock()
    fit(train, n, 2)
    return clock() - started, peak_bytes()


def peak_bytes():
    """The most memory that this process ever held; getrusage would tell of its parent's as well."""
    return 1024 * int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])


if __name__ == "__main__":
    main()
