"""Flag participants by comparing their figures with thresholds and with the group, and propose whom to keep.

A `Verdict` is the proposal, a `Decision` what holds: the experimenter may overrule the proposal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from salmon.quality import thresholds as limit
from salmon.quality.figures import Evidence, Figures, figures_of, outlier_bound

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Flag:
    """Something to look at: its name, and why in a sentence. Not every flag `excludes`: some only inform."""

    name: str
    reason: str
    excludes: bool = True


@dataclass(frozen=True)
class Verdict:
    """The figures of one participant, and the flags raised by them."""

    figures: Figures
    flags: tuple[Flag, ...]

    @property
    def keep(self) -> bool:
        """Whether the participant should be kept: unless a flag excludes them."""
        return not any(flag.excludes for flag in self.flags)

    @property
    def reasons(self) -> str:
        """Return the reasons of all flags, one sentence after the other."""
        return " ".join(flag.reason for flag in self.flags)

    @property
    def exclusion(self) -> str:
        """Return the reasons of the flags that exclude."""
        return " ".join(flag.reason for flag in self.flags if flag.excludes)


@dataclass(frozen=True)
class Decision:
    """Whether to keep a participant: as the experimenter decided, or else as the verdict proposes."""

    verdict: Verdict | None
    manual: str
    note: str
    by: str
    decided_ms: int

    @property
    def keep(self) -> bool:
        """Whether the participant counts."""
        return self.manual == "keep" if self.manual else self.verdict is None or self.verdict.keep

    @property
    def reason(self) -> str:
        """Return why not, in sentences; empty for those who are kept."""
        if self.keep:
            return ""
        if self.manual:
            return f"Excluded by hand: {self.note}" if self.note else "Excluded by hand."
        return self.verdict.exclusion if self.verdict else ""


def judge(
    evidence: Evidence,
    *,
    asked: Mapping[str, int],
    excluded: frozenset[str] = frozenset(),
    coordinates: NDArray[Any] | None = None,
) -> dict[str, Verdict]:
    """Return the verdict on every participant who has answered.

    Those the experimenter has `excluded` are judged like the others, but do not count towards a majority or the group.
    """
    others = evidence.shared_counts(without=excluded)
    figures = {
        participant: figures_of(
            evidence,
            trace,
            asked=asked.get(participant),
            others=others,
            counted=participant not in excluded,
            coordinates=coordinates,
        )
        for participant, trace in evidence.traces.items()
    }
    group = [own for participant, own in figures.items() if participant not in excluded]
    enough = [own for own in group if own.shared_answers >= limit.AGREEMENT_LEAST]
    agreement = outlier_bound([own.agreement for own in enough if own.agreement is not None])
    fit = outlier_bound([own.fit_accuracy for own in group if own.fit_accuracy is not None])
    return {
        participant: Verdict(
            own,
            (
                *_careless_flags(own),
                *_disagreement_flags(own, agreement),
                *_side_flags(own),
                *_informing_flags(own, fit),
            ),
        )
        for participant, own in figures.items()
    }


def _careless_flags(own: Figures) -> Iterator[Flag]:
    """Yield flags of catch trials that were missed and of answers that came too fast."""
    accuracy, time_ms, fast = own.catch_accuracy, own.geometric_mean_rt_ms, own.fast_share
    if accuracy is not None and own.catch_trials >= limit.CATCH_LEAST and accuracy < limit.CATCH_ACCURACY:
        yield Flag(
            "catch",
            f"Right in {_percent(accuracy)} of {own.catch_trials} catch trials, below"
            f" {_percent(limit.CATCH_ACCURACY)}; a guesser does as well with p = {own.catch_p:.2g}.",
        )
    if time_ms is not None and time_ms < limit.GEOMETRIC_MEAN_MS:
        yield Flag("fast", f"Answers in {time_ms:.0f} ms (geometric mean), below {limit.GEOMETRIC_MEAN_MS:.0f} ms.")
    if fast is not None and fast > limit.FAST_SHARE:
        yield Flag(
            "fast_share",
            f"{_percent(fast)} of the answers came within {limit.FAST_MS:.0f} ms, more than {_percent(limit.FAST_SHARE)}.",
        )


def _disagreement_flags(own: Figures, bound: float | None) -> Iterator[Flag]:
    """Yield flags of answers that differ from those of the others, and from the participant's own."""
    agreement, chance = own.agreement, own.agreement_by_chance
    if agreement is not None and chance is not None and own.shared_answers >= limit.AGREEMENT_LEAST:
        said = f"Agrees with the others in {_percent(agreement)} of {own.shared_answers} shared queries"
        if agreement < chance:
            yield Flag("agreement", f"{said}; guessing reaches up to {_percent(chance)}.")
        elif bound is not None and agreement < bound:
            yield Flag("agreement", f"{said}, far below the group (3 MAD below its median is {_percent(bound)}).")
    share = own.repeat_consistency
    if share is not None and own.repeats >= limit.REPEATS_LEAST and share < limit.REPEAT_CONSISTENCY:
        yield Flag(
            "repeats",
            f"Answered {_percent(share)} of {own.repeats} repeated queries as before, below {_percent(limit.REPEAT_CONSISTENCY)}.",
        )


def _side_flags(own: Figures) -> Iterator[Flag]:
    """Yield flags of one side that was chosen too often."""
    if own.side_p is not None and own.left_share is not None and own.side_p < limit.SIDE_P:
        yield Flag(
            "side",
            f"Chose the left side in {_percent(own.left_share)} of the answers (p = {own.side_p:.2g} for a fair coin).",
        )
    if own.longest_run > limit.LONGEST_RUN:
        yield Flag("run", f"Chose the same side {own.longest_run} times in a row, more than {limit.LONGEST_RUN}.")


def _informing_flags(own: Figures, bound: float | None) -> Iterator[Flag]:
    """Yield flags that exclude nobody.

    Somebody may not have finished yet, and the answers given are as good as any; and a person who sees things in
    another way is a finding, not a fault.
    """
    if own.completeness is not None and own.completeness < limit.COMPLETENESS:
        yield Flag(
            "incomplete",
            f"Has answered {own.answers} of {own.asked} queries, less than {_percent(limit.COMPLETENESS)}.",
            excludes=False,
        )
    if own.fit_accuracy is not None and bound is not None and own.fit_accuracy < bound:
        yield Flag(
            "fit",
            f"The group's map predicts {_percent(own.fit_accuracy)} of the answers, far fewer than of others"
            f" (3 MAD below the median is {_percent(bound)}).",
            excludes=False,
        )


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
