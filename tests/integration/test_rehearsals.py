"""A scratch copy is never taken for the experiment, and goes by itself: after a day, or with the experiment."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest
import yaml

from frontend.context import Context
from frontend.experiments import newest
from frontend.settings import Settings
from frontend.store import Store
from frontend.transfer.nightly_bundles import NightlyBundle, is_due
from frontend.transfer.rehearsals import (
    KEPT_MS,
    LONGEST_MS,
    clear_old,
    find_rehearsal,
    make_scratch_copy,
    outcome_of,
    scratch_spec,
)
from frontend.transfer.subprocesses import Subprocesses
from salmon.spec import parse_spec
from tests.living import started

SPEC = """
targets: [a, b, c, d]
title: Letters
html: {max_queries: 5}
samplers: {Random: {}}
recruitment:
  platform: sona
  invited_only: true
  opens_at: 2027-01-31 18:00
  sona: {school: psych-uni, experiment_id: 12, credit_token: abcdefgh1234, credit: server}
stopping: {answers: 3, participants: 2, at: 2027-03-01}
notify: {email: [a@example.org]}
privacy: {keep_ids: 30d}
payment: {reward: 1.50}
"""


def test_the_copy_has_the_same_course_and_reaches_nobody() -> None:
    spec = parse_spec(SPEC).spec
    copy = scratch_spec(spec)
    assert copy.title == "Rehearsal: Letters"
    assert (copy.html.max_queries, copy.samplers, copy.payment) == (5, spec.samplers, spec.payment)
    assert (copy.recruitment.platform, copy.recruitment.invited_only, copy.recruitment.opens_at) == (
        "sona",
        False,
        None,
    )
    assert copy.recruitment.sona is not None
    assert copy.recruitment.sona.credit == "participant", "no credit is granted at the university"
    assert not copy.notify.email
    assert (copy.stopping.answers, copy.stopping.participants, copy.stopping.at) == (None, None, None)
    assert copy.privacy.keep_ids is None


async def copied(context: Context, client: httpx.AsyncClient, settings: Settings, store: Store, name: str) -> Any:
    await started(client, settings, store, name, "targets: 6\nhtml: {max_queries: 5}\nsamplers: {Random: {}}\n")
    original = await context.catalogue.find(name)
    return original, await make_scratch_copy(context, original, owner="o", by="owner", people=4)


async def test_addresses_without_a_name_and_nightly_bundles_pass_a_rehearsal_over(
    client: httpx.AsyncClient, settings: Settings, store: Store, context: Context
) -> None:
    original, scratch = await copied(context, client, settings, store, "passed")
    assert scratch.state == "open"
    assert scratch.rehearsal_of == original.id
    assert scratch.counters["expected_answers"] == 20
    found = newest(await store.experiments.list())
    assert found is not None
    assert found.experiment == original.id
    now_ms = scratch.created_ms + 10**9
    assert is_due(NightlyBundle("passed"), original.state, now_ms=now_ms, hour=3)
    assert not is_due(NightlyBundle(scratch.slug), scratch, now_ms=now_ms, hour=3)


async def test_a_rehearsal_closes_after_a_while_and_is_removed_after_a_day(
    client: httpx.AsyncClient, settings: Settings, store: Store, context: Context
) -> None:
    original, scratch = await copied(context, client, settings, store, "aged")
    subprocesses = Subprocesses(settings)

    async def look(after_ms: int) -> str:
        later = Context(settings, store, now_ms=lambda: scratch.created_ms + after_ms)
        await clear_old(later, subprocesses)
        found = await find_rehearsal(later, original.id)
        return found.state if found else "gone"

    assert await look(LONGEST_MS - 1) == "open"
    assert await look(LONGEST_MS) == "closed"
    assert await outcome_of(context, scratch.experiment) == (
        "The people did not finish in time; what they answered is kept."
    )
    assert await look(KEPT_MS - 1) == "closed"
    assert await look(KEPT_MS) == "gone"
    assert await store.experiments.find(scratch.slug) is None
    assert (await store.experiments.read(original.id)).state == "open"


async def test_a_rehearsal_goes_with_its_experiment(
    client: httpx.AsyncClient, settings: Settings, store: Store, context: Context
) -> None:
    original, scratch = await copied(context, client, settings, store, "parent")
    await store.experiments.delete("parent", original.id)
    await clear_old(context, Subprocesses(settings))
    assert await store.experiments.find(scratch.slug) is None


@pytest.mark.parametrize(
    ("method", "path", "options"),
    [
        ("PUT", "state", {"json": {"state": "open"}}),
        ("POST", "copy", {"json": {"name": ""}}),
        ("POST", "rehearsal", {"json": {"people": 1}}),
        (
            "PUT",
            "spec",
            {"files": {"spec": ("a.yaml", yaml.safe_dump({"targets": 6}).encode())}, "data": {"revision": "1"}},
        ),
    ],
)
async def test_a_rehearsal_cannot_become_a_real_experiment(
    client: httpx.AsyncClient,
    settings: Settings,
    store: Store,
    context: Context,
    owned: Callable[..., Any],
    method: str,
    path: str,
    options: dict[str, Any],
) -> None:
    name = f"real-{path}"
    _, scratch = await copied(context, client, settings, store, name)
    reply = await owned(method, f"/api/experiments/{scratch.slug}/{path}", **options)
    assert reply.status_code == 409
    assert "This is a rehearsal with simulated people" in reply.text


async def test_where_there_is_no_rehearsal_the_route_says_so(
    client: httpx.AsyncClient, settings: Settings, store: Store, owned: Callable[..., Any]
) -> None:
    await started(client, settings, store, "unrehearsed")
    for method in ("GET", "DELETE"):
        reply = await owned(method, "/api/experiments/unrehearsed/rehearsal")
        assert reply.status_code == 404
        assert "There is no rehearsal of this experiment." in reply.text


async def test_the_bundle_of_a_rehearsal_is_not_imported(
    client: httpx.AsyncClient, settings: Settings, store: Store, context: Context, owned: Callable[..., Any]
) -> None:
    _, scratch = await copied(context, client, settings, store, "bundled")
    bundle = (await owned("GET", f"/api/experiments/{scratch.slug}/bundle")).content
    files = {"bundle": ("b.zip", bundle)}
    refused = await owned("POST", "/api/experiments/import", files=files, data={"name": "again"})
    assert refused.status_code == 409, refused.text
    assert "This is the bundle of a rehearsal" in refused.text
    assert await store.experiments.find("again") is None
