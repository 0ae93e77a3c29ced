"""`python -m benchmarks.load`: how many queries and answers the web processes give and
record, and how long people wait.

The load comes from a small compiled program on connections that each wait for a reply before they ask again. Every run
stands beside `/healthz` of the same server, which is what the server stack alone can do. Answers are on disk before
they are confirmed. With `--against`, another commit or checkout is measured in turn, so that a busy machine slows both
alike; each figure is the median of the repeats. Where processor time is shared with others, compare `per_cpu_s`:
requests for each second of processor time of all web processes.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

from benchmarks.report import Report, arguments
from frontend.security import Signer
from salmon.cli.data_directory import DataDirectory
from salmon.records import Served
from tests.program import REPOSITORY, Program

SPEC = "targets: {n}\nsamplers: {{{sampler}: {{}}}}\nhtml: {{max_queries: 100000}}\n"
COLUMNS = (
    *("code", "sampler", "web", "mode", "clients", "queries_s", "query_p50", "query_p99", "answers_s", "answer_p50"),
    *("answer_p99", "errors", "per_cpu_s", "web_cpu", "store_cpu", "client_cpu"),
)
MODES = ("get", "page", "query", "answers", "old", "arrive")
SESSIONS, ARRIVALS = 500, 300
#: 300 people may come from one address at once, and then 50 a second: so long until as many may come again.
ADMITTED_AGAIN_SECONDS = 7.0
ANSWERS = 60_000


@dataclass
class Target:
    """A running server, and what the load needs to know about its experiment."""

    code: str
    program: Program
    folder: Path
    slug: str
    experiment: str
    sessions: list[str]
    nonces: int = 0
    arrived: int = 0

    @property
    def web(self) -> list[psutil.Process]:
        """Its web processes."""
        found = [process for process in self.program.tree() if "frontend" in process.cmdline()]
        assert found
        return found

    def write_lines(self, mode: str, clients: int) -> Path:
        """Write what each client, or each request, of a mode needs."""
        if mode == "answers":
            signer = Signer(DataDirectory(self.program.data).credentials().secret)
            lines = [self._answer(signer) for _ in range(ANSWERS)]
        elif mode == "old":
            lines = [f"script{place}" for place in range(clients)]
        elif mode == "arrive":
            self.arrived += clients
            lines = [f"late{self.arrived + place}" for place in range(clients)]
        else:
            lines = self.sessions
        path = self.folder / "lines"
        path.write_text("\n".join(lines) + "\n")
        return path

    def _answer(self, signer: Signer) -> str:
        self.nonces += 1
        session = signer.read_session(self.sessions[self.nonces % len(self.sessions)])
        served = Served(
            experiment=session.experiment,
            revision=1,
            participant=session.participant,
            session=session.session,
            trial=1_000_000 + self.nonces,
            sampler="Random",
            head=1,
            left=2,
            right=3,
            score=-9999.0,
            trial_type="random",
            probability=1e-5,
            sampler_probability=1.0,
            generation=0,
            published_ms=0,
            served_ms=int(time.time() * 1000),
            nonce=f"{self.nonces:016x}",
        )
        return json.dumps({"token": signer.sign_served(served), "winner": 2, "rt_ms": 700})


def main() -> None:
    options = arguments(
        __doc__ or "",
        clocks=False,
        clients={"type": int, "nargs": "*", "default": (1, 50, 200, 500)},
        web_processes={"type": int, "nargs": "*", "default": (1, 2)},
        samplers={"nargs": "*", "default": ("Random", "Adaptive")},
        modes={"nargs": "*", "default": MODES, "choices": MODES},
        seconds={"type": float, "default": 4.0},
        repeats={"type": int, "default": 3},
        targets={"type": int, "default": 60},
        against={"default": "", "help": "a commit, or the path of another checkout"},
    )
    report = Report("load", COLUMNS)
    with tempfile.TemporaryDirectory() as name, _checkouts(options.against) as checkouts:
        client = _compile(Path(name))
        for sampler in options.samplers:
            for count in options.web_processes:
                with ExitStack() as stack:
                    targets = [
                        stack.enter_context(_start(code, checkout, Path(name), sampler, count, options.targets))
                        for code, checkout in checkouts.items()
                    ]
                    for mode in options.modes:
                        for clients in (ARRIVALS,) if mode == "arrive" else options.clients:
                            _compare(report, client, targets, (sampler, count, mode, clients), options)
    report.write(options.json)


def _compare(report: Report, client: Path, targets: list[Target], row: tuple[str, int, str, int], options: Any) -> None:
    """Load the servers in turn and add the medians of each as a row."""
    found: dict[str, list[dict[str, float]]] = {target.code: [] for target in targets}
    sampler, count, mode, clients = row
    for _ in range(options.repeats):
        for target in targets:
            found[target.code].append(_load(client, target, mode, clients, options.seconds))
    for code, runs in found.items():
        names = {name for run in runs for name in run}
        medians = {name: statistics.median([run[name] for run in runs if name in run]) for name in names}
        medians["errors"] = sum(run["errors"] for run in runs)
        report.add(code=code, sampler=sampler, web=count, mode=mode, clients=clients, **medians)


def _load(client: Path, target: Target, mode: str, clients: int, seconds: float) -> dict[str, float]:
    """Return the figures of one run."""
    base = "/healthz" if mode == "get" else f"/e/{target.slug}/"
    command = (client, str(target.program.address.rpartition(":")[2]), str(clients), str(seconds), mode, base)
    lines = target.write_lines(mode, clients)
    if mode == "arrive":
        time.sleep(ADMITTED_AGAIN_SECONDS)
    web, store = target.web, target.program.child("redis")
    before = [_cpu_seconds(web), _cpu_seconds([store])]
    done = subprocess.run((*command, lines), capture_output=True, text=True, timeout=seconds + 60, check=True)
    spent = [after - since for after, since in zip((_cpu_seconds(web), _cpu_seconds([store])), before, strict=True)]
    if done.stderr:
        print(done.stderr[:600], file=sys.stderr)
    told = json.loads(done.stdout)
    figures = {
        "errors": told["errors"],
        "web_cpu": spent[0] / told["seconds"],
        "store_cpu": spent[1] / told["seconds"],
        "client_cpu": told["cpu_seconds"] / told["seconds"],
        "per_cpu_s": sum(told.get(kind, {}).get("count", 0) for kind in ("query", "answer", "first")) / spent[0],
    }
    for kind, name in (("query", "query"), ("first", "query"), ("answer", "answer")):
        if kind in told:
            plural = "queries" if name == "query" else "answers"
            figures[f"{plural}_s"] = told[kind]["count"] / told["seconds"]
            figures[f"{name}_p50"], figures[f"{name}_p99"] = told[kind]["p50_ms"], told[kind]["p99_ms"]
    return figures


def _cpu_seconds(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


@contextmanager
def _start(code: str, checkout: Path, folder: Path, sampler: str, count: int, n: int) -> Iterator[Target]:
    """Run a server with an experiment and people who have arrived."""
    own = folder / f"{code}-{sampler}-{count}"
    own.mkdir()
    with Program(own / "data", options=("--web-processes", str(count)), repository=checkout) as program:
        program.wait_until_ready()
        program.launch_text("load", SPEC.format(n=n, sampler=sampler))
        slug = "load"
        sessions: list[str] = []
        with httpx.Client(base_url=f"{program.address}/e/{slug}/") as client:
            while len(sessions) < SESSIONS:
                reply = client.post("arrive", json={"parameters": {"puid": f"person{len(sessions)}"}})
                if reply.status_code == httpx.codes.OK:
                    sessions.append(reply.json()["session"])
                else:
                    time.sleep(float(reply.headers["Retry-After"]) / 4)
        experiment = Signer(DataDirectory(program.data).credentials().secret).read_session(sessions[0]).experiment
        yield Target(code, program, own, slug, experiment, sessions)


@contextmanager
def _checkouts(against: str) -> Iterator[dict[str, Path]]:
    """Yield the checkouts to compare: another one first, if any, and this one."""
    if not against or Path(against).is_dir():
        yield {**({"old": Path(against).resolve()} if against else {}), "new": REPOSITORY}
        return
    with tempfile.TemporaryDirectory() as folder:
        old = Path(folder) / "old"
        subprocess.run(("git", "worktree", "add", "--detach", old, against), cwd=REPOSITORY, check=True)
        try:
            yield {"old": old, "new": REPOSITORY}
        finally:
            subprocess.run(("git", "worktree", "remove", "--force", old), cwd=REPOSITORY, check=True)


def _compile(folder: Path) -> Path:
    program = folder / "load_client"
    subprocess.run(("cc", "-O2", "-o", program, Path(__file__).with_suffix("").as_posix() + "_client.c"), check=True)
    return program


if __name__ == "__main__":
    main()
