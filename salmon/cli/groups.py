"""Implement `salmon groups`, which finds people who see similarity differently."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from salmon.cli.fit import read_file, read_table, show_progress, with_ending, write_files
from salmon.errors import SalmonError

if TYPE_CHECKING:
    from salmon.answer_files.answer_table import AnswerTable
    from salmon.estimator.groups import AgreementTest, Grouping, Named

EXAMPLE = "Example: salmon groups responses.csv"


def groups(
    responses: Annotated[Path, typer.Argument(help="The answers: CSV, JSON or JSON lines, plain, .gz or .zip.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="How the files begin that are written, such as results/groups.")
    ] = Path("groups"),
    dim: Annotated[int, typer.Option("--dim", "-d", min=1, max=10, help="Dimensions of all maps.")] = 2,
    most: Annotated[int, typer.Option(min=1, max=8, help="More groups are not looked for.")] = 4,
    named: Annotated[
        Path | None,
        typer.Option(
            help="A CSV file with the columns participant and group: test whether these groups see differently."
        ),
    ] = None,
    shuffles: Annotated[int, typer.Option(min=19, help="How often names are shuffled for a test.")] = 99,
    seed: Annotated[int, typer.Option(min=0, help="Seed of folds and beginnings.")] = 0,
) -> None:
    """Find groups of people who see similarity differently, with a map for each; or test groups that have names.

    How many groups there are is judged on answers that no fit has seen; one group is a result, too.

    Example: salmon groups responses.csv
    """
    from salmon.estimator.groups import GroupSearch, compare_names
    from salmon.export.map_drawing import draw_map

    table = read_table(responses, EXAMPLE)
    people = tuple(dict.fromkeys(table.participants))
    if people == ("",):
        raise SalmonError(f"{responses} does not say who gave which answer.", hint="Groups need a column puid.")
    numbers = {name: place for place, name in enumerate(people)}
    given_by = np.array([numbers[name] for name in table.participants])
    fitted = ~table.test
    rows, given_by = table.triplets[fitted], given_by[fitted]
    if named is not None:
        of_names, kept = _read_names(named, people)
        chosen = kept[given_by]
        with show_progress() as progress:
            progress("shuffling names", 1, 0)
            found = compare_names(rows[chosen], given_by[chosen], of_names, table.n, dim, shuffles=shuffles, seed=seed)
        print(_sentence(found))
        return
    with show_progress() as progress:
        search = GroupSearch.begin(rows, given_by, table.n, dim, most=most, seed=seed)
        for done, candidate in enumerate(search.candidates):
            progress("judging groups on answers that no fit has seen", len(search.candidates), done)
            search = search.judge(candidate)
        grouping, test = search.conclude(), None
        if grouping.count > 1:
            test = search.test(grouping)
            for done in range(shuffles):
                progress("shuffling the names of people", shuffles, done)
                test = test.shuffle(1)
    text = _text(grouping, test, table, people)
    written: dict[Path, bytes] = {
        with_ending(output, ".csv"): _csv(grouping, people),
        with_ending(output, ".txt"): text.encode(),
    }
    for number, coordinates in enumerate(grouping.maps, 1):
        drawn = draw_map(coordinates, table.labels)
        written |= {with_ending(output, f"-{number}.{kind}"): drawn.content(kind) for kind in ("svg", "png")}
    write_files(written)
    print(text + "\nWritten: " + ", ".join(str(path) for path in written))


def _read_names(path: Path, people: tuple[str, ...]) -> tuple[list[int], np.ndarray]:
    """Return (the number of each person's group, which people have one)."""
    content = list(csv.DictReader(io.StringIO(read_file(path, EXAMPLE).decode("utf-8-sig"))))
    if not content or not {"participant", "group"} <= content[0].keys():
        raise SalmonError(f"{path} needs the columns participant and group.", hint="Write one participant a line.")
    by_person = {row["participant"]: row["group"] for row in content if row["group"]}
    names = sorted({by_person[person] for person in people if person in by_person})
    if len(names) < 2:
        raise SalmonError(
            f"{path} names fewer than two groups among the people of these answers.",
            hint="The column participant must hold what the column puid of the answers holds.",
        )
    return [names.index(by_person[person]) if person in by_person else 0 for person in people], np.array(
        [person in by_person for person in people]
    )


def _sentence(found: Named) -> str:
    verdict = "see differently" if found.p <= 0.05 else "cannot be told apart"
    return (
        f"The named groups {verdict}: maps of their own predict held-out answers by {found.gain:.4f} nats an answer better than one map;"
        f" of {found.shuffles} shuffles of the names {round(found.p * (found.shuffles + 1)) - 1} gained as much (p = {found.p:.3f})."
    )


def _text(grouping: Grouping, test: AgreementTest | None, table: AnswerTable, people: tuple[str, ...]) -> str:
    from salmon.estimator.groups import agreement, procrustes_agreement

    count = grouping.count
    lines = [
        f"{len(people)} people, {len(table.triplets):,} answers about {table.n} targets.",
        "They fall into one group: maps of their own predict held-out answers no better."
        if count == 1
        else f"They fall into {count} groups.",
        "",
        "groups  held-out loss (nats an answer)  above the best",
    ]
    lowest = grouping.losses.min()
    lines += [
        f"{k:6}  {loss:30.4f}  {loss - lowest:.4f} ± {error:.4f}"
        for k, (loss, error) in enumerate(zip(grouping.losses, grouping.errors, strict=True), 1)
    ]
    if count > 1:
        shares = agreement(grouping.maps)
        lines += ["", "Share of all queries to which the groups' maps give the same answer:"]
        lines += ["  ".join(f"{share:5.1%}" for share in row) for row in shares]
        lines += ["", "Procrustes correlation of the groups' maps:"]
        lines += ["  ".join(f"{one:5.2f}" for one in row) for row in procrustes_agreement(grouping.maps)]
        if test is not None:
            lines += ["", f"How rarely maps differ as much where names are shuffled ({test.shuffles} shuffles), p:"]
            lines += ["  ".join(f"{one:5.3f}" for one in row) for row in test.p]
        for group in range(count):
            members = [person for person, own in zip(people, grouping.of, strict=True) if own == group]
            lines += ["", f"Group {group + 1}, {len(members)} people: {', '.join(members)}"]
    return "\n".join(lines) + "\n"


def _csv(grouping: Grouping, people: tuple[str, ...]) -> bytes:
    kept = io.StringIO(newline="")
    writer = csv.writer(kept, lineterminator="\r\n")
    writer.writerow(["participant", "group"])
    writer.writerows([person, int(group) + 1] for person, group in zip(people, grouping.of, strict=True))
    return kept.getvalue().encode()
