"""Whether this process lives, whether it can work, and what it counts."""

from __future__ import annotations

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import JSONResponse, Response

from frontend.context import WithContext

router = APIRouter()


@router.get("/healthz")
async def healthz() -> Response:
    """200 as long as the process answers."""
    return JSONResponse({"status": "ok"})


@router.get("/readyz")
async def readyz(context: WithContext) -> Response:
    """200 when Redis answers and the backend's heartbeat is there; 503 with what is missing otherwise.

    Without a backend participants can still answer: queries are then random, and counted as fallbacks.
    """
    if not await context.store.connection.alive():
        return JSONResponse({"status": "no redis", "hint": "Redis does not answer."}, status_code=503)
    if await context.store.connection.read_heartbeat() is None:
        return JSONResponse({"status": "no backend", "hint": "The backend has not been heard of."}, status_code=503)
    return JSONResponse({"status": "ready"})


@router.get("/metrics")
async def metrics(context: WithContext) -> Response:
    """Counters and durations of this process, for Prometheus."""
    return Response(generate_latest(context.measures.registry), media_type=CONTENT_TYPE_LATEST)
