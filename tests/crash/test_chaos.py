"""Short forms of `make chaos`: kills, and the loss of what was not synced."""

from pathlib import Path

import pytest

from tests.chaos import scenes
from tests.chaos.__main__ import table_of
from tests.chaos.scenes import Scene, scene

pytestmark = pytest.mark.crash


async def test_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    async with scene("kills", tmp_path, people=8, seed=7) as at:
        await scenes.kill_many(at, len(scenes.KILLED))
        await scenes.terminate(at)
    assert at.comparison is not None
    assert at.comparison.holds, at.comparison
    assert not at.ledger.surprises
    # The learning process is killed instead while it has no workers.
    assert {fault.kind for fault in at.faults} >= {f"kill -9: {kind}" for kind in scenes.KILLED if kind != "worker"}
    assert at.ledger.repeats + at.ledger.cut_replies > 0
    assert "| 0 | 0 | 0 | 0 | 0 |" in table_of([at])


async def cut_power(folder: Path) -> Scene:
    """Kill the store and everything while writes that are not synced are dropped."""
    shim = scenes.build_shim(folder)
    if shim is None:
        pytest.skip("there is no C compiler on this machine, so unsynced writes were not dropped (install gcc)")
    async with scene("power cuts", folder, people=8, seed=7, environment={"LD_PRELOAD": str(shim)}) as at:
        for kind in ("redis", "all", "redis"):
            await scenes.kill(at, kind)
    return at


async def test_what_was_acknowledged_was_synced(tmp_path: Path) -> None:
    at = await cut_power(tmp_path)
    assert at.comparison is not None
    assert at.comparison.holds, at.comparison
