"""kill -9 of everything, at every step of a participant's way: what was acknowledged is there, once."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.bundles import rows_of
from tests.program import Program, poll

pytestmark = pytest.mark.crash


@pytest.fixture
def crashing(tmp_path: Path) -> Iterator[Program]:
    """The real program, to be killed and started again."""
    with Program(tmp_path / "data") as started:
        yield started


def revived(program: Program) -> Program:
    program.kill()
    return program.start()


def arrive(program: Program, slug: str, puid: str) -> dict[str, str]:
    body = {"parameters": {"puid": puid}}
    reply = httpx.post(f"{program.address}/e/{slug}/arrive", json=body).raise_for_status().json()
    return {"X-Salmon-Session": reply["session"]}


def query(program: Program, slug: str, session: dict[str, str]) -> dict[str, Any]:
    return httpx.get(f"{program.address}/e/{slug}/query", headers=session).raise_for_status().json()


def answer(program: Program, slug: str, served: dict[str, Any]) -> dict[str, Any]:
    body = {"token": served["token"], "winner": served["left"], "rt_ms": 700, "input": "script"}
    return httpx.post(f"{program.address}/e/{slug}/answers", json=body).raise_for_status().json()["results"][0]


def test_a_crash_between_any_two_steps_loses_and_doubles_nothing(crashing: Program, examples: Path) -> None:
    crashing.launch(examples / "shapes" / "experiment.yaml")
    login = crashing.add_user()
    revived(crashing)  # after the launch and the account
    session = arrive(crashing, "shapes", "survivor")
    revived(crashing)  # after the arrival: its session is still good
    first = query(crashing, "shapes", session)
    revived(crashing)  # after a query was served: its token can still be answered
    assert answer(crashing, "shapes", first) | {"token": ""} == {
        "token": "",
        "recorded": True,
        "duplicate": False,
        "count": 1,
    }
    revived(crashing)  # after an answer was acknowledged: sending it again records nothing
    assert answer(crashing, "shapes", first) | {"token": ""} == {
        "token": "",
        "recorded": False,
        "duplicate": True,
        "count": 1,
    }
    second = query(crashing, "shapes", session)
    assert second["trial"] == 2
    answer(crashing, "shapes", second)
    revived(crashing)  # before the end
    finish = httpx.post(f"{crashing.address}/e/shapes/finish", json={"given": 2}, headers=session).json()
    assert (finish["stored"], finish["complete"]) == (2, False)  # the example asks for more answers than these
    revived(crashing)  # after asking for the end
    written = rows_of(crashing.export("shapes", "responses.csv", login))
    assert [(int(row["head"]), int(row["winner"])) for row in written] == [
        (served["head"], served["left"]) for served in (first, second)
    ]
    # The page is there, and takes what it always took.
    assert httpx.get(f"{crashing.address}/e/shapes/arrive", headers=session).status_code == 405
    assert query(crashing, "shapes", arrive(crashing, "shapes", "survivor"))["trial"] == 3


def test_of_answers_in_flight_during_a_crash_every_acknowledged_one_is_there_once(
    crashing: Program, examples: Path
) -> None:
    crashing.launch(examples / "colors" / "experiment.yaml")
    login = crashing.add_user()
    acknowledged: list[int] = []
    enough = threading.Event()

    def participant(number: int) -> None:
        session = arrive(crashing, "colors", f"p{number}")
        while True:
            try:
                served = query(crashing, "colors", session)
                if "token" not in served:
                    return
                result = answer(crashing, "colors", served)
            except (httpx.TransportError, httpx.HTTPStatusError):
                return
            assert result["recorded"]
            acknowledged.append(hash((number, served["trial"])))
            if len(acknowledged) >= 60:
                enough.set()

    with ThreadPoolExecutor(4) as people:
        running = [people.submit(participant, number) for number in range(4)]
        assert enough.wait(60)
        crashing.kill()
    assert all(each.exception() is None for each in running)
    crashing.start()
    rows = rows_of(crashing.export("colors", "responses.csv", login))
    written = [hash((int(row["puid"][1:]), int(row["trial_index"]))) for row in rows]
    assert len(written) == len(set(written))
    assert set(acknowledged) <= set(written)
    assert len(written) <= len(acknowledged) + len(running)  # at most one unacknowledged answer each was on its way


def test_a_second_server_on_the_same_data_refuses_with_a_sentence(crashing: Program) -> None:
    done = crashing.run("serve", "--port", "0")
    assert done.returncode == 1
    assert "is in use by another Salmon" in done.stderr
    assert "Traceback" not in done.stderr
    assert httpx.get(f"{crashing.address}/healthz").status_code == 200


def test_a_killed_supervisor_takes_its_children_along_and_the_next_one_takes_over(
    crashing: Program, examples: Path
) -> None:
    crashing.launch(examples / "colors" / "experiment.yaml")
    crashing.wait_until_ready()
    children = crashing.tree()[1:]
    store = crashing.child("redis")
    crashing.kill_supervisor()
    _, alive = psutil.wait_procs([child for child in children if child != store], timeout=15)
    assert not alive
    crashing.start()
    assert httpx.get(f"{crashing.address}/e/colors/").status_code == 200
    assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize("name", ["redis", "frontend", "backend"])
def test_a_program_that_dies_is_started_again(crashing: Program, examples: Path, name: str) -> None:
    crashing.launch(examples / "colors" / "experiment.yaml")
    crashing.wait_until_ready()
    served = query(crashing, "colors", arrive(crashing, "colors", "patient"))
    killed = crashing.child(name)
    killed.kill()
    poll(lambda: crashing.child(name).pid != killed.pid, f"{name} to be started again")
    poll(lambda: httpx.get(f"{crashing.address}/readyz").status_code == 200, "the program to be ready again")
    assert answer(crashing, "colors", served)["recorded"]
    assert any("program died" in line and name in line for line in crashing.log)
