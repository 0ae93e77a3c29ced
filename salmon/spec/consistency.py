"""Check that the parts of an experiment's file agree with each other, which no single value can show."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from salmon.errors import Problem, did_you_mean, listed, shown
from salmon.spec.course import classes_of, course_disagreements
from salmon.spec.feature_file import feature_disagreements
from salmon.spec.manifest import Manifest, names_shown_in
from salmon.spec.page_texts import PAGE_TEXTS, unknown_fields
from salmon.spec.problems import problem_at
from salmon.spec.schema import Spec
from salmon.spec.values import Misfit, flag, share, whole
from salmon.spec.yaml_tree import Node, Scalar, is_nothing, items_of, list_at, node_of, part_of

#: Keys that the schema knows and nothing acts on yet -> what an experimenter who writes them would miss.
UNBUILT: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("html", "query_params"): "parameters in the page's address would not be passed to queries",
    }
)
_ACTIVE_HTML = re.compile(r"<\s*(script|iframe|object|embed)\b|\son[a-z]+\s*=|javascript:", re.IGNORECASE)
_PERCENT = re.compile(r"\s*([0-9]{1,3})\s*%?\s*")
#: Classes of samplers that draw from whatever targets a participant is shown.
RANDOM_NAMES = frozenset({"Random", "RandomSampling"})
#: The largest share of trials that can be held out to compare samplers.
MOST_HELD_OUT = 0.5
#: A query is repeated so many trials after it was asked, or more.
REPEATED_AFTER = 10
_PLATFORMS_WITH_SETTINGS = ("prolific", "sona", "connect", "mturk")


def disagreements(
    root: Node,
    tree: dict[str, Any],
    sampler_names: tuple[str, ...],
    manifest: Manifest | None,
    n_targets: int | None,
    *,
    stored: bool,
) -> Iterator[Problem]:
    """Yield every disagreement between parts of the file; `tree` is its dicts and lists, with Scalars as leaves.

    Checks had no effect once: what is wrong with those of a `stored` file, which was accepted then, is a warning.
    """
    yield from _probabilities(root, tree, sampler_names)
    yield from _samplers_per_user(root, tree, sampler_names)
    yield from _race(root, tree, sampler_names)
    yield from _fixed_queries(root, tree, sampler_names)
    yield from _targets(root, tree, manifest)
    yield from _groups(root, tree, sampler_names, manifest)
    yield from (replace(problem, warning=problem.warning or stored) for problem in _checks(root, tree, n_targets))
    yield from _questions(root, tree)
    yield from _recruitment(root, tree)
    yield from course_disagreements(root, tree, stored=stored)
    yield from _comments(root, tree)
    yield from _page_texts(root, tree)
    if manifest is not None:
        yield from _files(root, tree, manifest)
        if any(entry.features for entry in manifest.entries):
            yield from feature_disagreements([(entry.name, entry.features) for entry in manifest.entries])


def unbuilt_keys(root: Node, spec: Spec, *, stored: bool) -> Iterator[Problem]:
    """Yield every key in the file that nothing acts on yet: refused unless it has its
    default or the file is a stored one.
    """
    ignored = unbuilt_values(spec)
    for path in UNBUILT:
        name = ".".join(path)
        if node_of(root, *path) is not None:
            yield problem_at(
                root,
                path,
                ignored.get(path, f"{name} has its default value, and no other value works yet."),
                hint=f"Remove {name}.",
                warning=stored or path not in ignored,
                at_key=True,
            )


def unbuilt_values(spec: Spec) -> dict[tuple[str, str], str]:
    """Return the keys of a spec that are set to something that does not work yet, each with a sentence."""
    found: dict[tuple[str, str], str] = {}
    for (part, key), consequence in UNBUILT.items():
        values = getattr(spec, part)
        if getattr(values, key) != type(values).model_fields[key].default:
            found[part, key] = f"{part}.{key} does not work yet: {consequence}."
    return found


def _probabilities(root: Node, tree: dict[str, Any], names: tuple[str, ...]) -> Iterator[Problem]:
    path = ("sampling", "probs")
    probs = part_of(tree, *path)
    if not isinstance(probs, dict) or not names:
        return
    written: dict[str, Any] = probs
    for name in written:
        if name not in names:
            yield problem_at(
                root,
                (*path, name),
                f"There is no sampler {shown(name)}.",
                hint=did_you_mean(name, names) or f"The samplers are {listed(names, 'and')}.",
                at_key=True,
            )
    missing = [name for name in names if name not in written]
    if missing:
        yield problem_at(
            root,
            path,
            f"sampling.probs has no probability for {listed(missing, 'and')}.",
            hint="Give every sampler one; 0 is possible.",
            at_key=True,
        )
    amounts = [_PERCENT.fullmatch(value.text) if isinstance(value, Scalar) else None for value in written.values()]
    read = [int(amount[1]) for amount in amounts if amount]
    if len(read) == len(amounts) and sum(read) != 100:
        yield problem_at(
            root,
            path,
            f"The values in sampling.probs should add up to 100; here they add up to {sum(read)}.",
            hint="Change them so that their sum is 100.",
        )


def _samplers_per_user(root: Node, tree: dict[str, Any], names: tuple[str, ...]) -> Iterator[Problem]:
    path = ("sampling", "samplers_per_user")
    written = part_of(tree, *path)
    try:
        number = whole(0)(written) if isinstance(written, Scalar) else 0
    except Misfit:
        return  # reported where it is written
    if names and number > len(names):
        yield problem_at(
            root,
            path,
            f"samplers_per_user is {number}, but there {'is only 1 sampler' if len(names) == 1 else f'are only {len(names)} samplers'}.",
            hint="Write at most that number, or 0 to draw a sampler for every query.",
        )


def _race(root: Node, tree: dict[str, Any], names: tuple[str, ...]) -> Iterator[Problem]:
    """Yield what keeps samplers from being compared: a race needs equal chances for each, and
    one sampler for each participant.
    """
    path = ("sampling", "race")
    written = part_of(tree, *path)
    try:
        held_out = share(written) if isinstance(written, Scalar) else 0.0
    except Misfit:
        return  # reported where it is written
    if not held_out:
        return
    if held_out > MOST_HELD_OUT:
        yield problem_at(
            root, path, "More than half of the trials would be held out to compare samplers.", hint="Write at most 50%."
        )
    if len(names) < 2:
        yield problem_at(root, path, "A race needs at least two samplers.", hint="Name another, or remove race.")
    shares = [value.text for _, value in items_of(part_of(tree, "sampling", "probs")) if isinstance(value, Scalar)]
    amounts = [int(found[1]) for text in shares if (found := _PERCENT.fullmatch(text))]
    if amounts and max(amounts) - min(amounts) > 1:
        yield problem_at(
            root,
            ("sampling", "probs"),
            "In a race all samplers get as many participants, but sampling.probs gives them different shares.",
            hint="Remove probs.",
        )
    yield from _kept_apart(root, tree)


def _kept_apart(root: Node, tree: dict[str, Any]) -> Iterator[Problem]:
    """Yield what would give participants of a race more than their one sampler."""
    per_user = part_of(tree, "sampling", "samplers_per_user")
    if isinstance(per_user, Scalar) and per_user.text not in {"0", "1"}:
        yield problem_at(
            root,
            ("sampling", "samplers_per_user"),
            "In a race each participant gets one sampler.",
            hint="Remove samplers_per_user.",
        )
    if items_of(part_of(tree, "sampling", "details")):
        yield problem_at(
            root,
            ("sampling", "details"),
            "In a race each participant gets one sampler, so that none can be fixed for a trial.",
            hint="Remove details.",
        )
    for name, group in items_of(tree.get("groups")):
        if isinstance(group, dict) and "samplers" in group:
            yield problem_at(
                root,
                ("groups", name, "samplers"),
                "In a race the samplers are drawn for all participants alike.",
                hint="Remove samplers from the groups.",
            )
    for name, sampler in items_of(tree.get("samplers")):
        test: Any = sampler.get("test") if isinstance(sampler, dict) else None
        if isinstance(test, Scalar) and test.text.lower() in {"true", "yes", "on"}:
            yield problem_at(
                root,
                ("samplers", name, "test"),
                f"{name} is a test sampler, whose answers are never fitted; it cannot take part in a race.",
                hint="Remove test, or race.",
            )


def _fixed_queries(root: Node, tree: dict[str, Any], names: tuple[str, ...]) -> Iterator[Problem]:
    for place, detail in items_of(part_of(tree, "sampling", "details")):
        sampler = detail.get("sampler") if isinstance(detail, dict) else None
        if isinstance(sampler, Scalar) and names and sampler.text not in names:
            path = ("sampling", "details", place, "sampler")
            yield problem_at(
                root,
                path,
                f"There is no sampler {shown(sampler.text)}.",
                hint=did_you_mean(sampler.text, names) or f"The samplers are {listed(names, 'and')}.",
            )


def _groups(root: Node, tree: dict[str, Any], names: tuple[str, ...], manifest: Manifest | None) -> Iterator[Problem]:
    """Yield samplers and targets of groups that do not exist, and groups that could not be asked anything."""
    groups = [(name, group) for name, group in items_of(tree.get("groups")) if isinstance(group, dict)]
    if len(groups) == 1:
        yield problem_at(
            root, ("groups",), "There is only one group.", hint="Name at least two, or remove groups.", at_key=True
        )
    without = [name for name, group in groups if is_nothing(group.get("participants"))]
    if without and len(without) < len(groups):
        yield problem_at(
            root,
            ("groups", without[0]),
            f"Some groups have a number of participants, and {listed(without, 'and')} {'has' if len(without) == 1 else 'have'} none.",
            hint="Give every group participants:, or none; then all grow together.",
            at_key=True,
        )
    shown_targets = _target_names(tree, manifest)
    for name, group in groups:
        for key, known, kind in (("samplers", names, "sampler"), ("targets", shown_targets, "target")):
            written: Any = group.get(key)
            for place, value in enumerate(written if isinstance(written, list) else []):
                if isinstance(value, Scalar) and known and value.text not in known:
                    hint = did_you_mean(value.text, known) or f"Write {kind}s by the names that they have in the file."
                    path = ("groups", name, key, place)
                    yield problem_at(root, path, f"There is no {kind} {shown(value.text)}.", hint=hint)
        if isinstance(group.get("targets"), list):
            yield from _group_of_targets(root, tree, name, group)


def _group_of_targets(root: Node, tree: dict[str, Any], name: str, group: dict[str, Any]) -> Iterator[Problem]:
    """Yield samplers that would ask a group about targets which it is not shown: those that choose their queries."""
    written: Any = group.get("samplers")
    of_group = {value.text for value in written if isinstance(value, Scalar)} if isinstance(written, list) else set()
    classes = classes_of(tree)
    choosing = [key for key, kind in classes.items() if (not of_group or key in of_group) and kind not in RANDOM_NAMES]
    if choosing or not classes:
        who = listed(choosing, "and") or "Adaptive"
        yield problem_at(
            root,
            ("groups", name, "targets"),
            f"{who} would ask this group about targets that it is not shown.",
            hint="Give the group samplers: of the class Random.",
            at_key=True,
        )


def _target_names(tree: dict[str, Any], manifest: Manifest | None) -> tuple[str, ...]:
    """Return the names of all targets: of files, or their texts; none where there is only their number."""
    if manifest is not None:
        return tuple(entry.name for entry in manifest.entries)
    written: Any = tree.get("targets")
    return tuple(value.text for value in written if isinstance(value, Scalar)) if isinstance(written, list) else ()


def _targets(root: Node, tree: dict[str, Any], manifest: Manifest | None) -> Iterator[Problem]:
    """Yield what is odd about targets that are text: those of the file, or the rows of the CSV in the ZIP."""
    if manifest is not None:
        rows = [entry.html for entry in manifest.entries if not entry.media]
    else:
        written: list[Any] = tree["targets"] if isinstance(tree.get("targets"), list) else []
        rows = [target.text if isinstance(target, Scalar) else "" for target in written]
    trusted = _is_true(part_of(tree, "page", "trusted"))
    first: dict[str, int] = {}
    for place, row in enumerate(rows):
        path = ("targets", place)
        if first.setdefault(row, place) != place and row:
            yield problem_at(
                root,
                path,
                f"The target {shown(row)} is listed twice: as number {first[row]} and {place}, counted from 0.",
                hint="Participants cannot tell them apart.",
                warning=True,
            )
        if not trusted and _ACTIVE_HTML.search(row):
            yield problem_at(
                root,
                path,
                f"The target {shown(row)} contains active HTML, which is removed.",
                hint="Write trusted: true under page if you wrote this HTML.",
                warning=True,
            )


def _checks(root: Node, tree: dict[str, Any], n_targets: int | None) -> Iterator[Problem]:
    checks = tree.get("checks")
    if not isinstance(checks, dict):
        return
    try:
        catch, repeat = (share(part) if (part := part_of(checks, name)) else 0.0 for name in ("catch", "repeat"))
        shared, trials = (
            whole(low)(part) if (part := part_of(tree, *path)) else default
            for path, low, default in ((("checks", "shared"), 0, 0), (("html", "max_queries"), None, 50))
        )
    except Misfit:
        return  # reported where it is written
    yield from _too_many_checks(root, catch + repeat, shared, trials, n_targets)
    if not catch:
        for name in ("on_failure", "obvious"):  # their defaults ask for nothing
            written: Any = part_of(checks, name)
            if written and not (isinstance(written, Scalar) and written.text.casefold() == "nothing"):
                yield problem_at(
                    root,
                    ("checks", name),
                    f"checks.{name} is about catch trials, and checks.catch asks for none.",
                    hint="Write catch: 5%, or remove it.",
                    at_key=True,
                )
    if repeat and 0 < trials <= REPEATED_AFTER:
        yield problem_at(
            root,
            ("checks", "repeat"),
            f"A query is repeated {REPEATED_AFTER} trials later or more, and html.max_queries is {trials}.",
            hint="Ask for more answers, or remove checks.repeat.",
            at_key=True,
        )


def _too_many_checks(root: Node, shares: float, shared: int, trials: int, n_targets: int | None) -> Iterator[Problem]:
    """Yield a problem where checks would stand side by side, or leave too few queries to ask."""
    asked = shares * trials + shared if trials > 0 else shares * 100
    if (asked > max(trials, 0) / 2 and trials > 0) or shares > 0.5:
        yield problem_at(
            root,
            ("checks",),
            f"The checks are {asked:.0f} of {trials} trials."
            if trials > 0
            else f"The checks are {shares:.0%} of the trials.",
            hint="Two checks never follow each other: they can be at most half of the trials.",
        )
    if n_targets is not None and shared > 0.1 * n_targets * (n_targets - 1) * (n_targets - 2) / 2:
        yield problem_at(
            root,
            ("checks", "shared"),
            f"{n_targets} targets have {n_targets * (n_targets - 1) * (n_targets - 2) // 2} queries, and checks.shared keeps"
            f" {shared} of them out of every fit.",
            hint="Keep at most a tenth of the queries.",
            at_key=True,
        )


def _questions(root: Node, tree: dict[str, Any]) -> Iterator[Problem]:
    seen: set[str] = set()
    for place, question in enumerate(tree["questions"] if isinstance(tree.get("questions"), list) else []):
        name = question.get("name") if isinstance(question, dict) else None
        if isinstance(name, Scalar):
            if name.text in seen:
                path = ("questions", place, "name")
                yield problem_at(
                    root,
                    path,
                    f"Two questions have the name {shown(name.text)}.",
                    hint="Each name becomes a column: give each question its own name.",
                )
            seen.add(name.text)


def _recruitment(root: Node, tree: dict[str, Any]) -> Iterator[Problem]:
    recruitment = tree.get("recruitment")
    if not isinstance(recruitment, dict):
        return
    written: dict[str, Any] = {key: value for key, value in recruitment.items() if not is_nothing(value)}  # pyright: ignore[reportUnknownVariableType]
    platform = written["platform"].text.casefold() if isinstance(written.get("platform"), Scalar) else "link"
    path = ("recruitment",)
    ways_back = {"completion_code", "redirect"} & set(written)
    if platform == "sona" and "sona" not in written:
        yield problem_at(
            root,
            (*path, "platform"),
            "Recruitment from SONA needs its study's settings.",
            hint="Add sona: {school: …, experiment_id: …, credit_token: …}.",
        )
    if platform == "connect" and "connect" not in written and not ways_back:
        yield problem_at(
            root,
            (*path, "platform"),
            "Recruitment from Connect needs its project.",
            hint="Add connect: {project: …}, or a completion_code.",
        )
    if platform == "prolific" and not ways_back:
        yield problem_at(
            root,
            (*path, "platform"),
            "Participants from Prolific get no completion code.",
            hint="Add the completion_code that Prolific shows for the study.",
            warning=True,
        )
    on_failure = part_of(tree, "checks", "on_failure")
    if "screen_out_code" in written and not (isinstance(on_failure, Scalar) and on_failure.text == "screen_out"):
        yield problem_at(
            root,
            (*path, "screen_out_code"),
            "Nobody is screened out, so nobody gets recruitment.screen_out_code.",
            hint="Write checks: {catch: 5%, on_failure: screen_out}, or remove it.",
            warning=True,
            at_key=True,
        )
    paid = part_of(tree, "recruitment", "prolific", "screen_out_places")
    amount = part_of(tree, "payment", "screened_out")
    if (
        isinstance(paid, Scalar)
        and paid.text.strip() not in {"", "0"}
        and ("screen_out_code" not in written or amount is None or is_nothing(amount))
    ):
        yield problem_at(
            root,
            (*path, "prolific", "screen_out_places"),
            "Nobody could be paid for being screened out without a code and an amount.",
            hint="Write recruitment.screen_out_code and payment.screened_out, or remove screen_out_places.",
            at_key=True,
        )
    for key in _PLATFORMS_WITH_SETTINGS:
        if key in written and key != platform:
            yield problem_at(
                root,
                (*path, key),
                f"recruitment.{key} is not used: the platform is {platform}.",
                hint=f"Write platform: {key}, or remove it.",
                warning=True,
                at_key=True,
            )
    redirect = written.get("redirect")
    if isinstance(redirect, Scalar) and "app.prolific.co/" in redirect.text:
        yield problem_at(
            root,
            (*path, "redirect"),
            "Links to app.prolific.co no longer work.",
            hint="Write app.prolific.com.",
            warning=True,
        )


def shown_files(tree: dict[str, Any]) -> frozenset[str]:
    """Return the names of files that texts show: pictures of instructions, and what HTML of the steps names."""
    instructions = list_at(tree, "instructions")
    named = {image.text for page in instructions if isinstance(image := part_of(page, "image"), Scalar)}
    texts = [part_of(tree, "consent", "text")]
    texts += [
        part_of(item, "text")
        for item in (*instructions, *list_at(tree, "comprehension", "questions"), *list_at(tree, "questions"))
    ]
    return frozenset(named.union(*(names_shown_in(text.text) for text in texts if isinstance(text, Scalar))))


def _files(root: Node, tree: dict[str, Any], manifest: Manifest) -> Iterator[Problem]:
    names = dict.fromkeys(entry.name for entry in (*manifest.entries, *manifest.pictures))
    if not is_nothing(tree.get("targets")):
        yield problem_at(
            root,
            ("targets",),
            f"The {len(manifest):,} targets of the ZIP replace the targets written here.",
            hint="Remove targets: from the file.",
            warning=True,
            at_key=True,
        )
    for name, _ in items_of(part_of(tree, "page", "alt")):
        if name not in names:
            yield problem_at(
                root,
                ("page", "alt", name),
                f"The ZIP has no file {shown(name)}.",
                hint=did_you_mean(name, names) or "Write names as they are in the ZIP.",
                at_key=True,
            )
    for place, instruction in enumerate(list_at(tree, "instructions")):
        image = part_of(instruction, "image")
        if isinstance(image, Scalar) and not image.empty and image.text not in names:
            yield problem_at(
                root,
                ("instructions", place, "image"),
                f"The ZIP has no file {shown(image.text)}.",
                hint=did_you_mean(image.text, names) or "Write names as they are in the ZIP.",
            )


def _comments(root: Node, tree: dict[str, Any]) -> Iterator[Problem]:
    background = tree["page"].get("background") if isinstance(tree.get("page"), dict) else None
    if isinstance(background, Scalar) and background.empty and not background.text:
        yield problem_at(
            root,
            ("page", "background"),
            "background: has no value, so the background is white.",
            hint="A colour with # needs quotes: '#ffcc00'.",
            warning=True,
            at_key=True,
        )


def _page_texts(root: Node, tree: dict[str, Any]) -> Iterator[Problem]:
    """Yield problems with replaced texts of the page: unknown names, and fields that a text does not have."""
    for name, text in items_of(part_of(tree, "page", "strings")):
        path = ("page", "strings", name)
        if name not in PAGE_TEXTS:
            yield problem_at(
                root,
                path,
                f"The page has no text called {shown(name)}.",
                hint=did_you_mean(name, PAGE_TEXTS) or "The manual of the participant page lists their names.",
                at_key=True,
            )
            continue
        known = PAGE_TEXTS[name]
        for field in unknown_fields(name, text.text) if isinstance(text, Scalar) else ():
            fields = listed((f"{{{each}}}" for each in known), "and")
            yield problem_at(
                root,
                path,
                f"The text {name} contains the unknown field {{{field}}}, which participants will see literally.",
                hint=did_you_mean(field, known) or (f"Its fields are {fields}." if known else "It has no fields."),
                warning=True,
            )


def _is_true(value: Any) -> bool:
    try:
        return value is not None and flag(value)
    except Misfit:
        return False
