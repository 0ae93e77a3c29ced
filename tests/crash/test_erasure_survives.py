"""An erasure whose processes are killed in the middle goes on after the next start, and
ends as if nothing had happened.
"""

import time
from pathlib import Path

import httpx
import pytest
import redis

from salmon.cli.data_directory import DataDirectory
from salmon.wire import ERASURES, decode_json
from tests.crash.test_operation import SPEC, Answering, answers_in
from tests.program import Program, poll

pytestmark = pytest.mark.crash

#: What an erasure says it does when everything is killed.
STEPS = (
    "waiting",
    "erasing in the store",
    "writing kept bundles anew",
    "searching the data directory",
)
ORDER = (
    *STEPS[:2],
    "writing the streams anew",
    STEPS[2],
    "writing the store's file anew",
    STEPS[3],
    "removing the note of what to erase",
    "done",
)
EACH = 15


def kill_at(program: Program, erasure: str, step: str) -> str:
    """Kill everything as soon as the erasure has come to a step, or passed it; return the step at which it was."""
    directory = DataDirectory(program.data)
    with redis.Redis.from_url(directory.redis_url("eraser", directory.credentials().eraser)) as client:
        deadline = time.monotonic() + 60
        seen = ORDER[0]
        while time.monotonic() < deadline:
            seen = decode_json(client.hget(ERASURES, erasure))["step"]
            if ORDER.index(seen) >= ORDER.index(step):
                break
    program.kill()
    return seen


@pytest.mark.timeout(900)  # after each kill, the lock of the process that was killed has to end first: 20 s
def test_an_erasure_goes_on_after_kill_9_at_each_of_its_steps(tmp_path: Path) -> None:
    program = Program(tmp_path / "data")
    program.start()
    owner = program.add_user()
    program.launch_text("erasing", SPEC)
    people = [f"person-of-{place}-platform" for place in range(len(STEPS))]
    for name in (*people, "who-stays-with-us"):
        with Answering(program, "erasing", name) as participant:
            for _ in range(EACH):
                participant.one()
    killed: list[str] = []
    for place, (name, step) in enumerate(zip(people, STEPS, strict=True)):
        url = f"{program.address}/api/people/erasures"
        body = {"id": name, "answers": ("keep", "remove")[place % 2]}
        erasure = httpx.post(url, json=body, auth=owner, timeout=60).raise_for_status().json()["erasure"]
        killed.append(kill_at(program, erasure, step))
        program.start()

        def now(erasure: str = erasure) -> dict[str, object]:
            url = f"{program.address}/api/people/erasures/{erasure}"
            return httpx.get(url, auth=owner, timeout=60).raise_for_status().json()

        poll(lambda now=now: now()["state"] in {"done", "failed"}, "the erasure to go on by itself", seconds=180)
        assert (now()["state"], now()["error"]) == ("done", "")
        assert httpx.get(f"{program.address}/api/people?id={name}", auth=owner, timeout=60).json()["experiments"] == []
    assert len(set(killed) - {"waiting", "done"}) >= 2, killed
    removed = EACH * (len(STEPS) // 2)
    assert answers_in(program, "erasing", owner) == EACH * (len(people) + 1) - removed
    program.wait_until_ready()
    assert program.stop() == 0
    files = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert not [path for path in files for name in people if name.encode() in path.read_bytes()]
    assert any(b"who-stays-with-us" in path.read_bytes() for path in files)
