"""Carrying out runs: one after the other or several at a time, each written down when it is done."""

import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.efficiency.contenders import contender
from benchmarks.efficiency.protocol import VERSION, Simulated, run, setting
from benchmarks.efficiency.records import Records
from benchmarks.efficiency.replay import Pool, read_pool


def task(
    world: str, n: int, sampler: str, seed: int, rounds: int, *, queue: int = 0, step: int = 0, data: str = ""
) -> dict[str, Any]:
    """What identifies a run. `queue` is in queries, `step` in answers between refits (0: n)."""
    return {
        "version": VERSION, "world": world, "n": n, "sampler": sampler, "seed": seed, "queue": queue,
        "step": step, "rounds": rounds, "data": data,
    }  # fmt: skip


def carry_out(wanted: dict[str, Any]) -> dict[str, Any]:
    """One run, with its curves."""
    if wanted["data"]:
        respondents: Any = Pool(read_pool(Path(wanted["data"])), wanted["seed"])
        made = setting("eggs", 30)
    else:
        made = setting(wanted["world"], wanted["n"])
        respondents = Simulated(made.make(wanted["seed"]), wanted["seed"])
    curve = run(
        respondents, contender(wanted["sampler"], made.d), wanted["seed"], judged_by=made.judged_by,
        rounds=wanted["rounds"], queue=wanted["queue"], step=wanted["step"],
    )  # fmt: skip
    # The record speaks of the experiment, not of where its data lay.
    return {**{key: value for key, value in wanted.items() if key != "data"}, "curve": curve}


def carry_out_all(tasks: Iterable[dict[str, Any]], records: Records, jobs: int) -> None:
    """All runs that are not recorded yet, with a count on standard error."""
    waiting = [wanted for wanted in tasks if not records.has(wanted)]
    for number, done in enumerate(_results(waiting, jobs), start=1):
        records.add(done)
        seconds = done["curve"]["seconds"][0]
        print(f"{number}/{len(waiting)} {done['sampler']} seed {done['seed']}: {seconds:.1f} s", file=sys.stderr)


def _results(waiting: list[dict[str, Any]], jobs: int) -> Iterator[dict[str, Any]]:
    if jobs == 1:
        yield from map(carry_out, waiting)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for future in as_completed([pool.submit(carry_out, wanted) for wanted in waiting]):
            yield future.result()
