"""Count the files that each flow of the program passes through: `python -m tests.architecture.flows`.

A file counts when one of its functions is called on the way. Everything runs in this process: the web application
behind an ASGI transport, a turn of the learning process with a serial executor, the program of the export subprocess,
`salmon fit`.
"""

from __future__ import annotations

import asyncio
import io
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

import httpx
import numpy as np
import redis

from backend.service import Service
from backend.store import Store as BackendStore
from frontend.app import create_app
from frontend.auth import make_account
from frontend.context import Context
from frontend.settings import Settings
from frontend.store import Store
from salmon.cli.data_directory import DataDirectory
from salmon.parallel import SerialExecutor
from salmon.simulate import random_world
from salmon.wire import Keys, decode_query
from tests.archives import picture, write_zip
from tests.bundles import server_on
from tests.living import run_until
from tests.program import REPOSITORY

PACKAGES = ("salmon", "frontend", "backend")
FLOWS = ("an answer becomes a better query", "YAML and ZIP become an open experiment", "responses.csv", "salmon fit")


class Trace:
    """Collects the files of the project whose functions are called in any thread while it is active."""

    def __init__(self) -> None:
        self._called: set[str] | None = None
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    @contextmanager
    def of(self, files: set[str]) -> Iterator[None]:
        """Add the files on the way to `files`."""
        self._called = called = set[str]()
        try:
            yield
        finally:
            self._called = None
            for name in called:
                path = Path(name)
                if path.is_relative_to(REPOSITORY) and path.relative_to(REPOSITORY).parts[0] in PACKAGES:
                    files.add(str(path.relative_to(REPOSITORY)))

    def stop(self) -> None:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]

    def _note(self, frame: FrameType, event: str, _argument: Any) -> None:
        # The body of a module runs when it is imported; a flow is what is called.
        if self._called is not None and event == "call" and frame.f_code.co_name != "<module>":
            self._called.add(frame.f_code.co_filename)


async def web_flows(trace: Trace, settings: Settings, backend_url: str, folder: Path) -> dict[str, set[str]]:
    """The flows through the web process, the learning process and the export subprocess."""
    from frontend.transfer.__main__ import main as transfer

    found: dict[str, set[str]] = {name: set() for name in FLOWS}
    store = Store.open(settings.redis_url)
    app = create_app(settings, store)
    archive = write_zip(folder / "t.zip", [(f"{k}.png", picture(k)) for k in range(8)])
    spec = b"html: {max_queries: 0}\nsamplers: {Adaptive: {random_share: 20%}}\n"
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://salmon.test") as client:
        await make_account(Context(settings, store), "ada", "correct horse", owner=True)
        login = ("ada", "correct horse")
        first = {"spec": ("x.yaml", spec), "targets": ("t.zip", archive.read_bytes())}
        await client.post(
            "/api/experiments", files=first, data={"name": "before"}, auth=login
        )  # builds what is built once
        with trace.of(found["YAML and ZIP become an open experiment"]):
            files = {"spec": ("x.yaml", spec), "targets": ("t.zip", archive.read_bytes())}
            reply = await client.post(
                "/api/experiments", files=files, data={"name": "flow", "state": "open"}, auth=login
            )
        reply.raise_for_status()
        arrival = (await client.post("/e/flow/arrive", json={"parameters": {"puid": "a"}})).raise_for_status().json()
        header = {"X-Salmon-Session": arrival["session"]}

        async def answer() -> None:
            query = (await client.get("/e/flow/query", headers=header)).raise_for_status().json()
            body = {"token": query["token"], "winner": query["left"], "rt_ms": 900}
            (await client.post("/e/flow/answers", json=body)).raise_for_status()

        experiment = await store.experiments.find("flow") or ""
        shared = redis.Redis.from_url(settings.redis_url)
        service = Service(BackendStore(backend_url), SerialExecutor)
        service.begin()
        for _ in range(12):
            await answer()
        # The embedding that the console shows is fitted beside this flow: its next turn comes seconds later.
        run_until(service, lambda: published(shared, experiment) == (12, 12, 0))
        query = (await client.get("/e/flow/query", headers=header)).raise_for_status().json()
        with trace.of(found["an answer becomes a better query"]):
            body = {"token": query["token"], "winner": query["left"], "rt_ms": 900}
            (await client.post("/e/flow/answers", json=body)).raise_for_status()
            run_until(service, lambda: published(shared, experiment)[::2] == (13, 0))
            (await client.get("/e/flow/query", headers=header)).raise_for_status()
        service.stop()
        service.close()
        shared.close()
        from frontend.transfer.subprocesses import ExportOrder

        order = ExportOrder("flow", "responses", "csv").encode()
        await asyncio.to_thread(
            export, transfer, settings, order
        )  # once before, so that nothing is imported on the way
        with trace.of(found["responses.csv"]):
            await asyncio.to_thread(export, transfer, settings, order)
    await store.close()
    return found


def export(transfer: Callable[..., int], settings: Settings, order: str) -> None:
    """Write a file as the subprocess does, with its settings in the environment."""
    own = {f"SALMON_{name.upper()}": str(value) for name, value in settings.model_dump(mode="json").items()}
    output = io.BytesIO()
    with patch.dict("os.environ", own):
        assert transfer(["export", order], output) == 0
    assert output.getvalue().count(b"\n") >= 13


def published(store: redis.Redis, experiment: str) -> tuple[int, int, int]:
    """How many answers the published model and the reported embedding have seen, and the generation of the first query
    less that of the model: 0 when its search is published.
    """
    keys = Keys(experiment)
    model = store.hgetall(keys.model("Adaptive"))
    first = store.lindex(keys.queries("Adaptive"), 0)
    absorbed, reported, generation = (int(model.get(name, -1)) for name in (b"absorbed", b"reported_of", b"generation"))
    return absorbed, reported, decode_query(first.decode()).generation - generation if first else -1


def fit_flow(trace: Trace, folder: Path) -> set[str]:
    """`salmon fit` on a small file of answers."""
    from salmon.cli.main import main as salmon

    world, rng = random_world(9, 2, 0), np.random.default_rng(0)
    rows = world.answer(world.random_queries(300, rng), rng)
    path = folder / "responses.csv"
    path.write_text("head,winner,loser\n" + "".join(f"{h},{a},{b}\n" for h, a, b in rows.tolist()))
    files: set[str] = set()
    before = sys.argv
    sys.argv = ["salmon", "fit", str(path), "-o", str(folder / "embedding.csv")]
    try:
        with suppress(SystemExit):
            salmon()  # once before, so that nothing is imported on the way
        with trace.of(files), suppress(SystemExit):
            salmon()
    finally:
        sys.argv = before
    assert (folder / "embedding.csv").exists()
    return files


def flows() -> dict[str, set[str]]:
    """Flow -> the files it passes through."""
    trace = Trace()
    try:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            fit = fit_flow(trace, folder)
            with server_on(folder / "data") as settings:
                directory = DataDirectory(folder / "data")
                backend_url = directory.redis_url("backend", directory.credentials().backend)
                found = asyncio.run(web_flows(trace, settings, backend_url, folder))
    finally:
        trace.stop()
    return found | {"salmon fit": fit}


def main() -> None:
    for name, files in flows().items():
        sys.stdout.write(f"{name}: {len(files)} files\n")
        sys.stdout.writelines(f"    {file}\n" for file in sorted(files))


if __name__ == "__main__":
    main()
