"""Which sampler, which query, which side: pure functions of the spec, the participant, the turn and the seed.

`trial` counts from 1 over everything a participant is given, as experimenters count in `sampling.details`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from frontend.catalogue import Plan
from salmon.records import Query, Served


@dataclass(frozen=True)
class Choice:
    """The sampler of one trial, with the probability it had; `query` is set where the experimenter fixed it."""

    sampler: str
    probability: float
    query: tuple[int, int, int] | None = None


def choose_sampler(plan: Plan, *, participant: str, trial: int) -> Choice:
    """The sampler of this trial: the experimenter's, where the spec fixes one, otherwise drawn by `sampling.probs`.

    With `samplers_per_user` k > 0 a participant meets only k samplers, drawn once without replacement by the same
    probabilities.
    """
    for fixed_trial, sampler, query in plan.details:
        if fixed_trial == trial:
            return Choice(sampler, 1.0, query)
    weights = _weights(plan, participant)
    sampler = _draw(weights, _uniform(plan.seed, participant, "sampler", trial))
    return Choice(sampler, weights[sampler] / sum(weights.values()))


def turn_of(plan: Plan, *, participant: str, trial: int, sampler: str) -> int:
    """How often this sampler came before this trial for this participant."""
    earlier = range(1, trial)
    return sum(choose_sampler(plan, participant=participant, trial=k).sampler == sampler for k in earlier)


def place(query: Query, *, participant: str, trial: int, seed: int) -> tuple[int, int]:
    """(left, right): the sides of the feet, a fair coin for every showing."""
    first, second = sorted(query.feet)
    return (first, second) if _uniform(seed, participant, "side", trial) < 0.5 else (second, first)


def serve(
    query: Query,
    choice: Choice,
    *,
    experiment: str,
    revision: int,
    participant: str,
    session: str,
    trial: int,
    seed: int,
    nonce: str,
    now_ms: int,
) -> Served:
    """The query as one participant gets it."""
    left, right = place(query, participant=participant, trial=trial, seed=seed)
    return Served(
        experiment=experiment,
        revision=revision,
        participant=participant,
        session=session,
        trial=trial,
        sampler=choice.sampler,
        head=query.head,
        left=left,
        right=right,
        score=query.score,
        trial_type=query.trial_type,
        probability=query.probability,
        sampler_probability=choice.probability,
        generation=query.generation,
        published_ms=query.published_ms,
        served_ms=now_ms,
        nonce=nonce,
    )


def fixed_query(indices: Sequence[int]) -> Query:
    """The query that the experimenter put at this place."""
    head, first, second = indices
    return Query(head, (first, second), trial_type="fixed", probability=1.0)


def _weights(plan: Plan, participant: str) -> Mapping[str, float]:
    weights = dict(zip(plan.samplers, map(float, plan.probabilities), strict=True))
    if not 0 < plan.samplers_per_user < len(weights):
        return weights
    left = {sampler: weight for sampler, weight in weights.items() if weight > 0}
    own: dict[str, float] = {}
    for draw in range(min(plan.samplers_per_user, len(left))):
        sampler = _draw(left, _uniform(plan.seed, participant, "own", draw))
        own[sampler] = left.pop(sampler)
    return own


def _draw(weights: Mapping[str, float], point: float) -> str:
    """The name at `point` in [0, 1) of the line on which each name is as long as its weight."""
    left = point * sum(weights.values())
    for name, weight in weights.items():
        left -= weight
        if left < 0:
            return name
    return next(name for name in reversed(list(weights)) if weights[name] > 0)  # rounding ate the last crumb


def _uniform(seed: int, participant: str, purpose: str, number: int) -> float:
    """A number in [0, 1) that depends on nothing but its arguments; a hash is 20 times cheaper than a generator."""
    digest = hashlib.blake2b(f"{seed}:{participant}:{purpose}:{number}".encode(), digest_size=7).digest()
    return int.from_bytes(digest) / 2**56
