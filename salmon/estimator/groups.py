"""Find groups of people who see similarity differently, each with a map of its own beside the map of all.

A group's map is the shared map S and a part of its own: argmin Σ loss of the group's answers + pull/2 · |X − S|². The
pull, the number of groups and who belongs to which are all judged on answers that no fit has seen. Groups are found
without names: the gradients of people's answers at the shared map say in which direction each would move it, and people
who see alike pull alike. From the groups that their first directions give, everybody then joins the group whose map
predicts their answers best, until nobody moves. With names (`Named`), whether they matter is tested by shuffling them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment, minimize

from salmon.errors import SalmonError
from salmon.estimator.cross_validation import answer_losses, grouped_folds
from salmon.estimator.report import Progress, silent
from salmon.geometry import Coordinates, align
from salmon.learning.noise_learning import RECOMMENDED_RIDGE, fit_with_learned_noise
from salmon.learning.objective import Triplets, block_of, check_triplets, loss_and_gradient
from salmon.noise import NoiseModel

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Starts = Sequence[tuple[NDArray[np.bool_], Coordinates]]

#: How strongly a group's map is held to the shared one; the largest leaves it hardly anything of its own.
PULLS = (0.3, 3.0, 30.0)
#: More groups are not looked for.
MOST_GROUPS = 4
#: Whose answers are fewer cannot be placed.
LEAST_ANSWERS = 20
_FOLDS = 5
#: As many standard errors as the best must be ahead of fewer groups: with one, 15 of 100 groups of one kind were split.
_CONVINCING = 2.0
_MOST_MOVES = 20
_STARTS = 4


@dataclass(frozen=True)
class Grouping:
    """Groups of people: `of` (people,) numbers the group of each, `maps` (k, n, d) are
    theirs, laid over the shared `map`.

    `losses` (candidates,) is the held-out loss in nats an answer with 1, 2, … groups, `errors` the standard error of
    what each lies above the best, and `pull` the chosen one.
    """

    of: Ints
    maps: Floats
    map: Coordinates
    noise: NoiseModel
    pull: float
    losses: Floats
    errors: Floats

    @property
    def count(self) -> int:
        """Return the number of groups."""
        return len(self.maps)


@dataclass(frozen=True)
class Named:
    """Whether groups that somebody named see differently: `gain` in held-out nats an answer, and how
    rarely shuffled names gain so much.
    """

    gain: float
    p: float
    shuffles: int


def find_groups(
    triplets: ArrayLike,
    people: ArrayLike,
    n: int,
    d: int = 2,
    *,
    most: int = MOST_GROUPS,
    seed: int = 0,
    progress: Progress = silent,
) -> Grouping:
    """Return the groups that people fall into, given the (m,) number of the person who gave each answer.

    As few groups are chosen as are within two standard errors of the best on held-out
    answers, everybody counting alike.
    """
    search = GroupSearch.begin(triplets, people, n, d, most=most, seed=seed)
    for done, candidate in enumerate(search.candidates):
        progress("judging groups on answers that no fit has seen", len(search.candidates), done)
        search = search.judge(candidate)
    return search.conclude()


@dataclass(frozen=True)
class GroupSearch:
    """A search for groups in small steps: begin, judge each of the `candidates`, conclude.

    A candidate is (number of groups, pull); `judged` holds for those that were judged the
    (people,) held-out loss of each person.
    """

    rows: Triplets
    given_by: Ints
    world: "_World"
    shared: Coordinates
    starts: Starts
    candidates: tuple[tuple[int, float], ...]
    judged: Mapping[tuple[int, float], Floats]

    @classmethod
    def begin(
        cls, triplets: ArrayLike, people: ArrayLike, n: int, d: int, *, most: int = MOST_GROUPS, seed: int = 0
    ) -> "GroupSearch":
        """Fit the shared map, on all answers and on those of each fold; raise
        SalmonError where nobody could be placed.
        """
        rows, given_by = check_triplets(triplets, n), np.asarray(people, dtype=np.int64)
        counts = np.bincount(given_by) if len(rows) else np.zeros(0, dtype=np.int64)
        if (counts >= LEAST_ANSWERS).sum() < 2:
            raise SalmonError(
                f"Groups need at least two people with {LEAST_ANSWERS} answers each.", hint="Wait for more answers."
            )
        shared = fit_with_learned_noise(rows, n, d, seed=seed)
        world = _World(shared.noise, n, d, seed)
        folds = grouped_folds(rows, _FOLDS, np.random.default_rng([seed, len(rows)]))
        candidates = _candidates(len(counts), most)
        starts = world.starts(rows, folds, shared.coordinates)
        return cls(rows, given_by, world, shared.coordinates, starts, candidates, {})

    @property
    def known(self) -> NDArray[np.bool_]:
        """Return (people,) who has given enough answers to be placed."""
        return np.bincount(self.given_by) >= LEAST_ANSWERS

    def judge(self, candidate: tuple[int, float]) -> "GroupSearch":
        """Return the search with the held-out losses of a candidate."""
        found = _judge(self.world, self.rows, self.given_by, self.starts, *candidate)
        return replace(self, judged={**self.judged, candidate: found})

    def conclude(self) -> Grouping:
        """Return the fewest groups that are within two standard errors of the best, everybody counting alike."""
        known = self.known
        means = {pair: found[known].mean() for pair, found in self.judged.items()}
        best = min(means, key=lambda pair: means[pair])
        fewest: list[tuple[float, float]] = []
        chosen = best
        for k in sorted({pair[0] for pair in self.judged}, reverse=True):
            own = min((pair for pair in self.judged if pair[0] == k), key=lambda pair: means[pair])
            behind = (self.judged[own] - self.judged[best])[known]
            error = float(behind.std(ddof=1) / np.sqrt(known.sum())) if own != best else 0.0
            fewest.append((float(means[own]), error))
            if behind.mean() <= _CONVINCING * error:
                chosen = own
        of, maps = self.world.split(self.rows, self.given_by, self.shared, *chosen)
        losses, errors = np.array(fewest[::-1]).T
        laid = np.stack([align(found, self.shared, scale=True).coordinates for found in maps])
        return Grouping(of, laid, self.shared, self.world.noise, chosen[1], losses, errors)

    def test(self, found: Grouping) -> "AgreementTest":
        """Return the permutation test of how far the maps of these groups differ, before its shuffles.

        Whoever forms groups from answers finds some difference between them in the same answers. So the groups are
        formed anew from one half of each person's answers, and their maps are compared on the other half: there the
        names of people who see alike could be shuffled without any difference.
        """
        place = np.zeros(len(self.rows), dtype=np.int64)
        for person in range(int(self.given_by.max()) + 1):
            own = np.flatnonzero(self.given_by == person)
            place[own] = np.arange(len(own))
        first = place % 2 == 0
        names, _ = self.world.split(self.rows[first], self.given_by[first], self.shared, found.count, found.pull)
        names = _renamed(np.concatenate([names, np.zeros(len(found.of) - len(names), dtype=np.int64)]), found.of)
        return AgreementTest.begin(self.world, self.rows[~first], self.given_by[~first], self.shared, names, found.pull)

    def personal_maps(self) -> tuple[Floats, float]:
        """Return (people with enough answers, n, d) the map of each person, held to the shared one
        by a pull that is returned, too.

        The pull is the one whose maps predict the held-out answers of these people best.
        """
        pull = min(PULLS, key=self._personal_loss)
        people = np.flatnonzero(self.known)
        maps = [self.world.towards(self.rows[self.given_by == person], self.shared, pull) for person in people]
        return np.stack(maps), pull

    def _personal_loss(self, pull: float) -> float:
        total = 0.0
        for held, start in self.starts:
            for person in np.flatnonzero(self.known):
                own = self.given_by == person
                found = self.world.towards(self.rows[own & ~held], start, pull)
                total += float(answer_losses(found, self.rows[own & held], self.world.noise).sum())
        return total


def count_candidates(people: int, most: int) -> int:
    """Return how many candidates a search among so many people judges."""
    return len(_candidates(people, most))


@dataclass(frozen=True)
class AgreementTest:
    """Permutation test of how well the maps of groups agree, in as many steps as one likes.

    `seen` (k, k) is the part of each pair's shapes that the best rotation, reflection and stretching leave apart,
    `as_far` (k, k) in how many of the `shuffles` of people's names at least as much was left.
    """

    world: "_World"
    rows: Triplets
    given_by: Ints
    shared: Coordinates
    names: Ints
    pull: float
    seen: Floats
    as_far: Ints
    shuffles: int = 0

    @classmethod
    def begin(
        cls, world: "_World", rows: Triplets, given_by: Ints, shared: Coordinates, names: Ints, pull: float
    ) -> "AgreementTest":
        """Return the test before its first shuffle."""
        count = int(names.max()) + 1
        test = cls(world, rows, given_by, shared, names, pull, np.zeros((0, 0)), np.zeros((count, count), np.int64))
        return replace(test, seen=test.apart(names))

    def apart(self, names: Ints) -> Floats:
        """Return (k, k) what is left apart between the maps of people with these names."""
        count = len(self.as_far)
        maps = [
            self.world.towards(self.rows[names[self.given_by] == group], self.shared, self.pull)
            for group in range(count)
        ]
        return procrustes_residuals(np.stack(maps))

    def shuffle(self, count: int) -> "AgreementTest":
        """Return the test after so many more shuffles."""
        as_far, done = self.as_far.copy(), self.shuffles
        for number in range(done, done + count):
            rng = np.random.default_rng([self.world.seed, number, 17])
            as_far += self.apart(rng.permutation(self.names)) >= self.seen
        return replace(self, as_far=as_far, shuffles=done + count)

    @property
    def p(self) -> Floats:
        """Return (k, k) how rarely shuffled names leave as much apart; 1 on the diagonal."""
        found = (1 + self.as_far) / (1 + self.shuffles)
        np.fill_diagonal(found, 1.0)
        return found


def procrustes_residuals(maps: Floats) -> Floats:
    """Return (k, k) the share of a map's size that stays apart when another is laid over it,
    0 for equal shapes; symmetric.
    """
    return np.array([[align(one, other, scale=True).residual for other in maps] for one in maps]).clip(0.0, 1.0)


def procrustes_agreement(maps: Floats) -> Floats:
    """Return (k, k) the Procrustes correlation √(1 − residual) of each pair of maps: 1 for equal
    shapes, 0 for nothing in common.
    """
    return np.sqrt(1 - procrustes_residuals(maps))


def compare_names(
    triplets: ArrayLike,
    people: ArrayLike,
    groups: Sequence[int],
    n: int,
    d: int = 2,
    *,
    shuffles: int = 99,
    seed: int = 0,
) -> Named:
    """Return whether maps of named groups predict held-out answers better than those of
    groups drawn by shuffling the names.
    """
    rows, given_by = check_triplets(triplets, n), np.asarray(people, dtype=np.int64)
    shared = fit_with_learned_noise(rows, n, d, seed=seed)
    world = _World(shared.noise, n, d, seed)
    folds = grouped_folds(rows, _FOLDS, np.random.default_rng([seed, len(rows)]))
    names, rng = np.asarray(groups, dtype=np.int64), np.random.default_rng([seed, shuffles])
    starts = world.starts(rows, folds, shared.coordinates)

    def loss_of(named: Ints) -> float:
        return _loss_of_names(world, rows, given_by, starts, named)

    alone = float(np.mean(np.concatenate([answer_losses(start, rows[held], world.noise) for held, start in starts])))
    seen = loss_of(names)
    by_chance = [loss_of(rng.permutation(names)) for _ in range(shuffles)]
    return Named(alone - seen, (1 + sum(loss <= seen for loss in by_chance)) / (1 + shuffles), shuffles)


def agreement(maps: Floats) -> Floats:
    """Return (k, k) the share of all queries to which two of k maps give the same answer."""
    signs = [_signs(found) for found in maps]
    return np.array([[float((one == other).mean()) for other in signs] for one in signs])


@dataclass(frozen=True)
class _World:
    """What all fits have in common."""

    noise: NoiseModel
    n: int
    d: int
    seed: int

    def starts(self, rows: Triplets, folds: Ints, shared: Coordinates) -> Starts:
        """Return, for each fold, which answers are held out and the map of all others: groups are
        held to no map that has seen them.
        """
        return [
            (folds == fold, self.towards(rows[folds != fold], shared, RECOMMENDED_RIDGE))
            for fold in range(int(folds.max()) + 1)
        ]

    def towards(self, rows: Triplets, shared: Coordinates, pull: float) -> Coordinates:
        """Return the map of some answers that is held to the shared one."""
        if not len(rows):
            return shared.copy()
        blocks = (block_of(rows),)

        def objective(flat: Floats) -> tuple[float, Floats]:
            own = flat.reshape(self.n, self.d)
            loss, gradient = loss_and_gradient(self.noise, own, blocks)
            apart = own - shared
            return loss + pull / 2 * float((apart**2).sum()), (gradient + pull * apart).ravel()

        found = minimize(objective, shared.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 60})
        return found.x.reshape(self.n, self.d)

    def directions(self, rows: Triplets, given_by: Ints, shared: Coordinates, count: int) -> Floats:
        """Return (people, n·d) the direction in which each person's answers pull the shared map, for one answer."""
        found = np.zeros((count, self.n * self.d))
        for person in range(count):
            own = rows[given_by == person]
            if len(own):
                found[person] = loss_and_gradient(self.noise, shared, (block_of(own),))[1].ravel() / np.sqrt(len(own))
        return found

    def split(self, rows: Triplets, given_by: Ints, shared: Coordinates, k: int, pull: float) -> tuple[Ints, Floats]:
        """Return (the group of each person, the maps of k groups): from several
        beginnings, the one of the least loss.
        """
        count = int(given_by.max()) + 1
        if k == 1:
            return np.zeros(count, dtype=np.int64), shared[None]
        pulls = self.directions(rows, given_by, shared, count)
        best: tuple[float, Ints, Floats] | None = None
        for start in range(_STARTS):
            found = self._settle(
                rows, given_by, shared, _begin(pulls, k, np.random.default_rng([self.seed, k, start])), k, pull
            )
            if best is None or found[0] < best[0]:
                best = found
        assert best is not None  # noqa: S101 - there is at least one start
        return best[1], best[2]

    def _settle(
        self, rows: Triplets, given_by: Ints, shared: Coordinates, of: Ints, k: int, pull: float
    ) -> tuple[float, Ints, Floats]:
        count = len(of)
        maps, total = np.repeat(shared[None], k, axis=0), np.inf
        for _ in range(_MOST_MOVES):
            maps = np.stack([self.towards(rows[of[given_by] == group], shared, pull) for group in range(k)])
            losses = np.stack(
                [np.bincount(given_by, answer_losses(each, rows, self.noise), count) for each in maps], axis=1
            )
            moved = losses.argmin(axis=1)
            total = float(losses.min(axis=1).sum())
            if np.array_equal(moved, of):
                break
            of = moved
        return total, of, maps


def _candidates(people: int, most: int) -> tuple[tuple[int, float], ...]:
    numbers = range(1, max(1, min(most, people // 2)) + 1)
    return tuple((k, pull) for k in numbers for pull in (PULLS if k > 1 else PULLS[:1]))


def _begin(pulls: Floats, k: int, rng: np.random.Generator) -> Ints:
    """Return a first group for each person, by k-means in the first directions in which people differ."""
    centred = pulls - pulls.mean(axis=0)
    left, size, _ = np.linalg.svd(centred, full_matrices=False)
    places = left[:, : max(1, k - 1)] * size[: max(1, k - 1)]
    centres = places[rng.choice(len(places), k, replace=False)]
    of = np.zeros(len(places), dtype=np.int64)
    for _ in range(_MOST_MOVES):
        of = ((places[:, None, :] - centres[None]) ** 2).sum(axis=2).argmin(axis=1)
        centres = np.stack(
            [places[of == group].mean(axis=0) if (of == group).any() else centres[group] for group in range(k)]
        )
    return of


def _judge(world: _World, rows: Triplets, given_by: Ints, starts: Starts, k: int, pull: float) -> Floats:
    """Return (people,) the mean loss of each person's answers, each under maps that have not seen it."""
    count = int(given_by.max()) + 1
    losses = np.zeros(len(rows))
    for held, start in starts:
        of, maps = world.split(rows[~held], given_by[~held], start, k, pull)
        of = np.concatenate([of, np.zeros(max(0, count - len(of)), dtype=np.int64)])
        for group, found in enumerate(maps):
            own = held & (of[given_by] == group)
            losses[own] = answer_losses(found, rows[own], world.noise)
    return np.bincount(given_by, losses, count) / np.maximum(1, np.bincount(given_by, minlength=count))


def _loss_of_names(world: _World, rows: Triplets, given_by: Ints, starts: Starts, names: Ints) -> float:
    """Return the held-out loss of an answer by the maps of named groups; `starts` are
    (held out, the map of the others).
    """
    losses = np.zeros(len(rows))
    for held, start in starts:
        for name in np.unique(names):
            own = names[given_by] == name
            found = world.towards(rows[own & ~held], start, PULLS[1])
            losses[own & held] = answer_losses(found, rows[own & held], world.noise)
    return float(losses.mean())


def _renamed(names: Ints, as_in: Ints) -> Ints:
    """Return names with the numbers that agree best with those of another grouping of the same people."""
    count = int(max(names.max(), as_in.max())) + 1
    shared = np.zeros((count, count), dtype=np.int64)
    np.add.at(shared, (names, as_in), 1)
    _, number = linear_sum_assignment(-shared)
    return number[names]


def _signs(coordinates: Coordinates) -> NDArray[np.bool_]:
    d2 = ((coordinates[:, None, :] - coordinates[None]) ** 2).sum(axis=2)
    return (d2[:, :, None] < d2[:, None, :])[~np.eye(len(d2), dtype=bool)]
