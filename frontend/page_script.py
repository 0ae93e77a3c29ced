"""Join the JavaScript modules of the participant page into one file, so that one request loads all of them.

On a slow network every round of requests delays the first trial. The modules are joined when the process starts: each
is wrapped in a function, after the modules that it imports. On disk they stay separate ES modules, which tests import
one by one.
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
_UNSUPPORTED = re.compile(r"^(?:import|export)\b.*$", re.MULTILINE)


@dataclass(frozen=True)
class Script:
    """A script as it is sent, plain and compressed. Its name is a digest of its content, so it can be cached for ever."""

    name: str
    plain: bytes
    compressed: bytes

    @staticmethod
    def of(text: str) -> Script:
        """Return the script with this text."""
        plain = text.encode()
        return Script(f"{hashlib.sha256(plain).hexdigest()[:16]}.js", plain, gzip.compress(plain, 9, mtime=0))


def read_script(folder: Path, entry: str) -> Script:
    """Return one script of the module `entry` of a folder and all modules that it imports."""
    return Script.of(join_modules({path.stem: path.read_text(encoding="utf-8") for path in folder.glob("*.js")}, entry))


def join_modules(modules: Mapping[str, str], entry: str) -> str:
    """Return one script that does what `entry` does; raise ValueError with the first line that cannot be joined.

    Two forms are supported: `import { names } from "./module.js"` on one line, and `export` in front of the declaration
    of a class, function or constant.
    """
    order = _sort_by_imports(modules, entry)
    return "const joined = {};\n" + "".join(_wrap_in_function(name, modules[name]) for name in order)


def _sort_by_imports(modules: Mapping[str, str], entry: str) -> list[str]:
    """Return the names of the modules that `entry` needs, each after those that it imports."""
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


def _wrap_in_function(name: str, text: str) -> str:
    """Return a module as a function call that stores its exports in `joined`."""
    exported = _EXPORT.findall(text)
    body = _EXPORT.sub("", _IMPORT.sub(r"const { \1 } = joined.\2;", text))
    if line := _UNSUPPORTED.search(body):
        raise ValueError(f"{name}.js: this line cannot be joined: {line[0]}")
    return f"joined.{name} = (() => {{\n{body}\nreturn {{ {', '.join(exported)} }};\n}})();\n"
