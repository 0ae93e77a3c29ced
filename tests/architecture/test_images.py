"""The images carry what their programs need."""

import ast
import re
import sys

from tests.program import REPOSITORY

#: Distribution -> the module it brings, where the names differ.
MODULES = {"pyyaml": "yaml", "argon2-cffi": "argon2", "prometheus-client": "prometheus_client"} | {
    "pydantic-settings": "pydantic_settings",
    "python-multipart": "multipart",
    "pillow": "PIL",
    "resvg-py": "resvg_py",
    "typing-extensions": "typing_extensions",
}
#: What the web process imports of the library, beside its own modules.
OURS = {"salmon", "frontend", "templates"}
#: Brought by fastapi, jinja2 and pydantic, on which they stand.
BROUGHT = {"starlette", "markupsafe", "pydantic_core"}


def imported(folder: str) -> set[str]:
    """Top-level modules that files of a folder import anywhere."""
    found: set[str] = set()
    for path in (REPOSITORY / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.partition(".")[0])
    return found


def test_the_image_of_the_web_process_installs_everything_it_imports() -> None:
    written = (REPOSITORY / "requirements" / "frontend.in").read_text().splitlines()
    names = {re.split(r"[\[=<>~ ]", line)[0] for line in written if line and not line.startswith("#")}
    carried = {MODULES.get(name, name) for name in names}
    used = set[str]()
    for folder in ("frontend", "salmon/export", "salmon/quality", "salmon/spec", "salmon/wire"):
        used |= imported(folder)
    assert used <= carried | OURS | BROUGHT | set(sys.stdlib_module_names)
