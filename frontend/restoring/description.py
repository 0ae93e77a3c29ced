"""The description of an experiment whose answers came without one, or with one of an earlier Salmon: pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from frontend.errors import BundleError
from salmon.errors import Problem
from salmon.formats.answers import AnswersFileError, bare
from salmon.formats.survey import Survey
from salmon.spec import Manifest, Spec, TargetSpec, parse_spec, targets_of
from salmon.spec.arguments import OLD_CLASSES, SAMPLER_CLASSES
from salmon.spec.kinds import MAX_TARGETS, MIN_TARGETS, SAMPLER_NAME

#: Samplers are drawn for answers of which nothing says how their query was chosen.
UNNAMED = "random"
_NAMED = 5
_PICTURE = re.compile(r"<\s*(?:img|video|audio|source)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Description:
    """A description that fits a file of answers.

    `indices` gives the index of a target as the file names it, `samplers` today's name of a sampler; `notes` are
    sentences about what could not be known.
    """

    source: str
    spec: Spec
    targets: tuple[TargetSpec, ...]
    indices: Mapping[str, int]
    samplers: Mapping[str, str]
    notes: tuple[str, ...]


def described(known: Survey, manifest: Manifest | None) -> Description:
    """A description made of nothing but the answers: their targets and samplers, and Salmon's defaults."""
    order = sorted(known.names, key=(lambda label: label) if known.naming.labels else int)
    indices = {name: place if known.naming.labels else int(name) for place, name in enumerate(order)}
    samplers = _renamed(known.samplers)
    tree: dict[str, Any] = {
        "targets": _texts(known, indices),
        "samplers": {called: {"class": _class_of(called)} for called in dict.fromkeys(samplers.values())},
    }
    source = yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)
    spec = parse_spec(source, name="the file of answers", manifest=manifest, default_sampler="Random").spec
    notes = ["No description came with the answers: texts, samplers and settings are Salmon's defaults."]
    guessed = [called for called in spec.samplers if _class_of(called) == "Random" and called.casefold() != "random"]
    if guessed:
        notes.append(f"Nothing says what the samplers {_listed(guessed)} were: they are random ones now.")
    targets = targets_of(spec, manifest)
    _check_indices(indices, targets)
    return Description(source, spec, targets, indices, samplers, (*notes, *_of_pictures(targets, manifest)))


def fitted(known: Survey, source: str, spec: Spec, manifest: Manifest | None) -> Description:
    """The description that came with the answers, held against them."""
    targets = targets_of(spec, manifest)
    if known.naming.labels:
        places = {bare(target.filename): target.index for target in targets}
        places |= {target.filename: target.index for target in targets}
        lacking = [label for label in known.names if label not in places and bare(label) not in places]
        if lacking:
            raise BundleError(
                f"The description has no targets for {_listed(lacking)}, which answers name.",
                hint="Give the description and the targets of this very experiment.",
                where="targets",
            )
        indices = {label: places.get(label, places.get(bare(label), 0)) for label in known.names}
    else:
        indices = {name: int(name) for name in known.names}
    _check_indices(indices, targets)
    samplers = _renamed(known.samplers, spec)
    strange = [called for called in dict.fromkeys(samplers.values()) if called not in spec.samplers]
    notes = (
        [f"The description has no sampler {_listed(strange)}, whose answers are kept under that name."]
        if strange
        else []
    )
    return Description(source, spec, targets, indices, samplers, (*notes, *_of_pictures(targets, manifest)))


def _texts(known: Survey, indices: Mapping[str, int]) -> list[str]:
    """(n,) what pages show; a target without an answer gets its index, as nothing is known about it."""
    n = max((*indices.values(), MIN_TARGETS - 1)) + 1
    if n > MAX_TARGETS:
        raise AnswersFileError((Problem(f"The answers name target {n - 1:,}; at most {MAX_TARGETS:,} can be.", 1),))
    texts = [str(index) for index in range(n)]
    for name, index in indices.items():
        html, file = known.names[name]
        texts[index] = html or file or name
    return texts


def _renamed(samplers: Sequence[str], spec: Spec | None = None) -> dict[str, str]:
    """Sampler as the file names it → the name it has here."""
    renamed: dict[str, str] = {}
    for name in samplers:
        called = OLD_CLASSES.get(name, name) if spec is None or name not in spec.samplers else name
        called = called or (next(iter(spec.samplers)) if spec is not None else UNNAMED)
        if not re.fullmatch(SAMPLER_NAME, called):
            called = re.sub(r"[^A-Za-z0-9_-]+", "_", called)[:40] or UNNAMED
        renamed[name] = called
    return renamed


def _class_of(name: str) -> str:
    return next((known for known in SAMPLER_CLASSES if known.casefold() == name.casefold()), "Random")


def _check_indices(indices: Mapping[str, int], targets: Sequence[TargetSpec]) -> None:
    highest = max(indices.values())
    if highest >= len(targets):
        raise BundleError(
            f"Answers name target {highest}, and there are only {len(targets)} targets, counted from 0.",
            hint="Give the description and the targets of this very experiment.",
            where="targets",
        )


def _of_pictures(targets: Sequence[TargetSpec], manifest: Manifest | None) -> tuple[str, ...]:
    if manifest is not None or not any(_PICTURE.search(target.html) for target in targets):
        return ()
    return ("Its targets are files that are not here: import it once more with their ZIP, under another name.",)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name[:60]) for name in names[:_NAMED])
    return f"{shown} and {len(names) - _NAMED} more" if len(names) > _NAMED else shown
