"""Requests on a real store: asked over HTTP, carried out behind the live work, fetched, stopped, taken up again."""

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from backend.jobs import study_plan
from backend.service import Service
from backend.store import Store as BackendStore
from frontend.settings import Settings
from frontend.store import Store
from salmon.cli.fit import fit
from salmon.study_report import read_study
from salmon.wire import EXPERIMENTS, KEPT_SECONDS, Keys, decode_array
from tests.bundles import bundle_of, members_of, read_answers, rows_of
from tests.job_requests import BlockedStep, answer_and_absorb, ask_for, expires_within, read_status, run_to_the_end
from tests.living import run_until


async def test_every_kind_is_asked_over_http_carried_out_and_fetched(
    learning: Callable[..., Any], store: Store, owned: Callable[..., Any], probe: BackendStore
) -> None:
    _, experiment, service = await learning("kinds", answers=120)
    run_until(service, lambda: probe.read_model(experiment, "Adaptive") is not None)
    line = probe._binary.xrange(Keys(experiment).history("Adaptive"))[0][1]
    generation = int(line[b"generation"])
    people = [answer.served.participant for answer in await read_answers(store, experiment)]
    identifiers = [
        await ask_for(owned, "kinds", "fit", exclude=[people[0]], folds=3),
        await ask_for(owned, "kinds", "embedding", generation=generation),
        await ask_for(owned, "kinds", "cross_validation", dimensions=[1, 2], noise="TSTE", folds=3),
        await ask_for(owned, "kinds", "plan", answers=60, runs=1),
        await ask_for(owned, "kinds", "groups", d=1, most=2, shuffles=19),
    ]
    ended = [run_to_the_end(service, probe, identifier) for identifier in identifiers]
    assert [item.state for item in ended] == ["done"] * 5, [item.error for item in ended]
    assert all(first.ended_ms <= second.began_ms for first, second in pairwise(ended))
    fitted, earlier, comparison, planned, grouped = [
        (await owned("GET", f"/api/experiments/kinds/requests/{one}")).json()["result"] for one in identifiers
    ]
    assert fitted["excluded"]["answers"] == people.count(people[0])
    assert fitted["answers"] == 120 - people.count(people[0])
    assert (earlier["generation"], earlier["cursor"]) == (generation, line[b"cursor"].decode())
    assert earlier["answers"] == int(line[b"absorbed"])
    assert np.array(earlier["coordinates"]).shape == (30, 2)
    assert len(comparison["candidates"]) == 2
    assert {one["participant"] for one in grouped["people"]} == set(people)
    assert sum(one["answers"] for one in grouped["people"]) == grouped["answers"] == 120
    assert len(grouped["maps"]) == grouped["count"] == max(one["group"] for one in grouped["people"]) + 1
    assert len(grouped["compared"]["agreement"]) == len(set(people))
    assert set(planned["accuracy"]) == {"random queries", "Adaptive"}
    listed = (await owned("GET", "/api/experiments/kinds/requests")).json()
    assert [item["request"] for item in listed] == identifiers[::-1]
    assert all(item["result"] is None and item["asked_by"] == "owner" for item in listed)
    assert all(expires_within(probe, one, KEPT_SECONDS) for one in identifiers)


async def test_offline_the_same_start_gives_the_bytes_that_the_console_gave(
    learning: Callable[..., Any], settings: Settings, store: Store, owned: Callable[..., Any], probe: BackendStore,
    tmp_path: Path,
) -> None:  # fmt: skip
    _, experiment, service = await learning("offline", answers=240)
    learner = service.experiments[experiment].learners["Adaptive"]
    run_until(service, lambda: learner._reported_to == 240)
    identifier = await ask_for(owned, "offline", "fit", exclude=[], folds=2)
    assert run_to_the_end(service, probe, identifier).error == ""
    reply = (await owned("GET", f"/api/experiments/offline/requests/{identifier}")).raise_for_status()
    console = np.array(reply.json()["result"]["coordinates"])
    (tmp_path / "request.json").write_bytes(reply.content)
    bundle = await bundle_of(settings, store, "offline")
    (tmp_path / "bundle.zip").write_bytes(bundle)
    for name in ("responses.csv", "embeddings.csv"):
        (tmp_path / name).write_bytes(members_of(bundle)[name])
    answers, arguments = tmp_path / "responses.csv", ("--dim", "2", "--seed", "11", "--no-uncertainty")
    found: dict[str, np.ndarray] = {}
    for start in ("request.json", "embeddings.csv", "bundle.zip", "again-report.json"):
        output = tmp_path / ("again.csv" if start == "request.json" else f"from-{start}.csv")
        call_fit(answers, *arguments, "--start", tmp_path / start, "-o", output)
        rows = rows_of(output.read_bytes())
        found[start] = np.array([[float(row["dim_0"]), float(row["dim_1"])] for row in rows])
    assert {name: places.tobytes() for name, places in found.items()} == dict.fromkeys(found, console.tobytes())
    report = json.loads((tmp_path / "again-report.json").read_text())
    assert "published" in report["starts"]
    assert (
        report["start"]["source"]
        == f"Adaptive, generation {probe.read_model(experiment, 'Adaptive').numbers['generation']}"
    )  # type: ignore[union-attr]
    shown = read_study(bundle, "bundle.zip").start
    assert shown is not None
    assert (
        shown.coordinates.tolist() == report["start"]["coordinates"] == reply.json()["result"]["start"]["coordinates"]
    )


async def test_an_earlier_embedding_starts_from_the_map_that_was_shown_then(
    learning: Callable[..., Any], owned: Callable[..., Any], probe: BackendStore
) -> None:
    crowd, experiment, service = await learning("shown-then", answers=120)
    learner = service.experiments[experiment].learners["Adaptive"]
    run_until(service, lambda: learner._reported_to == 120)
    await answer_and_absorb(crowd, service, experiment, 60)
    lines = [line for _, line in probe._binary.xrange(Keys(experiment).history("Adaptive")) if b"coordinates" in line]
    for arguments in ({"answers": 120}, {"answers": 180}, {"generation": int(lines[-1][b"generation"])}):
        identifier = await ask_for(owned, "shown-then", "embedding", **arguments)
        assert run_to_the_end(service, probe, identifier).error == ""
        result = (await owned("GET", f"/api/experiments/shown-then/requests/{identifier}")).json()["result"]
        then = [line for line in lines if int(line[b"absorbed"]) <= result["answers"]][-1]
        assert result["start"]["source"] == f"Adaptive, generation {int(then[b'generation'])}"
        assert result["start"]["coordinates"] == decode_array(then[b"coordinates"]).astype(np.float64).tolist()


def call_fit(*arguments: object) -> None:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(fit)
    done = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output


async def test_live_work_goes_on_while_a_request_runs(
    learning: Callable[..., Any], owned: Callable[..., Any], probe: BackendStore, blocked: BlockedStep
) -> None:
    crowd, experiment, service = await learning("behind", answers=60)
    identifier = await ask_for(owned, "behind", "embedding", answers=50)
    run_until(service, lambda: blocked.begun.acquire(blocking=False))
    learner = service.experiments[experiment].learners["Adaptive"]
    generation, searched = learner.state.generation, learner._searched
    for _ in range(3):
        await answer_and_absorb(crowd, service, experiment, 20)
    run_until(service, lambda: learner._searched > searched)
    assert learner.state.generation >= generation + 3
    running = read_status(probe, identifier)
    assert (running.state, running.note) == ("running", "fitting the first 50 answers")
    blocked.let_go.set()
    assert run_to_the_end(service, probe, identifier).result["answers"] == 50


async def test_what_waits_is_cancelled_at_once_and_what_runs_soon_and_the_next_one_comes(
    learning: Callable[..., Any], owned: Callable[..., Any], probe: BackendStore, blocked: BlockedStep
) -> None:
    _, _, service = await learning("cancelled", answers=60)
    path = "/api/experiments/cancelled/requests/"
    first, second, third = [await ask_for(owned, "cancelled", "embedding", answers=count) for count in (10, 20, 30)]
    run_until(service, lambda: blocked.begun.acquire(blocking=False))
    assert (await owned("DELETE", path + second)).json()["state"] == "cancelled"
    asked = (await owned("DELETE", path + first)).json()
    assert asked["cancel"] is True
    assert asked["state"] in {"running", "cancelled"}  # a runner that looks between the wish and the reply has ended it
    assert run_to_the_end(service, probe, first).state == "cancelled"
    blocked.let_go.set()
    assert run_to_the_end(service, probe, third).state == "done"
    assert blocked.times == 2, "a cancelled request was carried out"
    late = (await owned("DELETE", path + third)).json()
    assert (late["state"], late["result"]["answers"]) == ("done", 30)
    assert read_status(probe, first).result is None


async def test_a_restarted_backend_takes_up_what_runs_and_what_waits_in_order(
    learning: Callable[..., Any],
    open_service: Callable[..., Service],
    owned: Callable[..., Any],
    probe: BackendStore,
    blocked: BlockedStep,
) -> None:
    _, _, older = await learning("restarted", answers=60)
    first, second = [await ask_for(owned, "restarted", "embedding", answers=count) for count in (10, 20)]
    run_until(older, lambda: blocked.begun.acquire(blocking=False))
    older.close()
    newer = open_service()
    run_until(newer, lambda: blocked.begun.acquire(blocking=False))
    blocked.let_go.set()
    ended = [run_to_the_end(newer, probe, identifier) for identifier in (first, second)]
    assert [(item.state, item.tries) for item in ended] == [("done", 2), ("done", 1)]
    assert ended[0].ended_ms <= ended[1].ended_ms


async def test_of_two_backends_the_newer_carries_out_and_the_older_writes_no_more(
    learning: Callable[..., Any],
    open_service: Callable[..., Service],
    owned: Callable[..., Any],
    probe: BackendStore,
    blocked: BlockedStep,
) -> None:
    _, _, older = await learning("two", answers=60)
    identifier = await ask_for(owned, "two", "embedding", answers=10)
    run_until(older, lambda: blocked.begun.acquire(blocking=False))
    before = read_status(probe, identifier).backend
    newer = open_service()
    run_until(newer, lambda: read_status(probe, identifier).backend != before)
    assert probe.note_request(identifier, before, {"state": "done"}, now_ms=1) == "lost"
    blocked.let_go.set()
    ended = run_to_the_end(newer, probe, identifier)
    assert (ended.state, ended.tries, ended.backend) == ("done", 2, newer._jobs._name)


async def test_an_experiment_that_is_deleted_meanwhile_is_a_sentence(
    learning: Callable[..., Any], store: Store, owned: Callable[..., Any], probe: BackendStore, blocked: BlockedStep
) -> None:
    _, experiment, service = await learning("deleted", answers=60)
    during, before = [await ask_for(owned, "deleted", "embedding", answers=count) for count in (10, 20)]
    run_until(service, lambda: blocked.begun.acquire(blocking=False))
    await store.connection.do(lambda client: client.hdel(EXPERIMENTS, "deleted"))
    await store.connection.do(lambda client: client.delete(Keys(experiment).state))
    blocked.let_go.set()
    assert (
        run_to_the_end(service, probe, during).error == "The experiment was deleted while this request was carried out."
    )
    assert run_to_the_end(service, probe, before).error == (
        "The experiment was deleted before this request was carried out."
    )


async def test_what_cannot_be_carried_out_fails_in_a_sentence_and_the_next_one_is_carried_out(
    learning: Callable[..., Any], owned: Callable[..., Any], probe: BackendStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    crowd, experiment, service = await learning("failing-requests")
    early = await ask_for(owned, "failing-requests", "embedding", answers=10)
    assert run_to_the_end(service, probe, early).error == (
        "There are no answers that can be fitted. Ask again when there are some."
    )
    await answer_and_absorb(crowd, service, experiment, 40)

    def blow_up(*arguments: Any) -> Any:
        raise FloatingPointError("it blew up")

    monkeypatch.setattr(study_plan, "advance", blow_up)
    identifiers = [
        await ask_for(owned, "failing-requests", "embedding", answers=41),
        await ask_for(owned, "failing-requests", "embedding", generation=10_000),
        await ask_for(owned, "failing-requests", "plan"),
        await ask_for(owned, "failing-requests", "embedding", answers=40),
    ]
    ended = [run_to_the_end(service, probe, identifier) for identifier in identifiers]
    assert [(item.state, item.error) for item in ended] == [
        ("failed", "There are only 40 answers that can be fitted, not 41. Ask for fewer."),
        ("failed", "The history of Adaptive has no generation 10,000. Give one that it has, or answers."),
        ("failed", "The computation failed (FloatingPointError: it blew up)."),
        ("done", ""),
    ]
