"""Which targets the next trials will probably show: what a page loads ahead when its files are too many to load at once.

A guess costs a file that is loaded for nothing, or one that is loaded a trial later than it could have been; which query
is asked is decided when it is asked, and by nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from frontend import serving
from frontend.catalogue import Experiment, Parsed
from frontend.store import Store
from salmon.records import Query
from salmon.samplers.passive import candidates
from salmon.spec import TargetSpec

#: Trials after the one on the screen whose files are loaded.
TRIALS_AHEAD = 3
#: Up to this, all files are loaded before the first trial.
MOST_FILES = 100
MOST_BYTES = 20_000_000


def loads_ahead(targets: Sequence[TargetSpec]) -> bool:
    """Whether the files are too many, or too large, to wait for all of them."""
    files = {target.media: target.size_bytes for target in targets if target.media}
    return len(files) > MOST_FILES or sum(files.values()) > MOST_BYTES


def position_of(values: Mapping[str, str]) -> int:
    """How many queries of the experiment's order a participant was given; spare ones stand outside of it."""
    return int(values.get("turns", 0)) - int(values.get("spares", 0))


async def upcoming_targets(
    store: Store, experiment: str, parsed: Experiment | Parsed, participant: str, *, after: int, trials: int
) -> list[int]:
    """The targets of so many trials `after` a place in the order, soonest first; none where all files are loaded."""
    if not loads_ahead(parsed.targets):
        return []
    queries: list[Query] = []
    published: dict[str, list[Query]] = {}
    plan, n = parsed.plan, len(parsed.targets)
    for trial in range(after + 1, after + 1 + trials):
        choice = serving.choose_sampler(plan, participant=participant, trial=trial)
        sampler = choice.sampler
        if choice.query is not None:
            queries.append(serving.fixed_query(choice.query))
        elif sampler in parsed.passive:
            turn = serving.turn_of(plan, participant=participant, trial=trial, sampler=sampler)
            drawn = candidates(parsed.passive[sampler], n, participant=participant, turn=turn, seed=plan.seed)
            queries.append(drawn[0])
        else:
            if sampler not in published:
                published[sampler] = await store.participants.peek_queries(experiment, sampler, trials)
            queries += islice(published[sampler], 1)
            del published[sampler][:1]
    return list(dict.fromkeys(target for query in queries for target in (query.head, *query.feet)))
