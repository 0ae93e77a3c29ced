"""`python -m benchmarks.participants`: simulated participants against the running program.

Prints, for each crowd: latencies of queries and answers, the share of fallbacks after the first 2n answers, seconds
from an answer to the first displayed query whose model has seen it, and processor time of each process, in use and
idle. `--behind` has every crowd a second time while a long request is carried out behind the live work. `--old` is the
load test of the first Salmon by its own addresses: 100 users, N(.75 s, .25 s) of thinking, 50 answers each.
`--efficiency` runs the whole program on eggs and compares the accuracy it reaches with that of the offline simulation.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.participants.crowd import Crowd, Diary, Thinking, floored_normal, log_normal
from benchmarks.participants.hearing import read_store, seconds_to_be_heard
from benchmarks.participants.living import efficiency
from benchmarks.participants.old_script import old_load
from benchmarks.report import Report, arguments, latencies
from salmon import parent_watch
from salmon.simulate import EGG_COUNTS, egg_world, random_world
from tests.program import Program

COLUMNS = (
    "n",
    "participants",
    "thinking",
    "behind",
    "answers",
    "heard_s_median",
    "heard_s_95",
    "models_s",
    "refit_ms",
    "search_ms",
    "fallbacks",
    "first_ms_99",
    "query_ms_50",
    "query_ms_99",
    "answer_ms_50",
    "answer_ms_99",
    "cpu_web",
    "cpu_backend",
    "cpu_workers",
    "cpu_redis",
    "errors",
)


def main() -> None:
    """Run the crowds that were asked for."""
    options = arguments(
        __doc__,
        clocks=False,
        n={"type": int, "nargs": "+", "default": [30, 90, 300]},
        participants={"type": int, "nargs": "+", "default": [10, 50, 100]},
        thinking={"nargs": "+", "choices": ["log-normal", "normal"], "default": ["log-normal"]},
        behind={"action": "store_true", "help": "also while a long request is carried out"},
        seconds={"type": float, "default": 60.0},
        answers={"type": int, "default": 10**9, "help": "answers each participant gives at most"},
        old={"action": "store_true", "help": "also the load test of the first Salmon: 100 users, 50 answers"},
        no_crowds={"action": "store_true", "help": "leave the crowds out"},
        idle={"type": float, "default": 20.0, "help": "seconds of idleness measured; 0 leaves it out"},
        efficiency={"type": int, "default": 0, "help": "runs on eggs through the living loop"},
    )
    parent_watch.spare_collector()  # a pause of this process would count as one of the server
    report = Report("participants", COLUMNS)
    with tempfile.TemporaryDirectory() as folder, Program(Path(folder) / "data") as program:
        program.wait_until_ready()
        crowds = product(options.n, options.participants, options.thinking, (False, True)[: 1 + options.behind])
        for n, participants, name, behind in () if options.no_crowds else crowds:
            with _request(program, n) if behind else nullcontext():
                report.add(**_crowd(program, n, participants, name, options, behind=behind))
        if options.old:
            report.note(_old(program, users=100, answers=50))
        if options.idle:
            _idle(program, report, options.idle)
        if options.efficiency:
            for sentence in efficiency(program, options.efficiency):
                report.note(sentence)
        report.write(options.json)


@contextmanager
def _request(program: Program, n: int) -> Iterator[None]:
    """A request that runs for longer than any crowd answers: a plan of another experiment."""
    address = program.launch_text(f"rehearsed-{time.monotonic_ns()}", f"targets: {n}\n")
    slug = address.rstrip("/").rpartition("/")[2]
    address = f"{program.address}/api/experiments/{slug}/requests"
    with httpx.Client(auth=program.add_user(f"asks-{slug}")) as client:
        body = {"kind": "plan", "arguments": {"answers": 200 * n, "runs": 20}}
        made = client.post(address, json=body).raise_for_status().json()["request"]
        yield
        ended = client.delete(f"{address}/{made}").raise_for_status().json()
        if ended["state"] != "running":
            raise SystemExit(f"The request did not run to the end of the crowd: {ended['state']} {ended['error']}")


def _crowd(
    program: Program, n: int, participants: int, name: str, options: argparse.Namespace, *, behind: bool
) -> dict[str, Any]:
    thinking: Thinking = floored_normal if name == "normal" else log_normal()
    slug = f"crowd-{n}-{participants}-{name}" + ("-behind" if behind else "")
    address = program.launch_text(slug, f"targets: {n}\nhtml: {{max_queries: 0}}\n")
    diary = Diary()
    crowd = Crowd(address, egg_world(n) if n in EGG_COUNTS else random_world(n, 2, 0), thinking, diary)
    before, began = _processor_seconds(program), time.monotonic()
    asyncio.run(crowd.live(participants, seconds=options.seconds, answers_each=options.answers))
    lasted = time.monotonic() - began
    used = {part: (seconds - before.get(part, 0)) / lasted for part, seconds in _processor_seconds(program).items()}
    record = read_store(program.data, slug, "Adaptive")
    waits = seconds_to_be_heard(record, diary)
    refit_ms, search_ms = np.median(record.milliseconds, axis=0)
    warm = record.answers[2 * n][1].received_ms / 1000 if len(record.answers) > 2 * n else np.inf
    late = [answer for _, answer in record.answers if answer.received_ms / 1000 >= warm]
    fallbacks = sum(answer.served.trial_type == "fallback" for answer in late) / len(late) if late else None
    return {
        "n": n,
        "participants": participants,
        "thinking": name,
        "behind": int(behind),
        "answers": len(record.answers),
        "heard_s_median": float(np.median(waits)) if len(waits) else None,
        "heard_s_95": float(np.quantile(waits, 0.95)) if len(waits) else None,
        "models_s": len(record.history) / lasted,
        "refit_ms": refit_ms,
        "search_ms": search_ms,
        "fallbacks": fallbacks,
        "first_ms_99": latencies("first", diary.first_seconds)["first_ms_99"],
        **latencies("query", diary.query_seconds),
        **latencies("answer", diary.answer_seconds),
        "cpu_web": used["web"],
        "cpu_backend": used["backend"],
        "cpu_workers": used["workers"],
        "cpu_redis": used["redis"],
        "errors": len(diary.errors),
    }


def _old(program: Program, *, users: int, answers: int) -> str:
    """The load test of the first Salmon, by its own addresses."""
    program.launch_text("old", "targets: 30\nhtml: {max_queries: 0}\n")
    diary = asyncio.run(old_load(program.address, floored_normal, users=users, answers=answers))
    stored = read_store(program.data, "old", "Adaptive").answers
    once = len({answer.served.nonce for _, answer in stored})
    figures = latencies("query", diary.query_seconds) | latencies("answer", diary.answer_seconds)
    if len(stored) != users * answers or once != len(stored) or diary.errors:
        raise SystemExit(f"{len(stored)} answers are stored, {once} different ones; errors: {diary.errors[:3]}")
    return (
        f"Load test of the first Salmon: {users} users, {answers} answers each at /query and /answer, "
        f"{len(stored):,} stored, each once, no error; "
        + ", ".join(f"{name} {value:.1f}" for name, value in figures.items())
        + "."
    )


def _idle(program: Program, report: Report, seconds: float) -> None:
    """Processor time of the whole program while nobody answers."""
    time.sleep(5)  # what the last answers started comes to its end
    before = _processor_seconds(program)
    time.sleep(seconds)
    after = _processor_seconds(program)
    shares = {part: (after[part] - before[part]) / seconds for part in before}
    report.note(
        f"Idle: {100 * sum(shares.values()):.2f} % of a core in all ("
        + ", ".join(f"{part} {100 * share:.2f} %" for part, share in shares.items())
        + ")."
    )


def _processor_seconds(program: Program) -> dict[str, float]:
    """User and system seconds so far of each part of the program."""
    parts = {
        "web": ("frontend", False),
        "redis": ("redis", False),
        "backend": ("backend", False),
        "workers": ("backend", True),
    }
    found: dict[str, float] = {}
    for part, (name, below) in parts.items():
        child = program.child(name)
        processes = child.children(recursive=True) if below else [child]
        found[part] = sum(sum(process.cpu_times()[:2]) for process in processes)
    return found


if __name__ == "__main__":
    main()
