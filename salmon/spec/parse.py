"""Parse an experiment's file into a Spec, finding everything that is wrong with it in one pass.

`targets_of` returns the final list of targets, from the ZIP or from the spec, and `dump_spec` writes a Spec as YAML
with every default.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import yaml
from pydantic import ValidationError

from salmon.errors import MediaError, Problem, SpecError, listed
from salmon.spec.consistency import UNBUILT, disagreements, shown_files, unbuilt_keys
from salmon.spec.kinds import MAX_TARGETS, MIN_TARGETS
from salmon.spec.manifest import Manifest, TargetSpec, text_target
from salmon.spec.problems import misfit_problems, problem_at, schema_problems, unknown_key
from salmon.spec.sampler_arguments import Argument
from salmon.spec.samplers import read_common, read_samplers, sampler_nodes, shared_arguments
from salmon.spec.schema import Html, SamplerSpec, Spec
from salmon.spec.values import FrozenMap, Misfit, flag, loose, percent, whole
from salmon.spec.yaml_tree import MappingNode, Scalar, SequenceNode, UnreadableError, node_of, plain, read_source

DefaultSampler = Literal["Adaptive", "Random"]
Unpack = Callable[[bool], Manifest]

#: The number of targets: it follows from the targets.
_ADDED_BY_SALMON_1 = frozenset({"n"})

MAX_PROBLEMS = 200  # more than anybody reads; the rest is counted

#: What a file gets that names no samplers: today's sampler, or what the old program gave it.
_DEFAULT_SAMPLERS: dict[DefaultSampler, SamplerSpec] = {
    "Adaptive": SamplerSpec(
        name="Adaptive", sampler_class="Adaptive", arguments=FrozenMap({"d": 2, "noise": "TSTE", "random_share": 0.15})
    ),
    "Random": SamplerSpec(name="random", sampler_class="Random"),
}


@dataclass(frozen=True)
class ParsedSpec:
    """A spec that can be used, and what its experimenter should know all the same.

    `manifest` is the list of targets of the ZIP that came with the file.
    """

    spec: Spec
    warnings: tuple[Problem, ...] = ()
    manifest: Manifest | None = None


@dataclass(frozen=True)
class ExaminedSpec:
    """A file that is being written: its spec where nothing is wrong with it, its problems, and the files of its ZIP."""

    spec: Spec | None
    problems: tuple[Problem, ...]
    manifest: Manifest | None


def parse_spec(
    text: bytes | str,
    *,
    name: str = "experiment.yaml",
    manifest: Manifest | None = None,
    unpack: Unpack | None = None,
    default_sampler: DefaultSampler = "Adaptive",
    zip_follows: bool = False,
    stored: bool = False,
    fixed_targets: int = 0,
) -> ParsedSpec:
    """Return the Spec of a YAML text; SpecError lists everything that is wrong with it.

    `manifest` is the list of targets of the ZIP that came with the file; it replaces the file's own targets. `unpack`
    makes that list of a ZIP which has not been read yet: it is called once, with whether the file says `page.trusted`.
    What is wrong with the ZIP is reported with what is wrong with the file; MediaError where the file is right. Files
    that texts show (`instructions: [{image: …}]`, `<img src="…">`) are pictures, not targets; the first `fixed_targets`
    have answers and stay targets. `default_sampler` is what a file gets that names no samplers. `zip_follows` says that
    the ZIP has not been read yet: the file need not have targets. `stored` says that the text was accepted before: keys
    that are refused in new files since then are warnings, so that existing experiments can still be opened.
    """
    setting = _Setting(manifest, default_sampler, zip_follows, unpack, stored, fixed_targets)
    spec, problems, manifest, in_zip = _examine(text, setting)
    is_wrong = spec is None or any(not problem.warning for problem in problems)
    if in_zip is not None and not is_wrong:
        raise in_zip
    if spec is None or is_wrong:
        raise SpecError((*_without_lines(in_zip.problems if in_zip else ()), *problems), name=name)
    return ParsedSpec(spec, problems, manifest)


def read_stored_spec(content: str, manifest: Manifest | None = None) -> Spec:
    """Return the spec of a stored revision; SpecError where this version cannot read it.

    Revisions hold the JSON of `Spec.to_json`. Those of version 2.0.0.dev0 and before hold the YAML of `dump_spec`,
    which never begins with a brace.
    """
    if not content.startswith("{"):
        return parse_spec(content, manifest=manifest, stored=True).spec
    try:
        return Spec.from_json(content)
    except ValidationError as error:
        places = [(".".join(map(str, item["loc"])), item["msg"]) for item in error.errors()[:MAX_PROBLEMS]]
        problems = tuple(
            Problem(f"The stored description cannot be read: {message}.", path=path) for path, message in places
        )
        raise SpecError(problems, name="the stored description") from error


def examine_spec(
    text: bytes | str, *, manifest: Manifest | None = None, zip_follows: bool = False, fixed_targets: int = 0
) -> ExaminedSpec:
    """Return everything about a file that is still being written; never raises, whatever the file holds."""
    setting = _Setting(manifest, zip_follows=zip_follows, fixed_targets=fixed_targets)
    spec, problems, manifest, _ = _examine(text, setting)
    return ExaminedSpec(None if any(not problem.warning for problem in problems) else spec, problems, manifest)


def check(text: bytes | str, name: str = "experiment.yaml", manifest: Manifest | None = None) -> tuple[Problem, ...]:
    """Return everything wrong or worth knowing about a file, in its order; never raises, whatever the file holds."""
    del name  # the caller writes it in front of each sentence: Problem.sentence(name)
    return _examine(text, _Setting(manifest))[1]


@dataclass(frozen=True)
class _Setting:
    """The circumstances in which a file is read; `in_zip` is what was wrong with its ZIP."""

    manifest: Manifest | None
    default_sampler: DefaultSampler = "Adaptive"
    zip_follows: bool = False
    unpack: Unpack | None = None
    stored: bool = False
    fixed_targets: int = 0
    in_zip: MediaError | None = None

    def read_zip(self, root: MappingNode) -> Self:
        """Return the setting with the ZIP that came with a file, now that the file says what it is for."""
        manifest = self.manifest
        if self.unpack is not None:
            try:
                trusted = flag(node_of(root, "page", "trusted") or False)
            except Misfit:
                trusted = False  # reported with the other problems of the file
            try:
                manifest = self.unpack(trusted)
            except MediaError as error:
                return replace(self, manifest=None, in_zip=error)
        if manifest is not None and not self.stored:
            manifest = manifest.with_pictures(shown_files(plain(root)), fixed=self.fixed_targets)
        return replace(self, manifest=manifest)

    @property
    def has_zip(self) -> bool:
        return self.zip_follows or self.unpack is not None or self.manifest is not None


def _examine(
    text: bytes | str, setting: _Setting
) -> tuple[Spec | None, tuple[Problem, ...], Manifest | None, MediaError | None]:
    """Return (the spec if it can be read, its problems, the list of targets of its ZIP, what is wrong with the ZIP)."""
    problems: list[Problem] = []
    try:
        root = read_source(text, problems)
    except UnreadableError as error:
        return None, _in_order([*problems, error.problem]), setting.manifest, None
    if root is None or (isinstance(root, Scalar) and root.empty):
        if not setting.has_zip:
            problem = Problem(
                "The file is empty.", 1, 1, hint="Write at least targets: with a list, or upload a ZIP of targets."
            )
            return None, _in_order([*problems, problem]), setting.manifest, None
        root = MappingNode(1, 1)
    if not isinstance(root, MappingNode):
        kind = "a list" if isinstance(root, SequenceNode) else "a text"
        problem = Problem(
            f"The file is {kind}; a spec is keys with values.",
            root.line,
            root.column,
            hint="Begin with targets: and a list.",
        )
        return None, _in_order([*problems, problem]), setting.manifest, None
    setting = setting.read_zip(root)
    spec = _read(root, setting, problems)
    return spec, _in_order(problems), setting.manifest, setting.in_zip


def _without_lines(problems: tuple[Problem, ...]) -> tuple[Problem, ...]:
    """Return problems of a ZIP among those of the file: a line of its CSV is no line of the file."""
    return tuple(replace(problem, line=0, column=0) for problem in problems)


def _read(root: MappingNode, setting: _Setting, problems: list[Problem]) -> Spec | None:
    n_targets = _n_targets(root, setting)
    problems += _keys(root)
    problems += _presence(root, setting)
    problems += _html_extras(root)
    common = read_common(node_of(root, "sampling", "common"), root, n_targets, problems)
    samplers = _samplers(root, common, setting.default_sampler, n_targets, problems)
    if setting.manifest is not None and setting.manifest.features() and not setting.stored:
        problems += _unused_features(samplers)
    written = node_of(root, "samplers")
    names = tuple(name for name, _, _ in sampler_nodes(written)) if written is not None else tuple(samplers)
    tree = plain(root)
    problems += disagreements(root, tree, names, setting.manifest, n_targets, stored=setting.stored)
    content = {key: value for key, value in tree.items() if key in Spec.model_fields and not _is_html(key, root)}
    content["samplers"] = samplers
    if setting.has_zip:
        content.pop("targets", None)
    _with_title(root, tree, content, problems)
    if isinstance(content.get("sampling"), dict):
        content["sampling"] = {**content["sampling"], "common": common}
    try:
        names = _target_names(root, setting, n_targets)
        spec = Spec.model_validate(content, context={"n_targets": n_targets, "target_names": names})
    except ValidationError as error:
        problems += schema_problems(root, error)
        return None
    problems += unbuilt_keys(root, spec, stored=setting.stored)
    return spec


def _n_targets(root: MappingNode, setting: _Setting) -> int | None:
    """Return the number of targets; None if it is not known yet or the file does not state it readably."""
    if setting.has_zip:
        return None if setting.manifest is None else len(setting.manifest)
    targets = node_of(root, "targets")
    if isinstance(targets, SequenceNode):
        return len(targets.items) or None
    try:
        return whole(MIN_TARGETS, MAX_TARGETS)(targets) if isinstance(targets, Scalar) else None
    except Misfit:
        return None


def _target_names(root: MappingNode, setting: _Setting, n_targets: int | None) -> tuple[str, ...] | None:
    """Return what a practice trial may call the targets; None while the number of targets is not known."""
    if n_targets is None:
        return None
    if setting.manifest is not None:
        return tuple(entry.name for entry in setting.manifest.entries)
    targets = node_of(root, "targets")
    items = targets.items if isinstance(targets, SequenceNode) else ()
    return tuple(item.text if isinstance(item, Scalar) else "" for item in items)


def _keys(root: MappingNode) -> Iterator[Problem]:
    known = (*Spec.model_fields, "title")
    for key in root.entries:
        if _is_html(key, root):
            yield problem_at(
                root,
                (key,),
                f"{key} belongs under html, but in this file it is at the top level.",
                hint=f"Move {key} under html.",
                at_key=True,
            )
        elif key in _ADDED_BY_SALMON_1:
            yield problem_at(
                root,
                (key,),
                f"{key} is a key that Salmon 1 adds to the files it returns; it has no effect.",
                hint=f"Remove {key}.",
                warning=True,
                at_key=True,
            )
        elif key not in known:
            yield unknown_key(root, (key,), known)


def _is_html(key: str, root: MappingNode) -> bool:
    """Whether a top-level key belongs to `html`. `title` is both; `instructions` means pages here and a text there."""
    if key == "instructions":
        return isinstance(node_of(root, key), Scalar)
    return key in Html.model_fields and key != "title"


def _presence(root: MappingNode, setting: _Setting) -> Iterator[Problem]:
    targets = node_of(root, "targets")
    if setting.manifest is not None and len(setting.manifest) < MIN_TARGETS:
        found = "one target" if len(setting.manifest) == 1 else f"{len(setting.manifest)} targets"
        pictures = setting.manifest.pictures
        besides = f" beside pictures of texts ({listed((each.name for each in pictures), 'and')})" if pictures else ""
        yield Problem(
            f"The ZIP holds {found}{besides}; a triplet needs at least three.", 1, 1, hint="Add targets to the ZIP."
        )
    if not setting.has_zip and (targets is None or (isinstance(targets, SequenceNode) and not targets.items)):
        at = ("targets",) if "targets" in root.entries else ()
        yield problem_at(
            root, at, "There are no targets.", hint="Write targets: with a list, or upload a ZIP.", at_key=True
        )


def _unused_features(samplers: dict[str, SamplerSpec]) -> Iterator[Problem]:
    if samplers and not any(sampler.sampler_class == "Adaptive" for sampler in samplers.values()):
        yield Problem(
            "The ZIP holds features of the targets, but no sampler uses them.",
            hint="Only Adaptive uses features.",
            warning=True,
        )


def _html_extras(root: MappingNode) -> Iterator[Problem]:
    html = node_of(root, "html")
    for key in html.entries if isinstance(html, MappingNode) else ():
        if key in Spec.model_fields and key not in Html.model_fields:
            yield problem_at(
                root,
                ("html", key),
                f"{key} has no effect under html.",
                hint=f"Move {key} to the left margin.",
                warning=True,
                at_key=True,
            )
        elif key not in Html.model_fields:
            yield unknown_key(root, ("html", key), tuple(Html.model_fields), warning=True)


def _samplers(
    root: MappingNode,
    common: dict[str, Argument],
    default_sampler: DefaultSampler,
    n_targets: int | None,
    problems: list[Problem],
) -> dict[str, SamplerSpec]:
    node = node_of(root, "samplers")
    if node is not None:
        return read_samplers(node, common, root, n_targets, problems)
    default = _DEFAULT_SAMPLERS[default_sampler]
    shared = shared_arguments(default.sampler_class, common, (), root, problems)
    return {default.name: default.model_copy(update={"arguments": FrozenMap({**default.arguments, **shared})})}


def _with_title(root: MappingNode, tree: dict[str, Any], content: dict[str, Any], problems: list[Problem]) -> None:
    """Move a top-level `title` to `html.title`."""
    title = tree.get("title")
    if title is None or (isinstance(title, Scalar) and title.empty):
        return
    html = content.get("html", {})
    html = {} if isinstance(html, Scalar) and html.empty else html
    if not isinstance(html, dict):
        return
    if not isinstance(title, Scalar):
        problems += misfit_problems(root, ("title",), Misfit("a text"))
        return
    own = html.get("title")  # pyright: ignore[reportUnknownMemberType]
    if isinstance(own, Scalar) and not own.empty and own.text != title.text:
        message = f"There is another title under html, on line {own.line}."
        problems.append(problem_at(root, ("title",), message, hint="Keep one of them.", at_key=True))
    content["html"] = {**html, "title": title}


def _in_order(problems: list[Problem]) -> tuple[Problem, ...]:
    """Sort problems by place, keep one where two rules say the same about a place, and at most MAX_PROBLEMS in all."""
    ordered = sorted(dict.fromkeys(problems), key=lambda problem: (problem.line, problem.column, problem.warning))
    if len(ordered) <= MAX_PROBLEMS:
        return tuple(ordered)
    wrong = [problem for problem in ordered if not problem.warning] or ordered
    kept = wrong[:MAX_PROBLEMS]
    return (
        *kept,
        Problem(
            f"There are {len(ordered) - len(kept):,} more problems.", hint="Fix these first.", warning=kept[-1].warning
        ),
    )


def targets_of(spec: Spec, manifest: Manifest | None = None) -> tuple[TargetSpec, ...]:
    """Return the n targets, by index.

    A manifest replaces the targets of the spec; `page.alt` gives the names that screen readers say.
    """
    targets = (
        manifest.targets()
        if manifest is not None
        else tuple(text_target(place, text) for place, text in enumerate(spec.targets))
    )
    return tuple(
        replace(target, alt=spec.page.alt[target.filename]) if target.filename in spec.page.alt else target
        for target in targets
    )


#: Secrets of recruitment platforms: never shown before completion, and left out of what is shared.
SECRETS = (
    ("recruitment", "completion_code"),
    ("recruitment", "screen_out_code"),
    ("recruitment", "redirect"),
    ("recruitment", "sona"),
    ("notify", "email"),
    ("notify", "webhook"),
)

#: Keys without effect, left out of what is written unless they were set: a new file may not have them. `/config` of the
#: first Salmon holds `html.query_params`.
_LEFT_OUT = tuple(path for path in UNBUILT if path != ("html", "query_params"))

_NO_FOLDING = 2**31 - 1  # a folded text is hard to find again


def dump_spec(spec: Spec, *, secrets: bool = True) -> str:
    """Return YAML that parses to the same Spec. Without `secrets`, codes and tokens of platforms are left out."""
    return write_tree(spec_tree(spec, secrets=secrets))


def spec_tree(spec: Spec, *, secrets: bool = True) -> dict[str, Any]:
    """Return the content of `dump_spec`: dicts, lists and values."""
    content = spec.model_dump(mode="json")
    content["samplers"] = {name: _sampler(sampler) for name, sampler in spec.samplers.items()}
    if not secrets:
        for part, key in SECRETS:
            content[part].pop(key)
    for part, key in _LEFT_OUT:
        if getattr(getattr(spec, part), key) == type(getattr(spec, part)).model_fields[key].default:
            content[part].pop(key, None)
    content = {key: value for key, value in content.items() if key not in {"checks", "stopping"} or value}
    if not spec.targets:
        del content["targets"]  # they are in a ZIP
    return content


def read_tree(source: bytes | str) -> dict[str, Any]:
    """Return the keys of a YAML text with their values, within the bounds of every spec
    and without looking for mistakes.

    A text that is no mapping or cannot be read is empty; `parse_spec` says what is wrong with it.
    """
    try:
        root = read_source(source, [])
    except UnreadableError:
        return {}
    return loose(plain(root)) if isinstance(root, MappingNode) else {}


def write_tree(content: Any) -> str:
    """Return dicts, lists and values as YAML, with keys in their order and every text on one line."""
    dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return yaml.dump(content, Dumper=dumper, sort_keys=False, allow_unicode=True, width=_NO_FOLDING)


def _sampler(sampler: SamplerSpec) -> dict[str, Any]:
    arguments = sampler.model_dump(mode="json")["arguments"]
    if "random_share" in arguments:
        arguments["random_share"] = percent(arguments["random_share"])
    return {"class": sampler.sampler_class, "test": sampler.test, **arguments}
