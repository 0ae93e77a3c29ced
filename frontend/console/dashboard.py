"""Routes of the dashboard: the live overview and the targets.

`target_rows` lists the targets with what is unusual about each; it is a pure function of the targets, the files behind
them and the counters.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from statistics import median

from fastapi import APIRouter, Request
from pydantic_core import to_json
from starlette.responses import Response, StreamingResponse
from typing_extensions import TypedDict

from frontend.auth import WithExperiment
from frontend.console.overview import OverviewReply, overview
from frontend.console.participants import count_proposed
from frontend.console.verdict import WORTH, OverviewInputs, SamplerView
from frontend.context import Context, WithContext
from frontend.experiments import ServedExperiment
from frontend.html import place_media
from frontend.notifications import problems_of
from frontend.reached import UNBUFFERED
from frontend.store.answers import Counts
from frontend.store.models import SamplerProgress
from frontend.transfer.subprocesses import Subprocesses, WithSubprocesses
from salmon.samplers.passive import PASSIVE
from salmon.spec import Manifest, Spec, TargetKind, TargetSpec


class TargetRow(TypedDict):
    """A target: its file, how often it was asked about, and what looks odd about it."""

    index: int
    kind: TargetKind
    name: str
    html: str
    media: str
    alt: str
    sha256: str
    bytes: int
    width: int
    height: int
    head: int
    foot: int
    won: int
    odd: list[str]


#: Pictures whose shape or size differs from the middle one by more than this factor are reported.
ODD_SHAPE = 1.5
ODD_SIZE = 4.0
ODD_BYTES = 10.0
#: More than this share of the targets are of one type, and another is odd.
ODD_TYPE = 0.7


def target_rows(
    targets: Sequence[TargetSpec], manifest: Manifest | None, counts: Counts, *, mount: str = ""
) -> list[TargetRow]:
    """Return one row a target, by index, with sentences about what looks odd.

    `mount` is the path that a proxy shows this server under: addresses of media begin with it.
    """
    entries = {entry.index: entry for entry in manifest.entries} if manifest is not None else {}
    contents = [entries[t.index].sha256 if t.index in entries else t.html for t in targets]
    first = {content: place for place, content in reversed(list(enumerate(contents)))}
    shapes = _middle([t.width_px / t.height_px for t in targets if t.height_px > 0 and t.width_px > 0])
    areas = _middle([t.width_px * t.height_px for t in targets])
    sizes = _middle([entry.size_bytes for entry in entries.values()])
    most, like_most = Counter(_type_of(target) for target in targets).most_common(1)[0] if targets else ("", 0)
    rows: list[TargetRow] = []
    for target, content in zip(targets, contents, strict=True):
        entry = entries.get(target.index)
        odd: list[str] = []
        if first[content] != target.index:
            odd.append(f"The same as target {first[content]}: participants cannot tell them apart.")
        if like_most > ODD_TYPE * len(targets) and _type_of(target) != most:
            odd.append(f"Its type, {_type_of(target)}, differs from most targets: they are {most}.")
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
                "html": "" if target.media else place_media(target.html, mount),
                "media": f"{mount}/media/{target.media}" if target.media else "",
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


def _type_of(target: TargetSpec) -> str:
    return target.media.rpartition(".")[2] or target.kind


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
#: How often a live page looks who is proposed for exclusion.
QUALITY_SECONDS = 10.0

router = APIRouter(prefix="/api/experiments/{slug}")


@router.get("/overview")
async def read_overview(
    experiment: WithExperiment, context: WithContext, subprocesses: WithSubprocesses
) -> OverviewReply:
    """Return what an experimenter wants to know at a glance."""
    seen = await _with_counts(context, experiment, await _read_inputs(context, experiment))
    return overview(replace(seen, proposed=await count_proposed(context, experiment, subprocesses)))


@router.get("/stream", response_class=Response)
async def stream(
    request: Request, experiment: WithExperiment, context: WithContext, subprocesses: WithSubprocesses
) -> Response:
    """Send the overview as server-sent events, whenever something has changed."""
    return StreamingResponse(
        _events(request, context, subprocesses, experiment.id), media_type="text/event-stream", headers=UNBUFFERED
    )


@router.get("/targets")
async def read_targets(experiment: WithExperiment, context: WithContext) -> list[TargetRow]:
    """Return all targets: what each is, how often it was asked about, and what looks odd about it."""
    counts = Counts.of(await context.store.experiments.read_counts(experiment.id))
    return target_rows(experiment.targets, experiment.manifest, counts, mount=context.settings.mount)


def samplers_with_embedding(spec: Spec) -> list[str]:
    """Return the samplers that fit an embedding while the experiment runs."""
    return [name for name, sampler in spec.samplers.items() if sampler.sampler_class not in PASSIVE]


async def _events(
    request: Request, context: Context, subprocesses: Subprocesses, experiment: str
) -> AsyncIterator[str]:
    loop = asyncio.get_running_loop()
    began = said = loop.time()
    before, proposed, counted = None, 0, -QUALITY_SECONDS
    yield "retry: 2000\n\n"
    while loop.time() - began < LIVE_SECONDS and not request.app.state.closing():
        found = await context.catalogue.read(experiment)
        if loop.time() - counted >= QUALITY_SECONDS:
            proposed, counted = await count_proposed(context, found, subprocesses), loop.time()
        seen = replace(await _read_inputs(context, found), proposed=proposed)
        current = (
            seen.state,
            seen.arrived,
            seen.samplers,
            seen.heartbeat is None,
            seen.heartbeat and seen.heartbeat.errors,
            seen.media_problems,
            seen.proposed,
        )
        if current != before:
            before, said = current, loop.time()
            shown = overview(await _with_counts(context, found, seen))
            yield f"event: overview\ndata: {to_json(shown).decode()}\n\n"
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
    arrived, places, heartbeat, progress = await asyncio.gather(
        store.participants.count(experiment.id),
        store.participants.count_places(experiment.id),
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
        places=places,
        samplers=tuple(views),
        heartbeat=heartbeat,
        now_ms=context.now_ms(),
        latencies=(
            context.metrics.latency("/e/{slug}/query", "/query"),
            context.metrics.latency("/e/{slug}/answers", "/answer"),
        ),
        media_problems=context.media.watch(experiment.id, experiment.files),
        message_problems=await problems_of(context, experiment),
        targets=experiment.targets,
    )


async def _view(
    context: Context, experiment: ServedExperiment, name: str, progress: SamplerProgress | None
) -> SamplerView:
    sampler_class = experiment.spec.samplers[name].sampler_class
    if progress is None:
        return SamplerView(name, sampler_class, active=False, listed=0, pending=0, last=None)
    history = await context.histories.read(experiment.id, name)
    expected = history.outlook(len(experiment.targets), experiment.dimensions_of(name), worth=WORTH)
    return SamplerView(
        name, sampler_class, True, progress.listed, progress.pending, history.last, expected, progress.held_out
    )
