"""Write answers in the forms of other programs: tripletTools (R), cblearn and PsiZ (Python)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from salmon.export.responses import TargetNames
from salmon.export.table import Row, Table, columns, dimensions
from salmon.export.targets_models import Generation
from salmon.records import DRAWN_BLINDLY, NEVER_FITTED, Answer

_EXCLUDED = columns("truth", excluded="whether the participant is left out of analyses; see responses")

TRIPLETTOOLS_TRIPLETS = Table(
    "triplettools_triplets",
    "an answer in the form of the R package tripletTools; targets are numbered in the alphabetical order of their labels",
    (
        *columns(
            "integer", head="number of the head's label", winner="number of the winner's", loser="number of the loser's"
        ),
        *columns("written", worker_id="the participant"),
        *columns("number", rt="response time in milliseconds"),
        *columns(
            "text",
            Center="label of the head: its file name without the extension",
            Left="label of the left target",
            Right="label of the right target",
            Answer="label of the winner",
            sampleAlg="random, validation, check (catch trials) or adaptive",
            sampleSet="train or test; empty for check",
        ),
        *_EXCLUDED,
    ),
)

CBLEARN = Table(
    "cblearn",
    "an answer that may be fitted (no practice trial and no check); triplets are [head, winner, loser], which cblearn calls list-order",
    (
        *columns("integer", head="index of the head", winner="index of the winner", loser="index of the loser"),
        *columns("integer", left="index of the left target", right="index of the right target"),
        *columns(
            "truth",
            response="whether the left target was judged nearer: with [head, left, right] what cblearn calls list-boolean",
            random="whether the query was drawn at random, so that accuracy on it is unbiased",
        ),
        *columns("text", participant="the participant"),
        *_EXCLUDED,
    ),
)

PSIZ = Table(
    "psiz",
    "an answer that may be fitted, as a 2-rank-1 trial of PsiZ; stimuli are numbered from 1, because PsiZ keeps 0 for a mask",
    (
        *columns(
            "integer",
            query="index of the head + 1",
            selected="index of the winner + 1",
            rejected="index of the loser + 1",
            outcome="always 0: the selected reference stands first",
        ),
        *columns("text", participant="the participant"),
        *columns("number", rt_ms="response time in milliseconds"),
        *_EXCLUDED,
    ),
)

#: Arrays of two dimensions that an .npz holds beside the columns: name -> the columns side by side.
STACKS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "cblearn": {"triplets": ("head", "winner", "loser"), "queries": ("head", "left", "right")},
    "psiz": {"stimulus_set": ("query", "selected", "rejected")},
}

_ALGORITHMS = {
    "catch": "check",
    "validation": "validation",
    "shared": "validation",
    "fixed": "validation",
    "random": "random",
    "fallback": "random",
    "held_out": "random",
    "practice": "check",
}


def triplettools_embeddings_table(d: int) -> Table:
    """Return the table of the newest embeddings in the form of tripletTools."""
    return Table(
        "triplettools_embeddings",
        "a target in one sampler's embedding",
        (
            *dimensions([f"dim_{k}" for k in range(d)], "coordinate"),
            *columns("text", item="label of the target", sampler="name of the sampler"),
        ),
    )


@dataclass(frozen=True)
class Labels:
    """(n,) labels of targets as tripletTools has them, and each one's number in alphabetical order."""

    names: tuple[str, ...]
    numbers: tuple[int, ...]

    @staticmethod
    def of(targets: Sequence[TargetNames]) -> "Labels":
        """Return labels without folder and extension, or with them if they would not be unique."""
        bare = [re.sub(r"\.[A-Za-z]\w{1,4}$", "", target.filename.rsplit("/", 1)[-1]) for target in targets]
        names = bare if len(set(bare)) == len(bare) else [target.filename for target in targets]
        if len(set(names)) < len(names):
            names = [f"{name} ({index})" for index, name in enumerate(names)]
        place = {name: number for number, name in enumerate(sorted(names))}
        return Labels(tuple(names), tuple(place[name] for name in names))


@dataclass(frozen=True)
class Translator:
    """Translates answers to rows of other programs. `tests` are the samplers whose answers are never fitted."""

    labels: Labels
    puids: Mapping[str, str]
    excluded: Mapping[str, str]
    tests: frozenset[str] = frozenset()

    def triplettools(self, answer: Answer) -> Row | None:
        """Return a row of tripletTools' triplets; None for a query's second showing,
        which that program does not know.
        """
        if answer.served.trial_type == "repeat":
            return None
        served, number, label = answer.served, self.labels.numbers, self.labels.names
        algorithm = _ALGORITHMS.get(served.trial_type, "adaptive")
        held_out = algorithm == "validation" or served.sampler in self.tests
        return [
            number[served.head],
            number[answer.winner],
            number[answer.loser],
            self.puids.get(served.participant, served.participant),
            answer.timing.rt_ms if answer.timing.rt_ms >= 0 else None,
            label[served.head],
            label[served.left],
            label[served.right],
            label[answer.winner],
            algorithm,
            "" if algorithm == "check" else "test" if held_out else "train",
            served.participant in self.excluded,
        ]

    def cblearn(self, answer: Answer) -> Row | None:
        """Return a row for cblearn; None if the answer is no triplet."""
        served = answer.served
        if served.trial_type in NEVER_FITTED:
            return None
        return [
            served.head,
            answer.winner,
            answer.loser,
            served.left,
            served.right,
            answer.winner == served.left,
            served.trial_type in DRAWN_BLINDLY,
            served.participant,
            served.participant in self.excluded,
        ]

    def psiz(self, answer: Answer) -> Row | None:
        """Return a row for PsiZ; None if the answer is no triplet."""
        served = answer.served
        if served.trial_type in NEVER_FITTED:
            return None
        return [
            served.head + 1,
            answer.winner + 1,
            answer.loser + 1,
            0,
            served.participant,
            answer.timing.rt_ms if answer.timing.rt_ms >= 0 else None,
            served.participant in self.excluded,
        ]


def triplettools_embedding_rows(generation: Generation, labels: Labels, d: int) -> Iterator[Row]:
    """Return one sampler's embedding in the form of tripletTools."""
    if generation.coordinates is None:
        return
    for label, point in zip(labels.names, generation.coordinates.tolist(), strict=False):
        yield [*point, *([None] * (d - len(point))), label, generation.sampler]
