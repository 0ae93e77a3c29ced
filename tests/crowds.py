"""Experiments of many participants, put into the store as an import does."""

import random
import time
from collections import Counter
from collections.abc import Iterator

from frontend.experiments import make_revision
from frontend.store import Store
from frontend.store.importing import PAGE
from salmon.records import Answer, Served, Timing
from salmon.spec import parse_spec
from salmon.wire import encode_answer
from tests.oracles import recount

N = 30
SPEC = f"targets: {N}\nsamplers: {{Random: {{}}}}\nhtml: {{max_queries: 30}}\n"


async def put_crowd(store: Store, experiment: str, slug: str, people: int, each: int) -> None:
    """Put an open experiment into the store, with so many participants who gave so many answers each.

    Every tenth participant presses the left key at once, so that their exclusion is proposed; half are under way.
    """
    revision = make_revision(SPEC, parse_spec(SPEC).spec, None, now_ms=1)
    await store.importer.write_hash(experiment, "spec", {"1": revision.encode()})
    page: list[tuple[str, dict[str, str]]] = []
    for stream_id, answer in _answers(experiment, people, each):
        page.append((stream_id, encode_answer(answer)))
        if len(page) == PAGE:
            await store.importer.append_answers(experiment, page)
            page = []
    if page:
        await store.importer.append_answers(experiment, page)
    now = str(int(time.time() * 1000))
    rows = [
        (
            _name(person),
            {"puid": f"x{person}", "source": "prolific", "first_ms": now, "last_ms": now, "answers": str(each)}
            | {"turns": str(each), "status": "completed" if person % 2 else "active"},
            (),
        )
        for person in range(people)
    ]
    for start in range(0, people, PAGE):
        await store.importer.write_people(experiment, rows[start : start + PAGE])
        arrived = {f"prolific:{fields['puid']}": name for name, fields, _ in rows[start : start + PAGE]}
        await store.importer.write_hash(experiment, "arrivals", arrived)
    counts = recount(answer for _, answer in _answers(experiment, people, each))
    await store.importer.write_hash(experiment, "counts", counts)
    state = Counter({"answers": people * each, "answers:Random": people * each})
    own = {"state": "open", "revision": 1, "owner": "local", "created_ms": 1, "opened_ms": 1_760_000_000_000}
    await store.importer.reveal(experiment, slug, {**state, **own})
    await store.experiments.announce(experiment)


def _name(person: int) -> str:
    return f"p{person:011d}"


def _answers(experiment: str, people: int, each: int) -> Iterator[tuple[str, Answer]]:
    """Yield everybody's answers in turn, within ten minutes."""
    draw = random.Random(1)
    started_ms = 1_760_000_000_000
    for place in range(people * each):
        turn, person = divmod(place, people)
        head, left, right = draw.sample(range(N), 3)
        careless = person % 10 == 0
        near = min((left, right), key=lambda foot: abs(foot - head))
        received_ms = started_ms + 600_000 * place // (people * each)
        served = Served(
            experiment, 1, _name(person), "0123abcd", turn + 1, "Random", head=head, left=left, right=right,
            score=-9999.0, trial_type="random", probability=1 / 12_180, sampler_probability=1.0, generation=0,
            published_ms=0, served_ms=received_ms - 1500, nonce=f"{place:016x}",
        )  # fmt: skip
        timing = Timing(90.0 if careless else draw.lognormvariate(7.0, 0.4), 12.5, 100.0 * turn, 8.25, "key")
        yield f"{received_ms}-{place}", Answer(served, left if careless else near, timing, received_ms)
