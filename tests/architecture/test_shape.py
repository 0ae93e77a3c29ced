"""The shape of the sources: names mean something, and what is configured is documented."""

import re

from backend.__main__ import Settings as BackendSettings
from frontend.app import create_app
from frontend.settings import Settings
from tests.program import REPOSITORY

SOURCES = [
    path
    for package in ("salmon", "frontend", "backend", "benchmarks", "tests")
    for path in sorted((REPOSITORY / package).rglob("*"))
    if path.suffix in {".py", ".js"} and "vendor" not in path.parts and "legacy" not in path.parts
]


def test_no_module_is_called_by_a_word_that_says_nothing() -> None:
    empty = {"utils", "util", "core", "helpers", "helper", "manager", "common", "misc"}
    assert [path for path in SOURCES if path.stem in empty] == []


def test_every_setting_is_in_the_manual() -> None:
    manual = (REPOSITORY / "docs" / "operating.md").read_text()
    for settings in (Settings, BackendSettings):
        for name, field in settings.model_fields.items():
            assert f"SALMON_{name.upper()}" in manual, f"SALMON_{name.upper()} is not in docs/operating.md"
            assert field.description


def test_every_route_is_in_the_manual() -> None:
    manual = (REPOSITORY / "docs" / "routes.md").read_text()
    app = create_app(Settings(redis_url="redis://localhost:1", secret="0123456789abcdef"))
    written = {re.sub(r"\{(\w+)(:\w+)?\}", r"{\1}", path) for path in app.openapi()["paths"]}
    missing = sorted(path for path in written if f"`{path}`" not in manual)
    assert missing == [], f"not in docs/routes.md: {missing}"
