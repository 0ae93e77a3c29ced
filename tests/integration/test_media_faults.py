"""A file of a target that is missing or was altered stops nothing, is not served, and is
named wherever somebody looks.
"""

import asyncio
import io
import json
from pathlib import Path

import httpx
import pytest

from frontend.context import Context
from frontend.launching import launch
from frontend.settings import Settings
from frontend.store import Store
from frontend.transfer.import_bundle import import_bundle
from tests.archives import picture, write_zip
from tests.bundles import bundle_of, members_of

SPEC = "html: {max_queries: 4}\nsamplers: {Random: {}}\n"
Broken = tuple[str, str, str]


@pytest.fixture
async def broken(context: Context, tmp_path: Path, request: pytest.FixtureRequest) -> Broken:
    """An experiment (its name) of pictures, one of which is missing and one altered (their names)."""
    seed = len(request.node.name)  # pictures of another size for each test: the same content would be the same file
    archive = write_zip(tmp_path / "targets.zip", [(f"{k}.png", picture(k, size=(seed, 3))) for k in range(5)])
    slug = f"pictures-{seed}"
    made, _ = await launch(
        context, SPEC.encode(), spec_name=Path("x.yaml"), archive=archive, name=slug, owner="local", state="open"
    )
    targets = (await context.catalogue.read(made.experiment)).targets
    folder = Path(context.settings.media_location)
    (folder / targets[1].media).unlink()
    content = bytearray((folder / targets[2].media).read_bytes())
    content[-1] ^= 1
    (folder / targets[2].media).write_bytes(bytes(content))
    return slug, targets[1].media, targets[2].media


async def test_a_bundle_is_finished_and_names_them(
    broken: Broken, settings: Settings, store: Store, context: Context, tmp_path: Path
) -> None:
    slug, missing, altered = broken
    content = await bundle_of(settings, store, slug)
    members = members_of(content)
    named = json.loads(members["manifest.json"])["media_problems"]
    assert set(named) == {missing, altered}
    assert "is missing" in named[missing]
    assert "was altered" in named[altered]
    assert all(sentence in members["README.md"].decode() for sentence in named.values())
    assert not {f"media/{missing}", f"media/{altered}"} & set(members)
    path = tmp_path / "b.zip"
    path.write_bytes(content)
    made = await import_bundle(context, path, name=f"{slug}-again", owner="local")
    assert missing in made.sentence


async def test_downloads_deletion_and_reset_finish_and_name_them(
    broken: Broken, client: httpx.AsyncClient, owner: tuple[str, str]
) -> None:
    slug, missing, altered = broken
    reply = await client.get(f"/api/experiments/{slug}/bundle", auth=owner)
    assert set(reply.headers["X-Salmon-Media-Problems"].split(", ")) == {missing, altered}
    assert members_of(reply.content)
    old = await client.get("/download", auth=owner)
    assert old.status_code == 200
    assert set(old.headers["X-Salmon-Media-Problems"].split(", ")) == {missing, altered}
    reset = (await client.delete("/reset?force=1", auth=owner)).raise_for_status().json()
    assert [missing in reset["warnings"][0], altered in reset["warnings"][1]] == [True, True]
    gone = await client.request("DELETE", f"/api/experiments/{slug}", json={"name": slug}, auth=owner)
    assert missing in gone.raise_for_status().json()["media_problems"][0]


async def test_an_altered_file_is_not_served_until_it_is_uploaded_again(
    broken: Broken, client: httpx.AsyncClient, context: Context, tmp_path: Path
) -> None:
    _, missing, altered = broken
    assert (await client.get(f"/media/{missing}")).status_code == 404
    for _ in range(2):
        reply = await client.get(f"/media/{altered}", headers={"Accept": "application/json"})
        assert reply.status_code in {404, 410}
        assert "altered" in reply.text
    context.media.unpack(tmp_path / "targets.zip")
    for name in (missing, altered):
        assert (await client.get(f"/media/{name}")).status_code == 200
    # A file that is altered while it is served is noticed, too.
    path = Path(context.settings.media_location) / altered
    path.write_bytes(path.read_bytes() + b"x")
    assert (await client.get(f"/media/{altered}")).status_code in {404, 410}


async def test_the_overview_warns(broken: Broken, client: httpx.AsyncClient, owner: tuple[str, str]) -> None:
    slug, missing, altered = broken
    for _ in range(100):
        shown = (await client.get(f"/api/experiments/{slug}/overview", auth=owner)).raise_for_status().json()
        text = str(shown["sentences"])
        if missing in text:
            break
        await asyncio.sleep(0.05)
    assert missing in text
    assert altered in text


def test_a_file_is_compared_once_and_again_after_a_change(context: Context, tmp_path: Path) -> None:
    context.media.unpack(write_zip(tmp_path / "t.zip", [(f"{k}.png", picture(k, size=(7, 7))) for k in range(3)]))
    name = next(
        path.name for path in Path(context.settings.media_location).iterdir() if not context.media.problem(path.name)
    )
    assert context.media.is_compared(name)
    opened: list[str] = []
    real = context.media._filesystem.open

    def count(place: str, mode: str = "rb") -> io.IOBase:
        opened.append(place)
        return real(place, mode)

    context.media._filesystem.open = count
    try:
        assert [context.media.problem(name) for _ in range(3)] == ["", "", ""]
        assert opened == []
        path = Path(context.settings.media_location) / name
        path.write_bytes(path.read_bytes() + b"x")
        assert not context.media.is_compared(name)
        assert [context.media.problem(name) for _ in range(3)] == ["altered"] * 3
        assert len(opened) == 1
    finally:
        context.media._filesystem.open = real
