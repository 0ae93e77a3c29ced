"""Several web processes on one port: what they count, who is logged in and what is answered are the same in all."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from tests.program import REPOSITORY, Program, poll

SPEC = "targets: 12\nhtml: {max_queries: 0}\nsamplers: {Random: {}}\nsecurity: {compat: on}\n"
EACH = 60


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    data = tmp_path_factory.mktemp("processes") / "data"
    with Program(data, environment={"SALMON_WEB_PROCESSES": "2"}) as running:
        yield running


def web_processes(program: Program) -> list[psutil.Process]:
    return [program.child("frontend"), program.child("frontend-2")]


def pid_of(program: Program, name: str) -> int:
    """The process that the supervisor started last under this name; it may have died since."""
    return int((program.data / "running" / f"{name}.pid").read_text().partition("\n")[0])


def counted(program: Program, route: str) -> int:
    text = httpx.get(f"{program.address}/metrics", auth=("ada", "correct horse")).raise_for_status().text
    return round(sum(map(float, re.findall(rf'salmon_requests_total{{route="{route}",status="200"}} (\S+)', text))))


def test_both_take_connections_and_count_together(program: Program) -> None:
    login = program.add_user()
    program.launch_text("both", SPEC)
    used: set[int] = set()
    port = int(program.address.rpartition(":")[2])
    for _ in range(EACH):
        with httpx.Client(base_url=program.address) as client:  # a connection of its own
            query = client.get("/query?puid=somebody").raise_for_status().json()
            used |= {
                process.pid
                for process in web_processes(program)
                for connection in process.net_connections("tcp")
                if connection.status == "ESTABLISHED" and connection.laddr.port == port
            }
            answer = {**query, "winner": query["left"], "puid": "somebody"}
            client.post("/answer", json=answer).raise_for_status()
    assert used == {process.pid for process in web_processes(program)}
    assert (counted(program, "/query"), counted(program, "/answer")) == (EACH, EACH)
    overview = httpx.get(f"{program.address}/api/experiments/both/overview", auth=login).json()
    assert overview["answers"]["total"] == EACH
    assert [latency["requests"] for latency in overview["server"]] == [EACH, EACH]


def test_a_login_holds_in_both_and_ends_in_both(program: Program) -> None:
    form = {"name": "ada", "password": "correct horse"}
    cookies = httpx.post(f"{program.address}/console/login", data=form).cookies

    def statuses() -> set[int]:
        return {httpx.get(f"{program.address}/api/experiments", cookies=cookies).status_code for _ in range(30)}

    assert statuses() == {200}
    page = httpx.get(f"{program.address}/console/", cookies=cookies).text
    csrf = page.split('name="csrf" content="')[1].split('"')[0]
    left = httpx.post(f"{program.address}/console/logout", cookies=cookies, data={"csrf": csrf})
    assert left.status_code == 303
    assert statuses() == {401}


@pytest.mark.parametrize("name", ["frontend", "frontend-2"])
def test_one_that_is_killed_or_hangs_comes_back_while_the_other_serves(program: Program, name: str) -> None:
    victim = program.child(name)
    victim.kill() if name == "frontend" else victim.suspend()
    deadline = time.monotonic() + 60
    served = 0
    while time.monotonic() < deadline and (served < 20 or pid_of(program, name) == victim.pid):
        try:
            served += httpx.get(f"{program.address}/healthz", timeout=1).status_code == 200
        except httpx.TransportError:
            continue  # the connection was given to the one that is away: a page asks again
    assert served >= 20
    assert pid_of(program, name) != victim.pid

    def answers_every_connection() -> bool:
        try:
            return all(httpx.get(f"{program.address}/healthz", timeout=2).status_code == 200 for _ in range(20))
        except httpx.TransportError:
            return False

    poll(answers_every_connection, "both to serve again", seconds=60)


def test_a_port_that_another_program_has_is_refused(program: Program, tmp_path: Path) -> None:
    port = int(program.address.rpartition(":")[2])
    refused = subprocess.run(
        (sys.executable, "-m", "salmon", "serve", "--port", str(port), "--data", str(tmp_path / "data")),
        cwd=REPOSITORY,
        env={**os.environ, "SALMON_WEB_PROCESSES": "2"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert refused.returncode == 1
    assert f"The port {port} on 127.0.0.1 cannot be used" in refused.stderr
