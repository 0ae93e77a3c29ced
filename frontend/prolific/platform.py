"""The API of Prolific: studies, submissions, participant groups, bonuses and webhooks, as far as Salmon uses them.

Amounts are in hundredths of the account's currency. Nothing here rejects a submission: that decision stays with a
person, on Prolific's own page. Requests that only read are repeated a few times; all others are sent once, because a
reply that is lost does not say whether the request was carried out.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from frontend.errors import LostReplyError, PlatformError
from salmon.logs import fields
from salmon.wire import decode_json

if TYPE_CHECKING:
    import httpx

log = logging.getLogger("salmon.prolific")

#: Seconds for a connection, for a piece of a reply, and for a request with its repetitions.
_CONNECT_SECONDS, _READ_SECONDS, _TOTAL_SECONDS = 5.0, 20.0, 45.0
#: Waits (s) before a request that only reads is repeated, and the longest wait that Prolific may ask for.
_WAITS = (0.5, 2.0)
_LONGEST_WAIT_S = 10.0
#: Bytes of a reply, and submissions of a page and pages of a study that are read.
_MOST_BYTES = 8_000_000
_PAGE = 100
_MOST_PAGES = 500
#: Submissions that are approved by one request, and people added to a group by one.
_AT_ONCE = 500
#: The events that Salmon asks Prolific to send.
EVENTS = ("submission.status.change", "study.status.change")

Pause = Callable[[float], Awaitable[None]]


@dataclass(frozen=True)
class Workspace:
    """A workspace of an account, in which its studies, groups and webhooks are."""

    id: str
    name: str


@dataclass(frozen=True)
class StudyDraft:
    """A study that is to be created. `filters` are Prolific's, such as who is kept out.

    `screen_out_code` is empty where nobody is paid for being screened out.
    """

    name: str
    internal_name: str
    description: str
    link: str
    completion_code: str
    reward: int
    places: int
    minutes: int
    screen_out_code: str = ""
    screen_out_reward: int = 0
    screen_out_places: int = 0
    blocked_groups: tuple[str, ...] = ()
    signed_links: bool = False
    desktop: bool = True
    mobile: bool = True

    def encode(self, project: str) -> dict[str, Any]:
        """Return the body of the request that creates the study in a project."""
        codes: list[dict[str, Any]] = [
            {
                "code": self.completion_code,
                "code_type": "COMPLETED",
                "actor": "participant",
                "actions": [{"action": "MANUALLY_REVIEW"}],
            }
        ]
        if self.screen_out_code:
            codes.append(
                {
                    "code": self.screen_out_code,
                    "code_type": "SCREENED_OUT",
                    "actor": "participant",
                    "actions": [
                        {
                            "action": "FIXED_SCREEN_OUT_PAYMENT",
                            "fixed_screen_out_reward": self.screen_out_reward,
                            "slots": self.screen_out_places,
                        }
                    ]
                    if self.screen_out_places
                    else [{"action": "MANUALLY_REVIEW"}],
                }
            )
        devices = [
            name
            for name, wanted in (("desktop", self.desktop), ("tablet", self.mobile), ("mobile", self.mobile))
            if wanted
        ]
        blocked = {"filter_id": "participant_group_blocklist", "selected_values": list(self.blocked_groups)}
        return {
            "name": self.name,
            "internal_name": self.internal_name,
            "description": self.description,
            "external_study_url": self.link,
            "prolific_id_option": "url_parameters",
            "completion_codes": codes,
            "reward": self.reward,
            "total_available_places": self.places,
            "estimated_completion_time": self.minutes,
            "device_compatibility": devices,
            "peripheral_requirements": [],
            "filters": [blocked] if self.blocked_groups else [],
            "is_external_study_url_secure": self.signed_links,
            "project": project,
        }


@dataclass(frozen=True)
class Study:
    """A study as Prolific has it. `places` are all that it offers, `taken` those that are used or in use."""

    id: str
    name: str
    internal_name: str
    status: str
    link: str
    places: int
    taken: int
    reward: int
    currency: str

    @staticmethod
    def parse(values: Mapping[str, Any]) -> "Study":
        """Return the study of a reply."""
        try:
            return Study(
                id=str(values["id"]),
                name=str(values.get("name", "")),
                internal_name=str(values.get("internal_name") or ""),
                status=_status(values["status"]),
                link=str(values.get("external_study_url") or ""),
                places=int(values["total_available_places"]),
                taken=int(values.get("places_taken") or 0),
                reward=round(float(values["reward"])),
                currency=str(values.get("presentment_currency_code") or values.get("currency_code") or ""),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise _unreadable(error) from error


@dataclass(frozen=True)
class Submission:
    """What somebody handed in at Prolific: its id, whose it is, and its status. `bonuses` are those that were paid."""

    id: str
    participant: str
    status: str
    code: str = ""
    bonuses: tuple[int, ...] = ()

    @staticmethod
    def parse(values: Mapping[str, Any]) -> "Submission":
        """Return the submission of a reply."""
        try:
            return Submission(
                id=str(values["id"]),
                participant=str(values.get("participant_id") or values.get("participant") or ""),
                status=_status(values["status"]),
                code=str(values.get("entered_code") or values.get("study_code") or ""),
                bonuses=tuple(round(float(amount)) for amount in values.get("bonus_payments") or ()),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise _unreadable(error) from error


class Prolific:
    """The account behind a token. Each method is one or a few requests; it raises PlatformError with what to do.

    LostReplyError means that nobody knows whether the request was carried out. `pause` waits before a repetition.
    """

    def __init__(self, address: str, token: str, *, pause: Pause = asyncio.sleep) -> None:
        self._address = address.rstrip("/")
        self._token = token
        self._pause = pause

    async def read_workspaces(self) -> tuple[Workspace, ...]:
        """Return the workspaces that the token reaches; this is how a new token is tried."""
        found = _results(await self._read("/api/v1/workspaces/"))
        return tuple(Workspace(str(each["id"]), str(each.get("title") or each.get("name") or "")) for each in found)

    async def read_project(self, workspace: str) -> str:
        """Return the first project of a workspace, in which new studies are made."""
        found = _results(await self._read(f"/api/v1/workspaces/{workspace}/projects/"))
        if not found:
            raise PlatformError("The workspace has no project at Prolific.", hint="Make one there, then try again.")
        return str(found[0]["id"])

    async def create_study(self, draft: StudyDraft, project: str) -> Study:
        """Create a study that nobody sees and that costs nothing, until somebody publishes it at Prolific."""
        return Study.parse(await self._send("POST", "/api/v1/studies/", draft.encode(project)))

    async def find_draft(self, internal_name: str) -> Study | None:
        """Return the unpublished study of this internal name: the one whose creation was not confirmed."""
        for each in _results(await self._read("/api/v1/studies/?state=UNPUBLISHED")):
            if each.get("internal_name") == internal_name:
                return await self.read_study(str(each["id"]))
        return None

    async def read_study(self, study: str) -> Study:
        """Return a study."""
        return Study.parse(await self._read(f"/api/v1/studies/{study}/"))

    async def set_places(self, study: str, places: int) -> Study:
        """Set how many places a study has; Prolific takes more only, never fewer. Sent twice, it is the same."""
        return Study.parse(await self._send("PATCH", f"/api/v1/studies/{study}/", {"total_available_places": places}))

    async def list_submissions(self, study: str) -> tuple[Submission, ...]:
        """Return all submissions of a study."""
        found: dict[str, Submission] = {}
        for page in range(1, _MOST_PAGES + 1):
            reply = await self._read(f"/api/v1/submissions/?study={study}&page_size={_PAGE}&page={page}")
            rows = [Submission.parse(each) for each in _results(reply)]
            fresh = [row for row in rows if row.id not in found]
            found |= {row.id: row for row in fresh}
            total = _mapping(reply.get("meta")).get("count")
            if not fresh or (isinstance(total, int) and len(found) >= total):
                break
        return tuple(found.values())

    async def read_submission(self, submission: str) -> Submission:
        """Return one submission with the bonuses that were paid."""
        return Submission.parse(await self._read(f"/api/v1/submissions/{submission}/"))

    async def approve(self, submissions: Sequence[str]) -> None:
        """Approve submissions, which pays their reward. What is approved already stays as it is."""
        for start in range(0, len(submissions), _AT_ONCE):
            chosen = list(submissions[start : start + _AT_ONCE])
            await self._request("POST", "/api/v1/submissions/bulk-approve/", {"submission_ids": chosen})

    async def prepare_bonuses(self, study: str, amounts: Mapping[str, int]) -> str:
        """Hand in a list of bonuses by submission and return its id; nothing is paid before `pay_bonuses`."""
        lines = "".join(f"{submission},{decimal_of(amount)}\n" for submission, amount in amounts.items())
        body = {"study_id": study, "csv_bonuses": lines}
        reply = await self._send("POST", "/api/v1/submissions/bonus-payments/", body)
        try:
            return str(reply["id"])
        except KeyError as error:
            raise _unreadable(error) from error

    async def pay_bonuses(self, batch: str) -> None:
        """Pay a list of bonuses that was handed in; Prolific does so within some minutes."""
        await self._request("POST", f"/api/v1/bulk-bonus-payments/{batch}/pay/", {})

    async def create_group(self, workspace: str, name: str, participants: Sequence[str]) -> str:
        """Make a group of participants and return its id."""
        body = {"workspace_id": workspace, "name": name, "participant_ids": list(participants[:_AT_ONCE])}
        group = str((await self._send("POST", "/api/v1/participant-groups/", body)).get("id") or "")
        if not group:
            raise _unreadable(None)
        await self.add_to_group(group, participants[_AT_ONCE:])
        return group

    async def add_to_group(self, group: str, participants: Sequence[str]) -> None:
        """Add participants to a group; who is in it already stays in it once."""
        for start in range(0, len(participants), _AT_ONCE):
            chosen = list(participants[start : start + _AT_ONCE])
            await self._send("POST", f"/api/v1/participant-groups/{group}/participants/", {"participant_ids": chosen})

    async def find_group(self, workspace: str, name: str) -> str | None:
        """Return the group of this name in a workspace."""
        found = _results(await self._read(f"/api/v1/participant-groups/?workspace_id={workspace}"))
        return next((str(each["id"]) for each in found if each.get("name") == name), None)

    async def webhook_secret(self, workspace: str) -> str:
        """Return the secret with which Prolific signs the events of a workspace; it is made where there is none.

        A workspace has one secret, which other programs may use as well, so one that exists is never replaced.
        """
        for each in _results(await self._read(f"/api/v1/hooks/secrets/?workspace_id={workspace}")):
            if each.get("workspace_id") == workspace and each.get("value"):
                return str(each["value"])
        made = await self._send("POST", "/api/v1/hooks/secrets/", {"workspace_id": workspace})
        if not made.get("value"):
            raise _unreadable(None)
        return str(made["value"])

    async def subscribe(self, workspace: str, address: str) -> None:
        """Ask Prolific to send the events of a workspace to an address; what it sends there already stays."""
        known = _results(await self._read(f"/api/v1/hooks/subscriptions/?workspace_id={workspace}"))
        there = {each.get("event_type") for each in known if each.get("target_url") == address}
        for event in EVENTS:
            if event in there:
                continue
            body = {"workspace_id": workspace, "event_type": event, "target_url": address}
            reply = await self._request("POST", "/api/v1/hooks/subscriptions/", body)
            made = _body(reply)
            confirmation = {"secret": reply.headers.get("x-hook-secret", "")}
            await self._send("POST", f"/api/v1/hooks/subscriptions/{made.get('id', '')}/", confirmation)

    async def unsubscribe(self, workspace: str, address: str) -> None:
        """Ask Prolific to send nothing more to an address."""
        for each in _results(await self._read(f"/api/v1/hooks/subscriptions/?workspace_id={workspace}")):
            if each.get("target_url") == address:
                await self._request("DELETE", f"/api/v1/hooks/subscriptions/{each.get('id', '')}/", None)

    async def _read(self, path: str) -> dict[str, Any]:
        """Return the reply to a request that changes nothing; it is repeated where Prolific cannot answer."""
        try:
            async with asyncio.timeout(_TOTAL_SECONDS):
                for wait in _WAITS:
                    try:
                        return _body(await self._request("GET", path, None))
                    except PlatformError as error:
                        if not error.passing or error.wait_seconds > _LONGEST_WAIT_S:
                            raise
                        await self._pause(max(wait, error.wait_seconds))
                return _body(await self._request("GET", path, None))
        except TimeoutError:
            raise LostReplyError("Prolific does not answer in time.", hint="Try again in some minutes.") from None

    async def _send(self, method: str, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the reply to a request that changes something, which is sent once."""
        return _body(await self._request(method, path, body))

    async def _request(self, method: str, path: str, body: Mapping[str, Any] | None) -> "httpx.Response":
        """Return the reply to one request; PlatformError where Prolific refuses it, or does not answer."""
        # Loaded with the first request: most servers never send one.
        import httpx

        timeout = httpx.Timeout(_READ_SECONDS, connect=_CONNECT_SECONDS)
        headers = {"Authorization": f"Token {self._token}", "Accept": "application/json"}
        try:
            async with (
                asyncio.timeout(_TOTAL_SECONDS),
                httpx.AsyncClient(base_url=self._address, timeout=timeout, headers=headers) as client,
                client.stream(method, path, json=body) as reply,
            ):
                content = bytearray()
                async for piece in reply.aiter_bytes():
                    content += piece
                    if len(content) > _MOST_BYTES:
                        raise LostReplyError("Prolific's reply is too large.", hint="Look at the study on Prolific.")
                read = httpx.Response(
                    reply.status_code, headers=_without_encoding(reply.headers), content=bytes(content)
                )
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            log.warning("prolific is out of reach", extra=fields(path=_bare(path), error=type(error).__name__))
            raise PlatformError(
                "Prolific cannot be reached from this server.",
                hint="Nothing was sent. Check the server's connection, or try again later.",
                passing=True,
            ) from error
        except (httpx.HTTPError, TimeoutError) as error:
            log.warning("prolific did not answer", extra=fields(path=_bare(path), error=type(error).__name__))
            raise LostReplyError(
                "Prolific's reply did not arrive.", hint="It is not known whether the request was carried out."
            ) from error
        if read.is_success:
            return read
        log.warning("prolific refused", extra=fields(path=_bare(path), status=read.status_code))
        raise _refusal(method, read)


def decimal_of(amount: int) -> str:
    """Return an amount in hundredths as Prolific and people write it: 150 is 1.50."""
    return f"{amount // 100}.{amount % 100:02d}"


#: Status -> what it means, and what to do.
_REFUSALS = {
    401: (
        "Prolific does not know the token of your account.",
        "Make a new one at Prolific (Settings, API tokens) and enter it on the page Account.",
    ),
    403: ("Prolific does not allow this with your token.", "Ask the owner of the Prolific workspace for the right."),
    404: (
        "Prolific has nothing of this id that your token may see.",
        "Was the study deleted, or does it belong to another account or workspace?",
    ),
    429: ("Prolific receives too many requests from this account at the moment.", "Wait a minute and try again."),
}


def _refusal(method: str, reply: "httpx.Response") -> PlatformError:
    """Return the error of a reply that refuses a request: what to do about it, by its status."""
    status = reply.status_code
    if status >= 500 or status == 408:
        problem = f"Prolific has a problem of its own (status {status})."
        if method == "GET":
            return PlatformError(problem, hint="Try again in some minutes.", passing=True)
        return LostReplyError(problem, hint="It is not known whether the request was carried out.")
    message, hint = _REFUSALS.get(status, (f"Prolific refuses this (status {status}).", "Change it, then try again."))
    said = "" if status in {401, 404} else _said(reply)
    wait = _seconds(reply.headers.get("retry-after", ""))
    return PlatformError(message + said, hint=hint, passing=status == 429, wait_seconds=wait)


def _said(reply: "httpx.Response") -> str:
    """Return what Prolific says about a refusal, shortened; nothing where it says nothing that can be read."""
    try:
        error: Any = _mapping(decode_json(reply.text)).get("error")
    except ValueError:
        return ""
    detail: Any = _mapping(error).get("detail", error)
    text = " ".join(str(detail or "").split())[:300]
    return f" It says: {text}" if text else ""


def _body(reply: "httpx.Response") -> dict[str, Any]:
    """Return the JSON object of a reply; one that says nothing is empty."""
    try:
        return _mapping(decode_json(reply.text)) if reply.content else {}
    except ValueError as error:
        raise _unreadable(error) from error


def _results(reply: Mapping[str, Any]) -> list[dict[str, Any]]:
    found: Any = reply.get("results")
    return [_mapping(each) for each in cast("list[Any]", found)] if isinstance(found, list) else []


def _mapping(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _status(value: Any) -> str:
    """Return a status in one spelling: Prolific writes AWAITING REVIEW, TIMED-OUT and AWAITING_REVIEW."""
    return str(value).upper().replace(" ", "_").replace("-", "_")[:40]


def _seconds(text: str) -> float:
    return min(float(text), 3600.0) if text.isdecimal() else 0.0


def _bare(path: str) -> str:
    """Return an address without its parameters and ids, for the log."""
    return "/".join(
        "…" if any(sign.isdigit() for sign in part) and part != "v1" else part
        for part in path.partition("?")[0].split("/")
    )


def _without_encoding(headers: "httpx.Headers") -> dict[str, str]:
    """Return the headers of a reply whose body was decoded already."""
    return {
        name: value
        for name, value in headers.items()
        if name not in {"content-encoding", "content-length", "transfer-encoding"}
    }


def _unreadable(error: Exception | None) -> PlatformError:
    log.warning("prolific's reply cannot be read", extra=fields(error=repr(error)[:200]))
    return PlatformError(
        "Prolific's reply cannot be understood: its API may have changed.", hint="Do this step on Prolific's own page."
    )
