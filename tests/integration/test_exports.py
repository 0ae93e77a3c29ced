"""Everything that leaves the system, through the application and the real store."""

from __future__ import annotations

import csv
import io
import json

import httpx
import numpy as np
import pyarrow.parquet
import pytest

from frontend.accounts import make_account
from frontend.context import Context
from frontend.settings import Settings
from frontend.store import Store
from frontend.writer.order import EXTENSIONS
from tests.living import started

OWNER = ("owner", "a good password")
SPEC = """
targets: 30
html: {max_queries: 20}
samplers: {Random: {}, Validation: {n_queries: 5}}
questions: [{name: age, text: How old are you?, type: number}]
seed: 3
"""


@pytest.fixture
async def slug(client: httpx.AsyncClient, settings: Settings, store: Store) -> str:
    """An experiment with sixty answers of three people."""
    if not await store.accounts.exist():
        await make_account(Context.build(settings, store), *OWNER, owner=True)
    known = [state.slug for state in await store.experiments.list()]
    if "files" not in known:
        crowd, _ = await started(client, settings, store, "files", SPEC)
        await crowd.answer(60)
    return "files"


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def as_text(value: object) -> str:
    """A value of JSON or Parquet as CSV writes it."""
    if value is None:
        return ""
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)


TABLES = [name for name, extensions in EXTENSIONS.items() if "parquet" in extensions and "embeddings" not in name]


@pytest.mark.parametrize("name", TABLES)
async def test_a_table_holds_the_same_values_in_every_form(client: httpx.AsyncClient, slug: str, name: str) -> None:
    address = f"/api/experiments/{slug}/exports/{name}"
    replies = {form: await client.get(f"{address}.{form}", auth=OWNER) for form in ("csv", "jsonl", "parquet")}
    assert {reply.status_code for reply in replies.values()} == {200}, replies["csv"].text
    written = rows_of(replies["csv"].text)
    lines = [json.loads(line) for line in replies["jsonl"].text.splitlines()]
    columns = pyarrow.parquet.read_table(io.BytesIO(replies["parquet"].content)).to_pylist()
    assert lines == columns
    assert [{column: as_text(value) for column, value in line.items()} for line in lines] == written
