"""Files made to do harm, at every address that takes one: each ends in a sentence, and the server goes on."""

import io
import subprocess
import sys
import zipfile
from pathlib import Path

import httpx
import pytest

from tests.old_scripts import AUTH
from tests.program import REPOSITORY, Program

#: Each level merges the one before twice: a reader that copies merged keys doubles its work with every line.
MERGES = "a0: &a0 {x: 1}\n" + "".join(f"a{k}: &a{k} {{<<: [*a{k - 1}, *a{k - 1}]}}\n" for k in range(1, 24))
#: The same with the key of a description of the first Salmon, which is read twice.
HOSTILE = {
    "doubling merge keys": MERGES,
    "doubling merge keys of the first Salmon": MERGES + "instructions: hello\nmax_queries: 3\n",
    "doubling aliases": "a0: &a0 [x]\n" + "".join(f"a{k}: &a{k} [*a{k - 1}, *a{k - 1}]\n" for k in range(1, 40)),
    "open brackets": "[" * 100_000,
    "open braces": "{a: " * 100_000,
    "a number without end": "targets: " + "9" * 1_000_000,
    "escapes on one line": 'targets: ["' + "\\ud83d\\ude00" * 150_000 + '"]',
}
ANSWERS = b"head,winner,loser\n0,1,2\n1,2,0\n2,0,1\n"


@pytest.fixture(scope="module")
def login(program: Program) -> tuple[str, str]:
    return program.add_user(*AUTH)


def zip_of(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def is_a_sentence(reply: httpx.Response, status: int) -> None:
    assert reply.status_code == status, reply.text[:500]
    assert len(reply.text) < 500_000
    assert "Traceback" not in reply.text


@pytest.mark.slow
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_description_is_refused_everywhere(program: Program, login: tuple[str, str], kind: str) -> None:
    text = HOSTILE[kind].encode()
    with httpx.Client(base_url=program.address, auth=login, timeout=30) as client:
        is_a_sentence(client.post("/api/experiments", files={"spec": ("x.yaml", text)}), 422)
        checked = client.post("/api/check", json={"spec": HOSTILE[kind]})
        is_a_sentence(checked, 200)
        assert checked.json()["problems"]
        refused = client.post("/init_exp", files={"exp": ("init.yaml", text)})
        is_a_sentence(refused, 500)
        assert refused.text.startswith("Error!")
        form = {"bundle": ("answers.csv", ANSWERS), "config": ("init.yaml", text)}
        is_a_sentence(client.post("/api/experiments/import", files=form), 422)
        assert client.get("/healthz").status_code == 200
    path = program.data.parent / "hostile.yaml"
    path.write_bytes(text)
    command = (sys.executable, "-m", "salmon", "check", str(path))
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize("body", ["[" * 100_000, '{"spec": ' + "9" * 100_000 + "}", '{"spec": ' * 50_000, "\ud800"])
def test_json_made_to_do_harm_is_refused_in_a_sentence(program: Program, login: tuple[str, str], body: str) -> None:
    content = body.encode(errors="surrogatepass")
    json_type = {"Content-Type": "application/json"}
    with httpx.Client(base_url=program.address, auth=login, timeout=30) as client:
        for path in ("/api/check", "/e/x/arrive", "/e/x/answers", "/answer", "/console/login"):
            reply = client.post(path, content=content, headers=json_type)
            assert 400 <= reply.status_code < 500, (path, reply.status_code)
        for name in ("answers.json", "answers.jsonl", "answers.csv"):
            is_a_sentence(client.post("/api/experiments/import", files={"bundle": (name, content)}), 422)
        manifest = zip_of({"manifest.json": content})
        is_a_sentence(client.post("/api/experiments/import", files={"bundle": ("x.zip", manifest)}), 422)
        targets = {"spec": ("x.yaml", b"seed: 1\n"), "targets": ("t.zip", zip_of({"targets.csv": content}))}
        is_a_sentence(client.post("/api/experiments", files=targets), 422)


def test_old_configuration_is_read_with_the_same_bounds(tmp_path: Path) -> None:
    from salmon.answer_files.salmon1_backup import modern_config
    from salmon.spec import read_tree

    for text in HOSTILE.values():
        assert modern_config(text) == (text, ())
        assert len(repr(read_tree(text))) < 2_000_000
