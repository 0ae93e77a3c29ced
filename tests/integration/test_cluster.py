"""Workers that dial out: `salmon cluster` and the batch file of `salmon slurm`, run with two local processes."""

import os
import shlex
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from backend import workers
from backend.service import Service
from backend.store import Store as BackendStore
from backend.workers import ExecutorOpener, WorkerPool
from frontend.settings import Settings
from frontend.store import Store
from salmon.cli.cluster import make_certificates
from salmon.learning import objective
from salmon.parallel import dask
from salmon.parallel.dask import DaskExecutor, TlsFiles, join_cluster
from tests.job_requests import ask_for, read_status
from tests.living import Crowd, absorbed, run_until, started
from tests.nginx import free_port
from tests.program import REPOSITORY, poll

pytestmark = pytest.mark.slow
CLUSTER = (sys.executable, "-m", "salmon", "cluster")


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `salmon cluster certificates` writes."""
    folder = tmp_path_factory.mktemp("tls") / "cluster-tls"
    done = subprocess.run((*CLUSTER, "certificates", folder), capture_output=True, text=True, check=True)
    assert f"SALMON_SCHEDULER_CA={folder}/authority.pem" in done.stdout
    assert (folder / "key.pem").stat().st_mode & 0o077 == 0
    return folder


@pytest.fixture
def start() -> Iterator[Callable[..., list[str]]]:
    """Starts a program that runs until the end of the test, and returns the lines it prints once one has some words."""
    with ExitStack() as started:
        yield lambda words, *command, **environment: started.enter_context(running(words, command, environment))


@contextmanager
def running(words: str, command: tuple[str, ...], environment: dict[str, str]) -> Iterator[list[str]]:
    process = subprocess.Popen(
        command,
        cwd=REPOSITORY,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    lines: list[str] = []

    def read_on() -> None:
        assert process.stdout is not None
        with process.stdout as output:
            for line in output:
                lines.append(line)  # noqa: PERF402 - others read them meanwhile

    reader = threading.Thread(target=read_on)
    reader.start()
    try:
        poll(lambda: any(words in line for line in lines), f"{command[3:5]} to say {words!r}", seconds=60)
        yield lines
    finally:
        process.terminate()
        process.wait(30)
        reader.join(30)


def open_executor(inside: int, tls: Path) -> DaskExecutor:
    return join_cluster(f"tls://127.0.0.1:{inside}", tls=files_of(tls))


def files_of(tls: Path) -> TlsFiles:
    return TlsFiles(*(str(tls / name) for name in ("authority.pem", "certificate.pem", "key.pem")))


def process_of(number: int) -> tuple[int, int]:
    return number, os.getpid()


def assert_two_workers(executor: DaskExecutor) -> None:
    poll(lambda: executor.workers == 2, "two workers", seconds=60)
    tasks = [executor.submit(process_of, number) for number in range(40)]
    found = [task.result() for task in tasks]
    assert [number for number, _ in found] == list(range(40))
    assert os.getpid() not in {process for _, process in found}
    block = executor.scatter(b"x" * 3_000_000)
    assert executor.submit(len, block).result() == 3_000_000


def test_workers_that_dial_out_do_the_work(tls: Path, start: Callable[..., list[str]]) -> None:
    port, inside = free_port(), free_port()
    start(
        "Waiting",
        *CLUSTER,
        "wait",
        "--tls",
        str(tls),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--inside",
        str(inside),
    )
    start("is offered", *CLUSTER, "join", f"127.0.0.1:{port}", "--tls", str(tls), "--workers", "2")
    executor = open_executor(inside, tls)
    try:
        assert_two_workers(executor)
    finally:
        executor.close()


def test_the_batch_file_runs_as_slurm_would_run_it(tls: Path, start: Callable[..., list[str]], tmp_path: Path) -> None:
    """The stand-in for srun starts its command on two tasks; everything else is the file as it is printed."""
    port, inside = free_port(), free_port()
    command = ("slurm", f"127.0.0.1:{port}", "--workers", "2", "--tls", str(tls), "--python", sys.executable)
    batch = subprocess.run(
        (sys.executable, "-m", "salmon", *command), cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout
    assert "#SBATCH --ntasks=2\n" in batch
    assert "#SBATCH --mem-per-cpu=2048M\n" in batch
    (tmp_path / "salmon.sbatch").write_text(batch)
    (tmp_path / "srun").write_text('#!/bin/sh\n"$@" &\none=$!\n"$@" &\ntrap "kill $one $!" TERM\nwait\nwait\n')
    (tmp_path / "srun").chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    start(
        "Waiting",
        *CLUSTER,
        "wait",
        "--tls",
        str(tls),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--inside",
        str(inside),
    )
    start("is offered", "bash", str(tmp_path / "salmon.sbatch"), PATH=path, SLURM_SUBMIT_DIR=str(REPOSITORY))
    executor = open_executor(inside, tls)
    try:
        assert_two_workers(executor)
    finally:
        executor.close()


def is_closed(connection: ssl.SSLSocket) -> bool:
    """Whether the other end refuses a connection, which TLS 1.3 shows at the first read."""
    try:
        return not connection.recv(1)
    except (ssl.SSLError, ConnectionError):
        return True


def test_nobody_without_the_certificate_gets_in(tls: Path, start: Callable[..., list[str]], tmp_path: Path) -> None:
    port, inside = free_port(), free_port()
    start(
        "Waiting",
        *CLUSTER,
        "wait",
        "--tls",
        str(tls),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--inside",
        str(inside),
    )
    for name, text in make_certificates().items():
        (tmp_path / name).write_text(text)
    stranger = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    stranger.check_hostname = False
    stranger.verify_mode = ssl.CERT_NONE
    for with_another in (False, True):
        if with_another:
            stranger.load_cert_chain(tmp_path / "certificate.pem", tmp_path / "key.pem")
        with (
            socket.create_connection(("127.0.0.1", port), 10) as plain,
            stranger.wrap_socket(plain) as secure,
        ):
            assert is_closed(secure)


def test_learning_goes_on_here_while_the_cluster_is_away_and_there_when_it_is_back(
    tls: Path, start: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the job has begun, while it runs, and after it has ended."""
    monkeypatch.setattr(workers, "REJOIN_SECONDS", 0.0)
    port, inside = free_port(), free_port()
    files = files_of(tls)
    opener = ExecutorOpener(f"tls://127.0.0.1:{inside}", (files.authority, files.certificate, files.key))
    pool = WorkerPool(opener, lambda *_: None)
    try:
        here = pool.executor()
        assert here.submit(process_of, 3).result()[0] == 3
        assert opener.again_at is not None, "this machine stands in"
        wait = ("wait", "--tls", str(tls), "--host", "127.0.0.1", "--port", str(port), "--inside", str(inside))
        start("Waiting", *CLUSTER, *wait)
        join = (*CLUSTER, "join", f"127.0.0.1:{port}", "--tls", str(tls), "--workers", "2")
        with running("is offered", join, {}):
            poll(lambda: pool.executor() is not here, "the cluster to be joined", seconds=60)
            there = pool.executor()
            assert isinstance(there, DaskExecutor)
            assert there.submit(process_of, 4).result()[0] == 4
            assert opener.again_at is None
        for _ in range(workers.FAILURES_TO_REOPEN):
            with pytest.raises(Exception, match=r"."):
                there.submit(process_of, 5).result()
            pool.recover(there, RuntimeError("lost"))
        assert pool.executor().submit(process_of, 6).result()[0] == 6
        assert opener.again_at is not None
    finally:
        pool.close()


@dataclass(frozen=True)
class SecondCluster:
    """A scheduler and two workers that are processes of their own, as on other machines."""

    address: str
    scheduler: subprocess.Popen[bytes]
    workers: list[subprocess.Popen[bytes]]

    def freeze_workers(self) -> None:
        """What workers are given from now on begins and does not end."""
        for process in self.workers:
            process.send_signal(signal.SIGSTOP)

    def lose(self, how: str) -> None:
        """Take the cluster away in the middle of whatever it does."""
        if how == "the scheduler hangs":
            self.scheduler.send_signal(signal.SIGSTOP)
        if how in {"everything is killed", "the scheduler is killed"}:
            self.scheduler.kill()
        if how in {"everything is killed", "the workers are killed"}:
            for process in self.workers:
                process.kill()


LOSSES = ("everything is killed", "the scheduler is killed", "the workers are killed", "the scheduler hangs")


@pytest.fixture
def second_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SecondCluster]:
    monkeypatch.setattr(dask, "_LOOK_SECONDS", 1.0)
    monkeypatch.setattr(dask, "_REPLY_SECONDS", 3.0)
    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    common = ("--no-dashboard", "--protocol", "tcp")
    commands = [("dask_scheduler", "--host", "127.0.0.1", "--port", str(port), *common)]
    commands += [
        ("dask_worker", address, "--no-nanny", "--nthreads", "1", "--local-directory", str(tmp_path), *common)
    ] * 2
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for program, *arguments in commands:
            command = (sys.executable, "-m", f"distributed.cli.{program}", *arguments)
            processes.append(subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.DEVNULL))
        yield SecondCluster(address, processes[0], processes[1:])
    finally:
        for process in processes:
            process.kill()
            process.wait(10)


def doze(seconds: float, *_: Any) -> float:
    time.sleep(seconds)
    return seconds


@pytest.mark.parametrize("how", LOSSES)
def test_nothing_waits_for_ever_for_a_cluster_that_is_lost(second_cluster: SecondCluster, how: str) -> None:
    """Each way to wait for a cluster ends with an error within half a minute; a scheduler
    that hangs keeps its connections.
    """
    poll(lambda: join_cluster(second_cluster.address).close() or True, "the scheduler", seconds=60)
    executor = join_cluster(second_cluster.address)
    executor.wait_for(2, timeout_s=60)
    block = executor.scatter(np.arange(1000))
    waits: dict[str, Callable[[], Any]] = {
        "one task": executor.submit(doze, 600.0).result,
        "a task with a block": executor.submit(doze, 600.0, block).result,
        "a map": lambda: executor.map(doze, [600.0] * 3),
        "the first of several": lambda: next(
            executor.as_completed([executor.submit(doze, 600.0) for _ in range(3)])
        ).result(),
        "new blocks": lambda: [executor.scatter(np.arange(1000)) for _ in iter(lambda: doze(0.1), None)],
        "the number of workers": lambda: [executor.addresses() for _ in iter(lambda: doze(0.1), None)],
    }
    ended: dict[str, str] = {}

    def wait_for(name: str) -> None:
        try:
            waits[name]()
        except Exception as error:  # noqa: BLE001 - whatever it is, it must come
            ended[name] = type(error).__name__

    threads = [threading.Thread(target=wait_for, args=(name,), daemon=True) for name in waits]
    for thread in threads:
        thread.start()
    try:
        poll(lambda: all(executor.client.processing().values()), "the workers to be busy")
        second_cluster.lose(how)
        # A scheduler without workers goes on to say that there are none.
        expected = set(waits) - ({"the number of workers"} if how == "the workers are killed" else set())
        poll(lambda: expected <= set(ended), f"an end of {expected}", seconds=40)
    finally:
        second_cluster.lose("everything is killed")
        executor.close()


@pytest.mark.parametrize("how", ["the workers are killed", "the scheduler hangs"])
async def test_learning_and_requests_go_on_when_the_cluster_is_lost_under_them(
    client: httpx.AsyncClient,
    settings: Settings,
    store: Store,
    owned: Callable[..., Any],
    probe: BackendStore,
    second_cluster: SecondCluster,
    how: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A refit of 300 targets, which is spread over all workers, and a request of the
    console, both begun on the cluster.
    """
    spec = "targets: 300\nhtml: {max_queries: 0}\nsamplers: {Adaptive: {}}\n"
    monkeypatch.setattr(objective, "_WORTH_SENDING", 1)
    slug = how.replace(" ", "-")
    _, experiment = await started(client, settings, store, slug, spec)
    crowd = Crowd(client, slug, 300)
    await crowd.answer(60)
    poll(lambda: join_cluster(second_cluster.address).has_workers, "the cluster", seconds=60)
    opener = ExecutorOpener(second_cluster.address)
    service = Service(probe, opener)
    try:
        service.begin()
        run_until(service, lambda: probe.read_model(experiment, "Adaptive") is not None, seconds=120)
        assert absorbed(service, experiment) == 60
        assert opener.again_at is None, "the cluster does the work"
        second_cluster.freeze_workers()
        identifier = await ask_for(owned, slug, "embedding", answers=50)
        await crowd.answer(60)
        learner = service.experiments[experiment].learners["Adaptive"]
        run_until(service, lambda: learner._timed["refit"].running)
        run_until(service, lambda: read_status(probe, identifier).note == "fitting the first 50 answers")
        soon = time.monotonic() + 2
        run_until(service, lambda: time.monotonic() > soon)
        assert learner._timed["refit"].running, "the refit waits for the cluster"
        assert not read_status(probe, identifier).ended
        second_cluster.lose(how)
        run_until(service, lambda: absorbed(service, experiment) == 120, seconds=120)
        run_until(service, lambda: read_status(probe, identifier).ended, seconds=120)
        assert read_status(probe, identifier).state == "done"
        assert opener.again_at is not None, "this machine stands in"
    finally:
        service.stop()
        service.close()


@pytest.mark.parametrize("to", ["lab.example.edu", ":8787", "lab:port"])
def test_a_place_without_a_port_is_a_sentence(to: str) -> None:
    for command in (("slurm", to), ("cluster", "join", to)):
        done = subprocess.run(
            (sys.executable, "-m", "salmon", *command), cwd=REPOSITORY, capture_output=True, text=True, check=False
        )
        assert done.returncode == 1
        assert "is no host with a port" in done.stderr


def test_words_of_the_batch_file_stay_as_they_are() -> None:
    command = (
        sys.executable,
        "-m",
        "salmon",
        "slurm",
        "lab:1",
        "--tls",
        "my folder; rm -rf x",
        "--python",
        "/opt/a b/python",
    )
    batch = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    line = next(line for line in batch.splitlines() if line.startswith("exec "))
    assert shlex.split(line)[1:] == [
        "/opt/a b/python", "-m", "salmon", "cluster", "join", "lab:1", "--tls", "my folder; rm -rf x", "--launch", "srun"
    ]  # fmt: skip


def test_certificates_are_not_overwritten(tls: Path) -> None:
    done = subprocess.run((*CLUSTER, "certificates", tls), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "There are certificates in" in done.stderr
