"""Count the files that each flow of the program passes through: `python -m tests.architecture.flows`.

A file counts when one of its functions is called on the way. Everything runs in this process: the web application behind an
ASGI transport, a turn of the learning process with a serial executor, the program of the export subprocess, `salmon fit`.
"""

from __future__ import annotations

import asyncio
import io
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import httpx
import numpy as np

from backend.service import Service
from backend.store import Store as BackendStore
from frontend.app import create_app
from frontend.settings import Settings
from frontend.store import Store
from salmon.cli.data_directory import DataDirectory
from salmon.parallel import SerialExecutor
from tests.archives import picture, write_zip
from tests.bundles import server_on
from tests.program import REPOSITORY

PACKAGES = ("salmon", "frontend", "backend")
#: Flow -> the most files that it may pass through.
LIMITS = {
    "an answer becomes a better query": 30,
    "YAML and ZIP become an open experiment": 25,
    "responses.csv": 14,
    "salmon fit": 15,
}
OWNER = {"name": "ada", "password": "correct horse"}


@contextmanager
def traced() -> Iterator[set[str]]:
    """Collect the files of the project whose functions are called meanwhile, in any thread."""
    called: set[str] = set()

    def note(frame: FrameType, event: str, _argument: Any) -> None:
        # The body of a module or a class runs when it is imported; a flow is what is called.
        if event == "call" and frame.f_code.co_name != "<module>":
            called.add(frame.f_code.co_filename)

    files: set[str] = set()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield files
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
        for name in called:
            path = Path(name)
            if path.is_relative_to(REPOSITORY) and path.relative_to(REPOSITORY).parts[0] in PACKAGES:
                files.add(str(path.relative_to(REPOSITORY)))


async def web_flows(settings: Settings, backend_url: str, folder: Path) -> dict[str, set[str]]:
    """The flows through the web process, the learning process and the export subprocess."""
    from frontend.transfer.__main__ import main as transfer

    found: dict[str, set[str]] = {}
    store = Store.open(settings.redis_url)
    app = create_app(settings, store)
    archive = write_zip(folder / "t.zip", [(f"{k}.png", picture(k)) for k in range(8)])
    spec = b"html: {max_queries: 0}\nsamplers: {Adaptive: {random_share: 20%}}\n"
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://salmon.test") as client:
        await client.post("/create_user", data={"username": "ada", "password": "correct horse", "password2": "correct horse"})
        login = ("ada", "correct horse")
        with traced() as found["YAML and ZIP become an open experiment"]:
            files = {"spec": ("x.yaml", spec), "targets": ("t.zip", archive.read_bytes())}
            reply = await client.post("/api/experiments", files=files, data={"name": "flow", "open": "true"}, auth=login)
        reply.raise_for_status()
        await client.put("/api/experiments/flow/state", json={"state": "open"}, auth=login)
        arrival = (await client.post("/e/flow/arrive", json={"parameters": {"puid": "a"}})).raise_for_status().json()
        header = {"X-Salmon-Session": arrival["session"]}

        async def answer() -> None:
            query = (await client.get("/e/flow/query", headers=header)).raise_for_status().json()
            body = {"token": query["token"], "winner": query["left"], "rt_ms": 900}
            (await client.post("/e/flow/answers", json=body)).raise_for_status()

        service = Service(BackendStore(backend_url), SerialExecutor)
        service.begin()
        for _ in range(12):
            await answer()
        turn(service, lambda: absorbed(service) == 12)
        query = (await client.get("/e/flow/query", headers=header)).raise_for_status().json()
        with traced() as found["an answer becomes a better query"]:
            body = {"token": query["token"], "winner": query["left"], "rt_ms": 900}
            (await client.post("/e/flow/answers", json=body)).raise_for_status()
            turn(service, lambda: absorbed(service) == 13)
            (await client.get("/e/flow/query", headers=header)).raise_for_status()
        service.stop()
        service.close()
        from frontend.transfer.orders import Order

        with traced() as found["responses.csv"]:
            await asyncio.to_thread(export, transfer, settings, Order("flow", "responses", "csv").encode())
    await store.close()
    return found


def export(transfer: Callable[..., int], settings: Settings, order: str) -> None:
    """Write a file as the subprocess does, with its settings in the environment."""
    import os

    own = {f"SALMON_{name.upper()}": str(value) for name, value in settings.model_dump(mode="json").items()}
    os.environ.update(own)
    output = io.BytesIO()
    assert transfer(["export", order], output) == 0
    assert output.getvalue().count(b"\n") >= 13


def absorbed(service: Service) -> int:
    return min((learner.state.absorbed for item in service.experiments.values() for learner in item.learners.values()), default=0)


def turn(service: Service, condition: Callable[[], bool]) -> None:
    """Let the learning process take its turns until something is so."""
    for _ in range(2000):
        if condition():
            return
        service.step(0.0)
    raise AssertionError("the learning process did not get there")


def fit_flow(folder: Path) -> set[str]:
    """`salmon fit` on a small file of answers."""
    from salmon.cli.main import main

    rng = np.random.default_rng(0)
    truth = rng.normal(size=(9, 2))
    rows = [rng.permutation(9)[:3] for _ in range(300)]
    ordered = [
        (h, a, b) if ((truth[h] - truth[a]) ** 2).sum() < ((truth[h] - truth[b]) ** 2).sum() else (h, b, a)
        for h, a, b in rows
    ]
    path = folder / "responses.csv"
    path.write_text("head,winner,loser\n" + "".join(f"{h},{a},{b}\n" for h, a, b in ordered))
    before = sys.argv
    sys.argv = ["salmon", "fit", str(path), "-o", str(folder / "embedding.csv")]
    try:
        with traced() as files:
            try:
                main()
            except SystemExit as end:
                assert not end.code, end.code
    finally:
        sys.argv = before
    return files


def flows() -> dict[str, set[str]]:
    """Flow -> the files it passes through."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fit = fit_flow(folder)
        with server_on(folder / "data") as settings:
            directory = DataDirectory(folder / "data")
            backend_url = directory.redis_url("backend", directory.credentials().backend)
            return {**asyncio.run(web_flows(settings, backend_url, folder)), "salmon fit": fit}


def main() -> None:
    for name, files in flows().items():
        print(f"{name}: {len(files)} files (at most {LIMITS[name]})")
        for file in sorted(files):
            print(f"    {file}")


if __name__ == "__main__":
    main()
