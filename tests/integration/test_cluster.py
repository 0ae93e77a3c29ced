"""Workers that dial out: `salmon cluster` and the batch file of `salmon slurm`, run with two local processes."""

import os
import shlex
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from backend import workers
from backend.workers import ExecutorOpener, WorkerPool
from salmon.cli.cluster import make_certificates
from salmon.parallel.dask import DaskExecutor, TlsFiles, join_cluster
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
                there.result_of(there.submit(process_of, 5))
            pool.recover()
        assert pool.executor().submit(process_of, 6).result()[0] == 6
        assert opener.again_at is not None
    finally:
        pool.close()


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
