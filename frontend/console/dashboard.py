"""Routes of the dashboard: the live overview, the history of samplers, their embeddings and the targets.

`target_rows` lists the targets with what is unusual about each; it is a pure function of the targets, the files behind
them and the counters.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from statistics import median

from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse

from frontend.auth import WithExperiment
from frontend.console.overview import POINT, OverviewInputs, SamplerView, overview, points_of
from frontend.context import Context, WithContext
from frontend.errors import BadRequestError, NotFoundError
from frontend.experiments import ServedExperiment
from frontend.history import MapEmbedding
from frontend.schemas import Json
from frontend.store.answers import Counts
from frontend.store.models import SamplerProgress
from salmon.samplers.passive import PASSIVE
from salmon.spec import Manifest, Spec, TargetSpec
from salmon.wire import encode_json

#: Pictures whose shape or size differs from the middle one by more than this factor are reported.
ODD_SHAPE = 1.5
ODD_SIZE = 4.0
ODD_BYTES = 10.0


def target_rows(targets: Sequence[TargetSpec], manifest: Manifest | None, counts: Counts) -> list[Json]:
    """Return one row a target, by index, with sentences about what looks odd."""
    entries = {entry.index: entry for entry in manifest.entries} if manifest is not None else {}
    contents = [entries[t.index].sha256 if t.index in entries else t.html for t in targets]
    first = {content: place for place, content in reversed(list(enumerate(contents)))}
    shapes = _middle([t.width_px / t.height_px for t in targets if t.height_px > 0 and t.width_px > 0])
    areas = _middle([t.width_px * t.height_px for t in targets])
    sizes = _middle([entry.size_bytes for entry in entries.values()])
    rows: list[Json] = []
    for target, content in zip(targets, contents, strict=True):
        entry = entries.get(target.index)
        odd: list[str] = []
        if first[content] != target.index:
            odd.append(f"The same as target {first[content]}: participants cannot tell them apart.")
        if target.width_px and target.height_px:
            shape = target.width_px / target.height_px
            if _differs(shape, shapes, ODD_SHAPE):
                odd.append(
                    "Its shape differs from most pictures, so participants may compare shapes instead of contents."
                )
            if _differs(target.width_px * target.height_px, areas, ODD_SIZE):
                odd.append("Its size in pixels differs from most pictures.")
        if entry and _differs(entry.size_bytes, sizes, ODD_BYTES) and entry.size_bytes > sizes:
            odd.append("Its file is much larger than most, so it loads slowly on slow connections.")
        rows.append(
            {
                "index": target.index,
                "kind": target.kind,
                "name": target.filename,
                "html": "" if target.media else target.html,
                "media": f"/media/{target.media}" if target.media else "",
                "alt": target.alt,
                "sha256": entry.sha256 if entry else "",
                "bytes": entry.size_bytes if entry else 0,
                "width": target.width_px,
                "height": target.height_px,
                "head": counts.get("head").get(target.index, 0),
                "foot": counts.get("foot").get(target.index, 0),
                "won": counts.get("won").get(target.index, 0),
                "odd": odd,
            }
        )
    return rows


def _middle(values: Sequence[float]) -> float:
    known = [value for value in values if value > 0]
    return median(known) if known else 0.0


def _differs(value: float, middle: float, factor: float) -> bool:
    return middle > 0 and not middle / factor <= value <= middle * factor


#: How often a live page is brought up to date, and after how long a silence it is told that the connection lives.
LOOK_SECONDS = 1.0
QUIET_SECONDS = 15.0
#: A live connection ends after this time; the page opens another, which asks again who is there.
LIVE_SECONDS = 600.0
#: Nearest targets that the map names.
NEAREST = 5
_UNBUFFERED = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}

router = APIRouter(prefix="/api/experiments/{slug}")


@router.get("/overview")
async def read_overview(experiment: WithExperiment, context: WithContext) -> Json:
    """Return what an experimenter wants to know at a glance."""
    return overview(await _with_counts(context, experiment, await _read_inputs(context, experiment)))


@router.get("/stream", response_class=Response)
async def stream(request: Request, experiment: WithExperiment, context: WithContext) -> Response:
    """Send the overview as server-sent events, whenever something has changed."""
    return StreamingResponse(
        _events(request, context, experiment.id), media_type="text/event-stream", headers=_UNBUFFERED
    )


@router.get("/history")
async def read_history(experiment: WithExperiment, context: WithContext, sampler: str = "") -> Json:
    """Return a sampler's generations: thinned `points`, rows of `columns`; `maps` are those whose coordinates were
    kept.
    """
    name = _active_sampler(experiment, sampler)
    history = await context.histories.read(experiment.id, name)
    return {
        "sampler": name,
        "columns": POINT,
        "points": points_of(history.thinned()),
        "maps": [
            {"line": line.stream_id}
            | {key: line.numbers.get(key) for key in ("generation", "absorbed", "published_ms")}
            for line in history.maps
        ],
    }


@router.get("/model")
async def read_model(experiment: WithExperiment, context: WithContext, sampler: str = "", line: str = "") -> Json:
    """Return an embedding as the map draws it: the newest, or that of a line of history; aligned so that the map does not turn.

    `spread` holds a covariance a target, where it is known; `nearest` the nearest targets of each, nearest first.
    """
    name = _active_sampler(experiment, sampler)
    histories = context.histories
    shown = await (histories.at(experiment.id, name, line) if line else histories.newest(experiment.id, name))
    if shown is None:
        message = "There is no such line in the history." if line else "There is no embedding yet."
        raise NotFoundError(message, hint="It is fitted as soon as the first answers are in.")
    return {"sampler": name, "line": line, **await asyncio.to_thread(_draw_map, shown)}


@router.get("/targets")
async def read_targets(experiment: WithExperiment, context: WithContext) -> list[Json]:
    """Return all targets: what each is, how often it was asked about, and what looks odd about it."""
    counts = Counts.of(await context.store.experiments.read_counts(experiment.id))
    return target_rows(experiment.targets, experiment.manifest, counts)


def samplers_with_embedding(spec: Spec) -> list[str]:
    """Return the samplers that fit an embedding while the experiment runs."""
    return [name for name, sampler in spec.samplers.items() if sampler.sampler_class not in PASSIVE]


async def _events(request: Request, context: Context, experiment: str) -> AsyncIterator[str]:
    loop = asyncio.get_running_loop()
    began = said = loop.time()
    before = None
    yield "retry: 2000\n\n"
    while loop.time() - began < LIVE_SECONDS and not request.app.state.closing():
        found = await context.catalogue.read(experiment)
        seen = await _read_inputs(context, found)
        current = (
            seen.state,
            seen.arrived,
            seen.samplers,
            seen.heartbeat is None,
            seen.heartbeat and seen.heartbeat.errors,
        )
        if current != before:
            before, said = current, loop.time()
            shown = overview(await _with_counts(context, found, seen))
            yield f"event: overview\ndata: {encode_json(shown)}\n\n"
        elif loop.time() - said > QUIET_SECONDS:
            said = loop.time()
            yield ": still here\n\n"
        await asyncio.sleep(LOOK_SECONDS)


async def _with_counts(context: Context, experiment: ServedExperiment, seen: OverviewInputs) -> OverviewInputs:
    """Return the inputs with the counters, which are read only to be shown: with many targets they are thousands."""
    return replace(seen, counts=Counts.of(await context.store.experiments.read_counts(experiment.id)))


async def _read_inputs(context: Context, experiment: ServedExperiment) -> OverviewInputs:
    """Return what the overview is made of, except the counters: enough to see whether something has changed."""
    store = context.store
    arrived, heartbeat, progress = await asyncio.gather(
        store.participants.count(experiment.id),
        store.connection.read_heartbeat(),
        store.models.read_progress(experiment.id, samplers_with_embedding(experiment.spec)),
    )
    known = {item.sampler: item for item in progress}
    views = [await _view(context, experiment, name, known.get(name)) for name in experiment.spec.samplers]
    return OverviewInputs(
        state=experiment.state,
        spec=experiment.spec,
        n=len(experiment.targets),
        counts=Counts(),
        arrived=arrived,
        samplers=tuple(views),
        heartbeat=heartbeat,
        now_ms=context.now_ms(),
        latencies=tuple(context.metrics.latency(f"/e/{{slug}}/{name}") for name in ("query", "answers")),
    )


async def _view(
    context: Context, experiment: ServedExperiment, name: str, progress: SamplerProgress | None
) -> SamplerView:
    sampler_class = experiment.spec.samplers[name].sampler_class
    if progress is None:
        return SamplerView(name, sampler_class, active=False, listed=0, pending=0, last=None)
    history = await context.histories.read(experiment.id, name)
    return SamplerView(name, sampler_class, True, progress.listed, progress.pending, history.last)


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
            hint="Export the answers and run `salmon fit`, or add Adaptive to the samplers.",
        )
    return wanted or active[0]


def _draw_map(shown: MapEmbedding) -> Json:
    import numpy as np

    from salmon.geometry import squared_distances

    coordinates = shown.coordinates
    d2 = squared_distances(coordinates)
    np.fill_diagonal(d2, np.inf)
    nearest = np.argsort(d2, axis=1)[:, : min(NEAREST, len(d2) - 1)]
    return {
        "numbers": dict(shown.numbers),
        "coordinates": coordinates.round(6).tolist(),
        "spread": None if shown.spread is None else shown.spread.round(8).tolist(),
        "nearest": nearest.tolist(),
    }
