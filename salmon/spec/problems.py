"""Turn refused values into sentences at their place in the file."""

import types
from collections.abc import Iterable
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from salmon.errors import Problem, did_you_mean, listed, shown
from salmon.spec.schema import Spec
from salmon.spec.values import Misfit
from salmon.spec.yaml_tree import MappingNode, Node, Path, Scalar, SequenceNode, node_at

_CONTAINERS = {
    "model_type": "keys with values",
    "dict_type": "keys with values",
    "tuple_type": "a list",
    "list_type": "a list",
}


def label(path: Path) -> str:
    """Return what a sentence that begins with the value at a path calls it."""
    if path[:2] == ("sampling", "probs") and len(path) == 3:
        return f"The probability of {path[2]}"
    name = ""
    for part in path:
        name += f", item {part + 1}" if isinstance(part, int) else f".{part}" if name else str(part)
    return name or "The file"


def problem_at(
    root: Node | None, path: Path, message: str, *, hint: str = "", warning: bool = False, at_key: bool = False
) -> Problem:
    """Return a problem with the value at a path, or with its key."""
    node, key = node_at(root, path)
    place = key if at_key and key is not None else node
    line, column = (place.line, place.column) if place is not None else (1, 1)
    return Problem(message, line, column, path=".".join(map(str, path)), hint=hint, warning=warning)


def misfit_problems(root: Node | None, path: Path, misfit: Misfit) -> Iterable[Problem]:
    """Return the problems of a refused value."""
    for part in misfit.parts:
        where = (*path, *part.at)
        node, _ = node_at(root, where)
        sentence = part.sentence or f"{{label}} must be {part.wanted}, not {{found}}."
        yield problem_at(
            root, where, sentence.replace("{label}", label(where)).replace("{found}", describe(node)), hint=part.hint
        )


def schema_problems(root: Node | None, error: ValidationError) -> Iterable[Problem]:
    """Return the problems with everything that the schema refuses."""
    for refused in error.errors(include_url=False, include_input=False):
        at_key = refused["loc"][-1:] == ("[key]",)
        path: Path = refused["loc"][:-1] if at_key else refused["loc"]
        misfit = refused.get("ctx", {}).get("error")
        if isinstance(misfit, Misfit):
            if at_key:
                yield problem_at(
                    root,
                    path,
                    f"{label(path[:-1])}: a key must be {misfit.wanted}, not {shown(str(path[-1]))}.",
                    at_key=True,
                )
            else:
                yield from misfit_problems(root, path, misfit)
        elif refused["type"] == "missing":
            yield problem_at(
                root, path[:-1], f"{label(path[:-1])} needs {path[-1]}.", hint=f"Add {path[-1]}: with its value."
            )
        elif refused["type"] == "extra_forbidden":
            yield unknown_key(root, path, tuple(_model_at(path[:-1]).model_fields))
        else:
            yield from misfit_problems(root, path, Misfit(_CONTAINERS.get(refused["type"], "of another kind")))


def unknown_key(root: Node | None, path: Path, known: tuple[str, ...], *, warning: bool = False) -> Problem:
    """Return the problem of an unknown key, suggesting the nearest known one."""
    written = str(path[-1])
    within = f"{label(path[:-1])} has" if path[:-1] else "There is"
    hint = did_you_mean(written, known) or f"Known {'there' if path[:-1] else 'keys'} are {listed(known, 'and')}."
    return problem_at(root, path, f"{within} no key {shown(written)}.", hint=hint, warning=warning, at_key=True)


def describe(node: Node | None) -> str:
    """What stands at a place, as a sentence says it."""
    if isinstance(node, MappingNode):
        return "keys with values"
    if isinstance(node, SequenceNode):
        return "a list" if node.items else "an empty list"
    return shown(node.text) if isinstance(node, Scalar) and not node.empty else "nothing"


def _model_at(path: Path) -> type[BaseModel]:
    """Return the part of the schema that describes the value at a path."""
    kind: Any = Spec
    for part in path:
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            kind = kind.model_fields[str(part)].annotation
        else:  # inside a list or a mapping: its last argument is the kind of its values
            kind = next(argument for argument in reversed(get_args(kind)) if argument is not Ellipsis)
        while get_origin(kind) in {types.UnionType, Union}:
            kind = next(argument for argument in get_args(kind) if argument is not type(None))
    return kind
