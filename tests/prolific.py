"""A stand-in for Prolific on loopback, written after its documented API, which can refuse,
lose replies and count payments.

It is harder than the real one where that is a matter of money: asked twice to pay the same
list of bonuses, it pays twice.
"""

import base64
import hmac
import json
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx

from frontend.context import Context
from tests.studies import Study, study

TOKEN = "stand-in-token-0123456789"
SECRET = "secret-of-the-webhooks"
WORKSPACE = "workspace00000000000000a"

Json = dict[str, Any]


@dataclass
class StandIn:
    """The state of the platform. `lose` names requests whose reply is lost after they were carried out."""

    address: str = ""
    token: str = TOKEN
    workspaces: list[Json] = field(default_factory=lambda: [{"id": WORKSPACE, "title": "Lab"}])
    studies: dict[str, Json] = field(default_factory=dict)
    submissions: dict[str, Json] = field(default_factory=dict)
    groups: dict[str, Json] = field(default_factory=dict)
    batches: dict[str, list[tuple[str, float]]] = field(default_factory=dict)
    subscriptions: dict[str, Json] = field(default_factory=dict)
    keys: list[Json] = field(default_factory=list)
    paid: list[tuple[str, float]] = field(default_factory=list)
    approvals: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    lose: set[str] = field(default_factory=set)
    refuse: dict[str, tuple[int, Json]] = field(default_factory=dict)
    pays: bool = True

    def submit(self, study: str, number: int, status: str = "AWAITING REVIEW") -> tuple[str, str]:
        """Let somebody hand in a submission; returns (participant, submission)."""
        person, submission = f"{number:024x}", f"{number + 0xABC000:024x}"
        self.submissions[submission] = {
            "id": submission,
            "participant_id": person,
            "study_id": study,
            "status": status,
            "bonus_payments": [],
        }
        return person, submission

    def answer(self, method: str, path: str, body: Json) -> tuple[int, Any, dict[str, str]]:  # noqa: C901 - a table of routes
        """Carry out a request and return (status, JSON, headers)."""
        address = urlsplit(path)
        parts, query = address.path.strip("/").split("/")[2:], parse_qs(address.query)
        match method, parts:
            case "GET", ["workspaces"]:
                return 200, {"results": self.workspaces}, {}
            case "GET", ["workspaces", _, "projects"]:
                return 200, {"results": [{"id": "project1"}]}, {}
            case "POST", ["studies"]:
                made = body | {"id": f"study{len(self.studies):019d}", "status": "UNPUBLISHED", "places_taken": 0}
                made["presentment_currency_code"] = "GBP"
                self.studies[made["id"]] = made
                return 201, made, {}
            case "GET", ["studies"]:
                return 200, {"results": list(self.studies.values())}, {}
            case "GET" | "PATCH", ["studies", study] if study in self.studies:
                wanted = body.get("total_available_places", 0)
                if wanted and wanted < self.studies[study]["total_available_places"]:
                    return 400, {"error": {"detail": "Places can only be increased."}}, {}
                self.studies[study] |= body
                return 200, self.studies[study], {}
            case "GET", ["submissions"]:
                rows = [each for each in self.submissions.values() if each["study_id"] == query["study"][0]]
                start = (int(query["page"][0]) - 1) * 20  # smaller pages than were asked for
                return 200, {"results": rows[start : start + 20], "meta": {"count": len(rows)}}, {}
            case "GET", ["submissions", submission] if submission in self.submissions:
                return 200, self.submissions[submission], {}
            case "POST", ["submissions", "bulk-approve"]:
                for each in body["submission_ids"]:
                    if self.submissions[each]["status"] == "AWAITING REVIEW":
                        self.submissions[each]["status"] = "APPROVED"
                        self.approvals.append(each)
                return 200, "The request to bulk approve has been made successfully.", {}
            case "POST", ["submissions", "bonus-payments"]:
                batch = f"batch{len(self.batches)}"
                lines = [line.split(",") for line in body["csv_bonuses"].split()]
                self.batches[batch] = [(each, float(amount)) for each, amount in lines]
                return 201, {"id": batch}, {}
            case "POST", ["bulk-bonus-payments", batch, "pay"]:
                self.paid += self.batches[batch]
                for each, amount in self.batches[batch] if self.pays else ():
                    self.submissions[each]["bonus_payments"].append(round(100 * amount))
                return 202, None, {}
            case "GET", ["participant-groups"]:
                return 200, {"results": list(self.groups.values())}, {}
            case "POST", ["participant-groups"]:
                group = body | {"id": f"group{len(self.groups)}"}
                self.groups[group["id"]] = group
                return 201, group, {}
            case "POST", ["participant-groups", group, "participants"]:
                known = self.groups[group]["participant_ids"]
                known += [each for each in body["participant_ids"] if each not in known]
                return 200, {"results": []}, {}
            case "GET", ["hooks", "secrets"]:
                return 200, {"results": [{"id": "s", "value": SECRET, "workspace_id": WORKSPACE}]}, {}
            case "GET", ["hooks", "subscriptions"]:
                return 200, {"results": list(self.subscriptions.values())}, {}
            case "POST", ["hooks", "subscriptions"]:
                made = body | {"id": f"hook{len(self.subscriptions)}", "is_enabled": False}
                self.subscriptions[made["id"]] = made
                return 201, made, {"X-Hook-Secret": f"confirm {made['id']}"}
            case "POST", ["hooks", "subscriptions", hook] if body.get("secret") == f"confirm {hook}":
                self.subscriptions[hook]["is_enabled"] = True
                return 200, self.subscriptions[hook], {}
            case "DELETE", ["hooks", "subscriptions", hook]:
                del self.subscriptions[hook]
                return 204, None, {}
            case _:
                return 404, {"error": {"detail": "Not found."}}, {}


@contextmanager
def stand_in() -> Iterator[StandIn]:
    """A stand-in that listens on a free port of loopback."""
    state = StandIn()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _handle(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}") if length else {}
            bare = f"{self.command} {urlsplit(self.path).path}"
            state.asked.append(bare)
            refused = next((reply for name, reply in state.refuse.items() if name in bare), None)
            if self.path == "/.well-known/study/jwks.json":
                status, content, headers = 200, {"keys": state.keys}, {}
            elif refused:
                status, content, headers = *refused, {}
            elif self.headers.get("Authorization") != f"Token {state.token}":
                status, content, headers = 401, {"error": {"detail": "No valid token was provided."}}, {}
            else:
                status, content, headers = state.answer(self.command, self.path, body)
            lost = next((name for name in state.lose if name in bare), None)
            if lost:
                state.lose.discard(lost)
                self.close_connection = True
                return
            sent = b"" if content is None else json.dumps(content).encode()
            self.send_response(status)
            for name, value in {
                **headers,
                "Content-Type": "application/json",
                "Content-Length": str(len(sent)),
            }.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(sent)

        do_GET = do_POST = do_PATCH = do_DELETE = _handle  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        state.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield state
        finally:
            server.shutdown()
            thread.join()


def signed(body: Json, *, secret: str = SECRET, event: str = "event-1", at: float | None = None) -> tuple[bytes, Json]:
    """The body of an event and its headers, as Prolific sends them."""
    content, timestamp = json.dumps(body).encode(), str(int(time.time() if at is None else at))
    signature = base64.b64encode(hmac.new(secret.encode(), timestamp.encode() + content, "sha256").digest()).decode()
    return content, {
        "Content-Type": "application/json",
        "X-Prolific-Request-Signature": signature,
        "X-Prolific-Request-Timestamp": timestamp,
        "X-Event-Id": event,
    }


def changed_submission(person: str, submission: str, status: str) -> Json:
    """The event of a submission that has another status."""
    return {
        "event_type": "submission.status.change",
        "resource_id": submission,
        "participant_id": person,
        "status": status,
    }


TERMS = "minutes: 9, places: 10, spend_at_most: 20"
SPEC = """
targets: [red, green, blue, cyan]
samplers: {Random: {}}
html: {max_queries: 1}
recruitment: {platform: prolific, completion_code: C0DE7, prolific: {TERMS}}
payment: {currency: GBP, reward: 1.50}
"""
PAGE = "/api/experiments/{}/prolific"
KEY = "key-of-the-payment-"

Send = Callable[..., Awaitable[httpx.Response]]


async def connected(send: Send) -> None:
    (await send("PUT", "/api/account/prolific", json={"token": TOKEN})).raise_for_status()


async def published(
    client: httpx.AsyncClient, context: Context, send: Send, name: str, terms: str = TERMS, **replaced: str
) -> tuple[Study, str]:
    """An experiment with a study at the stand-in; returns it with the study's id."""
    text = SPEC.replace("{TERMS}", f"{{{terms}}}")
    for old, new in replaced.items():
        text = text.replace(old, new)
    made = await study(client, context, text, name)
    await connected(send)
    shown = (await send("GET", PAGE.format(name))).raise_for_status().json()
    reply = await send("POST", f"{PAGE.format(name)}/study", json={"cost": shown["draft_cost"]})
    return made, reply.raise_for_status().json()["study"]["id"]


async def finished(colors: Study, prolific: StandIn, at: str, *numbers: int) -> list[str]:
    """People who took part to the end and handed in their submissions; returns our ids of them."""
    people: list[str] = []
    for number in numbers:
        person, submission = prolific.submit(at, number)
        arrived = await colors.arrive(PROLIFIC_PID=person, STUDY_ID=at, SESSION_ID=submission)
        query = await colors.query(arrived)
        await colors.answer({"token": query["token"], "winner": query["left"]})
        headers = {"X-Salmon-Session": arrived["session"]}
        await colors.client.post(f"/e/{colors.slug}/finish", json={"given": 1}, headers=headers)
        people.append(colors.context.signer.read_session(arrived["session"]).participant)
    return people


async def paid(send: Send, name: str, what: dict[str, Any], *, key: str = KEY + "1") -> httpx.Response:
    plan = (await send("POST", f"{PAGE.format(name)}/payments/plan", json=what)).raise_for_status().json()
    body = {**what, "key": key, "count": plan["count"], "sum": plan["sum"]}
    return await send("POST", f"{PAGE.format(name)}/payments", json=body)


def sentence(reply: httpx.Response) -> str:
    error = reply.json()["error"]
    return f"{error['message']} {error['hint']}"


async def experiment_id(context: Context, name: str) -> str:
    return (await context.catalogue.find(name)).id
