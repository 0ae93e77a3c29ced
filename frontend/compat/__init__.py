"""The first Salmon's addresses, so that its users' scripts go on working: on the experiment that was opened last."""

from fastapi import APIRouter

from frontend.compat import answering, beginning, reading

router = APIRouter()
for module in (answering, beginning, reading):
    router.include_router(module.router)
