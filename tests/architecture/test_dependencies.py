"""Everything that is installed is pinned with hashes, listed in a bill of materials, and can be audited."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.program import REPOSITORY

REQUIREMENTS = REPOSITORY / "requirements"
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^ \\;]+)", re.MULTILINE)


def pins(name: str) -> dict[str, str]:
    return dict(PIN.findall((REQUIREMENTS / name).read_text()))


def module(name: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(name, REQUIREMENTS / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    made = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(made)
    return made


@pytest.mark.parametrize("name", ["serve.txt", "test.txt", "docs.txt", "frontend.txt", "torch.txt"])
def test_every_package_is_pinned_with_hashes(name: str) -> None:
    text = (REQUIREMENTS / name).read_text()
    entries = [entry for entry in re.split(r"\n(?=\S)", text) if not entry.startswith("#")]
    assert entries
    assert [entry for entry in entries if not PIN.match(entry) or "--hash=sha256:" not in entry] == []


def test_every_installation_checks_hashes() -> None:
    """The project itself and what stands beside a sentence are installed without: they come from no lock file."""
    files = [
        REQUIREMENTS / "install",
        REQUIREMENTS / "install-torch",
        *sorted((REPOSITORY / "docker").glob("*Dockerfile")),
    ]
    unchecked = [
        line.strip()
        for path in files
        for line in path.read_text().splitlines()
        if re.search(r"pip install", line)
        and not line.startswith("pip=")
        and "--require-hashes" not in line
        and "--no-build-isolation" not in line
    ]
    assert (
        unchecked
        == [
            '$pip install --no-deps --index-url "$index" "$pin" && exit 0',  # where TORCH_WITHOUT_HASH asks for it
            '$pip install "$pin" && exit 0',  # torch is there already, checked: what its build requires beside the lock files
        ]
    )


def test_the_bill_of_materials_lists_everything_that_a_server_installs(tmp_path: Path) -> None:
    path = tmp_path / "sbom.json"
    done = subprocess.run(
        (sys.executable, str(REQUIREMENTS / "sbom.py"), str(path)), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    content = json.loads(path.read_text())
    assert content["bomFormat"] == "CycloneDX"
    listed = {each["name"]: each["version"] for each in content["components"]}
    wanted = {
        **pins("serve.txt"),
        **pins("torch.txt"),
        "echarts": "6.1.0",
        "yaml": "2.9.1",
        "jquery": "3.2.1",
        "bootstrap": "4.0.0",
    }
    assert {name: listed.get(name) for name in wanted} == wanted
    legacy = REPOSITORY / "frontend" / "static" / "legacy"
    assert all((legacy / file).exists() for _, file in module("sbom").LEGACY.values())


def test_an_audit_says_what_is_known_or_that_nobody_answers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    audit = module("audit")

    def answer(*dependencies: dict[str, object]) -> None:
        said = subprocess.CompletedProcess((), 0, json.dumps({"dependencies": dependencies}), "")
        monkeypatch.setattr(audit.subprocess, "run", lambda *_, **__: said)

    answer({"name": "a", "skip_reason": "not found"})
    assert audit.main(("serve.txt",)) == 0
    assert capsys.readouterr().out.strip() == audit.SILENT
    answer({"name": "a", "version": "1", "vulns": []})
    assert audit.main(("serve.txt",)) == 0
    assert "1 packages were audited; 0 have" in capsys.readouterr().out
    answer({"name": "a", "version": "1", "vulns": [{"id": "CVE-1", "fix_versions": ["2"]}]})
    assert audit.main(("serve.txt",)) == 1
    assert "a 1: CVE-1 (mended in 2)" in capsys.readouterr().out


def test_the_audit_runs_on_this_machine() -> None:
    done = subprocess.run(
        (sys.executable, str(REQUIREMENTS / "audit.py"), "frontend.txt"), capture_output=True, text=True, check=False
    )
    assert "audited" in done.stdout, done.stderr
    assert "Traceback" not in done.stderr
