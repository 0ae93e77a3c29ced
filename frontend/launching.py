"""Make an experiment of an experimenter's files, or the next revision of one: parse them, keep the targets, store both.

Answers name targets by their index, so a revision may add targets, but never moves or replaces one.
"""

import asyncio
import re
import unicodedata
from collections.abc import Callable
from pathlib import Path

from frontend.context import Context
from frontend.experiments import ServedExperiment, make_revision
from frontend.store.experiments import Change, ExperimentState, State
from salmon.errors import MediaError, Problem, SpecError
from salmon.spec import DefaultSampler, Manifest, TargetSpec, merge_manifests, parse_spec, targets_of

#: Names of files that say nothing about the experiment; the name of the folder is taken instead.
_PLAIN_NAMES = {"experiment", "init", "exp", "config", "spec"}
#: Targets named in one sentence.
_NAMED = 5


async def launch(
    context: Context,
    source: bytes,
    *,
    spec_name: Path,
    archive: Path | None,
    name: str,
    owner: str,
    state: State,
    manifest: Manifest | None = None,
    default_sampler: DefaultSampler = "Adaptive",
) -> tuple[ExperimentState, list[str]]:
    """Make an experiment of a file and its targets; return its state and warnings. `owner` is the id of an account.

    The targets are in a ZIP, or `manifest` lists those that were stored before.
    """
    parsed = await asyncio.to_thread(
        parse_spec,
        source,
        name=spec_name.name,
        manifest=manifest,
        unpack=_unpacker(context, archive) if archive is not None else None,
        default_sampler=default_sampler,
    )
    revision = make_revision(source.decode("utf-8-sig"), parsed.spec, parsed.manifest, now_ms=context.now_ms())
    slug = await free_slug(context, name or _name_of(spec_name, parsed.spec.title), given=bool(name))
    made = await context.store.experiments.create(slug, revision, owner=owner, state=state, now_ms=context.now_ms())
    by = await context.store.accounts.name_of(owner)
    await note_change(context, made.experiment, by, "created", spec_name.name)
    if state == "open":
        await note_change(context, made.experiment, by, "state", "open")
    return made, [problem.sentence(spec_name.name) for problem in parsed.warnings]


async def revise(
    context: Context,
    experiment: ServedExperiment,
    source: bytes,
    *,
    archive: Path | None,
    by: str,
    known: int,
    manifest: Manifest | None = None,
) -> list[str]:
    """Make the next revision of an experiment; return warnings.

    Without a ZIP the targets that were uploaded stay; `manifest` lists others that were stored before. `known` is the
    revision that the experimenter has changed.
    """
    name = f"{experiment.state.slug}.yaml"
    is_answered = await context.store.answers.count(experiment.id) > 0
    parsed = await asyncio.to_thread(
        parse_spec,
        source,
        name=name,
        manifest=manifest if manifest is not None else experiment.manifest,
        unpack=_unpacker(context, archive, experiment.manifest) if archive is not None else None,
        fixed_targets=len(experiment.targets) if is_answered else 0,
    )
    if is_answered:
        check_targets_stay(experiment.targets, targets_of(parsed.spec, parsed.manifest), name=name)
    revision = make_revision(source.decode("utf-8-sig"), parsed.spec, parsed.manifest, now_ms=context.now_ms())
    number = await context.store.experiments.revise(experiment.id, revision, known=known)
    await note_change(context, experiment.id, by, "revised", f"revision {number}")
    return [problem.sentence(name) for problem in parsed.warnings]


async def note_change(context: Context, experiment: str, by: str, what: str, detail: str) -> None:
    """Note what was done to an experiment."""
    await context.store.experiments.note_change(experiment, Change(context.now_ms(), by, what, detail))


def check_targets_stay(old: tuple[TargetSpec, ...], new: tuple[TargetSpec, ...], *, name: str) -> None:
    """Refuse a revision in which an index means another target than in the answers given so far."""
    problems = [
        Problem(
            f"Target {target.index} was {target.filename!r} and would now be "
            f"{new[target.index].filename!r}, but it already has answers.",
            path="targets",
            hint="Keep the targets in their order and add new ones at the end, or create another experiment.",
        )
        if target.index < len(new)
        else Problem(
            f"Target {target.index}, {target.filename!r}, is missing, but it already has answers.",
            path="targets",
            hint="Restore it; to stop asking about it, create another experiment without it.",
        )
        for target in old
        if target.index >= len(new) or (new[target.index].html, new[target.index].media) != (target.html, target.media)
    ]
    if problems:
        raise SpecError(tuple(problems), name=name)


async def free_slug(context: Context, wanted: str, *, given: bool) -> str:
    """Return the wanted name as it stands in an address; a name that nobody chose gets a number when it is taken."""
    base = slug_of(wanted)
    if given:
        return base
    slug, number = base, 2
    while await context.store.experiments.find(slug) is not None:
        slug, number = f"{base}-{number}", number + 1
    return slug


def slug_of(name: str) -> str:
    """Return a name as it stands in an address: small letters, digits and dashes."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:60] or "experiment"


def _unpacker(context: Context, archive: Path, known: Manifest | None = None) -> Callable[[bool], Manifest]:
    """Return a function that stores the files of a ZIP, told whether the spec is trusted, and lists the targets.

    `known` are the targets that an earlier ZIP brought: they keep their places.
    """

    def unpack(trusted: bool) -> Manifest:
        manifest = context.media.unpack(archive, trusted=trusted)
        return merge_targets(known, manifest)

    return unpack


def merge_targets(old: Manifest | None, new: Manifest) -> Manifest:
    """Return the targets of both uploads; a file whose content has changed is refused by name."""
    if old is None:
        return new
    merge = merge_manifests(old, new)
    if merge.changed:
        named = ", ".join(merge.changed[:_NAMED]) + (", …" if len(merge.changed) > _NAMED else "")
        problem = Problem(
            f"The ZIP has different content under existing names: {named}.",
            hint="Answers were given about the old content. Give the new files new names, or create another experiment.",
        )
        raise MediaError((problem,), name="targets.zip")
    return merge.manifest


def _name_of(path: Path, title: str) -> str:
    stem = path.stem.lower()
    if stem not in _PLAIN_NAMES:
        return stem
    return path.parent.name or title
