"""What people read while the web process can open no more files."""

import errno
from typing import Any

import httpx
import pytest

from frontend import languages
from frontend.app import create_app
from frontend.settings import Settings
from frontend.store import Store


@pytest.fixture
def app() -> Any:
    languages.catalogue.cache_clear()
    settings = Settings(redis_url="redis://127.0.0.1:1", secret="s" * 32)
    return create_app(settings, Store.open(settings.redis_url))


async def get(app: Any, path: str) -> httpx.Response:
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://salmon.test") as client:
        return await client.get(path)


@pytest.mark.parametrize(("number", "status"), [(errno.EMFILE, 503), (errno.ENFILE, 503), (errno.EACCES, 500)])
async def test_without_a_descriptor_people_are_asked_to_try_again(app: Any, number: int, status: int) -> None:
    @app.get("/opens-a-file")
    async def _() -> None:
        raise OSError(number, "no")

    reply = await get(app, "/opens-a-file")
    assert reply.status_code == status
    assert ("Retry-After" in reply.headers) == (status == 503)
    assert reply.json()["error"]["message"].endswith(".")


def test_the_texts_of_every_language_are_read_before_the_first_request(app: Any) -> None:
    assert app is not None
    assert languages.catalogue.cache_info().currsize == len(languages.LANGUAGES)
