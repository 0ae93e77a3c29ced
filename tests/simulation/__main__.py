"""Live through many seeds of the simulated world, or one again: `make simulate-faults [SEED=n]`.

A seed that violates an invariant is printed with its faults and its last events, and the exit code is 1.
"""

import argparse
import os
import sys
import time
from functools import cache
from multiprocessing import get_context

PIECE = 10
#: Pieces that one process lives through. What still waits in a simulated thread when its world ends is never freed:
#: after 800 seeds a process held a gigabyte, and needed three times as long for a seed.
PIECES_OF_A_PROCESS = 5


def main() -> int:
    """Run what the command line asks for; return the exit code."""
    options = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    options.add_argument("--seed", type=int, help="live through this seed and print all that happened")
    options.add_argument("--planted", help="with --seed: plant this fault first (see docs/reliability.md)")
    options.add_argument("--first", type=int, default=0, help="the first of many seeds (0)")
    options.add_argument("--seeds", type=int, default=1000, help="how many seeds (1000)")
    options.add_argument("--processes", type=int, default=2, help="how many processes (2)")
    options.add_argument("--table", action="store_true", help="find every planted fault and write the manual's table")
    given = options.parse_args()
    if given.table:
        return _write_table()
    if given.seed is not None:
        from tests.simulation.planted import PLANTED

        if given.planted and given.planted not in PLANTED:
            options.error(f"There is no planted fault {given.planted!r}; there are {', '.join(PLANTED)}.")
        return _again(given.seed, given.planted)
    return _many(given.first, given.seeds, given.processes)


def _again(seed: int, planted: str | None) -> int:
    from tests.simulation.planted import PLANTED
    from tests.simulation.world import run

    outcome = run(seed, PLANTED[planted] if planted else None)
    print("\n".join(outcome.events))
    print(outcome.report(last=0))
    return int(bool(outcome.violations))


def _write_table() -> int:
    """Write the table of planted faults into the manual, with a seed that finds each
    today: its present one, if it does.
    """
    from tests.program import REPOSITORY
    from tests.simulation.planted import PLANTED, Fault, find_seed, read_seed, write_seeds
    from tests.simulation.world import run

    clean = cache(run)

    def simulate(seed: int, fault: Fault | None) -> tuple[str, set[str]]:
        outcome = clean(seed) if fault is None else run(seed, fault, until=fault.invariant)
        return outcome.digest, {violation.invariant for violation in outcome.violations}

    manual = REPOSITORY / "docs" / "reliability.md"
    seeds: dict[str, int] = {}
    for name, fault in PLANTED.items():
        seed = find_seed(fault, simulate, first=read_seed(manual.read_text(), name))
        print(f"{name}: {'no seed finds it' if seed is None else seed}", file=sys.stderr, flush=True)
        if seed is not None:
            seeds[name] = seed
    manual.write_text(write_seeds(manual.read_text(), seeds))
    return int(len(seeds) < len(PLANTED))


def _many(first: int, count: int, processes: int) -> int:
    from tests.simulation.world import run_piece

    os.environ["OMP_NUM_THREADS"] = "1"
    began, answers, failed, done = time.monotonic(), 0, 0, 0
    pieces = [range(start, min(start + PIECE, first + count)) for start in range(first, first + count, PIECE)]
    # Not ProcessPoolExecutor: in Python 3.11 it hangs when it replaces its only process.
    with get_context("spawn").Pool(processes, maxtasksperchild=PIECES_OF_A_PROCESS) as pool:
        for outcomes in pool.imap_unordered(run_piece, pieces):
            for seed_answers, report in outcomes:
                done += 1
                answers += seed_answers
                if report:
                    failed += 1
                    print(report, flush=True)
            if done % (10 * PIECE) == 0:
                print(f"{done} seeds lived through", file=sys.stderr, flush=True)
    minutes = (time.monotonic() - began) / 60
    print(f"{done} seeds, {answers} answers: {failed} seeds violated an invariant; {done / minutes:.0f} seeds a minute")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
