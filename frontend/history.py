"""The history of a sampler for figures and the map: thinned, and aligned so that the map does not turn.

A history only grows, so this process reads each line once and keeps what it needs of it. Another web process comes to
the same result: it depends on the history alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from frontend.store import Store
from frontend.store.models import HELD_OUT, HeldOutAccuracy, HistoryLine
from salmon.wire import decode_array

if TYPE_CHECKING:
    # numpy is loaded with the first map that somebody looks at: pages of participants do without.
    import numpy as np
    from numpy.typing import NDArray

    from salmon.learning_curve import Look, Outlook

    Coordinates = NDArray[np.float64]

#: A line is kept for figures when the answers have grown by this factor since the last one that was.
THINNING = 1.02


@dataclass
class SamplerHistory:
    """History of one sampler: `points` for figures, `maps` are the lines that hold
    coordinates, `last` is the newest.

    `erasures` is how often answers had been removed from the experiment when it was read: each time the history begins
    again.
    """

    erasures: int = 0
    points: list[HistoryLine] = field(default_factory=list[HistoryLine])
    maps: list[HistoryLine] = field(default_factory=list[HistoryLine])
    last: HistoryLine | None = None
    aligned: dict[str, Any] = field(default_factory=dict[str, Any])
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    _outlook: tuple[str, Outlook | None] = ("", None)
    _look: tuple[tuple[str, float, int], Look | None] = (("", 0.0, 0), None)

    def add(self, line: HistoryLine) -> None:
        """Take the next generation."""
        self.last = line
        absorbed = line.numbers.get("absorbed", 0)
        if not self.points or absorbed >= THINNING * self.points[-1].numbers.get("absorbed", 0):
            self.points.append(line)
        if line.has_coordinates:
            self.maps.append(line)

    def thinned(self) -> list[HistoryLine]:
        """Return the lines of figures: the thinned ones and the newest."""
        newest = [self.last] if self.last is not None and self.last is not self.points[-1] else []
        return [*self.points, *newest]

    def outlook(self, n: int, d: int, *, worth: float) -> Outlook | None:
        """Return what further answers would bring, computed once for each generation."""
        if self.last is None:
            return None
        if self._outlook[0] != self.last.stream_id:
            from salmon.learning_curve import outlook

            self._outlook = (self.last.stream_id, outlook(self._predictions(), n=n, d=d, worth=worth))
        return self._outlook[1]

    def last_look(self, n: int, d: int, *, worth: float, per: int) -> Look | None:
        """Return the last look of a stopping rule, computed once for each generation."""
        if self.last is None:
            return None
        key = (self.last.stream_id, worth, per)
        if self._look[0] != key:
            from salmon.learning_curve import last_look

            self._look = (key, last_look(self._predictions(), n=n, d=d, worth=worth, per=per))
        return self._look[1]

    @property
    def predicted(self) -> float:
        """How many answers to random queries were predicted."""
        return self.last.numbers.get("held_total", 0.0) if self.last is not None else 0.0

    def _predictions(self) -> list[tuple[float, float, float]]:
        """Return (answers seen, right predictions, predictions) of each line."""
        lines = [line.numbers for line in self.thinned()]
        return [(each.get("absorbed", 0.0), each.get("held_right", 0.0), each.get("held_total", 0.0)) for each in lines]


@dataclass(frozen=True)
class MapEmbedding:
    """An embedding as it is drawn: `coordinates` (n, d) in the frame of the map, `spread` (n, d, d) or None."""

    coordinates: Coordinates
    spread: Coordinates | None
    numbers: Mapping[str, float]


class Histories:
    """The histories of all experiments that somebody has looked at in this process."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[tuple[str, str], SamplerHistory] = {}

    async def read(self, experiment: str, sampler: str) -> SamplerHistory:
        """Return a sampler's history up to now."""
        erasures = await self._store.models.count_erasures(experiment)
        known = self._known.get((experiment, sampler))
        if known is None or known.erasures < erasures:
            known = self._known[experiment, sampler] = SamplerHistory(erasures)
        async with known.reading:
            after = known.last.stream_id if known.last else "0"
            async for stream_id, model in self._store.models.read_history(experiment, sampler, after=after):
                known.add(HistoryLine.of(stream_id, model))
        return known

    async def last_look(
        self, experiment: str, dimensions: Mapping[str, int], *, n: int, worth: float, per: int
    ) -> Look | None:
        """Return the last look of a stopping rule, at the sampler whose map has predicted most.

        `dimensions` are those of each sampler that fits a map.
        """
        found = [(d, await self.read(experiment, name)) for name, d in dimensions.items()]
        d, history = max(found, key=lambda one: one[1].predicted, default=(0, SamplerHistory()))
        return history.last_look(n, d, worth=worth, per=per)

    async def newest(self, experiment: str, sampler: str) -> MapEmbedding | None:
        """Return the embedding that is shown now; None before the first."""
        published = await self._store.models.read(experiment, sampler)
        if published is None or "coordinates" not in published.arrays:
            return None
        history = await self.read(experiment, sampler)
        reference = await self._reference(experiment, sampler, history, len(history.maps) - 1)
        arrays = {name: decode_array(value) for name, value in published.arrays.items()}
        coordinates, spread = arrays["coordinates"], None
        if "reported" in arrays:
            coordinates, spread = arrays["reported"], arrays.get("spread")
        numbers = _numbers(published.numbers)
        return _turn(coordinates, spread, reference, numbers)

    async def at(self, experiment: str, sampler: str, stream_id: str) -> MapEmbedding | None:
        """Return the embedding of a line that kept its coordinates; None where there is no such line."""
        history = await self.read(experiment, sampler)
        places = {line.stream_id: place for place, line in enumerate(history.maps)}
        if stream_id not in places:
            return None
        place = places[stream_id]
        await self._reference(experiment, sampler, history, place)
        coordinates = history.aligned.get(stream_id)  # none where the line was trimmed from the history meanwhile
        if coordinates is None:
            return None
        # A line's accuracy is that of the curve, an average over the time before it: no accuracy of this map.
        numbers = {name: value for name, value in history.maps[place].numbers.items() if "accuracy" not in name}
        return MapEmbedding(coordinates, None, numbers)

    async def _reference(
        self, experiment: str, sampler: str, history: SamplerHistory, place: int
    ) -> Coordinates | None:
        """Return the aligned coordinates of the line at a place: each is laid over the one before it, the first on its
        axes.
        """
        from salmon.geometry import principal_axes

        before: Coordinates | None = None
        for line in history.maps[: place + 1]:
            if line.stream_id not in history.aligned:
                content = await self._store.models.read_coordinates(experiment, sampler, line.stream_id)
                if content is None:
                    continue  # trimmed from the history meanwhile
                coordinates = decode_array(content).astype("float64")
                turned = _lay_over(coordinates, before)
                history.aligned[line.stream_id] = principal_axes(coordinates) if turned is None else turned
            before = history.aligned[line.stream_id]
        return before


def embedding_of(coordinates: Sequence[Sequence[float]], numbers: Mapping[str, float]) -> MapEmbedding:
    """Return an embedding that was not published by a sampler, as the map draws it."""
    import numpy as np

    return MapEmbedding(np.array(coordinates, dtype=np.float64), None, numbers)


def lay_onto(shown: MapEmbedding, reference: MapEmbedding) -> MapEmbedding:
    """Return an embedding moved, turned, mirrored and scaled so that it lies as near a reference as it can.

    Dimensions that only one of the two has count as 0 in the other; the reference's number of them is kept. Targets
    that were added since the other was fitted do not take part in the fit.
    """
    import numpy as np

    from salmon.geometry import align

    n = min(len(shown.coordinates), len(reference.coordinates))
    d = max(shown.coordinates.shape[1], reference.coordinates.shape[1])
    moving, fixed = (np.zeros((len(c), d)) for c in (shown.coordinates, reference.coordinates))
    moving[:, : shown.coordinates.shape[1]] = shown.coordinates
    fixed[:, : reference.coordinates.shape[1]] = reference.coordinates
    found = align(moving[:n], fixed[:n], scale=True)
    placed = found.scale * (moving - moving[:n].mean(axis=0)) @ found.rotation + fixed[:n].mean(axis=0)
    return MapEmbedding(placed[:, : max(2, reference.coordinates.shape[1])], None, shown.numbers)


def _turn(
    coordinates: Coordinates, spread: Coordinates | None, reference: Coordinates | None, numbers: Mapping[str, float]
) -> MapEmbedding:
    import numpy as np

    from salmon.geometry import align, principal_axes

    if reference is None or reference.shape != coordinates.shape:
        turned = principal_axes(coordinates)
        rotation = np.linalg.lstsq(coordinates - coordinates.mean(axis=0), turned, rcond=None)[0]
    else:
        alignment = align(coordinates, reference)
        turned, rotation = alignment.coordinates, alignment.rotation
    if spread is not None:
        spread = np.einsum("ji,njk,kl->nil", rotation, spread.astype(np.float64), rotation)
    return MapEmbedding(turned, spread, numbers)


def _lay_over(coordinates: Coordinates, reference: Coordinates | None) -> Coordinates | None:
    """Coordinates laid over the ones before; None where there are none of this shape."""
    from salmon.geometry import align

    if reference is None or reference.shape != coordinates.shape:
        return None
    return align(coordinates, reference).coordinates


def _numbers(written: Mapping[str, str]) -> dict[str, float]:
    wanted = (
        *("generation", "absorbed", "loss", "published_ms", "held_right", "held_total", "ceiling", "reported_of"),
        *("left_out", "feature_weight"),
    )
    numbers = {name: float(written[name]) for name in wanted if written.get(name, "nan") not in {"", "nan"}}
    held_out = HeldOutAccuracy.parse([written.get(name) for name in HELD_OUT])
    if held_out is not None:
        numbers |= {"accuracy": held_out.accuracy, "accuracy_low": held_out.low, "accuracy_high": held_out.high}
    return numbers
