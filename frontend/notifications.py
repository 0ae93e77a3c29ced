"""Tell experimenters by e-mail or webhook that an experiment closed, is full, stalled or failed,
as its file says under `notify`.

`events` is a pure function of what is known. Each event is told once, by one web process: it is noted in the store
before it is sent, and the note is taken back where sending fails, so that it is tried again. What went wrong stands on
the overview. A webhook goes only to hosts that whoever runs the server has named: nobody can reach what only this
machine can reach.
"""

import asyncio
import json
import logging
import smtplib
import ssl
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import EmailMessage
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from frontend.context import Context
from frontend.experiments import ServedExperiment
from frontend.lifecycle import served_experiments, wanted_participants
from frontend.settings import Settings
from frontend.store.experiments import ExperimentState
from frontend.store.places import Places
from salmon.errors import SalmonError
from salmon.logs import fields
from salmon.spec import Spec
from salmon.spec.values import duration_text

log = logging.getLogger("salmon.notifications")

_LOOK_SECONDS = 30.0
_SEND_SECONDS = 15.0
#: The learning process has failed where it has not been there for so long.
AWAY_MS = 300_000


Way = Literal["email", "webhook"]


class MessageError(SalmonError):
    """Raised where a message cannot be sent; the sentence says why."""

    code = "message_not_sent"


@dataclass(frozen=True)
class Event:
    """Something that is told once: `name` and `moment` make it one of its kind."""

    name: str
    moment: int
    sentence: str

    @property
    def key(self) -> str:
        """What it is noted under."""
        return f"{self.name}:{self.moment}"


@dataclass(frozen=True)
class Seen:
    """What decides about events: `answered_ms` is when the last answer came (0: none), `away_since_ms` since when the
    learning process has not been there (0: it is).
    """

    state: ExperimentState
    spec: Spec
    places: Places
    answered_ms: int
    away_since_ms: int
    now_ms: int


def events(seen: Seen) -> list[Event]:
    """Return everything that is so now and is worth telling."""
    found: list[Event] = []
    state, spec = seen.state, seen.spec
    answers = state.counters.get("answers", 0)
    if state.ended_by == "errors_above":
        found.append(
            Event(
                "failed", state.since_ms, "It paused by itself: the pages of too many participants reported a failure."
            )
        )
    elif state.state == "closed" and state.ended_by:
        found.append(
            Event("closed", state.since_ms, f"It closed by itself at {answers:,} answers (stopping.{state.ended_by}).")
        )
    if state.state != "open":
        return found
    wanted = wanted_participants(spec)
    is_full = bool(wanted) and seen.places.held >= wanted
    if is_full:
        found.append(Event("full", wanted, f"All {wanted:,} places are taken; {seen.places.finished:,} have finished."))
    if seen.away_since_ms and seen.now_ms - seen.away_since_ms >= AWAY_MS:
        found.append(
            Event(
                "failed",
                seen.away_since_ms,
                "The learning process is not running, so participants get random queries. No answers are lost.",
            )
        )
    last_ms = max(seen.answered_ms, state.since_ms)
    stalled_ms = spec.notify.stalled_after.total_seconds() * 1000
    if seen.answered_ms and not is_full and seen.now_ms - last_ms >= stalled_ms:
        found.append(
            Event(
                "stalled",
                seen.answered_ms,
                f"Nobody has answered for {duration_text(spec.notify.stalled_after)}; there are {answers:,} answers.",
            )
        )
    return found


@dataclass(frozen=True)
class Message:
    """What is sent about an event of an experiment; `address` is that of its overview,
    where the server knows its own.
    """

    slug: str
    title: str
    event: Event
    address: str
    at_ms: int

    @property
    def subject(self) -> str:
        """One line that says what happened."""
        verb = {"closed": "closed", "full": "is full", "stalled": "stalled", "failed": "needs attention"}[
            self.event.name
        ]
        return " ".join(f"Salmon: {self.title or self.slug} {verb}".split())

    @property
    def text(self) -> str:
        """The whole message."""
        return f"{self.title or self.slug} ({self.slug}): {self.event.sentence}" + (
            f"\n\n{self.address}" if self.address else ""
        )

    def as_json(self) -> dict[str, Any]:
        """Return what a webhook gets; chat programs show `text`."""
        return {
            "event": self.event.name,
            "experiment": self.slug,
            "sentence": self.event.sentence,
            "text": self.text,
            "at": f"{datetime.fromtimestamp(self.at_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}",
        }


async def keep_telling(context: Context) -> None:
    """Look at every experiment that names somebody, over and over; runs until it is cancelled."""
    away_since_ms = 0
    while True:
        try:
            is_there = await context.store.connection.read_heartbeat() is not None
            away_since_ms = 0 if is_there else away_since_ms or context.now_ms()
            await tell_all(context, away_since_ms=away_since_ms)
        except SalmonError as error:
            log.error("events are not looked at", extra=fields(error=str(error)))
        except Exception as error:  # noqa: BLE001 - an outermost loop: it tries again in half a minute
            log.error("telling failed", extra=fields(error=type(error).__name__))
        await asyncio.sleep(_LOOK_SECONDS)


async def tell_all(context: Context, *, away_since_ms: int = 0) -> None:
    """Tell what is due about every experiment that is not a draft."""
    async for experiment in served_experiments(context):
        if experiment.spec.notify.email or experiment.spec.notify.webhook:
            await _tell(context, experiment, away_since_ms if experiment.active_samplers else 0)


async def _tell(context: Context, experiment: ServedExperiment, away_since_ms: int) -> None:
    store, identifier, now_ms = context.store, experiment.id, context.now_ms()
    seen = Seen(
        experiment.state,
        experiment.spec,
        await store.participants.count_places(identifier),
        await store.answers.last_ms(identifier),
        away_since_ms,
        now_ms,
    )
    public = context.settings.public_url.rstrip("/")
    address = f"{public}/console/experiments/{experiment.state.slug}/" if public else ""
    for event in events(seen):
        message = Message(experiment.state.slug, experiment.spec.title, event, address, now_ms)
        for way in ways_of(experiment.spec):
            await _tell_once(context, experiment, message, way)


async def _tell_once(context: Context, experiment: ServedExperiment, message: Message, way: Way) -> None:
    """Send a message by one way, unless that was done before."""
    store, key = context.store.experiments, f"{message.event.key}:{way}"
    if not await store.claim_message(experiment.id, key, now_ms=message.at_ms):
        return
    try:
        await send(context.settings, experiment.spec, message, way)
    except MessageError as error:
        await store.forget_message(experiment.id, key)
        await store.note_message_problem(experiment.id, str(error))
        log.warning("a message was not sent", extra=fields(experiment=message.slug, reason=error.message))
    else:
        await store.note_message_problem(experiment.id, "")
        log.info("experimenters told", extra=fields(experiment=message.slug, event=message.event.name, by=way))


def ways_of(spec: Spec) -> tuple[Way, ...]:
    """Return the ways that a file names."""
    return (*(("email",) if spec.notify.email else ()), *(("webhook",) if spec.notify.webhook else ()))


async def send(settings: Settings, spec: Spec, message: Message, way: Way) -> None:
    """Send a message by one way; MessageError where that fails."""
    check_way(settings, spec, way)
    if way == "email":
        await asyncio.to_thread(send_mail, settings, spec.notify.email, message)
    else:
        await send_webhook(spec.notify.webhook or "", message)


def check_way(settings: Settings, spec: Spec, way: Way) -> None:
    """Raise MessageError where this server does not send messages by this way."""
    if way == "email" and not settings.smtp_url:
        raise MessageError(
            "notify.email has no effect: this server sends no mail.", hint="Whoever runs it can set SALMON_SMTP_URL."
        )
    parts = urlsplit(spec.notify.webhook or "")
    allowed = {host.strip().lower() for host in settings.webhook_hosts.split(",") if host.strip()}
    if way == "webhook" and not {(parts.hostname or "").lower(), parts.netloc.rpartition("@")[2].lower()} & allowed:
        raise MessageError(
            f"notify.webhook has no effect: this server sends nothing to {parts.hostname}.",
            hint="Whoever runs it can name that host in SALMON_WEBHOOK_HOSTS.",
        )


async def problems_of(context: Context, experiment: ServedExperiment) -> tuple[str, ...]:
    """Return, as sentences, which ways of a file do not work here, and what went wrong with the last message."""
    found: list[str] = []
    for way in ways_of(experiment.spec):
        try:
            check_way(context.settings, experiment.spec, way)
        except MessageError as error:
            found.append(str(error))
    if not found and ways_of(experiment.spec):
        found.append(await context.store.experiments.read_message_problem(experiment.id))
    return tuple(filter(None, found))


def send_mail(settings: Settings, addresses: tuple[str, ...], message: Message) -> None:
    """Send a mail by the server's SMTP account; its password goes over TLS alone, unless
    the mail server is this machine.
    """
    parts = urlsplit(settings.smtp_url)
    host, user, password = parts.hostname or "", unquote(parts.username or ""), unquote(parts.password or "")
    mail = EmailMessage()
    mail["Subject"], mail["From"], mail["To"] = message.subject, settings.mail_from or user, ", ".join(addresses)
    mail.set_content(message.text)
    context = ssl.create_default_context()
    try:
        if parts.scheme == "smtps":
            server = smtplib.SMTP_SSL(host, parts.port or 465, timeout=_SEND_SECONDS, context=context)
        else:
            server = smtplib.SMTP(host, parts.port or 587, timeout=_SEND_SECONDS)
        try:
            if parts.scheme == "smtp" and host not in {"localhost", "127.0.0.1", "::1"}:
                server.starttls(context=context)
            if password:
                server.login(user, password)
            server.send_message(mail)
        finally:
            # Once the message was taken, a farewell that goes wrong must not have it sent again.
            with suppress(OSError, smtplib.SMTPException):
                server.quit()
    except (OSError, smtplib.SMTPException) as error:
        # What a mail server says may hold addresses and its own version: the kind of the error is enough.
        raise MessageError(
            f"The mail server did not take a message ({type(error).__name__}).", hint="It is tried again."
        ) from error


async def send_webhook(address: str, message: Message) -> None:
    """Post a message as JSON; redirects are not followed, so that it reaches no other host."""
    # Loaded with the first message: most servers never send one. Its errors are not shown: they hold the address.
    import httpx

    try:
        async with httpx.AsyncClient(timeout=_SEND_SECONDS, follow_redirects=False) as client:
            reply = await client.post(
                address, content=json.dumps(message.as_json()), headers={"Content-Type": "application/json"}
            )
    except httpx.HTTPError:
        raise MessageError("The webhook cannot be reached from this server.", hint="It is tried again.") from None
    if not reply.is_success:
        raise MessageError(f"The webhook refuses the message (status {reply.status_code}).", hint="It is tried again.")
