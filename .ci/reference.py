"""The two pages of the manual that follow from the code alone: docs/commands.md and docs/python.md."""  # noqa: INP001

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from types import FunctionType, ModuleType
from typing import Any, Literal, get_args, get_origin

from salmon.cli.main import COMMANDS, load

#: Modules whose names may be used by scripts, with what they are for.
PUBLIC_MODULES = {
    "salmon": "what most scripts need",
    "salmon.estimator": "embeddings behind scikit-learn's interface, and cross-validation",
    "salmon.client": "scripts that talk to a running server; [examples](client.md)",
    "salmon.noise": "the noise models",
    "salmon.simulate": "worlds with a known truth, and people who answer in them",
    "salmon.planning": "the plan of a study",
    "salmon.training": "training over many workers; [explained](training.md)",
}
ABOUT_COMMANDS = """\
# Commands

Everything that the program `salmon` can do from a terminal. `salmon COMMAND --help` says the same. After `make serve`, it is `.venv/bin/salmon`.
"""
ABOUT_PYTHON = """\
# Python names

The names that a script may rely on. Those of other modules may change with any version.
"""


def commands(mark: str) -> str:
    """Return docs/commands.md: each command with its example, arguments and options."""
    sections = [f"{mark}\n", ABOUT_COMMANDS]
    for name in COMMANDS:
        sections += _command(f"salmon {name}", load(name))
    return "\n".join(sections).rstrip() + "\n"


def _command(title: str, command: Any) -> Iterator[str]:
    below: dict[str, Any] = getattr(command, "commands", {})
    yield f"## {title}\n" if title.count(" ") == 1 else f"### {title}\n"
    yield _plain(command.help or "") + "\n"
    rows = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
    rows = [parameter for parameter in rows if parameter.name != "help"]
    if rows:
        yield "| argument or option | default | what |\n|---|---|---|"
        yield from (_parameter(parameter) for parameter in rows)
        yield ""
    for name, each in below.items():
        yield from _command(f"{title} {name}", each)


def _plain(text: str) -> str:
    """Return a help text as Markdown: its example as code."""
    about, found, example = inspect.cleandoc(text).partition("Example: ")
    lines = [line.strip() for line in example.splitlines() if line.strip()]
    return about.strip() + ("\n\n" + "\n".join(f"    {line}" for line in lines) if found else "")


def _parameter(parameter: Any) -> str:
    names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    if parameter.param_type_name == "argument":
        names = f"`{(parameter.metavar or parameter.name).upper()}`"
    annotation = parameter.type_descriptor.annotation
    choices: tuple[str, ...] = get_args(annotation) if get_origin(annotation) is Literal else ()
    text = " ".join((parameter.help or "").split()) + (f" One of {', '.join(choices)}." if choices else "")
    default = parameter.default
    shown = "" if default in (None, "", (), False) or callable(default) else f"`{default}`"
    return f"| {names} | {'required' if parameter.required else shown} | {_cell(text)} |"


def _cell(text: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", text)


def names(mark: str) -> str:
    """Return docs/python.md: the signature and the first paragraph of every public name."""
    sections = [f"{mark}\n", ABOUT_PYTHON]
    for module, purpose in PUBLIC_MODULES.items():
        sections += [f"## {module}\n", f"{purpose[0].upper()}{purpose[1:]}.\n"]
        found = import_module(module)
        for name in public_names(found):
            sections += _name(name, getattr(found, name))
    return "\n".join(sections).rstrip() + "\n"


def public_names(module: ModuleType) -> list[str]:
    """Return the public names of a module: those it lists, or the classes and functions that it defines."""
    listed = getattr(module, "__all__", None) or getattr(module, "_MODULES", None)
    if listed is None:
        listed = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
    return sorted(name for name in listed if not name.startswith("_"))


def _name(name: str, value: Any) -> Iterator[str]:
    if not callable(value):
        yield f"### `{name}`\n"
        yield f"A constant of the type `{type(value).__name__}`.\n"
        return
    yield f"### `{name}{_signature(value)}`\n"
    yield _first_paragraph(value) + "\n"
    if not inspect.isclass(value):
        return
    rows = [
        f"| `{method}{_signature(member)}` | {_cell(_first_paragraph(member))} |"
        for method, member in vars(value).items()
        if not method.startswith("_")
        and isinstance(member, FunctionType | classmethod | staticmethod)
        and inspect.getdoc(member)
    ]
    if rows:
        yield from ("| method | what |\n|---|---|", *rows, "")


def _signature(value: Any) -> str:
    """Return the arguments of a callable by name, with their defaults; types stand in the code."""
    value = getattr(value, "__func__", value)
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return ""
    plain = [each.replace(annotation=each.empty) for each in parameters if each.name not in {"self", "cls"}]
    plain = [
        each.replace(default=...) if "<" in repr(each.default) and each.default is not each.empty else each
        for each in plain
    ]
    return str(inspect.Signature(plain)).replace("Ellipsis", "…")


def _first_paragraph(value: Any) -> str:
    return " ".join((inspect.getdoc(value) or "").partition("\n\n")[0].split())
