"""Decide where everything on a map stands: which targets are shown as pictures and which as dots, and where labels are.

Nothing on a map covers anything else. A picture that would cover another is moved aside, by a bounded distance, and a
line leads to its true place; where even small pictures do not fit, targets are dots. A label stands beside its mark or,
with a line, a little further away; a label for which there is no room is left out. `arrange` is a pure function of
positions and sizes, in any unit: the console's map, printed files, `OrdinalEmbedding.plot` and `salmon fit` all use it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

#: Up to so many targets in the frame everything is shown if it fits at any size; of more, at most so many labels.
EVERYTHING = 120
#: Of more targets, pictures become dots where fewer labels than this find a place.
ENOUGH_LABELS = 100

# Pictures begin with this share of the frame's area together, and shrink by this factor until they fit.
_FILL = 0.30
_SHRINK = 0.84
# Pictures that would cover more than this share of the frame find no places without overlaps: that is not tried.
_FULL = 0.75
# No picture stands further from its target than this share of the frame's shorter side (or three small pictures).
_FARTHEST_PICTURE = 0.16
# Labels that find no room beside their mark stand at most so many of their heights away, first near ones; of few
# targets, which are all labelled, at any distance.
_REACHES = (5.0, 12.0, 40.0)
# So many places are tried for a label at each distance, and so many points of a line; of many targets, so many labels.
_TRIED, _PROBES, _TRIED_LABELS = 30, 40, 150
# Places that are looked up at once.
_AT_ONCE = 250
# Labels may shrink to this size before pictures become dots.
_FONTS = (1.0, 0.8)
_RELAXATIONS = 36
# Where not all targets fit as pictures, this many are tried, the most spread out, with labels of these sizes.
_SOME_PICTURES = ((60, 1.0), (0, 0.8))
# Pictures do not shrink further once this share of the wanted labels, of few and of many targets, crosses nothing.
_NEARLY_ALL, _MOST = 0.85, 0.5
_CELLS_A_LINE = 8
_DOT_SHARE = 0.1
_MOST_CELLS = 300_000


@dataclass(frozen=True)
class LayoutSizes:
    """The sizes of a map, in the unit of its frame.

    Pictures are as large as there is room for, from `smallest` to `largest` on their longer side. `dot` is the radius
    of a dot, and `gap` the free space around pictures and labels.
    """

    smallest: float
    largest: float
    dot: float
    gap: float


@dataclass(frozen=True)
class MapLayout:
    """Where everything on a map of n targets stands.

    `inside` (n,) says which targets lie in the frame; nothing of the others is shown. `pictures` (n,) are shown as a
    picture, whose longer side is `side`; the others are dots with the radius `dot`. `centres` (n, 2) are the middles of
    pictures and dots: those of moved pictures differ from the targets' positions. `labelled` (n,) have their label in
    the box that begins at `corners` (n, 2) (its smallest x and y) and has its wanted size times `font`. `leaders`
    (n, 4) are lines from mark to label, x0, y0, x1, y1, NaN where the label stands beside its mark.
    """

    inside: Bools
    pictures: Bools
    side: float
    centres: Floats
    labelled: Bools
    corners: Floats
    leaders: Floats
    font: float
    dot: float


def arrange(
    points: Floats, frame: tuple[float, float], pictures: Floats, labels: Floats, sizes: LayoutSizes
) -> MapLayout:
    """Return the layout of targets at `points` (n, 2) in a frame from (0, 0) to `frame`.

    `pictures` (n, 2) are widths and heights with a longer side of 1, and 0 for targets without a picture; `labels`
    (n, 2) the sizes of the texts, 0 for no label. The same input gives the same layout.
    """
    inside: Bools = _fits(points, np.zeros(2), np.array(frame))
    shown = np.flatnonzero(inside)
    found, dot = _Attempt.nothing(len(shown)), sizes.dot
    if len(shown):
        scene = _Scene(points[shown], np.array(frame), pictures[shown], labels[shown], sizes)
        found = max(_attempts(scene), key=lambda attempt: attempt.merit)
        dot = scene.sizes.dot
    return _spread_out(found, inside, points, dot)


@dataclass
class _Scene:
    """What is to be arranged: only targets inside the frame, n of them."""

    points: Floats
    frame: Floats
    pictures: Floats
    labels: Floats
    sizes: LayoutSizes

    def __post_init__(self) -> None:
        self.n = len(self.points)
        self.pictured: Bools = self.pictures.prod(axis=1) > 0
        self.named: Bools = self.labels.prod(axis=1) > 0
        # Many dots are small ones.
        share = _DOT_SHARE * float(np.sqrt(self.frame.prod() / self.n))
        self.sizes = replace(self.sizes, dot=min(self.sizes.dot, share), gap=min(self.sizes.gap, share))
        self.order = _spread_order(self.points)
        # Dots at the very edge are moved inside by their radius.
        self.places = np.clip(self.points, self.sizes.dot, np.maximum(self.sizes.dot, self.frame - self.sizes.dot))
        self.wanted_labels = min(int(self.named.sum()), EVERYTHING if self.n <= EVERYTHING else ENOUGH_LABELS)


@dataclass
class _Attempt:
    """One arrangement, and whether it is the best that can be had."""

    pictures: Bools
    side: float
    centres: Floats
    labelled: Bools
    corners: Floats
    leaders: Floats
    font: float
    merit: tuple[float, ...] = (0.0,)

    @property
    def arrays(self) -> tuple[Bools, Floats, Bools, Floats, Floats]:
        """What has a row for each target."""
        return self.pictures, self.centres, self.labelled, self.corners, self.leaders

    @staticmethod
    def nothing(n: int) -> "_Attempt":
        none, pairs = np.zeros(n, dtype=np.bool_), np.zeros((n, 2))
        return _Attempt(none, 0.0, pairs, none.copy(), pairs.copy(), np.full((n, 4), np.nan), 1.0)


def _attempts(scene: _Scene) -> Iterator[_Attempt]:
    """Yield arrangements from the most generous one, until one shows everything that is wanted."""
    best = None
    for pictures, centres, side, font in _marks_to_try(scene):
        attempt = _place_labels(scene, pictures, centres, side, font)
        yield attempt
        if attempt.labelled.sum() >= scene.wanted_labels:
            return
        if best is None or attempt.labelled.sum() > best.labelled.sum():
            best = attempt
        if attempt.labelled.sum() >= (_MOST if scene.n > EVERYTHING else _NEARLY_ALL) * scene.wanted_labels:
            break
    if best is not None:
        yield _place_labels(scene, best.pictures, best.centres, best.side, best.font, tangled=True)


def _marks_to_try(scene: _Scene) -> Iterator[tuple[Bools, Floats, float, float]]:
    """Yield which targets are pictures, the middles of marks, the side of pictures, and the size of labels."""
    fit = False
    if scene.pictured.any():
        for side, (pictures, centres) in _fitting_pictures(scene, _crowded_first(scene.points)):
            fit = True
            for font in _FONTS if side < 1.3 * scene.sizes.smallest else _FONTS[:1]:
                yield pictures, centres, side, font
    if fit and scene.n <= EVERYTHING:
        return
    side = scene.sizes.smallest
    for count, font in _SOME_PICTURES if scene.pictured.any() else _SOME_PICTURES[1:]:
        some = [index for index in scene.order if scene.pictured[index]][:count]
        wanted = np.zeros(scene.n, dtype=np.bool_)
        wanted[some] = True
        pictures, centres = _place_pictures(scene, side, wanted, some, np.ones(scene.n, dtype=np.bool_))
        yield pictures, centres, side, font


def _fitting_pictures(scene: _Scene, order: Sequence[int]) -> Iterator[tuple[float, tuple[Bools, Floats]]]:
    """Yield sides at which all pictures find a place, the largest first, with what `_place_pictures` returns."""

    def place(side: float) -> tuple[Bools, Floats] | None:
        if (side * scene.pictures[scene.pictured] + scene.sizes.gap).prod(axis=1).sum() > _FULL * scene.frame.prod():
            return None
        found = _place_pictures(scene, side, scene.pictured, order, ~scene.pictured, all_of=True)
        return found if found[0][scene.pictured].all() else None

    sides = _picture_sides(scene)
    if scene.n > EVERYTHING:
        # What fits at one size fits at smaller ones, with few exceptions: of many pictures, few sizes are tried.
        low, high = 0, len(sides) - 1
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if place(sides[middle]) else (middle + 1, high)
        sides = [sides[low], *sides[low + 3 :: 3]]
    for side in sides:
        found = place(side)
        if found is not None:
            yield side, found


def _picture_sides(scene: _Scene) -> list[float]:
    """Return sides of pictures, the largest first."""
    sizes = scene.sizes
    areas = scene.pictures[scene.pictured].prod(axis=1).sum()
    side = min(sizes.largest, float(np.sqrt(_FILL * scene.frame.prod() / areas)))
    sides: list[float] = []
    while side > sizes.smallest:
        sides.append(side)
        side *= _SHRINK
    return [*sides, sizes.smallest]


def _spread_order(points: Floats) -> list[int]:
    """Return all indices such that the first k are spread over the map, for every k: each is the farthest from those
    before it.
    """
    n = len(points)
    distance = ((points - points.mean(axis=0)) ** 2).sum(axis=1)
    order: list[int] = []
    nearest = np.full(n, np.inf)
    following = int(np.argmax(distance))
    for _ in range(n):
        order.append(following)
        nearest = np.minimum(nearest, ((points - points[following]) ** 2).sum(axis=1))
        nearest[following] = -1.0
        following = int(np.argmax(nearest))
    return order


def _place_pictures(
    scene: _Scene, side: float, wanted: Bools, order: Sequence[int], dots: Bools, *, all_of: bool = False
) -> tuple[Bools, Floats]:
    """Return which of the wanted pictures find a place, and the middles (n, 2) of all marks.

    First all are pushed apart together, which keeps neighbours neighbours; then each takes the free place nearest to
    where it was pushed. `dots` (n,) are the targets that stay dots unless they become a picture. With `all_of`
    nothing else is placed once a picture has found no place.
    """
    sizes, n = scene.sizes, scene.n
    boxes = side * scene.pictures + sizes.gap
    farthest = max(_FARTHEST_PICTURE * float(scene.frame.min()), 1.2 * side, 3 * sizes.smallest)
    centres = scene.places.copy()
    pushed = _push_apart(scene.points, boxes, wanted, scene.frame, farthest)
    found = np.zeros(n, dtype=np.bool_)
    # Every picture may stand where no other does, in a grid of the places that its middle may take: pictures count as
    # equally large, so that one grid serves them all.
    half = boxes[wanted].max(axis=0, initial=0.0) / 2
    taken = _Grid(scene.frame, side / 8)
    directions, radii = _rings(side / 4, farthest)
    offsets = np.concatenate([np.zeros((1, 2)), directions * radii[:, None]])
    around, room = half + sizes.dot, np.maximum(half, scene.frame - half)
    for index in np.flatnonzero(dots):
        taken.count(scene.places[index], around, 1)
    for index in order:
        if not wanted[index]:
            continue
        if dots[index]:
            taken.count(scene.places[index], around, -1)
        candidates = np.clip(pushed[index] + offsets, half, room)
        near = np.hypot(*(candidates - scene.points[index]).T) <= farthest + 1e-9
        free = near & (taken.at(candidates) == 0)
        if free.any():
            centres[index] = candidates[int(np.argmax(free))]
            found[index] = True
            taken.count(centres[index], 2 * half, 1)
        elif all_of:
            break
        elif dots[index]:
            taken.count(scene.places[index], around, 1)
    return found, centres


def _push_apart(points: Floats, boxes: Floats, wanted: Bools, frame: Floats, farthest: float) -> Floats:
    """Return (n, 2) middles of the wanted boxes (n, 2) after pushing overlapping ones apart, at most `farthest` from
    `points`.
    """
    middles = points.copy()
    chosen = np.flatnonzero(wanted)
    first = second = np.zeros(0, dtype=np.intp)
    # Targets at one place are pushed apart in different directions.
    angles = 2.399963 * np.arange(len(points))
    nudges = np.column_stack([np.cos(angles), np.sin(angles)])
    half = boxes / 2
    reach = 1.6 * boxes[chosen].max(initial=0.0)
    for step in range(_RELAXATIONS):
        if step % 12 == 0:
            first, second = (chosen[side] for side in _near_pairs(middles[chosen], reach))
        across, down = (middles[second, axis] - middles[first, axis] for axis in (0, 1))
        in_x = half[first, 0] + half[second, 0] - np.abs(across)
        in_y = half[first, 1] + half[second, 1] - np.abs(down)
        touching = np.flatnonzero((in_x > 0) & (in_y > 0))
        if not len(touching):
            break
        a, b = first[touching], second[touching]
        difference = np.column_stack([across[touching], down[touching]])
        overlap = np.column_stack([in_x[touching], in_y[touching]])
        same = np.abs(difference).sum(axis=1) < 1e-9
        difference[same] = (nudges[b] - nudges[a])[same]
        rows, along = np.arange(len(a)), (overlap[:, 1] < overlap[:, 0]).astype(np.intp)
        push = np.zeros_like(difference)
        direction = np.sign(difference[rows, along])
        push[rows, along] = 0.35 * overlap[rows, along] * np.where(direction == 0, 1, direction)
        for axis in (0, 1):
            middles[:, axis] += np.bincount(b, push[:, axis], len(points)) - np.bincount(a, push[:, axis], len(points))
        moved = middles - points
        length = np.hypot(moved[:, 0], moved[:, 1])
        far = length > farthest
        middles[far] = points[far] + moved[far] * (farthest / length[far])[:, None]
        middles = np.clip(middles, half, np.maximum(half, frame - half))
    return middles


def _near_pairs(points: Floats, reach: float) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the pairs of points whose coordinates differ by less than `reach`, as two arrays of indices."""
    order = np.argsort(points[:, 0], kind="stable")
    x = points[order, 0]
    # In the order of x, the partners of a point follow it without a gap.
    counts = np.maximum(np.searchsorted(x, x + reach) - np.arange(len(x)) - 1, 0)
    first = np.repeat(np.arange(len(x)), counts)
    second = first + 1 + np.arange(len(first)) - np.repeat(np.cumsum(counts) - counts, counts)
    first, second = order[first], order[second]
    near = np.abs(points[first, 1] - points[second, 1]) < reach
    return np.minimum(first, second)[near], np.maximum(first, second)[near]


def _place_labels(
    scene: _Scene, pictures: Bools, centres: Floats, side: float, font: float, *, tangled: bool = False
) -> _Attempt:
    """Return the arrangement with labels: beside their marks where there is room, then further away with a line.

    Lines cross nothing but dots. Where they may be `tangled`, labels that are still missing get lines that cross as few
    labels, lines and pictures as possible.
    """
    everything = scene.n <= EVERYTHING
    order = [index for index in (_crowded_first(centres) if everything else scene.order) if scene.named[index]]
    labels = _Labels(scene, pictures, centres, side, font * scene.labels)
    labels.place_beside(order)
    longest = float(np.hypot(*scene.frame))
    reaches = [min(reach * labels.line_height + side, longest) for reach in _REACHES]
    if everything:
        for begin, end in pairwise([0.0, *reaches, longest]):
            labels.place_away(order, begin, end, most=EVERYTHING)
    else:
        # Of many, those near free places come first: their lines are short and seldom in the way of others.
        labels.place_away(labels.nearest_to_free_places(reaches[-1]), 0.0, reaches[-1], most=EVERYTHING)
    if tangled:
        order = order if everything else labels.nearest_to_free_places(reaches[-1])
        labels.place_away(order, 0.0, longest, most=scene.wanted_labels, tangled=True)
    placed = labels.placed
    merit = (float(min(placed.sum(), scene.wanted_labels)), float(pictures.sum()), float(placed.sum()), font)
    return _Attempt(pictures, side, centres, placed, labels.corners, labels.leaders, font, merit)


class _Labels:
    """Labels while they are placed, and what stands in their way: marks in a grid, placed labels and lines in lists."""

    def __init__(self, scene: _Scene, pictures: Bools, centres: Floats, side: float, texts: Floats) -> None:
        n, sizes = scene.n, scene.sizes
        self._scene, self._pictures, self._centres, self._texts = scene, pictures, centres, texts
        self._marks = np.where(pictures[:, None], side * scene.pictures, 2 * sizes.dot) / 2
        self.line_height = float(np.median(texts[scene.named, 1])) if scene.named.any() else 1.0
        self._gap = sizes.gap / 4
        self.placed = np.zeros(n, dtype=np.bool_)
        self.corners, self.leaders = np.zeros((n, 2)), np.full((n, 4), np.nan)
        # The first is for labels, which cover nothing, the second for lines, which may cross dots.
        self._covered, self._crossed = (_Grid(scene.frame, self.line_height / _CELLS_A_LINE) for _ in range(2))
        for index in range(n):
            for grid in (self._covered, self._crossed) if pictures[index] else (self._covered,):
                grid.count(centres[index], self._marks[index] + self._gap, 1)
        self._boxes, self._lines = _Rows(n), _Rows(n)

    def place_beside(self, order: Sequence[int]) -> None:
        """Place labels beside their marks where nothing else is."""
        # A label keeps clear of the cells of its own mark.
        apart = self._marks + self._gap + 1.01 * self._covered.cell
        for pictured in (True, False):
            own = np.flatnonzero(self._scene.named & (self._pictures == pictured))
            places = self._centres[own, None] + _beside(apart[own], self._texts[own], pictured=pictured)
            half = self._texts[own, None] / 2
            free = self._covered.are_free(places, half) & _fits(places, half, self._scene.frame)
            choices = {int(index): places[row][free[row]] for row, index in enumerate(own)}
            for index in order:
                if len(candidates := choices.get(index, ())):
                    open_to = ~self._boxes.touched(candidates, self._texts[index] / 2)
                    if open_to.any():
                        self._take(index, candidates[int(np.argmax(open_to))])

    def nearest_to_free_places(self, end: float) -> list[int]:
        """Return those whose label has no place yet and could have one up to a distance, the nearest to it first."""
        own = np.flatnonzero(self._scene.named & ~self.placed)
        shifts, radii = self._around(0.0, end)
        every = max(1, len(shifts) // (4 * _TRIED))
        shifts, radii = shifts[::every], radii[::every]
        middles, half = self._centres[own, None] + shifts, self._texts[own, None] / 2
        free = self._covered.are_free(middles, half) & _fits(middles, half, self._scene.frame)
        distance = np.where(free.any(axis=1), radii[np.argmax(free, axis=1)], np.inf)
        found = np.argsort(distance, kind="stable")[: int(np.isfinite(distance).sum())]
        return [int(own[place]) for place in found[:_TRIED_LABELS]]

    def place_away(self, order: Sequence[int], begin: float, end: float, *, most: int, tangled: bool = False) -> None:
        """Place labels from `begin` to `end` away from their marks and draw lines, until `most` labels are placed."""
        shifts, radii = self._around(begin, end)
        outwards = shifts / radii[:, None]
        for index in order:
            if self.placed.sum() >= most:
                return
            if self.placed[index] or not len(middles := self._free_places(index, shifts, outwards)):
                continue
            half = self._texts[index] / 2
            ends = np.clip(self._centres[index], middles - half, middles + half)
            crossed = self._crossings(index, middles, ends)
            chosen = int(np.argmin(crossed))
            if tangled or crossed[chosen] == 0:
                self._take(index, middles[chosen])
                self.leaders[index] = (*self._centres[index], *ends[chosen])
                self._lines.add(self.leaders[index])

    def _free_places(self, index: int, shifts: Floats, outwards: Floats) -> Floats:
        """Return middles (k, 2) of places for a label, the nearest first, where no mark and no other label is."""
        half, found = self._texts[index] / 2, np.zeros((0, 2))
        for begin in range(0, len(shifts), _AT_ONCE):
            some = slice(begin, begin + _AT_ONCE)
            middles = self._centres[index] + shifts[some] + self._marks[index].max() * outwards[some]
            middles = middles[_fits(middles, half, self._scene.frame)]
            middles = middles[self._covered.are_free(middles, half)]
            middles = middles[~self._boxes.touched(middles, half)]
            found = np.concatenate([found, middles])
            if len(found) >= _TRIED:
                break
        return found[:_TRIED]

    def _around(self, begin: float, end: float) -> tuple[Floats, Floats]:
        """Return shifts (k, 2) of labels at a distance, the nearest first, and the distances (k,)."""
        directions, radii = _rings(0.8 * self.line_height, end)
        return (radii[:, None] * directions)[radii >= begin], radii[radii >= begin]

    def _crossings(self, index: int, middles: Floats, ends: Floats) -> NDArray[np.intp]:
        """Return how often labels at `middles` (k, 2) with lines to `ends` cross labels, lines and pictures."""
        centre, half = self._centres[index], self._texts[index] / 2
        probes = centre + np.linspace(0, 1, _PROBES)[None, 1:-1, None] * (ends - centre)[:, None]
        away = np.abs(probes - centre) > self._marks[index] + self._gap + self._crossed.cell
        crossed = ((self._crossed.at(probes) > 0) & (away[..., 0] | away[..., 1])).sum(axis=1)
        lines = np.hstack([np.broadcast_to(centre, ends.shape), ends])
        boxes, others = self._boxes.rows, self._lines.rows
        crossed += 3 * _cross_boxes(lines, boxes[:, :2], boxes[:, 2:]).sum(axis=1)
        crossed += 3 * _cross_boxes(others, middles - half, middles + half).sum(axis=0)
        return crossed + _cross_lines(lines, others).sum(axis=1)

    def _take(self, index: int, middle: Floats) -> None:
        half = self._texts[index] / 2
        self.placed[index] = True
        self.corners[index] = middle - half
        self._boxes.add(np.concatenate([middle - half - self._gap, middle + half + self._gap]))


class _Rows:
    """Up to n boxes or lines x0, y0, x1, y1."""

    def __init__(self, n: int) -> None:
        self._all, self._used = np.empty((n, 4)), 0

    @property
    def rows(self) -> Floats:
        """Those that were added, (m, 4)."""
        return self._all[: self._used]

    def add(self, row: Floats) -> None:
        """Add one."""
        self._all[self._used] = row
        self._used += 1

    def touched(self, middles: Floats, half: Floats) -> Bools:
        """Return for boxes of half the size `half` around `middles` (k, 2) whether they overlap one of these boxes."""
        x0, y0, x1, y1 = self.rows.T
        x, y = middles[:, :1], middles[:, 1:]
        return ((x + half[0] > x0) & (x - half[0] < x1) & (y + half[1] > y0) & (y - half[1] < y1)).any(axis=1)


def _cross_boxes(lines: Floats, low: Floats, high: Floats) -> Bools:
    """Return (k, m) whether lines (k, 4) pass through boxes from `low` to `high` (m, 2)."""
    start, step = lines[:, None, :2], lines[:, None, 2:] - lines[:, None, :2]
    step = np.where(np.abs(step) < 1e-9, 1e-9, step)
    one, other = (low - start) / step, (high - start) / step
    enter, leave = np.minimum(one, other), np.maximum(one, other)
    enters = np.maximum(np.maximum(enter[..., 0], enter[..., 1]), 0.0)
    leaves = np.minimum(np.minimum(leave[..., 0], leave[..., 1]), 1.0)
    return enters < leaves


def _cross_lines(lines: Floats, others: Floats) -> Bools:
    """Return (k, m) whether lines (k, 4) cross others (m, 4)."""
    a, b = lines[:, None, :2], lines[:, None, 2:]
    c, d = others[None, :, :2], others[None, :, 2:]

    def side(p: Floats, q: Floats, r: Floats) -> Floats:
        return (q[..., 0] - p[..., 0]) * (r[..., 1] - p[..., 1]) - (q[..., 1] - p[..., 1]) * (r[..., 0] - p[..., 0])

    return (side(a, b, c) * side(a, b, d) < 0) & (side(c, d, a) * side(c, d, b) < 0)


def _crowded_first(centres: Floats) -> list[int]:
    """Return all indices, those with the nearest neighbours first: they have the fewest places to choose from."""
    squares = (centres**2).sum(axis=1)
    distances = np.maximum(squares[:, None] + squares[None] - 2 * centres @ centres.T, 0.0)
    np.fill_diagonal(distances, np.inf)
    count = min(4, len(centres))
    nearest = np.partition(distances, count - 1, axis=1)[:, :count]
    return [int(index) for index in np.argsort(nearest.mean(axis=1), kind="stable")]


def _beside(mark: Floats, text: Floats, *, pictured: bool) -> Floats:
    """Return (m, k, 2) shifts of labels beside marks (m, 2): first below a picture, right of a dot."""
    zero = np.zeros(len(mark))
    (across, up), (slide, climb) = (mark + text / 2).T, (mark - text / 2).T
    quarter = text[:, 0] / 4
    below = [(zero, up), (quarter, up), (-quarter, up), (slide, up), (-slide, up)]
    above = [(x, -y) for x, y in below]
    right = [(across, zero), (across, climb), (across, -climb)]
    left = [(-x, y) for x, y in right]
    corners = [(x, y) for y in (up, -up) for x in (across - mark[:, 0], -across + mark[:, 0])]
    corners += [(x, y) for y in (up, -up) for x in (across, -across)]
    shifts = [*below, *above, *right, *left] if pictured else [*right[:1], *left[:1], *above, *below]
    return np.array([*shifts, *corners]).transpose(2, 0, 1)


def _fits(middles: Floats, half: Floats, frame: Floats) -> Bools:
    x, y = middles[..., 0], middles[..., 1]
    return (x >= half[..., 0]) & (y >= half[..., 1]) & (x <= frame[0] - half[..., 0]) & (y <= frame[1] - half[..., 1])


def _rings(step: float, farthest: float) -> tuple[Floats, Floats]:
    """Return directions (k, 2) of length 1 and distances (k,) of places on circles, the nearest first."""
    radii: Floats = step * np.arange(1, max(2, int(farthest / step) + 1), dtype=np.float64)
    counts = np.minimum(6 * np.arange(1, len(radii) + 1), 36)
    ring = np.repeat(np.arange(len(radii)), counts)
    place = np.arange(len(ring)) - np.repeat(np.cumsum(counts) - counts, counts)
    # Every second ring is turned by half a place.
    angles = 2 * np.pi * (place + 0.5 * ((ring + 1) % 2)) / counts[ring]
    return np.array([np.cos(angles), np.sin(angles)]).T, radii[ring]


class _Grid:
    """The frame in small square cells, in each of which boxes are counted.

    What is counted and what is looked up are rounded outwards, so two boxes never overlap by a part of a cell.
    """

    def __init__(self, frame: Floats, cell: float) -> None:
        # Huge frames get no more cells than a screen has pixels.
        self.cell = max(cell, float(np.sqrt(frame.prod() / _MOST_CELLS)))
        self._shape = np.ceil(frame / self.cell).astype(np.intp) + 1
        self._cells = np.zeros((int(self._shape[1]), int(self._shape[0])), dtype=np.int16)
        # Sums over all cells above and to the left, from which a box is counted at once; made when they are needed.
        self._sums: NDArray[np.int32] | None = None

    def count(self, middle: Floats, half: Floats, change: int) -> None:
        """Add to every cell of a box."""
        self._cells[self._box(middle, half)] += change
        self._sums = None

    def are_free(self, middles: Floats, half: Floats) -> Bools:
        """Return whether nothing is in boxes of half the size `half` (..., 2) around `middles` (..., 2)."""
        if self._sums is None:
            rows, columns = self._cells.shape
            self._sums = np.zeros((rows + 1, columns + 1), dtype=np.int32)
            np.cumsum(np.cumsum(self._cells != 0, axis=0, dtype=np.int32), axis=1, out=self._sums[1:, 1:])
        low = np.maximum((middles - half) / self.cell, 0).astype(np.intp)
        high = np.maximum(np.ceil((middles + half) / self.cell), 0).astype(np.intp)
        low, high = np.minimum(low, self._shape), np.minimum(high, self._shape)
        left, top, right, bottom = low[..., 0], low[..., 1], high[..., 0], high[..., 1]
        sums = self._sums
        return sums[bottom, right] - sums[top, right] - sums[bottom, left] + sums[top, left] == 0

    def at(self, points: Floats) -> NDArray[np.int16]:
        """Return what is noted at points (..., 2)."""
        cells = np.clip((points / self.cell).astype(np.intp), 0, self._shape - 1)
        return self._cells[cells[..., 1], cells[..., 0]]

    def _box(self, middle: Floats, half: Floats) -> tuple[slice, slice]:
        x0, y0 = (max(0, int((m - h) // self.cell)) for m, h in zip(middle, half, strict=True))
        x1, y1 = (max(0, int(-((m + h) // -self.cell))) for m, h in zip(middle, half, strict=True))
        return slice(y0, y1), slice(x0, x1)


def _spread_out(found: _Attempt, inside: Bools, points: Floats, dot: float) -> MapLayout:
    """Return the layout of all targets from the arrangement of those inside the frame."""
    whole = _Attempt.nothing(len(inside))
    whole.centres[:], whole.corners[:] = points, np.nan
    for all_of, some in zip(whole.arrays, found.arrays, strict=True):
        all_of[inside] = some
    pictures, centres, labelled, corners, leaders = whole.arrays
    return MapLayout(inside, pictures, found.side, centres, labelled, corners, leaders, found.font, dot)
