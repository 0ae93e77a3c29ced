"""Kill, stop, starve and damage the running program under people, and compare their ledger: `python -m tests.chaos`.

Prints the table of docs/reliability.md, writes all figures as JSON, and ends with 1 where an
answer was lost, doubled or made up.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.chaos import scenes
from tests.chaos.scenes import Scene, scene
from tests.program import REPOSITORY

#: People and kills of the scenes beside the kills.
FEW_PEOPLE = 10
#: More trials than anybody answers.
MANY = 10_000


async def run(arguments: argparse.Namespace, folder: Path) -> list[Scene]:
    """Play all scenes and return them."""
    played: list[Scene] = []
    for name in arguments.only or SCENES:
        async with SCENES[name](arguments, folder / name) as at:
            if at is not None:
                played.append(at)
    return played


@asynccontextmanager
async def kills(arguments: argparse.Namespace, folder: Path) -> AsyncGenerator[Scene]:
    """Kill, stop, end and starve processes."""
    async with scene("kills and hangs", folder, people=arguments.people, seed=arguments.seed) as at:
        await scenes.kill_many(at, arguments.kills, seconds=60 * arguments.minutes)
        for _ in range(arguments.hangs):
            for kind in ("frontend", "backend", "redis", "supervisor"):
                await scenes.hang(at, kind)
            await scenes.terminate(at)
            await scenes.starve(at)
        yield at


@asynccontextmanager
async def disk(arguments: argparse.Namespace, folder: Path) -> AsyncGenerator[Scene | None]:
    """Fill a small disk, and make it read-only."""
    async with scenes.small_disk(folder, 64) as small:
        if small is None:
            print("This user may not mount a small file system: the full and the read-only disk were left out.")
            yield None
            return
        async with scene("full and read-only disk", small, people=FEW_PEOPLE, seed=arguments.seed) as at:
            await scenes.fill_disk(at, small, arguments.full_seconds)
            await scenes.make_read_only(at, small)
            yield at


@asynccontextmanager
async def files(arguments: argparse.Namespace, folder: Path) -> AsyncGenerator[Scene]:
    """Damage and remove files of the store and the secrets."""
    async with scene("damaged and missing files", folder, people=FEW_PEOPLE, seed=arguments.seed) as at:
        await scenes.damage_all(at)
        await scenes.flip_byte(at)
        await scenes.lose_credentials(at)
        yield at


@asynccontextmanager
async def media(arguments: argparse.Namespace, folder: Path) -> AsyncGenerator[Scene]:
    """Remove the file of a target."""
    spec = REPOSITORY / "examples" / "shapes" / "experiment.yaml"
    async with scene("missing medium", folder, people=FEW_PEOPLE, seed=arguments.seed, spec=spec, trials=MANY) as at:
        await scenes.lose_media(at)
        yield at


@asynccontextmanager
async def unsynced(arguments: argparse.Namespace, folder: Path) -> AsyncGenerator[Scene | None]:
    """Drop what the store has not synced, with every kill."""
    folder.mkdir(parents=True)
    shim = scenes.build_shim(folder)
    if shim is None:
        print("There is no C compiler: unsynced writes were not dropped.")
        yield None
        return
    environment = {"LD_PRELOAD": str(shim)}
    async with scene(
        "unsynced writes dropped", folder, people=FEW_PEOPLE, seed=arguments.seed, environment=environment
    ) as at:
        for number in range(arguments.power_cuts):
            await scenes.kill(at, ("redis", "all")[number % 2])
        yield at


SCENES = {"kills": kills, "disk": disk, "files": files, "media": media, "unsynced": unsynced}


def table_of(played: list[Scene]) -> str:
    """Return both tables: the comparison of each scene, and the recovery from each kind of fault."""
    lines = [
        "| scene | faults | sent | acknowledged | stored | lost | doubled | phantom | counters ≠ recount | export ≠ stream |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for each in played:
        found = each.comparison
        assert found is not None
        numbers = (
            *(len(each.faults), found.sent, found.acknowledged, found.stored, found.lost, found.doubled, found.phantom),
            *(len(found.counters_off), found.export_differs),
        )
        lines.append(f"| {each.name} | " + " | ".join(f"{number:,}" for number in numbers) + " |")
    lines += ["", "| fault | times | recovery, s: median / worst | replaced, s: median / worst |", "|---|---|---|---|"]
    faults = [fault for each in played for fault in each.faults]
    for kind in dict.fromkeys(
        fault.kind for fault in sorted(faults, key=lambda fault: not fault.kind.startswith("kill"))
    ):
        own = [fault for fault in faults if fault.kind == kind]
        replaced = [fault.replaced for fault in own if fault.replaced is not None]
        lines.append(
            f"| {kind} | {len(own)} | {scenes.quantiles([fault.recovery for fault in own])} |"
            f" {scenes.quantiles(replaced) if replaced else '–'} |"
        )
    killed = [fault.recovery for fault in faults if fault.kind.startswith("kill -9")]
    if killed:
        lines.append(f"| **all kills** | {len(killed)} | {scenes.quantiles(killed)} | – |")
    return "\n".join(lines)


def results_of(played: list[Scene], seconds: float, load: str) -> dict[str, Any]:
    """Return everything that was measured, for JSON."""
    return {
        "seconds": round(seconds, 1),
        "load_before": load,
        "load_after": scenes.load_average(),
        "scenes": [
            {
                "name": each.name,
                "faults": [asdict(fault) for fault in each.faults],
                "notes": each.notes,
                "surprises": each.ledger.surprises[:50],
                "repeats": each.ledger.repeats,
                "cut_replies": each.ledger.cut_replies,
                "comparison": each.comparison.encode() if each.comparison else None,
            }
            for each in played
        ],
    }


def main() -> int:
    """Play the scenes, print the tables, write the results."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=60.0, help="no process is killed after this time")
    parser.add_argument("--people", type=int, default=50)
    parser.add_argument("--hangs", type=int, default=3, help="how often each process is stopped")
    parser.add_argument("--power-cuts", type=int, default=10)
    parser.add_argument("--full-seconds", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", choices=tuple(SCENES))
    parser.add_argument("--json", type=Path, default=Path("build/chaos.json"))
    arguments = parser.parse_args()
    load, began = scenes.load_average(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="salmon-chaos-") as folder:
        played = asyncio.run(run(arguments, Path(folder)))
    results = results_of(played, time.monotonic() - began, load)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(results, indent=1))
    print(table_of(played))
    for each in played:
        for note in (*each.notes, *each.ledger.surprises[:10]):
            print(f"{each.name}: {note}")
    print(f"{results['seconds']:g} s; load {load} before, {results['load_after']} after; all figures: {arguments.json}")
    return 0 if all(each.comparison and each.comparison.holds for each in played) else 1


if __name__ == "__main__":
    sys.exit(main())
