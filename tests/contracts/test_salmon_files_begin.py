"""How scripts of the first Salmon begin, look at and end an experiment."""

import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from fastapi.routing import APIRoute

from frontend.salmon1 import downloads
from frontend.salmon1 import experiment as beginnings
from frontend.settings import Settings
from frontend.store import Store
from tests.contracts.salmon_rows import covers
from tests.old_scripts import AUTH, SIX, OldScript


@covers("http", "/init_exp", "/init", "/config")
@covers("files", "config download")
@covers("file", "samplers: default", "html: defaults", "html: other keys are kept", "sampling.probs: default")
async def test_the_configuration_comes_back_with_defaults_and_initialises_again(
    server: OldScript, store: Store
) -> None:
    assert (await server.client.get("/init")).headers["location"] == "/console/new"
    html = {"instructions": "foo", "debrief": "bar", "max_queries": 42, "custom_tag": "foo"}
    made = (await server.init({"targets": 10, "html": html})).json()
    first = (await server.get("/config")).json()
    assert set(first) == {"targets", "html", "samplers", "sampling"}
    assert first["targets"] == [str(k) for k in range(10)]
    assert html.items() <= first["html"].items()
    assert (first["html"]["title"], first["html"]["query_params"]) == ("Similarity judgements", ["puid"])
    assert first["samplers"] == {"random": {"class": "Random"}}
    assert (first["sampling"]["probs"], first["sampling"]["common"]) == ({"random": 100}, {"d": 2})
    text = (await server.get("/config?json=0")).text
    assert yaml.safe_load(text) == first
    await store.experiments.archive(str(await store.experiments.find(made["experiment"])))
    await server.init(text)
    assert (await server.get("/config")).json() == first


@covers("http", "second init", "/reset")
async def test_only_one_experiment_runs_until_a_reset_that_loses_nothing(
    server: OldScript, store: Store, settings: Settings
) -> None:
    made = (await server.init(SIX)).json()
    await server.answer_one()
    assert "An experiment is already set!" in (await server.init(SIX, 403)).text
    refused = await server.client.delete("/reset", auth=AUTH)
    assert refused.status_code == 403
    assert "Do you really want to delete *all* data?" in refused.json()["detail"]
    await server.get("/reset?force=1", 403, headers={"Sec-Fetch-Site": "cross-site"})
    assert (await server.client.delete("/reset?force=1", auth=AUTH)).json() == {"success": True}
    (bundle,) = Path(settings.bundles_location).glob(f"{made['experiment']}-2*.zip")
    assert zipfile.ZipFile(bundle).testzip() is None
    assert "No data has been uploaded" in (await server.get("/responses", 500)).json()["detail"]
    assert (await server.client.get("/query")).status_code == 500
    assert (await server.client.get("/")).headers["location"] == "/console/"
    await server.init(SIX)  # the account is still there
    experiment = await store.experiments.find(made["experiment"])
    assert (await store.experiments.read(str(experiment))).state == "closed"
    assert await store.answers.count(str(experiment)) == 1


@covers("http", "/reset")
@pytest.mark.parametrize("path", ["/reset", "/reset?force=1"])
async def test_visiting_the_reset_explains_it_and_changes_nothing(
    server: OldScript, store: Store, settings: Settings, path: str
) -> None:
    """The attack: a site that the experimenter visits leads the browser there, which sends the password it knows."""
    made = (await server.init(SIX)).json()
    kept = set(Path(settings.bundles_location).glob("*.zip"))
    led = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    for headers in (led, {}):
        said = (await server.get(path, headers=headers)).json()
        assert "DELETE /reset?force=1" in said["detail"]
        assert said["success"] is False
    experiment = await store.experiments.read(str(await store.experiments.find(made["experiment"])))
    assert experiment.state == "open"
    assert set(Path(settings.bundles_location).glob("*.zip")) == kept


async def test_no_address_of_experimenters_changes_anything_when_it_is_visited(
    server: OldScript, store: Store, settings: Settings
) -> None:
    made = (await server.init(SIX)).json()
    await server.answer_one()
    experiment = str(await store.experiments.find(made["experiment"]))

    async def everything() -> tuple[object, ...]:
        bundles = sorted(Path(settings.bundles_location).glob("*.zip"))
        changes = await store.experiments.read_changes(experiment)
        people = await store.export_reader.read_arrivals(experiment)
        return await store.experiments.read(experiment), changes, people, await store.accounts.list(), bundles

    addresses = [
        route.path
        for module in (beginnings, downloads)
        for route in module.router.routes
        if isinstance(route, APIRoute) and "GET" in (route.methods or ())
    ]
    assert len(addresses) >= 10
    before = await everything()
    for address in addresses:
        assert (await server.client.get(f"{address}?force=1", auth=AUTH)).status_code < 500 or address == "/embeddings"
    assert await everything() == before


@covers("http", "/init_exp")
@covers("file", "top: html keys are moved", "sampling.probs: checked", "RandomSampling", "top: other keys are errors")
@pytest.mark.parametrize(
    ("exp", "words"),
    [
        ("targets:\n-\tfoo\n- [bar\n", ("Error", "yaml", "-\tfoo")),
        ("foo: 1\ntargets: 6\n", ("Error", "init.yaml:1:1", "foo")),
        (
            {"instructions": "foo", "debrief": "bar", "max_queries": 42, "targets": 10},
            ("Move keys", "YAML", "include this block of YAML", "html:\n  debrief: bar"),
        ),
        (
            {"targets": 16, "sampling": {"probs": {"a1": 50, "a2": 40}}, "samplers": {"a1": {"class": "Random"}}},
            ("sampling.probs keys", "are not the same as samplers keys"),
        ),
        (
            {
                "targets": 16,
                "sampling": {"probs": {"a": 40, "b": 40}},
                "samplers": {"a": {"class": "Random"}, "b": {"class": "Random"}},
            },
            ("values in sampling.probs should add up to 100", "80"),
        ),
    ],
)
async def test_a_description_with_mistakes_ends_in_500_and_the_words_that_scripts_look_for(
    server: OldScript, exp: Any, words: tuple[str, ...]
) -> None:
    refused = await server.init(exp, 500)
    assert all(word in refused.text for word in words), refused.text
    assert "Traceback" not in refused.text
    assert refused.headers["content-type"].startswith("text/plain")
    await server.get("/config", 500)


@covers("file", "RandomSampling")
async def test_the_old_name_of_random_is_taken_with_a_warning(server: OldScript) -> None:
    made = await server.init({**SIX, "samplers": {"RandomSampling": {}}})
    assert "RandomSampling is now called Random" in " ".join(made.json()["warnings"])
    assert (await server.get("/config")).json()["samplers"] == {"RandomSampling": {"class": "Random"}}


@covers("http", "/init_exp")
@covers("zip", "replaces targets", "filenames")
async def test_a_zip_of_targets_comes_with_the_description(server: OldScript, examples: Path) -> None:
    await server.init(
        {"targets": ["replaced", "by", "files"]},
        files={"targets": (examples / "shapes" / "targets.zip").read_bytes()},
    )
    config = (await server.get("/config")).json()
    assert len(config["targets"]) == 12
    assert all(target.startswith("<img") for target in config["targets"])
    await server.answer_one()
    (row,) = (await server.get("/responses")).json()
    assert row["head_filename"].rpartition(".")[2] in {"png", "svg"}


@covers("http", "/embeddings", "/dashboard", "/logs", "/metrics")
async def test_everything_else_that_scripts_look_at_is_there(server: OldScript) -> None:
    await server.init(SIX)
    for path in ("/embeddings", "/embeddings?sampler=random"):
        detail = (await server.get(path, 500)).json()["detail"]
        assert "No model has been created for any sampler in ['random']" in detail
    assert "text/html" in (await server.get("/dashboard", follow_redirects=True)).headers["content-type"]
    logs = (await server.get("/logs")).json()
    assert all(isinstance(line, str) for lines in logs.values() for line in lines)
    assert "created" in logs["changes.log"][0]
    assert "salmon_requests_total" in (await server.client.get("/metrics")).text


@covers("http", "/download", "/restore")
async def test_a_download_is_restored_under_another_name(server: OldScript, store: Store) -> None:
    made = (await server.init(SIX)).json()
    answers = [await server.answer_one(str(k)) for k in range(10)]
    download = await server.get("/download")
    assert "exp-" in download.headers["content-disposition"]
    await store.experiments.delete(made["experiment"], str(await store.experiments.find(made["experiment"])))
    back = await server.post("/restore", files={"rdb": ("exp.zip", download.content)})
    assert "10 answers of 10 participants" in back.json()["message"]
    assert [row["head"] for row in (await server.get("/responses")).json()] == [answer["head"] for answer in answers]
    assert (await server.post("/restore", 500, files={"rdb": ("x.rdb", b"REDIS0009\xff")})).json()["detail"]
    await server.post("/restore", 422, data={})
