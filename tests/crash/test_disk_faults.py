"""A disk that refuses what the store writes is named: in the log, in /readyz and on the console's pages."""

import errno
import os
from pathlib import Path

import httpx
import pytest

from tests.chaos.scenes import build_shim
from tests.crash.test_operation import SPEC, Answering, small_disk
from tests.program import Program, poll

pytestmark = pytest.mark.crash


@pytest.mark.parametrize(
    ("call", "number", "cause"),
    [
        ("write", errno.EIO, "input/output error"),
        ("fsync", errno.EIO, "input/output error"),
        ("write", errno.EROFS, "read-only file system"),
        ("write", errno.EDQUOT, "disk quota used up"),
        ("write", errno.ENOMEM, "out of memory"),
    ],
)
def test_why_the_store_died_is_said(tmp_path: Path, call: str, number: int, cause: str) -> None:
    shim = build_shim(tmp_path, "failing")
    if shim is None:
        pytest.skip("there is no C compiler on this machine, so no fault was injected (install gcc)")
    fault = tmp_path / "fault"
    with Program(tmp_path / "data", {"LD_PRELOAD": str(shim), "SALMON_CHAOS_FAULT": str(fault)}) as program:
        login = program.add_user()
        program.launch_text("faults", SPEC)
        program.wait_until_ready()
        with Answering(program, "faults") as participant, participant.in_background():
            poll(lambda: participant.confirmed, "the first answer")
            fault.write_text(f"{call} {number}")

            def hint() -> str:
                reply = httpx.get(f"{program.address}/readyz")
                return reply.json().get("hint", "") if reply.status_code == 503 else ""

            poll(lambda: cause in hint(), f"/readyz to name the cause: {cause}")

            def page() -> str:
                return httpx.get(f"{program.address}/console/", auth=login, headers={"Accept": "text/html"}).text

            poll(lambda: cause in page(), "the console to name it")
            died = [line for line in program.log if "program died" in line and "program=redis" in line]
            assert all(f'cause="{cause}"' in line for line in died)
            assert any("last words" in line and "program=redis" in line for line in program.log)
            at_the_end = len(participant.confirmed)
            fault.unlink()
            poll(lambda: len(participant.confirmed) > at_the_end, "answers to flow again", seconds=60)
        program.wait_until_ready()
        assert "has stopped" not in page()


def test_a_disk_without_inodes_is_said(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 40, "nr_inodes=200") as disk, Program(disk / "data") as program:
        program.wait_until_ready()
        assert "inodes" not in httpx.get(f"{program.address}/readyz").text
        for number in range(os.statvfs(disk).f_favail):
            (disk / f"small-{number}").touch()
        poll(
            lambda: "no inodes left" in httpx.get(f"{program.address}/readyz").json().get("warning", ""),
            "/readyz to warn of inodes",
        )
