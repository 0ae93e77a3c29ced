"""Credit in SONA that the server grants, when a participant has finished.

SONA is asked while the participant waits for the last page: a few times within some seconds, and by one process at a
time. Whoever gets no credit so is sent to SONA's own page with the link that grants it, as without this.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import urlencode
from xml.etree import ElementTree as ET

from frontend.context import Context
from frontend.store.participants import Participant
from salmon.errors import SalmonError
from salmon.logs import fields
from salmon.spec.schema import Recruitment, Sona

log = logging.getLogger("salmon.sona")

#: Seconds that a participant waits at most, that one request may take, and between requests.
_TOTAL_SECONDS, _REQUEST_SECONDS = 8.0, 4.0
_WAITS = (0.5, 1.5)
_MOST_BYTES = 64_000
_PATH = "/services/SonaAPI.svc/WebstudyCredit"

Pause = Callable[[float], Awaitable[None]]


@dataclass(frozen=True)
class Credit:
    """What became of a credit. `passing` says that asking again may help; `reason` is a
    sentence for the experimenter.
    """

    granted: bool
    reason: str = ""
    passing: bool = False


def host_of(sona: Sona) -> str:
    """Return the host of a school's SONA."""
    return sona.school if "." in sona.school else f"{sona.school}.sona-systems.com"


def read_reply(content: bytes) -> Credit:
    """Return what SONA's XML says: the credit is granted only if there is a Result whose credit_status is G."""
    if b"<!" in content.replace(b"<!--", b""):  # no document type, so that no entity is ever expanded
        return Credit(granted=False, reason="SONA's reply cannot be understood.")
    try:
        root = ET.fromstring(content)  # noqa: S314 - it has no document type
    except ET.ParseError:
        return Credit(granted=False, reason="SONA's reply cannot be understood.")
    named = [(each.tag.rpartition("}")[2], " ".join("".join(each.itertext()).split())) for each in root.iter()]
    if any(name == "Result" for name, _ in named) and ("credit_status", "G") in named:
        return Credit(granted=True)
    said = next((text for name, text in named if name in {"ErrorMessage", "Errors"} and text), "")
    return Credit(granted=False, reason=f"SONA does not grant it.{f' It says: {said[:300]}' if said else ''}")


async def grant_credit(context: Context, experiment: str, recruitment: Recruitment, participant: Participant) -> None:
    """Have SONA grant the credit of somebody who has finished, and note what became of it; once for each participant.

    Nothing that goes wrong here is the participant's concern: the reason is noted for the experimenter.
    """
    sona = recruitment.sona
    if recruitment.platform != "sona" or sona is None or sona.credit != "server" or not participant.puid:
        return
    people = context.store.participants
    try:
        if not await people.claim_credit(experiment, participant.id, now_ms=context.now_ms()):
            return
        address = context.settings.sona_url or f"https://{host_of(sona)}"
        found = await ask(address, sona, participant.puid)
        await people.note_credit(experiment, participant.id, granted=found.granted, reason=found.reason)
    except SalmonError as error:
        log.warning("a credit was not noted", extra=fields(experiment=experiment, error=error.message))
        return
    level = logging.INFO if found.granted else logging.WARNING
    log.log(
        level,
        "credit granted by SONA" if found.granted else "credit not granted by SONA",
        extra=fields(experiment=experiment, participant=participant.id, reason=found.reason),
    )


async def ask(address: str, sona: Sona, survey_code: str, *, pause: Pause = asyncio.sleep) -> Credit:
    """Return SONA's answer; it is asked again where it does not answer."""
    query = {"experiment_id": sona.experiment_id, "credit_token": sona.credit_token, "survey_code": survey_code}
    found = Credit(granted=False, reason="SONA does not answer in time.", passing=True)
    try:
        async with asyncio.timeout(_TOTAL_SECONDS):
            for wait in (*_WAITS, None):
                found = await _ask_once(f"{address.rstrip('/')}{_PATH}?{urlencode(query)}")
                if not found.passing or wait is None:
                    break
                await pause(wait)
    except TimeoutError:
        pass
    return found


async def _ask_once(address: str) -> Credit:
    # Loaded with the first request: most servers never send one. Its errors are not shown: they hold the address with
    # the token.
    import httpx

    try:
        async with (
            httpx.AsyncClient(timeout=_REQUEST_SECONDS) as client,
            client.stream("GET", address, headers={"Accept": "application/xml"}) as reply,
        ):
            content = bytearray()
            async for piece in reply.aiter_bytes():
                content += piece
                if len(content) > _MOST_BYTES:
                    return Credit(granted=False, reason="SONA's reply is too large.")
    except httpx.HTTPError:
        return Credit(granted=False, reason="SONA cannot be reached from this server.", passing=True)
    if reply.status_code >= 500 or reply.status_code in {408, 429}:
        return Credit(
            granted=False, reason=f"SONA has a problem of its own (status {reply.status_code}).", passing=True
        )
    if not reply.is_success:
        return Credit(granted=False, reason=f"SONA refuses the request (status {reply.status_code}).")
    return read_reply(bytes(content))
