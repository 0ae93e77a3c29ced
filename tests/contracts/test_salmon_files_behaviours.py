"""What participants and experimenters of the first Salmon were used to: kept, or mended knowingly."""

import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from frontend.context import Context
from frontend.experiments import parse_revision
from frontend.participant import queries
from frontend.settings import Settings
from frontend.store import Store
from frontend.store.experiments import Revision
from frontend.transfer.import_answers import ImportFiles, import_answers
from salmon.records import Query
from salmon.spec import parse_spec
from salmon.wire import encode_array
from tests.browser.participant import Laboratory, Participant
from tests.bundles import rows_of, write_export
from tests.contracts.salmon_rows import covers
from tests.old_scripts import OldScript

TWO = "targets: 6\nsamplers: {a: {class: Random}, b: {class: Random}}\n"


@covers("behaviours", "sides are random")
def test_the_sides_are_a_fair_coin_at_every_showing() -> None:
    query = Query(0, (1, 2))
    lefts = [queries.place(query, participant="p", trial=trial, seed=1)[0] for trial in range(2000)]
    assert abs(lefts.count(1) - 1000) < 4 * 500**0.5  # four standard deviations


@covers("behaviours", "samplers_per_user works", "details without query")
def test_one_sampler_a_participant_and_fixed_samplers_have_their_effect() -> None:
    plan = parse_revision(Revision("", f"{TWO}sampling: {{samplers_per_user: 1}}\n", None, 0)).plan
    met = {
        person: {queries.choose_sampler(plan, participant=person, trial=k).sampler for k in range(1, 30)}
        for person in "pqrstuvw"
    }
    assert all(len(samplers) == 1 for samplers in met.values())
    assert set.union(*met.values()) == {"a", "b"}
    details = "sampling: {details: {1: {sampler: b}, 3: {sampler: a, query: [0, 1, 2]}}}\n"
    plan = parse_revision(Revision("", TWO + details, None, 0)).plan
    for person in "pqrstu":
        first, third = (queries.choose_sampler(plan, participant=person, trial=k) for k in (1, 3))
        assert (first.sampler, first.query, third.query) == ("b", None, (0, 1, 2))


@covers("behaviours", "random fallback", "no query twice")
async def test_without_a_model_queries_are_random_with_the_old_score_and_none_comes_twice(
    server: OldScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "PATIENCE_SECONDS", 30.0)  # what a slow store could not note may come twice
    await server.init({"targets": 6, "samplers": {"ARR": {}}})
    seen: Counter[tuple[int, ...]] = Counter()
    for _ in range(30):
        query = (await server.client.get("/query?puid=p1")).json()
        assert (query["sampler"], query["score"]) == ("ARR", -9999)
        seen[query["head"], *sorted((query["left"], query["right"]))] += 1
    assert max(seen.values()) == 1


@covers("files", "embeddings.csv")
@covers("tripletTools", "embeddings")
async def test_embeddings_leave_in_the_columns_they_had(settings: Settings, store: Store, tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("head,winner,loser\n0,1,2\n1,2,0\n")
    (tmp_path / "c.yaml").write_text("targets: [zero, <b>one</b>, two]\nsamplers: {ARR: {}, random: {class: Random}}\n")
    files = ImportFiles(tmp_path / "r.csv", "r.csv", tmp_path / "c.yaml")
    await import_answers(Context(settings, store), files, slug="placed", owner="ada")
    placed = np.array([[0.5, 1.0], [2.0, -3.0], [0.0, 0.25]])
    model = {
        "coordinates": encode_array(placed),
        "generation": "1",
        "answers": "2",
        "cursor": "0-1",
        "published_ms": "1",
    }
    await store.importer.write_model(str(await store.experiments.find("placed")), "ARR", model)
    rows = rows_of(await write_export(settings, store, "placed", "salmon_embeddings", "csv"))
    assert [list(row) for row in rows] == [["target_html", "target_id", "alg", "0", "1"]] * 3
    assert [(row["target_html"], row["target_id"], row["alg"]) for row in rows] == [
        ("zero", "0", "ARR"),
        ("<b>one</b>", "1", "ARR"),
        ("two", "2", "ARR"),
    ]
    assert [[float(row["0"]), float(row["1"])] for row in rows] == placed.tolist()
    labelled = rows_of(await write_export(settings, store, "placed", "triplettools_embeddings", "csv"))
    assert {"dim_0", "dim_1", "item"} <= set(labelled[0])


@covers("behaviours", "blank of 200 ms")
def test_the_gap_between_queries_is_what_it_was() -> None:
    assert parse_spec("targets: 6\n").spec.page.blank_ms == 200


OLD_PAGE = """
targets: [red, orange, yellow, green]
html: {max_queries: 3, skip_button: true, js: "window.mine = 1;", debrief: "<b>Thanks!</b> Your ID:"}
samplers: {Random: {}}
page: {min_rt_ms: 100}
"""
HOOKS = [
    "instructions",
    "target-text",
    "comparison-text",
    "q-head",
    "q-left",
    "q-right",
    "choices",
    "skip-button",
    "num-queries",
]


@pytest.mark.browser
@covers("http", "page hooks", "/")
@covers("behaviours", "puid at the end", "times without the blank")
def test_the_page_has_its_hooks_shows_the_puid_and_times_answers_from_onset(
    laboratory: Laboratory, participant: Participant, page: Page
) -> None:
    address = laboratory.launch("old-page", OLD_PAGE)
    participant.open(f"{laboratory.program.address}/?puid=veteran")
    assert page.url.startswith(address)
    participant.ready()
    assert [name for name in HOOKS if page.locator(f"#{name}").count() != 1] == []
    assert page.locator(".cell").count() == 3
    names = ["head", "left", "right", "puid", "targets", "num_queries", "max_queries"]
    assert page.evaluate("names => names.filter(name => window[name] === undefined)", names) == []
    assert page.evaluate("typeof getquery") == "function"
    participant.answer(3)
    expect(page.locator("#debriefModal #debrief")).to_contain_text("Your ID:")
    expect(page.locator("#puid")).to_have_text("veteran")
    rows = laboratory.rows(address)
    assert [row["puid"] for row in rows] == ["veteran"] * 3
    shown = [(float(row["onset_client_ms"]), float(row["rt_ms"])) for row in rows]
    for (onset, rt), (later, _) in itertools.pairwise(shown):
        assert later >= onset + rt + 200  # the blank is no part of anybody's time
