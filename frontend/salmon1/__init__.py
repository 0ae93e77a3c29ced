"""Routes of the first Salmon, so that its users' scripts keep working: on the experiment that was opened last."""

from fastapi import APIRouter

from frontend.salmon1 import answering, downloads, experiment

router = APIRouter()
for module in (answering, experiment, downloads):
    router.include_router(module.router)
