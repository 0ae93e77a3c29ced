"""What a learner shows of its embedding, and who can reach the workers."""

import os
import stat
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pytest

from backend import workers
from backend.learner import AnswerLog, Entry
from salmon.errors import StartError
from salmon.parallel import dask as cluster
from salmon.samplers.adaptive import Adaptive
from salmon.samplers.registry import ActiveSampler, active_sampler
from salmon.samplers.state import random_queries
from salmon.simulate import egg_world

N = 8


@pytest.mark.parametrize(
    "sampler",
    [
        active_sampler("Adaptive", {}),
        active_sampler("Adaptive", {"noise": "CKL"}),
        active_sampler("ARR", {}),
        active_sampler("ARR", {"noise": "GNMDS"}),
    ],
)
def test_the_shown_embedding_knows_how_sure_it_is_of_each_target(sampler: ActiveSampler) -> None:
    generator = np.random.default_rng(5)
    truth = generator.standard_normal((N, 2))
    asked = random_queries(N, 400, generator)
    asked = asked[(asked != 0).all(axis=1)]  # nobody was ever asked about the first target
    d2_feet = ((truth[asked[:, :1]] - truth[asked[:, 1:]]) ** 2).sum(axis=2)
    rows = np.where((d2_feet[:, 0] <= d2_feet[:, 1])[:, None], asked, asked[:, [0, 2, 1]])
    logged = np.column_stack([rows, np.zeros(len(rows), dtype=np.int32)])  # all by one person
    shown = workers.report(sampler, sampler.refit(sampler.start(N, 1), rows), (), logged, rows[:0])
    assert (shown.coordinates.shape, shown.spread.shape) == ((N, 2), (N, 2, 2))
    area = np.linalg.det(shown.spread)
    assert np.isfinite(shown.spread).all()
    assert area[0] > 2 * area[1:].max()


#: Tries to run code on whatever listens at a port, and to join it as a worker: without TLS, and with a certificate of
#: its own.
STRANGER = """
    import asyncio, os
    from pathlib import Path
    import dask
    from distributed import Client, Security, Worker
    own = Security.temporary()
    if os.geteuid() == 0:
        os.setuid(65534)  # somebody else; what is imported above may lie where only root reads
    dask.config.set({"distributed.comm.timeouts.connect": "1s"})

    async def attempt(name, address, intrusion):
        try:
            await asyncio.wait_for(intrusion, 8)
        except Exception as error:
            print(name, address, type(error).__name__)
        else:
            print(name, address, "INSIDE")

    async def run_code(address, security):
        async with Client(address, security=security, asynchronous=True, timeout=4) as client:
            await client.run_on_scheduler(Path(MARK).write_text, "ran")

    async def join(address, security):
        await Worker(address, security=security, dashboard=False, nthreads=1)

    async def main():
        places = [place for port in PORTS for place in ((f"tcp://127.0.0.1:{port}", None), (f"tls://127.0.0.1:{port}", own))]
        await asyncio.gather(*(attempt(f.__name__, place[0], f(*place)) for f in (run_code, join) for place in places))
        print("tried everything", flush=True)
        os._exit(0)

    asyncio.run(main())
"""


def ports_of_this_tree() -> list[int]:
    here = psutil.Process()
    tree = [here, *here.children(recursive=True)]
    return sorted(c.laddr.port for p in tree for c in p.net_connections("tcp") if c.status == psutil.CONN_LISTEN)


@pytest.mark.slow
def test_a_stranger_on_this_machine_neither_runs_code_nor_joins_as_a_worker(tmp_path: Path) -> None:
    before = set(ports_of_this_tree())
    with workers.ExecutorOpener()() as executor:
        ports = [port for port in ports_of_this_tree() if port not in before]
        assert len(ports) >= 4  # the scheduler, its pages, and the workers
        assert executor.submit(abs, -3).result() == 3
        mark = tmp_path / "ran"
        code = textwrap.dedent(STRANGER).replace("MARK", repr(str(mark))).replace("PORTS", repr(ports))
        done = subprocess.run(
            (sys.executable, "-c", code),
            cwd="/",
            env={**os.environ, "PYTHONPATH": "", "HOME": "/nonexistent"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert "tried everything" in done.stdout, done.stderr[-2000:]
        tries = [line.split() for line in done.stdout.splitlines() if line.startswith(("run_code", "join"))]
        assert len(tries) == 4 * len(ports)
        assert {outcome for *_, outcome in tries} <= {
            "OSError",
            "TimeoutError",
            "CommClosedError",
            "FatalCommClosedError",
            "RuntimeError",
        }, tries
        assert not mark.exists()
        assert executor.submit(abs, -4).result() == 4
        for port in ports:  # the pages of scheduler and workers are not there either
            for page in ("/info/main/workers.html", "/metrics", "/json/identity.json", "/status"):
                try:
                    assert httpx.get(f"http://127.0.0.1:{port}{page}", timeout=2).status_code == 404
                except httpx.TransportError:
                    continue  # a port of TLS


def test_what_workers_write_is_where_no_other_user_can_enter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(cluster.tempfile, "tempdir", str(tmp_path))
    own = Path(cluster._private_directory())
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
    own.chmod(0o777)  # as somebody else would have prepared it
    other = Path(cluster._private_directory())
    assert other != own
    assert stat.S_IMODE(other.stat().st_mode) == 0o700


def test_missing_files_for_an_outside_cluster_are_named(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="requires TLS"):
        workers.ExecutorOpener("tls://127.0.0.1:1")()
    with pytest.raises(StartError, match="There is no file"):
        workers.ExecutorOpener("tls://127.0.0.1:1", tls=(str(tmp_path / "ca.pem"), "", ""))()
    (tmp_path / "ca.pem").write_text("not a certificate")
    with pytest.raises(StartError, match="cannot be used"):
        workers.ExecutorOpener("tls://127.0.0.1:1", tls=(str(tmp_path / "ca.pem"),) * 3)()


def test_answers_of_people_who_click_blindly_leave_the_model_and_not_the_log() -> None:
    world, generator = egg_world(30), np.random.default_rng(3)
    log = AnswerLog()
    for place in range(1200):
        person = place % 10
        query = world.random_queries(1, generator)
        answered = world.answer(query, generator) if person < 8 else query  # two people do not look
        triplet: Any = tuple(answered[0].tolist())
        log.append([Entry(f"{place + 1}-0", "S", triplet, True, True, participant=f"p{person}")])
    blocks, tail = log.parts()
    sampler = Adaptive()
    state = workers.refit(sampler, sampler.start(30, 0), blocks, tail, ())
    reported = workers.report(sampler, state, blocks, tail, log.repeatable())
    assert set(reported.left_out) == {8, 9}
    again = workers.refit(sampler, state, blocks, tail, reported.left_out)
    assert again.absorbed == state.absorbed == len(log) == 1200
    careful = workers.join(blocks, tail)
    careful = careful[careful[:, 3] < 8, :3]
    np.testing.assert_allclose(again.coordinates, sampler.refit(state, careful).coordinates)
    nobody = workers.report(Adaptive(leave_out="nobody"), state, blocks, tail, log.repeatable())
    assert nobody.left_out == ()
    assert (nobody.coordinates != reported.coordinates).any()
