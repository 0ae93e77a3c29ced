"""Read the samplers of a file: `samplers` and `sampling.common` become SamplerSpecs."""

import re
from collections.abc import Container, Iterator
from typing import Any

from salmon.errors import Problem, did_you_mean, listed, shown
from salmon.spec import values
from salmon.spec.kinds import SAMPLER_NAME
from salmon.spec.problems import label, misfit_problems, problem_at, unknown_key
from salmon.spec.sampler_arguments import (
    COMMON_ARGUMENTS,
    OLD_CLASSES,
    READERS,
    SAMPLER_CLASSES,
    Argument,
    SamplerClass,
    argument_name,
    argument_names,
    has_effect,
    models_with,
    noise_of,
    read_argument,
)
from salmon.spec.schema import SamplerSpec
from salmon.spec.values import FrozenMap, Misfit
from salmon.spec.yaml_tree import MappingNode, Node, Path, Scalar, SequenceNode, plain

_RESERVED = ("class", "test")


def sampler_nodes(node: Node) -> list[tuple[str, Path, Node | None]]:
    """Return (name, path in the file, arguments) of each sampler, written as a mapping or a list of names or small
    mappings.
    """
    if isinstance(node, MappingNode):
        return [(name, ("samplers", name), entry.node) for name, entry in node.entries.items()]
    written: list[tuple[str, Path, Node | None]] = []
    for place, item in enumerate(node.items if isinstance(node, SequenceNode) else ()):
        if isinstance(item, Scalar):
            written.append((item.text, ("samplers", place), None))
        elif isinstance(item, MappingNode):
            written += [(name, ("samplers", place, name), entry.node) for name, entry in item.entries.items()]
    return written


def read_common(node: Node | None, root: Node, n_targets: int | None, problems: list[Problem]) -> dict[str, Argument]:
    """Read `sampling.common`, over its default."""
    common: dict[str, Argument] = {"d": 2}
    if node is None or (isinstance(node, Scalar) and node.empty):
        return common
    path: Path = ("sampling", "common")
    if not isinstance(node, MappingNode):
        problems += misfit_problems(root, path, Misfit("arguments with values, such as {d: 2}"))
        return common
    for name, value in plain(node).items():
        if isinstance(value, Scalar) and value.empty and name in COMMON_ARGUMENTS:
            continue
        if name not in COMMON_ARGUMENTS:
            problems.append(unknown_key(root, (*path, name), tuple(COMMON_ARGUMENTS)))
            continue
        try:
            common[name] = read_argument(COMMON_ARGUMENTS[name], name, value, n_targets)
        except Misfit as misfit:
            problems += misfit_problems(root, (*path, name), misfit)
    return common


def read_samplers(
    node: Node, common: dict[str, Argument], root: Node, n_targets: int | None, problems: list[Problem]
) -> dict[str, SamplerSpec]:
    """Read every sampler that can be read; everything wrong with the others goes to `problems`."""
    samplers: dict[str, SamplerSpec] = {}
    written = sampler_nodes(node)
    if not written:
        problems += misfit_problems(root, ("samplers",), Misfit("samplers by name, such as {Adaptive: {d: 2}}"))
    for name, path, arguments in written:
        if not re.fullmatch(SAMPLER_NAME, name):
            message = f"{shown(name)} cannot be the name of a sampler."
            problems.append(
                problem_at(root, path, message, hint="Use at most 40 letters, digits, - and _.", at_key=True)
            )
        elif name in samplers:
            problems.append(
                problem_at(
                    root,
                    path,
                    f"The sampler {name} is listed twice.",
                    hint="Give one another name and a class.",
                    at_key=True,
                )
            )
        sampler = _read_sampler(name, path, arguments, common, root, n_targets, problems)
        if sampler is not None:
            samplers[name] = sampler
    return samplers


def _read_sampler(
    name: str,
    path: Path,
    node: Node | None,
    common: dict[str, Argument],
    root: Node,
    n_targets: int | None,
    problems: list[Problem],
) -> SamplerSpec | None:
    if node is None or (isinstance(node, Scalar) and node.empty):
        node = MappingNode(0, 0)
    if not isinstance(node, MappingNode):
        problems += misfit_problems(root, path, Misfit("arguments with values, such as {d: 2}"))
        return None
    written = plain(node)
    sampler_class = _read_class(name, path, written.get("class"), root, problems)
    test = False
    try:
        test = values.flag(written.get("test", False))
    except Misfit as misfit:
        problems += misfit_problems(root, (*path, "test"), misfit)
    if sampler_class is None:
        return None
    own = _read_own(sampler_class, path, written, root, n_targets, problems)
    shared = shared_arguments(sampler_class, common, own, root, problems)
    noise = noise_of(sampler_class, {**shared, **own})
    problems += _foreign_parameters(root, path, noise, own)
    arguments = {**{key: value for key, value in shared.items() if noise in models_with(key)}, **own}
    return SamplerSpec(name=name, sampler_class=sampler_class, arguments=FrozenMap(arguments), test=test)


def shared_arguments(
    sampler_class: SamplerClass,
    common: dict[str, Argument],
    own: Container[str],
    root: Node,
    problems: list[Problem],
) -> dict[str, Argument]:
    """Return what the sampler takes from `sampling.common`, by its own names; `own` are arguments it has its own
    values for.
    """
    shared: dict[str, Argument] = {}
    for key, value in common.items():
        called = argument_name(sampler_class, key)
        if called is None or called in own:
            continue
        shared[called] = value
        readers = READERS[sampler_class]
        if called not in readers or readers[called] is READERS[COMMON_ARGUMENTS[key]][key]:
            continue
        try:
            # One class may refuse what another takes, such as a ridge of 0.
            readers[called](value)
        except Misfit as misfit:
            problems += misfit_problems(root, ("sampling", "common", key), misfit)
    return shared


def _read_own(
    sampler_class: SamplerClass,
    path: Path,
    written: dict[str, Any],
    root: Node,
    n_targets: int | None,
    problems: list[Problem],
) -> dict[str, Argument]:
    """Read what is written for one sampler, by its own names."""
    arguments: dict[str, Argument] = {}
    for key, value in written.items():
        own = argument_name(sampler_class, key)
        if key in _RESERVED or (own is not None and isinstance(value, Scalar) and value.empty):
            continue
        if own is None:
            problems.append(unknown_key(root, (*path, key), (*argument_names(sampler_class), *_RESERVED)))
        elif own != key and own in written:
            message = f"{key} and {own} are two names of one argument."
            problems.append(problem_at(root, (*path, key), message, hint=f"Keep {own}.", at_key=True))
        else:
            try:
                arguments[own] = read_argument(sampler_class, own, value, n_targets)
            except Misfit as misfit:
                problems += misfit_problems(root, (*path, key), misfit)
            if not has_effect(sampler_class, own):
                message = f"{label((*path, key))} is accepted in files of Salmon 1 and has no effect."
                problems.append(
                    problem_at(root, (*path, key), message, hint=f"Remove {key}.", warning=True, at_key=True)
                )
    return arguments


def _foreign_parameters(root: Node, path: Path, noise: str, own: dict[str, Argument]) -> Iterator[Problem]:
    """Report parameters of another noise model than the sampler's."""
    for key in own:
        models = models_with(key)
        if noise not in models:
            yield problem_at(
                root,
                (*path, key),
                f"{label((*path, key))} belongs to the noise model {listed(models)}, and this sampler uses {noise}.",
                hint="Remove one of them.",
                at_key=True,
            )
    if "k" in own and {"alpha", "module__alpha"} & set(own):
        yield problem_at(
            root,
            (*path, "k"),
            f"{label(path)} has both k and alpha, which are the same parameter of two forms of t-STE.",
            hint="Keep one of them.",
            at_key=True,
        )


def _read_class(name: str, path: Path, written: object, root: Node, problems: list[Problem]) -> SamplerClass | None:
    """Return the class that is written, or else the one that the sampler is named after."""
    place = path if written is None else (*path, "class")
    called = written.text if isinstance(written, Scalar) else name if written is None else ""
    if called in OLD_CLASSES:
        message = f"{called} is now called {OLD_CLASSES[called]}."
        problems.append(
            problem_at(
                root, place, message, hint="It is read under the new name.", warning=True, at_key=written is None
            )
        )
        return OLD_CLASSES[called]
    folded: dict[str, SamplerClass] = {known.casefold(): known for known in SAMPLER_CLASSES}
    if called.casefold() in folded:
        return folded[called.casefold()]
    hint = did_you_mean(called, SAMPLER_CLASSES)
    if written is None:
        message = f"There is no sampler {shown(name)}."
        hint = hint or f"Add class: with one of {listed(SAMPLER_CLASSES)}."
        problems.append(problem_at(root, place, message, hint=hint, at_key=True))
    else:
        problems += misfit_problems(root, place, Misfit(listed(SAMPLER_CLASSES), hint=hint))
    return None
