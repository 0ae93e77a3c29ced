"""Flag participants by comparing their figures with thresholds and with the group, and propose whom to keep.

A `Verdict` is the proposal, a `Decision` what holds: the experimenter may overrule the proposal.
"""

from __future__ import annotations

from collections.abc import Mapping
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

    @staticmethod
    def of(values: Mapping[str, str], verdict: Verdict | None) -> Decision:
        """Return the decision in the fields of a participant."""
        manual = values.get("keep", "")
        manual = manual if manual in {"keep", "exclude"} else ""
        decided_ms = int(values.get("keep_ms", 0))
        return Decision(verdict, manual, values.get("keep_note", ""), values.get("keep_by", ""), decided_ms)

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
        participant: Verdict(own, tuple(flag for flag in _flags(own, agreement, fit) if flag is not None))
        for participant, own in figures.items()
    }


def _flags(own: Figures, agreement: float | None, fit: float | None) -> tuple[Flag | None, ...]:
    return (
        _missed_catches(own),
        _too_fast(own),
        _fast_answers(own),
        _disagrees(own, agreement),
        _inconsistent(own),
        _leans(own),
        _long_run(own),
        _incomplete(own),
        _fits_badly(own, fit),
    )


def _missed_catches(own: Figures) -> Flag | None:
    if own.catch_accuracy is None or own.catch_trials < limit.CATCH_LEAST or own.catch_accuracy >= limit.CATCH_ACCURACY:
        return None
    return Flag(
        "catch",
        f"Right in {_percent(own.catch_accuracy)} of {own.catch_trials} catch trials, below"
        f" {_percent(limit.CATCH_ACCURACY)}; a guesser does as well with p = {own.catch_p:.2g}.",
    )


def _too_fast(own: Figures) -> Flag | None:
    time_ms = own.geometric_mean_rt_ms
    if time_ms is None or time_ms >= limit.GEOMETRIC_MEAN_MS:
        return None
    return Flag("fast", f"Answers in {time_ms:.0f} ms (geometric mean), below {limit.GEOMETRIC_MEAN_MS:.0f} ms.")


def _fast_answers(own: Figures) -> Flag | None:
    if own.fast_share is None or own.fast_share <= limit.FAST_SHARE:
        return None
    return Flag(
        "fast_share",
        f"{_percent(own.fast_share)} of the answers came within {limit.FAST_MS:.0f} ms, more than {_percent(limit.FAST_SHARE)}.",
    )


def _disagrees(own: Figures, bound: float | None) -> Flag | None:
    if own.agreement is None or own.agreement_by_chance is None or own.shared_answers < limit.AGREEMENT_LEAST:
        return None
    said = f"Agrees with the others in {_percent(own.agreement)} of {own.shared_answers} shared queries"
    if own.agreement < own.agreement_by_chance:
        return Flag("agreement", f"{said}; guessing reaches up to {_percent(own.agreement_by_chance)}.")
    if bound is not None and own.agreement < bound:
        return Flag("agreement", f"{said}, far below the group (3 MAD below its median is {_percent(bound)}).")
    return None


def _inconsistent(own: Figures) -> Flag | None:
    share = own.repeat_consistency
    if share is None or own.repeats < limit.REPEATS_LEAST or share >= limit.REPEAT_CONSISTENCY:
        return None
    return Flag(
        "repeats",
        f"Answered {_percent(share)} of {own.repeats} repeated queries as before, below {_percent(limit.REPEAT_CONSISTENCY)}.",
    )


def _leans(own: Figures) -> Flag | None:
    if own.side_p is None or own.left_share is None or own.side_p >= limit.SIDE_P:
        return None
    return Flag(
        "side",
        f"Chose the left side in {_percent(own.left_share)} of the answers (p = {own.side_p:.2g} for a fair coin).",
    )


def _long_run(own: Figures) -> Flag | None:
    if own.longest_run <= limit.LONGEST_RUN:
        return None
    return Flag("run", f"Chose the same side {own.longest_run} times in a row, more than {limit.LONGEST_RUN}.")


def _incomplete(own: Figures) -> Flag | None:
    """Raise a flag that only informs: somebody may not have finished yet, and the answers given are as good as any."""
    if own.completeness is None or own.completeness >= limit.COMPLETENESS:
        return None
    return Flag(
        "incomplete",
        f"Has answered {own.answers} of {own.asked} queries, less than {_percent(limit.COMPLETENESS)}.",
        excludes=False,
    )


def _fits_badly(own: Figures, bound: float | None) -> Flag | None:
    """Raise a flag that only informs: a person who sees things in another way is a finding, not a fault."""
    if own.fit_accuracy is None or bound is None or own.fit_accuracy >= bound:
        return None
    return Flag(
        "fit",
        f"The group's map predicts {_percent(own.fit_accuracy)} of the answers, far fewer than of others"
        f" (3 MAD below the median is {_percent(bound)}).",
        excludes=False,
    )


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
