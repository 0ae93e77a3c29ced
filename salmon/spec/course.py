"""Check that what a file says about the course of a study agrees: when it opens and closes,
payment, and who may come again.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from salmon.errors import Problem
from salmon.spec.problems import problem_at
from salmon.spec.sampler_arguments import ACTIVE_CLASSES
from salmon.spec.values import Misfit, moment, share, whole
from salmon.spec.yaml_tree import Node, Scalar, items_of, list_at, part_of

#: The least number of answers that a participant can be asked for.
_NO_END_IN_SALMON_1 = -1


def course_disagreements(root: Node, tree: dict[str, Any], *, stored: bool) -> Iterator[Problem]:
    """Yield every disagreement; what was accepted once is only warned of in `stored` files."""
    yield from _schedule(root, tree)
    refused_today = (*_least_gain(root, tree), *_answers_of_each(root, tree))
    yield from (replace(problem, warning=problem.warning or stored) for problem in refused_today)
    yield from _payment(root, tree)
    yield from _repeats(root, tree)


def classes_of(tree: dict[str, Any]) -> dict[str, str]:
    """Return the class of every sampler, by its name."""
    return {
        name: (value["class"].text if isinstance(value, dict) and isinstance(value.get("class"), Scalar) else name)
        for name, value in items_of(tree.get("samplers"))
    }


def _schedule(root: Node, tree: dict[str, Any]) -> Iterator[Problem]:
    """Yield a problem where the experiment would close before it opens."""
    opens, closes = part_of(tree, "recruitment", "opens_at"), part_of(tree, "stopping", "at")
    try:
        if opens is None or closes is None or moment(opens) < moment(closes):
            return
    except Misfit:
        return  # reported where it is written
    yield problem_at(
        root,
        ("stopping", "at"),
        "stopping.at is not after recruitment.opens_at, so nobody could take part.",
        hint="Write a later time, or remove one of them.",
        at_key=True,
    )


def _answers_of_each(root: Node, tree: dict[str, Any]) -> Iterator[Problem]:
    """Yield a problem where participants are to give fewer answers than none; Salmon 1 wrote -1 for no end."""
    path = ("html", "max_queries")
    written = part_of(tree, *path)
    try:
        if written is None or whole()(written) >= _NO_END_IN_SALMON_1:
            return
    except Misfit:
        return  # reported where it is written
    yield problem_at(
        root,
        path,
        f"html.max_queries is {whole()(written)}, and nobody can give fewer answers than none.",
        hint="Write how many answers each participant gives, or 0 for as many as they like.",
    )


def _least_gain(root: Node, tree: dict[str, Any]) -> Iterator[Problem]:
    """Yield what keeps an experiment from closing by its accuracy."""
    path = ("stopping", "accuracy_gain_below")
    written = part_of(tree, *path)
    if written is None:
        if part_of(tree, "stopping", "per") is not None:
            yield problem_at(
                root,
                ("stopping", "per"),
                "stopping.per has no effect without stopping.accuracy_gain_below.",
                hint="Write for example accuracy_gain_below: 0.5%, or remove per.",
                warning=True,
                at_key=True,
            )
        return
    if (classes := classes_of(tree)) and not any(kind in ACTIVE_CLASSES for kind in classes.values()):
        yield problem_at(
            root,
            path,
            "No sampler of this experiment fits a map while it runs, so that its accuracy closes nothing.",
            hint="Add Adaptive to samplers, or remove stopping.accuracy_gain_below.",
            at_key=True,
        )
    try:
        if share(written) == 0:
            yield problem_at(
                root,
                path,
                "stopping.accuracy_gain_below is 0 %, and further answers always bring a little.",
                hint="Write a share above zero, such as 0.5%.",
            )
    except Misfit:
        return  # reported where it is written


def _payment(root: Node, tree: dict[str, Any]) -> Iterator[Problem]:
    """Yield bonuses that nobody could get, limits of nothing, and a payment of people whom nothing screens out."""
    on_failure = part_of(tree, "checks", "on_failure")
    screens_out = isinstance(on_failure, Scalar) and on_failure.text.strip().casefold() == "screen_out"
    if part_of(tree, "payment", "screened_out") is not None and not screens_out:
        yield problem_at(
            root,
            ("payment", "screened_out"),
            "payment.screened_out is for those who fail the checks, and nobody is screened out.",
            hint="Write checks: {catch: 5%, on_failure: screen_out}, or remove it.",
            at_key=True,
        )
    try:
        catch = share(part) if (part := part_of(tree, "checks", "catch")) else 0.0
        trials = whole()(part) if (part := part_of(tree, "html", "max_queries")) else 50
    except Misfit:
        return  # reported where it is written
    for place, bonus in enumerate(list_at(tree, "payment", "bonus")):
        path = ("payment", "bonus", place)
        if part_of(bonus, "catch_accuracy") is not None and not catch:
            yield problem_at(
                root,
                (*path, "catch_accuracy"),
                "The bonus depends on catch trials, and checks.catch asks for none.",
                hint="Write checks: {catch: 5%}, or remove it.",
                at_key=True,
            )
        if part_of(bonus, "at_most") is not None and part_of(bonus, "for_each_answer_above") is None:
            yield problem_at(
                root,
                (*path, "at_most"),
                "at_most limits a bonus for each answer, and this one is paid once.",
                hint="Write for_each_answer_above, or remove it.",
                at_key=True,
            )
        yield from _unreachable(root, path, bonus, trials)


def _repeats(root: Node, tree: dict[str, Any]) -> Iterator[Problem]:
    """Yield a problem where whoever comes again could only be asked the same fixed queries."""
    written = part_of(tree, "recruitment", "repeats")
    try:
        repeats = whole(0)(written) if written is not None else 0
    except Misfit:
        return  # reported where it is written
    classes = [
        value["class"].text if isinstance(value, dict) and isinstance(value.get("class"), Scalar) else name
        for name, value in items_of(tree.get("samplers"))
    ]
    if repeats and classes and set(classes) == {"Validation"}:
        yield problem_at(
            root,
            ("recruitment", "repeats"),
            "Whoever came again would be asked the same fixed queries: Validation is the only sampler.",
            hint="Add another sampler, or remove repeats.",
            at_key=True,
        )


def _unreachable(root: Node, path: tuple[str | int, ...], bonus: Any, trials: int) -> Iterator[Problem]:
    """Yield a problem where a bonus wants more answers than anybody gives."""
    for key, beyond in (("answers", 0), ("for_each_answer_above", 1)):
        try:
            wanted = whole()(part) + beyond if (part := part_of(bonus, key)) else 0
        except Misfit:
            continue  # reported where it is written
        if 0 < trials < wanted:
            yield problem_at(
                root,
                (*path, key),
                f"Nobody gives {wanted} answers: html.max_queries is {trials}.",
                hint="Write a smaller number.",
                at_key=True,
            )
