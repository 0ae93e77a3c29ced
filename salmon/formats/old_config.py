"""Descriptions of experiments as earlier Salmons wrote them, in today's form: `/config`, backups, and files before 0.5."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import yaml

from salmon.errors import Problem
from salmon.formats.tables import ContainerError
from salmon.spec import Spec
from salmon.spec.schema import Html

#: Keys that stood at the top before there was `html`.
_WERE_AT_THE_TOP = frozenset(Html.model_fields) - {"title"}
#: Keys that the old program added by itself: the number of targets follows from the targets.
_ADDED = frozenset({"n"})


def modern_config(text: bytes | str) -> tuple[str, tuple[str, ...]]:
    """(the YAML or JSON of a description in today's form, sentences about what was moved or left out).

    A text that is in today's form already is given back as it is, so that mistakes are told at their own lines.
    """
    written = text.decode("utf-8-sig", errors="replace") if isinstance(text, bytes) else text
    try:
        tree = yaml.safe_load(written)
    except (yaml.YAMLError, ValueError, RecursionError):
        return written, ()  # whoever parses it tells what is wrong, with its place
    if not isinstance(tree, dict):
        return written, ()
    return modern_tree(cast("dict[str, Any]", tree), otherwise=written)


def modern_tree(tree: Mapping[str, Any], *, otherwise: str = "") -> tuple[str, tuple[str, ...]]:
    """The same for a description that is read already; `otherwise` is given back where nothing has to change."""
    old = {
        key for key in tree if key in _WERE_AT_THE_TOP and not (key == "instructions" and isinstance(tree[key], list))
    }
    dropped = [key for key in tree if key not in Spec.model_fields and key not in old | {"title", "d"}]
    if otherwise and not old and "d" not in tree and not _ADDED & set(tree):
        return otherwise, ()
    made = {key: value for key, value in tree.items() if key in Spec.model_fields and key not in old}
    notes: list[str] = []
    html = dict(cast("dict[str, Any]", tree.get("html") or {}))
    if old:
        html |= {key: tree[key] for key in tree if key in old and tree[key] is not None}
        notes.append(f"Moved under html, where they belong now: {', '.join(key for key in tree if key in old)}.")
    if html:
        made["html"] = html
    if isinstance(tree.get("d"), int):
        sampling = dict(cast("dict[str, Any]", made.get("sampling") or {}))
        sampling["common"] = {"d": tree["d"]} | dict(cast("dict[str, Any]", sampling.get("common") or {}))
        made["sampling"] = sampling
    if forgotten := [key for key in dropped if key not in _ADDED]:
        notes.append(f"Left out, because nothing is known about them: {', '.join(map(str, forgotten))}.")
    try:
        return yaml.safe_dump(made, sort_keys=False, allow_unicode=True), tuple(notes)
    except yaml.YAMLError as error:
        raise ContainerError(Problem(f"The description cannot be written as YAML: {error}.")) from error
