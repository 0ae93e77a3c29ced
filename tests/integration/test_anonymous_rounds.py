"""Requests that name nobody get each round of Validation and RoundRobin whole."""

from collections.abc import Sequence

import httpx

from frontend.settings import Settings
from frontend.store import Store
from tests.living import started

SPEC = """targets: 5
html: {max_queries: 0}
samplers: {Validation: {n_queries: 4}, RoundRobin: {}, Random: {}}
sampling: {probs: {Validation: 40, RoundRobin: 40, Random: 20}}
"""


def rounds(asked: Sequence[object], size: int) -> list[int]:
    """How many different ones each round has."""
    return [len(set(asked[start : start + size])) for start in range(0, len(asked), size)]


async def test_each_round_is_whole_for_requests_that_name_nobody(
    client: httpx.AsyncClient, settings: Settings, store: Store
) -> None:
    await started(client, settings, store, "rounds", SPEC)

    async def ask(count: int, **named: str) -> list[dict[str, int]]:
        replies = [await client.get("/query", params=named) for _ in range(count)]
        return [reply.raise_for_status().json() for reply in replies]

    checks: list[tuple[int, ...]] = []
    heads: list[int] = []
    for _ in range(4):  # the turns of one sampler are nothing to the other
        asked = await ask(4, sampler="Validation")
        checks += [(query["head"], *sorted((query["left"], query["right"]))) for query in asked]
        heads += [query["head"] for query in await ask(5, sampler="RoundRobin")]
        await ask(3, sampler="Random")
    assert rounds(checks, 4) == [4] * 4
    assert rounds(heads, 5) == [5] * 4
    # So it is where the experiment draws the sampler.
    drawn: dict[str, list[int]] = {"Validation": [], "RoundRobin": [], "Random": []}
    for query in await ask(60):
        drawn[str(query["sampler"])].append(query["head"])
    whole = len(drawn["RoundRobin"]) // 5 * 5
    assert whole >= 15
    assert rounds(drawn["RoundRobin"][:whole], 5) == [5] * (whole // 5)
