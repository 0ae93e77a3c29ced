"""The living loop of the running program: backends killed, workers lost, a cluster of separate processes."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import pytest

from benchmarks.participants.crowd import Crowd, Diary
from benchmarks.participants.hearing import Record, read_store
from salmon.simulate import egg_world, given_world
from tests.program import Program, poll

pytestmark = pytest.mark.crash

SPEC = "targets: 30\nhtml: {max_queries: 0}\n"


def quick(rng: np.random.Generator) -> float:
    return float(rng.uniform(0.02, 0.06))


def crowd(program: Program, name: str, spec: str = SPEC, n: int = 30) -> Crowd:
    return Crowd(program.launch_text(name, spec), egg_world(n), quick, Diary())


@contextmanager
def answering(people: Crowd, participants: int, answers_each: int, first: int = 0) -> Iterator[threading.Thread]:
    """People answer in the background; at the end they have all finished."""
    finished = []

    def live() -> None:
        asyncio.run(people.live(participants, seconds=120, answers_each=answers_each, first=first))
        finished.append(True)

    thread = threading.Thread(target=live)
    thread.start()
    yield thread
    thread.join(120)
    assert finished


def model_has_seen_all(program: Program, name: str, answers: int) -> None:
    def seen() -> bool:
        record = read_store(program.data, name, "Adaptive")
        newest = record.history[-1][1] if record.history else ""
        return len(record.answers) == answers and newest == record.answers[-1][0]

    poll(seen, "the model to have seen every answer", seconds=60)


def check_history(record: Record) -> None:
    """Generations and cursors never go back: nothing stale was published."""
    generations = [generation for generation, _ in record.history]
    cursors = [tuple(map(int, cursor.split("-"))) for _, cursor in record.history if "-" in cursor]
    assert generations == sorted(generations)
    assert cursors == sorted(cursors)


def test_backends_killed_again_and_again_lose_no_answer(tmp_path: Path) -> None:
    with Program(tmp_path / "data") as program:
        program.wait_until_ready()
        people = crowd(program, "killed")
        with answering(people, 5, 40) as thread:
            while thread.is_alive():
                before = program.child("backend")
                thread.join(1.5)
                if thread.is_alive() and before.is_running():
                    before.kill()
                    poll(lambda pid=before.pid: program.child("backend").pid != pid, "a new backend")
        assert people.diary.errors == []
        model_has_seen_all(program, "killed", 200)
        record = read_store(program.data, "killed", "Adaptive")
        check_history(record)
        assert len({(record.names[a.served.participant], a.served.trial) for _, a in record.answers}) == 200


@contextmanager
def dask_process(*arguments: str, ready: str) -> Iterator[tuple[psutil.Process, str]]:
    """A scheduler or a worker as a process of its own; yields it and the line that said it was ready."""
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "MALLOC_TRIM_THRESHOLD_": "268435456",
        "MALLOC_MMAP_THRESHOLD_": "33554432",
    }
    process = subprocess.Popen(
        (str(Path(sys.executable).parent / "dask"), *arguments),
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    line = next(line for line in process.stdout if ready in line)
    drain = threading.Thread(target=process.stdout.read, daemon=True)
    drain.start()
    try:
        yield psutil.Process(process.pid), line
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(20)
        drain.join(5)
        process.stdout.close()


def test_the_same_loop_runs_on_a_cluster_of_separate_processes_and_survives_a_lost_worker(tmp_path: Path) -> None:
    options = ("--no-dashboard", "--host", "127.0.0.1")
    with dask_process("scheduler", "--port", "0", "--no-show", *options, ready="Scheduler at:") as (_, line):
        address = re.search(r"tcp://\S+", line)[0]  # type: ignore[index]
        worker = ("worker", address, "--nthreads", "1", "--no-nanny", *options)
        with (
            dask_process(*worker, ready="Registered to:") as (first, _),
            dask_process(*worker, ready="Registered to:"),
            Program(tmp_path / "data", environment={"SALMON_SCHEDULER": address}) as program,
        ):
            program.wait_until_ready()
            assert len(program.child("backend").children(recursive=True)) == 0  # it started no workers of its own
            with answering(crowd(program, "cluster"), 4, 30) as thread:
                thread.join(2.0)
                first.kill()
            model_has_seen_all(program, "cluster", 120)
            check_history(read_store(program.data, "cluster", "Adaptive"))


@pytest.mark.parametrize("n", [300, 1000])
def test_many_targets_are_still_learned_live(tmp_path: Path, n: int) -> None:
    """From n·d = 2,000 the search takes the cheaper mode that it documents; below, the heavy parts are spread."""
    with Program(tmp_path / "data") as program:
        program.wait_until_ready()
        people = crowd(
            program,
            "many",
            f"targets: {n}\nhtml: {{max_queries: 0}}\nsamplers: {{Adaptive: {{R: 0.2}}}}\n",
            n=300,
        )
        if n > 300:
            people = Crowd(people.address, given_world(np.linspace(-3, 3, n)[:, None]), quick, people.diary)
        with answering(people, 4, n // 4):
            pass
        model_has_seen_all(program, "many", 4 * (n // 4))
        record = read_store(program.data, "many", "Adaptive")
        # Where the machine is busy the first search may come after the last of these answers.
        for again in range(1, 30):
            if {answer.served.trial_type for _, answer in record.answers} >= {"random", "active"}:
                break
            with answering(people, 4, 4, first=4 * again):
                pass
            record = read_store(program.data, "many", "Adaptive")
        check_history(record)
        assert {answer.served.trial_type for _, answer in record.answers} >= {"random", "active"}
        assert "fallback" not in {answer.served.trial_type for _, answer in record.answers[n // 2 :]}
