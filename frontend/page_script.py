"""Join the modules of the participant page into one script, so that one request loads all of them.

Browsers ask for few files at once, and on a slow network every round of requests is felt before the first trial. The
modules are joined when the process starts: each becomes a function of its own, after those that it imports. In the
sources they stay apart, and are tested one by one.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_IMPORT = re.compile(r'^import \{ ([\w, ]+) \} from "\./(\w+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:class|function|const) (\w+))", re.MULTILINE)
_LEFT_OVER = re.compile(r"^(?:import|export)\b.*$", re.MULTILINE)


@dataclass(frozen=True)
class Script:
    """A script as it is sent, plain and compressed; its name changes with its content, so caches may keep it for ever."""

    name: str
    plain: bytes
    compressed: bytes

    @staticmethod
    def of(text: str) -> Script:
        """Return a script from its text."""
        plain = text.encode()
        return Script(f"{hashlib.sha256(plain).hexdigest()[:16]}.js", plain, gzip.compress(plain, 9, mtime=0))


def read_script(folder: Path, entry: str) -> Script:
    """Return the module `entry` of a folder and all that it imports."""
    return Script.of(join_modules({path.stem: path.read_text(encoding="utf-8") for path in folder.glob("*.js")}, entry))


def join_modules(modules: Mapping[str, str], entry: str) -> str:
    """Return one module text that does what `entry` does; ValueError names a line that cannot be joined.

    Modules import names from their own folder, one line each, and export classes, functions and constants where they
    are declared: that is all of the language's modules that is needed here.
    """
    return "const joined = {};\n" + "".join(_as_function(name, modules[name]) for name in _in_order(modules, entry))


def _in_order(modules: Mapping[str, str], entry: str) -> list[str]:
    """Return the modules that `entry` needs, each after those that it imports."""
    order: list[str] = []

    def visit(name: str, above: tuple[str, ...]) -> None:
        if name in above:
            raise ValueError(f"The modules {' and '.join((*above[above.index(name) :], name))} import each other.")
        if name not in modules:
            raise ValueError(f"{above[-1] if above else 'The page'}.js imports {name}.js, which is not there.")
        for _, imported in _IMPORT.findall(modules[name]):
            visit(imported, (*above, name))
        if name not in order:
            order.append(name)

    visit(entry, ())
    return order


def _as_function(name: str, text: str) -> str:
    exported = _EXPORT.findall(text)
    body = _EXPORT.sub("", _IMPORT.sub(r"const { \1 } = joined.\2;", text))
    if left := _LEFT_OVER.search(body):
        raise ValueError(f"{name}.js: this line cannot be joined: {left[0]}")
    return f"joined.{name} = (() => {{\n{body}\nreturn {{ {', '.join(exported)} }};\n}})();\n"
