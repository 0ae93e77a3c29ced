"""Requests to the running program: carried out on its Dask workers behind the live work,
and begun again after a crash.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.participants.hearing import read_store
from tests.crash.test_living_program import answering, crowd, model_has_seen_all
from tests.program import Program, poll

pytestmark = pytest.mark.crash


def test_live_work_passes_a_long_request_which_survives_its_backend(tmp_path: Path) -> None:
    with Program(tmp_path / "data") as program:
        program.wait_until_ready()
        auth = program.add_user()
        people = crowd(program, "long")
        address = f"{program.address}/api/experiments/long/requests"

        def send(method: str, path: str = "", **options: Any) -> dict[str, Any]:
            return httpx.request(method, address + path, auth=auth, timeout=20, **options).raise_for_status().json()

        def is_now(identifier: str, condition: Callable[[dict[str, Any]], bool]) -> Callable[[], bool]:
            return lambda: condition(send("GET", f"/{identifier}"))

        # Far longer than the people of this test answer: 2,000 measurements of a plan.
        endless = send("POST", json={"kind": "plan", "arguments": {"answers": 6000, "runs": 20}})["request"]
        short = send("POST", json={"kind": "embedding", "arguments": {"answers": 60}})["request"]
        poll(is_now(endless, lambda item: item["progress"] > 0), "the request to be on its way")
        with answering(people, 4, 20):
            pass
        model_has_seen_all(program, "long", 80)
        generations = [generation for generation, _ in read_store(program.data, "long", "Adaptive").history]
        assert len(generations) > 3
        running = send("GET", f"/{endless}")
        assert (running["state"], running["tries"]) == ("running", 1)
        program.child("backend").kill()
        poll(is_now(endless, lambda item: item["tries"] == 2 and item["progress"] > 0), "the request to be begun again")
        assert send("GET", f"/{short}")["state"] == "waiting"
        send("DELETE", f"/{endless}")
        poll(is_now(endless, lambda item: item["state"] == "cancelled"), "the request to be cancelled")
        poll(is_now(short, lambda item: item["state"] == "done"), "the next request")
        result = send("GET", f"/{short}")["result"]
        assert (result["answers"], len(result["coordinates"])) == (60, 30)
