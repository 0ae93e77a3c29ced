"""Whether the efficiency of the sampler survives the living loop: the same eggs, answered over HTTP by ten people."""

import asyncio
from collections.abc import Iterator

import numpy as np

from benchmarks.participants.crowd import Crowd, Diary, log_normal
from benchmarks.participants.hearing import read_store
from salmon.learning import fit
from salmon.noise import PowerTSTE
from salmon.samplers.registry import active_sampler
from salmon.simulate import Judge, egg_world, stream
from tests.program import Program

N = 30
PARTICIPANTS = 10
#: Multiples of n at which accuracy is judged.
LEVELS = (5, 8, 10, 12, 15)


def efficiency(program: Program, runs: int) -> Iterator[str]:
    """Sentences that compare the accuracies of living and offline runs at the same numbers of answers."""
    living = np.array([_living(program, seed) for seed in range(runs)])
    offline = np.array([_offline(seed) for seed in range(2 * runs)])
    for place, level in enumerate(LEVELS):
        here, there = living[:, place], offline[:, place]
        error = float(np.sqrt(here.var(ddof=1) / len(here) + there.var(ddof=1) / len(there)))
        difference = float(here.mean() - there.mean())
        yield (
            f"{level}n answers: {here.mean():.4f} through the living loop ({runs} runs), {there.mean():.4f} offline "
            f"({2 * runs} runs), difference {difference:+.4f} ± {1.96 * error:.4f} (95 %)."
        )


def _living(program: Program, seed: int) -> list[float]:
    slug = f"living-{seed}"
    address = program.launch_text(slug, f"targets: {N}\nhtml: {{max_queries: 0}}\nseed: {seed + 1}\n")
    crowd = Crowd(address, egg_world(N), log_normal(), Diary())
    asyncio.run(crowd.live(PARTICIPANTS, seconds=600, answers_each=LEVELS[-1] * N // PARTICIPANTS + 1))
    record = read_store(program.data, slug, "Adaptive")
    rows = np.array([(a.served.head, a.winner, a.loser) for _, a in record.answers], dtype=np.int32)
    return [_judged(rows[: level * N], seed) for level in LEVELS]


def _offline(seed: int) -> list[float]:
    """The sampler alone, one refit every n answers."""
    world, sampler = egg_world(N), active_sampler("Adaptive")
    questions, answers = stream(seed, "queries"), stream(seed, "answers")
    rows = world.answer(world.random_queries(N, questions), answers)
    state = sampler.start(N, seed)
    while len(rows) < LEVELS[-1] * N:
        state = sampler.refit(state, rows)
        found = sampler.search(state, rows, rows[:0], N)
        rows = np.concatenate([rows, world.answer(found.queries, answers)])
    return [_judged(rows[: level * N], seed) for level in LEVELS]


def _judged(rows: np.ndarray, seed: int) -> float:
    """The accuracy, over all queries, of the embedding that would be reported from these answers."""
    world = egg_world(N)
    found = fit(rows, N, 2, noise=PowerTSTE(k=0.85, lapse=0.07), ridge=0.03, n_starts=4, seed=1000 + seed)
    return Judge.of(world).accuracy(found.coordinates)
