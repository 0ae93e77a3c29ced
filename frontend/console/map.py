"""Routes of the map: generations of samplers, embeddings, where everything on the map stands, and files for print.

Pages and files get their layout from one function, `salmon.export.map_layout.arrange`. The page sends what it alone
knows, the size of its window and of the texts in its font, and asks again when the view has changed. Files are drawn in
a subprocess.
"""

import asyncio
from typing import Annotated, Literal, cast

from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import Field
from starlette.responses import Response
from typing_extensions import TypedDict

from frontend.auth import WithExperiment
from frontend.console.dashboard import samplers_with_embedding
from frontend.console.overview import POINT, points_of
from frontend.context import Context, WithContext
from frontend.errors import BadRequestError, NotFoundError
from frontend.experiments import ServedExperiment
from frontend.history import MapEmbedding, embedding_of, lay_onto
from frontend.schemas import Body
from frontend.transfer.subprocesses import FigureOrder, WithSubprocesses


class KeptMap(TypedDict):
    """A generation whose coordinates were kept."""

    line: str
    generation: float | None
    absorbed: float | None
    published_ms: float | None


class HistoryReply(TypedDict):
    """A sampler's generations: `points` are rows of `columns`."""

    sampler: str
    columns: list[str]
    points: list[list[float | None]]
    maps: list[KeptMap]


class MapNumbers(TypedDict, total=False):
    """Numbers of an embedding, where they are known."""

    generation: float
    absorbed: float
    loss: float
    published_ms: float
    held_right: float
    held_total: float
    ceiling: float
    reported_of: float
    left_out: float
    feature_weight: float
    accuracy: float
    accuracy_low: float
    accuracy_high: float
    refit_ms: float
    search_ms: float


class ModelReply(TypedDict):
    """An embedding as the map draws it."""

    sampler: str
    line: str
    numbers: MapNumbers
    coordinates: list[list[float]]
    spread: list[list[list[float]]] | None
    nearest: list[list[int]]


class LayoutMark(TypedDict):
    """Where a target stands on the map, with its label and the line to it, in pixels."""

    picture: bool
    centre: list[float]
    label: list[float] | None
    leader: list[float] | None


class LayoutReply(TypedDict):
    """Where everything on the map stands; a mark is None where a target is outside the frame."""

    side: float
    font: float
    dot: float
    marks: list[LayoutMark | None]


#: Nearest targets that the map names.
NEAREST = 5
#: Targets of one layout or file: of more, a page shows dots until it is zoomed in, and an order of a file grows too
#: long for the environment of a subprocess.
MOST_ARRANGED = 2000
#: Digits of coordinates in a file's order: a ten-thousandth is no visible distance.
_DIGITS = 4
#: Layouts that are computed at once, so that participants are not kept waiting.
_AT_ONCE = 1
_TYPES = {"svg": "image/svg+xml", "pdf": "application/pdf", "png": "image/png"}

router = APIRouter(prefix="/api/experiments/{slug}")

Pixels = Annotated[float, Field(ge=-1e6, le=1e6, allow_inf_nan=False)]
Pair = tuple[Pixels, Pixels]
Pairs = Annotated[list[Pair], Field(max_length=MOST_ARRANGED)]
Size = Annotated[float, Field(gt=0, le=20_000, allow_inf_nan=False)]


class LayoutBody(Body):
    """What a page shows: its frame, where the targets are, and the sizes of pictures (longer side 1) and of texts."""

    frame: tuple[Size, Size]
    points: Pairs
    pictures: Pairs
    labels: Pairs
    smallest: Size
    largest: Size
    dot: Size
    gap: Size


class Shown:
    """The embedding that a request names: of a sampler, the newest or at a line of its
    history, or of a finished job.
    """

    def __init__(self, sampler: str = "", line: str = "", request: str = "") -> None:
        self.sampler, self.line, self.request = sampler, line, request

    async def read(self, context: Context, experiment: ServedExperiment) -> MapEmbedding:
        """Return it; NotFoundError says what to do if there is none."""
        if self.request:
            return await _of_job(context, experiment, self.request)
        name = _active_sampler(experiment, self.sampler)
        histories = context.histories
        found = await (
            histories.at(experiment.id, name, self.line) if self.line else histories.newest(experiment.id, name)
        )
        if found is None:
            message = "There is no such line in the history." if self.line else "There is no embedding yet."
            raise NotFoundError(message, hint="Fit all answers on the page Map, or wait for the next refit.")
        return found


class Reference(Shown):
    """The embedding onto which another is laid, if one is named."""

    def __init__(self, onto_sampler: str = "", onto_line: str = "", onto_request: str = "") -> None:
        super().__init__(onto_sampler, onto_line, onto_request)

    @property
    def named(self) -> bool:
        """Whether there is one."""
        return bool(self.sampler or self.request)


WithShown = Annotated[Shown, Depends(Shown)]
WithReference = Annotated[Reference, Depends(Reference)]


class FigureBody(Body):
    """A file of the map: its width in print, the axes (none: all pairs), and the group of each target (-1: none)."""

    width_mm: Annotated[float, Field(ge=30, le=1000)] = 85
    axes: tuple[Annotated[int, Field(ge=0, le=50)], Annotated[int, Field(ge=0, le=50)]] | None = None
    groups: Annotated[list[Annotated[int, Field(ge=-1, le=63)]], Field(max_length=MOST_ARRANGED)] | None = None
    group_names: Annotated[list[Annotated[str, Field(max_length=100)]], Field(max_length=64)] = Field(
        default_factory=list
    )


@router.get("/history")
async def read_history(experiment: WithExperiment, context: WithContext, sampler: str = "") -> HistoryReply:
    """Return a sampler's generations: thinned `points`, rows of `columns`; `maps` are those whose coordinates were
    kept.
    """
    name = _active_sampler(experiment, sampler)
    history = await context.histories.read(experiment.id, name)
    return {
        "sampler": name,
        "columns": list(POINT),
        "points": points_of(history.thinned()),
        "maps": [
            {
                "line": line.stream_id,
                "generation": line.numbers.get("generation"),
                "absorbed": line.numbers.get("absorbed"),
                "published_ms": line.numbers.get("published_ms"),
            }
            for line in history.maps
        ],
    }


@router.get("/model")
async def read_model(
    experiment: WithExperiment, context: WithContext, shown: WithShown, reference: WithReference
) -> ModelReply:
    """Return an embedding as the map draws it: that of a sampler, newest or at a `line` of its history, or that of a
    finished `request`; aligned so that the map does not turn, or laid onto the one that `onto_…` names.

    `spread` holds a covariance a target, where it is known; `nearest` the nearest targets of each, nearest first.
    """
    found = await shown.read(context, experiment)
    if reference.named:
        found = lay_onto(found, await reference.read(context, experiment))
    return await asyncio.to_thread(_described, found, shown.sampler, shown.line)


@router.post("/map/layout")
async def arrange_map(body: LayoutBody, _: WithExperiment, request: Request) -> LayoutReply:
    """Return where pictures, dots, labels and lines stand in a frame, so that nothing covers anything else."""
    if not len(body.points) == len(body.pictures) == len(body.labels):
        raise BadRequestError("points, pictures and labels must have one entry for each target.", where="points")
    async with _limit(request):
        return await asyncio.to_thread(_arranged, body)


@router.get("/map.{extension}")
async def read_figure(
    extension: Annotated[Literal["svg", "pdf", "png"], Path()],
    experiment: WithExperiment,
    context: WithContext,
    subprocesses: WithSubprocesses,
    shown: WithShown,
    width_mm: Annotated[float, Query(ge=30, le=1000)] = 85,
) -> Response:
    """Return the map as a file for print: 85 mm wide for one column, 174 for two."""
    return await draw_figure(extension, FigureBody(width_mm=width_mm), experiment, context, subprocesses, shown)


@router.post("/map.{extension}")
async def draw_figure(
    extension: Annotated[Literal["svg", "pdf", "png"], Path()],
    body: FigureBody,
    experiment: WithExperiment,
    context: WithContext,
    subprocesses: WithSubprocesses,
    shown: WithShown,
) -> Response:
    """Return the map as a file for print, with groups; they are drawn and not stored."""
    from salmon.export.map_drawing import LARGEST_DRAWN

    found = await shown.read(context, experiment)
    n, d = found.coordinates.shape
    if body.groups is not None and (len(body.groups) != n or max(body.groups, default=-1) >= len(body.group_names)):
        raise BadRequestError(
            f"groups must have one number for each of the {n} targets, each below the number of group_names.",
            where="groups",
        )
    if n > MOST_ARRANGED:
        raise BadRequestError(
            f"A file of the map shows at most {MOST_ARRANGED:,} targets; this experiment has {n:,}.",
            hint="Save the CSV, or draw parts of the map with `salmon fit`.",
        )
    axes = body.axes if d > 1 else None
    if axes is not None and max(axes) >= d:
        raise BadRequestError(f"The embedding has {d} dimensions.", hint="Axes are counted from 0.", where="axes")
    drawn = found.coordinates[:, list(axes)] if axes is not None else found.coordinates[:, :LARGEST_DRAWN]
    order = FigureOrder(
        slug=experiment.state.slug,
        extension=extension,
        coordinates=drawn.round(_DIGITS).tolist(),
        width_mm=body.width_mm,
        groups=tuple(body.groups) if body.groups is not None else None,
        group_names=tuple(body.group_names),
    )
    content = await subprocesses.run("figure", order.encode())
    disposition = f'attachment; filename="{experiment.state.slug}-map.{extension}"'
    return Response(content, media_type=_TYPES[extension], headers={"Content-Disposition": disposition})


async def _of_job(context: Context, experiment: ServedExperiment, identifier: str) -> MapEmbedding:
    standing = await context.store.jobs.read_request(experiment.id, identifier)
    result = standing.result if isinstance(standing.result, dict) else {}
    if "coordinates" not in result:
        raise NotFoundError(
            f"The request {identifier!r} has no embedding.", hint="Wait until it is done, or ask for a fit."
        )
    judged = result.get("held_out") or {}
    held = judged.get("without") or judged.get("everybody") or {}
    numbers = {"absorbed": result.get("answers", 0), "published_ms": standing.asked_ms}
    for name, kept in (("accuracy", "accuracy"), ("accuracy_low", "low"), ("accuracy_high", "high")):
        if held.get(kept) is not None:
            numbers[name] = held[kept]
    return embedding_of(result["coordinates"], numbers)


def _active_sampler(experiment: ServedExperiment, wanted: str) -> str:
    """Return the sampler whose embedding is meant: the named one, or the first that has one."""
    active = samplers_with_embedding(experiment.spec)
    if wanted and wanted not in active:
        raise BadRequestError(
            f"{wanted!r} is not a sampler of this experiment that fits an embedding.",
            hint=f"These do: {', '.join(active) or 'none'}.",
            where="sampler",
        )
    if not active:
        raise NotFoundError(
            "No sampler of this experiment fits an embedding while it runs.",
            hint="Fit all answers on the page Map, or request a fit and give its id as request.",
        )
    return wanted or active[0]


def _limit(request: Request) -> asyncio.Semaphore:
    state = request.app.state
    if not hasattr(state, "layouts"):
        state.layouts = asyncio.Semaphore(_AT_ONCE)
    return state.layouts


def _arranged(body: LayoutBody) -> LayoutReply:
    import numpy as np

    from salmon.export.map_layout import LayoutSizes, arrange

    points, pictures, labels = (
        np.array(values, dtype=np.float64).reshape(-1, 2) for values in (body.points, body.pictures, body.labels)
    )
    sizes = LayoutSizes(body.smallest, max(body.smallest, body.largest), body.dot, body.gap)
    found = arrange(points, body.frame, pictures, labels, sizes)
    marks: list[LayoutMark | None] = [
        {
            "picture": bool(found.pictures[k]),
            "centre": found.centres[k].round(2).tolist(),
            "label": found.corners[k].round(2).tolist() if found.labelled[k] else None,
            "leader": found.leaders[k].round(2).tolist() if np.isfinite(found.leaders[k, 0]) else None,
        }
        if found.inside[k]
        else None
        for k in range(len(points))
    ]
    return {"side": found.side, "font": found.font, "dot": found.dot, "marks": marks}


def _described(shown: MapEmbedding, sampler: str, line: str) -> ModelReply:
    import numpy as np

    from salmon.geometry import squared_distances

    coordinates = shown.coordinates
    d2 = squared_distances(coordinates)
    np.fill_diagonal(d2, np.inf)
    nearest = np.argsort(d2, axis=1)[:, : min(NEAREST, len(d2) - 1)]
    return {
        "sampler": sampler,
        "line": line,
        "numbers": cast("MapNumbers", dict(shown.numbers)),
        "coordinates": coordinates.round(6).tolist(),
        "spread": None if shown.spread is None else shown.spread.round(8).tolist(),
        "nearest": nearest.tolist(),
    }
