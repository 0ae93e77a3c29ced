"""Scripts of experimenters reach a running server through `salmon.client`, and so does `salmon launch --server`."""

import zipfile
from pathlib import Path
from typing import Any

import httpx
import pytest

from salmon.client import ApiClient, ServerError
from tests.bundles import rows_of
from tests.program import REPOSITORY, Program

FRUITS = "targets: [apple, pear, plum, fig]\nsamplers: {Random: {}}\n"


@pytest.fixture(scope="module")
def client(program: Program) -> ApiClient:
    """The client of an experimenter with a password."""
    return ApiClient(program.address, *program.add_user())


@pytest.fixture
def fruits(tmp_path: Path) -> Path:
    path = tmp_path / "fruits.yaml"
    path.write_text(FRUITS)
    return path


def token(client: ApiClient, scope: str) -> str:
    """Make an API token, as the page Account does."""
    url = f"{client.address}/api/account/tokens"
    body = {"label": scope, "scope": scope}
    return httpx.post(url, json=body, auth=(client.name, client.password)).raise_for_status().json()["token"]


def test_an_experiment_is_created_opened_watched_and_exported(client: ApiClient, fruits: Path, tmp_path: Path) -> None:
    made = client.create(fruits)
    assert (made["slug"], made["state"]) == ("fruits", "draft")
    assert client.change_state("fruits", "open")["state"] == "open"
    assert "fruits" in {each["slug"] for each in client.experiments()}
    assert client.overview("fruits")["participants"]["arrived"] == 0
    assert rows_of(client.export("fruits", "responses.csv", tmp_path / "responses.csv").read_bytes()) == []
    with zipfile.ZipFile(client.export("fruits", "bundle", tmp_path / "fruits.zip")) as bundle:
        assert "README.md" in {Path(name).name for name in bundle.namelist()}


def test_targets_go_with_the_file(client: ApiClient, examples: Path) -> None:
    shapes = examples / "shapes"
    made = client.create(shapes / "experiment.yaml", targets=shapes / "targets.zip", name="shapes", opened=True)
    assert made["state"] == "open"
    assert len(client.read("experiments/shapes/targets")) == 12


def test_every_mistake_of_a_file_comes_back_with_its_line(client: ApiClient, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("targets: [a, b, c]\nhtml: {max_queries: many}\nsamplerz: {}\n")
    with pytest.raises(ServerError) as refused:
        client.create(wrong)
    assert refused.value.status == 422
    assert len(refused.value.problems) == 2
    assert refused.value.problems[0].startswith("wrong.yaml:2:21: html.max_queries must be a whole number")


def test_a_refusal_and_a_server_that_is_not_there_are_sentences(client: ApiClient) -> None:
    with pytest.raises(ServerError, match="name or the password is wrong") as refused:
        ApiClient(client.address, "ada", "wrong").experiments()
    assert refused.value.status == 401
    with pytest.raises(ServerError, match="does not answer GET experiments"):
        ApiClient("http://127.0.0.1:9", "ada", "wrong").experiments()
    assert "correct horse" not in repr(client)


def test_launch_reaches_a_server_elsewhere_with_a_token(client: ApiClient, program: Program, fruits: Path) -> None:
    refused = program.run("launch", str(fruits), "--server", client.address)
    assert refused.returncode == 1
    assert "needs an API token" in refused.stderr
    program.environment["SALMON_TOKEN"] = token(client, "read")
    refused = program.run("launch", str(fruits), "--server", client.address, "--name", "elsewhere")
    assert refused.returncode == 1
    assert refused.stderr.startswith("salmon: ")
    program.environment["SALMON_TOKEN"] = token(client, "write")
    done = program.run("launch", str(fruits), "--server", client.address, "--name", "elsewhere")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("/e/elsewhere/")
    assert (
        ApiClient(client.address, token=program.environment["SALMON_TOKEN"]).read("experiments/elsewhere")["state"]
        == "open"
    )


def block_of(name: str, first: str) -> str:
    """Return the block of a page of the manual that begins with a line."""
    text = (REPOSITORY / "docs" / name).read_text()
    return next(block for block in text.split("```python\n")[1:] if block.startswith(first)).partition("```")[0]


def test_what_the_manual_shows_works(
    client: ApiClient, fruits: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client.change_state("fruits", "closed")
    monkeypatch.chdir(fruits.parent)
    fruits.write_text(f"{FRUITS}html: {{max_queries: 3}}\nrecruitment: {{completion_code: DONE}}\n")
    script = block_of("client.md", "from pathlib").replace("https://salmon.example.edu", client.address)
    script = script.replace("salmon_…", token(client, "write")).replace('"fruits"', '"shown"')
    known: dict[str, Any] = {}
    before, closes, after = script.partition("server.change_state")
    exec(before, known)
    link = f"{client.address}/e/shown/?puid=robot"
    assert capsys.readouterr().out.strip().endswith("/e/shown/")
    walk = block_of("client.md", "import asyncio").replace("asyncio.run(", "print(asyncio.run(")
    exec(walk.replace("https://salmon.example.edu/e/fruits/?puid=robot", link).rstrip() + ")", {})
    assert capsys.readouterr().out.strip() == "DONE"
    exec(closes + after, known)
    assert client.overview("shown")["answers"]["total"] == 3
    assert client.read("experiments/shown")["state"] == "closed"
