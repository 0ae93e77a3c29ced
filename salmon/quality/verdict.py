"""Flag participants by all that is known of them together, and propose whom to keep.

A `Verdict` is the proposal, a `Decision` what holds: the experimenter may overrule the proposal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from salmon.quality import thresholds as limit
from salmon.quality.figures import Evidence, Figures, Trace, figures_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from salmon.quality.combined import Hesitation, Sign


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
    tolerate: int | None = None,
) -> dict[str, Verdict]:
    """Return the verdict on every participant who has answered; `coordinates` (n, d) is the newest map of the group.

    Whoever has failed more catch trials than the experimenter wants to `tolerate` is flagged.

    Those the experimenter has `excluded` are judged like the others, but do not count towards a majority or the group.
    """
    # numpy is loaded where somebody is judged: pages that only show verdicts do without.
    from salmon.quality.combined import CarefulGroup, better_than_guessing, combine, fits, hesitations, margins_of

    others = evidence.shared_counts(without=excluded)
    figures = {
        participant: figures_of(
            evidence, trace, asked=asked.get(participant), others=others, counted=participant not in excluded
        )
        for participant, trace in evidence.traces.items()
    }
    group = CarefulGroup([own for participant, own in figures.items() if participant not in excluded])
    answered = margins_of(evidence, coordinates) if coordinates is not None else None
    found = fits(answered, without=excluded) if answered is not None else {}
    hesitation = hesitations(answered) if answered is not None else {}
    verdicts: dict[str, Verdict] = {}
    for participant, own in figures.items():
        fit = found.get(participant)
        told = fit if fit is not None and fit.answers >= limit.FIT_LEAST else None
        signs = group.signs(own, told)
        full = replace(
            own,
            fit_answers=fit.answers if fit else 0,
            fit_accuracy=fit.accuracy if fit else None,
            fit_expected=fit.expected if fit else None,
            guess_p=better_than_guessing(own, told),
            careless_p=combine(signs) if signs else None,
            **_hesitation_figures(hesitation.get(participant)),
        )
        flags = flags_of(full, signs, against_p=told.against_p if told else 1.0)
        verdicts[participant] = Verdict(full, (*_failed_checks(evidence.traces[participant], tolerate), *flags))
    return verdicts


def flags_of(own: Figures, signs: Sequence[Sign], *, against_p: float) -> tuple[Flag, ...]:
    """Return the flags of one participant: each sign that speaks for carelessness where all together do.

    Somebody may not have finished yet, and the answers given are as good as any; and a person who sees things in
    another way is a finding, not a fault: neither excludes anybody.
    """
    flags: list[Flag] = []
    if own.careless_p is not None and own.careless_p < limit.FLAG_P:
        excludes = _excludes(own) and against_p >= limit.AGAINST_P
        flags += [Flag(sign.name, sign.reason, excludes) for sign in signs if sign.p < limit.SIGN_P]
        if against_p < limit.AGAINST_P:
            flags.append(
                Flag(
                    "against",
                    "Answers against the map more often than a guesser would: perhaps the question was understood the other"
                    " way round.",
                    excludes=False,
                )
            )
    if own.completeness is not None and own.completeness < limit.COMPLETENESS:
        flags.append(
            Flag("incomplete", f"Has answered {own.answers} of {own.asked} queries.", excludes=False),
        )
    return tuple(flags)


def _hesitation_figures(known: Hesitation | None) -> dict[str, Any]:
    if known is None:
        return {}
    return {
        "hesitation_answers": known.answers,
        "hesitation": known.correlation,
        "hesitation_low": known.low,
        "hesitation_high": known.high,
    }


def _failed_checks(trace: Trace, tolerate: int | None) -> tuple[Flag, ...]:
    """Return the flag of somebody who has failed too many catch trials; by itself it excludes nobody."""
    failed = trace.catch_trials - trace.catch_right
    if tolerate is None or failed <= tolerate:
        return ()
    reason = f"Failed {failed} of {trace.catch_trials} catch trials; {tolerate} {'is' if tolerate == 1 else 'are'} tolerated."
    return (Flag("checks", reason, excludes=False),)


def _excludes(own: Figures) -> bool:
    """Return whether exclusion is proposed: what is seen is rare among careful people, and guessing explains it."""
    if own.careless_p is None:
        return False
    if own.guess_p is None:
        return own.careless_p < limit.EXCLUDE_BLIND_P
    return own.careless_p < limit.EXCLUDE_P and own.guess_p >= limit.BETTER_P
