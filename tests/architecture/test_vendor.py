"""Files of other projects that come with ours are exactly those that were published."""

import hashlib
import json
import re

from tests.program import REPOSITORY

VENDOR = REPOSITORY / "frontend" / "static" / "vendor"


def test_every_vendored_file_is_the_one_of_the_lock_and_comes_with_its_licence() -> None:
    locked = json.loads((VENDOR / "vendor.lock.json").read_text())
    assert {path.name for path in VENDOR.glob("*.js")} == set(locked)
    notes = (VENDOR / "README.md").read_text()
    for name, entry in locked.items():
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == entry["sha256"]
        assert f"{entry['package']} {entry['version']}" in notes
        licences = (VENDOR / "LICENSE-codemirror.txt").read_text()
        assert all(f"{name} {each['version']}\n" in licences for name, each in entry.get("packages", {}).items())
    licences = {path.name for path in VENDOR.glob("LICENSE-*")} | {path.name for path in VENDOR.glob("NOTICE-*")}
    assert all(licence in notes for licence in licences)


def test_the_joined_packages_are_those_of_the_lock_file_of_npm() -> None:
    folder = REPOSITORY / "requirements" / "codemirror"
    npm = json.loads((folder / "package-lock.json").read_text())["packages"]
    joined = [
        entry["packages"]
        for entry in json.loads((VENDOR / "vendor.lock.json").read_text()).values()
        if "packages" in entry
    ]
    assert joined
    for packages in joined:
        for name, each in packages.items():
            found = npm[f"node_modules/{name}"]
            assert (found["version"], found["integrity"]) == (each["version"], each["integrity"])
    wanted = json.loads((folder / "package.json").read_text())["dependencies"]
    assert {name: npm[f"node_modules/{name}"]["version"] for name in wanted} == wanted


def test_pages_of_the_console_name_the_vendored_file_that_is_there() -> None:
    users = [*(REPOSITORY / "templates").rglob("*.html"), *(REPOSITORY / "frontend/static/console").glob("*.js")]
    named = {name for path in users for name in re.findall(r'(?:\.\.|/static)/vendor/([^"]+)', path.read_text())}
    assert named == {path.name for path in VENDOR.glob("*.js")}
    assert {path.name.removesuffix(".d.ts") for path in VENDOR.glob("*.d.ts")} == {
        path.stem for path in VENDOR.glob("*.js")
    }
