"""Media and bundles in object storage: the real program on moto's server, a stand-in for S3 that speaks HTTP."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec
import httpx
import pytest
from moto.server import ThreadedMotoServer

from frontend.media import MediaStore
from frontend.transfer.nightly_bundles import file_at
from salmon.errors import StartError, StoreError
from tests.archives import picture, write_zip
from tests.program import REPOSITORY, Program, poll

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class ObjectStorage:
    """A running stand-in for S3, with the bucket `salmon` and the variables that lead to it."""

    server: ThreadedMotoServer
    environment: dict[str, str]

    def files(self) -> Any:
        """A look into the bucket that remembers nothing."""
        return fsspec.filesystem("s3", skip_instance_cache=True, use_listings_cache=False)

    def names(self, folder: str) -> list[str]:
        found = self.files().ls(f"salmon/{folder}", detail=False) if self.files().exists(f"salmon/{folder}") else []
        return sorted(path.rpartition("/")[2] for path in found)


@pytest.fixture
def object_storage(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStorage]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server.start()
    host, port = server.get_host_and_port()
    environment = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "salmon",
        "AWS_SECRET_ACCESS_KEY": "salmon",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_MAX_ATTEMPTS": "1",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    httpx.post(f"http://{host}:{port}/moto-api/reset").raise_for_status()  # moto's buckets are those of this process
    storage = ObjectStorage(server, environment)
    storage.files().mkdir("salmon")
    yield storage
    server.stop()


def answer(address: str, count: int) -> None:
    """Answer queries as the participant page does, as one person."""
    with httpx.Client(timeout=60) as client:
        arrival = client.post(f"{address}arrive", json={"parameters": {"puid": "p"}}).raise_for_status().json()
        headers = {"X-Salmon-Session": arrival["session"]}
        for _ in range(count):
            query = client.get(f"{address}query", headers=headers).raise_for_status().json()
            body = {"token": query["token"], "winner": query["left"], "rt_ms": 900}
            client.post(f"{address}answers", json=body).raise_for_status()


def test_a_server_keeps_media_and_bundles_in_object_storage_and_restores_from_it(
    object_storage: ObjectStorage, tmp_path: Path
) -> None:
    environment = {
        **object_storage.environment,
        "SALMON_DATA": "s3://salmon/server",
        "SALMON_BUNDLES_TO": "s3://salmon/nightly",
    }
    with Program(tmp_path / "data", environment) as program:
        login = program.add_user()
        address = program.launch(REPOSITORY / "examples" / "shapes" / "experiment.yaml")
        media = object_storage.names("server/media")
        assert len(media) > 2
        assert not list((tmp_path / "data" / "media").iterdir()), "nothing lies on this machine"
        content = object_storage.files().cat_file(f"salmon/server/media/{media[0]}")
        shown = httpx.get(f"{program.address}/media/{media[0]}", timeout=60)
        assert shown.content == content
        assert int(shown.headers["content-length"]) == len(content)
        part = httpx.get(f"{program.address}/media/{media[0]}", headers={"Range": "bytes=10-19"}, timeout=60)
        assert (part.status_code, part.content) == (206, content[10:20])
        assert part.headers["content-range"] == f"bytes 10-19/{len(content)}"
        assert httpx.get(f"{program.address}/media/{'0' * 64}.png", timeout=60).status_code == 404
        answer(address, 5)
        try:
            # While the bundle is moved to its name, two names are there.
            poll(
                lambda: [name.endswith(".zip") for name in object_storage.names("nightly")] == [True],
                "the nightly bundle",
                seconds=150,
            )
        except AssertionError:
            raise AssertionError("\n".join(program.log)) from None
        (bundle,) = object_storage.names("nightly")
        done = program.run("import", f"s3://salmon/nightly/{bundle}", "--name", "back")
        assert done.returncode == 0, done.stderr
        rows = [program.export(slug, "responses.csv", login).decode().splitlines() for slug in ("shapes", "back")]
        assert len(rows[0]) == len(rows[1]) == 6
        # Before an experiment is deleted, its bundle is kept in the bucket.
        own = {"name": "own", "state": "draft"}
        files = {"spec": ("own.yaml", b"targets: 5\n")}
        httpx.post(
            f"{program.address}/api/experiments", data=own, files=files, auth=login, timeout=60
        ).raise_for_status()
        url = f"{program.address}/api/experiments/own"
        httpx.request("DELETE", url, json={"name": "own"}, auth=login, timeout=60).raise_for_status()
        (kept,) = object_storage.names("server/bundles")
        assert kept.startswith("own-")
        object_storage.server.stop()
        away = httpx.get(f"{program.address}/media/{media[0]}", timeout=60)
        assert away.status_code == 503
        assert "The storage of media cannot be used" in away.text


def test_a_file_that_was_altered_there_is_noticed(object_storage: ObjectStorage, tmp_path: Path) -> None:
    """Even where it has as many bytes as before, and another web process has stored it."""
    one, other = MediaStore("s3://salmon/media"), MediaStore("s3://salmon/media")
    entry = one.unpack(write_zip(tmp_path / "t.zip", [("a.png", picture(1)), ("b.png", picture(2))])).entries[0]
    name = entry.media
    assert object_storage.names("media") == sorted({name, *object_storage.names("media")})
    assert not any(each.startswith(".incoming") for each in object_storage.names("media"))
    assert other.problem(name) == ""
    content = object_storage.files().cat_file(f"salmon/media/{name}")
    object_storage.files().pipe_file(f"salmon/media/{name}", bytes([content[0] ^ 1]) + content[1:])
    assert other.problem(name) == "altered"
    other.keep(name, [content])
    assert one.problem(name) == ""
    object_storage.files().rm_file(f"salmon/media/{name}")
    assert one.problem(name) == "missing"


def test_storage_that_is_away_is_a_sentence(object_storage: ObjectStorage, tmp_path: Path) -> None:
    store = MediaStore("s3://salmon/media")
    object_storage.server.stop()
    with pytest.raises(StoreError, match="The storage of media cannot be used"):
        store.unpack(write_zip(tmp_path / "t.zip", [("a.png", picture(1)), ("b.png", picture(2))]))
    with (
        pytest.raises(StartError, match=r"The file at s3://salmon/eggs\.zip cannot be read"),
        file_at("s3://salmon/eggs.zip"),
    ):
        pass


def test_a_file_that_is_nowhere_is_a_sentence(object_storage: ObjectStorage) -> None:
    with pytest.raises(StartError, match=r"s3://salmon/none\.zip cannot be read"), file_at("s3://salmon/none.zip"):
        pass
    with pytest.raises(StartError, match=r"There is no file 'none\.zip'"), file_at("none.zip"):
        pass
