"""Bodies of requests, checked here once."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Milliseconds = Annotated[float, Field(ge=-1, le=86_400_000_000, allow_inf_nan=False)]


class Body(BaseModel):
    """Base of all bodies: unknown fields are refused, so that a typo is not silently dropped."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ArriveBody(Body):
    """What the page knows when it opens: the parameters of its address, the session it had before a reload, and a
    secret that this browser keeps.
    """

    parameters: dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=4096)]] = Field(
        default_factory=dict, max_length=64
    )
    session: Annotated[str, Field(max_length=4096)] | None = None
    browser: Annotated[str, Field(max_length=64)] = ""


class AnswerBody(Body):
    """One answer: the token of the query, the target that was judged nearer, and what the page measured."""

    token: Annotated[str, Field(max_length=4096)]
    winner: Annotated[int, Field(ge=0, le=10_000_000)]
    rt_ms: Milliseconds = -1
    query_wait_ms: Milliseconds = -1
    onset_client_ms: Milliseconds = -1
    network_latency_ms: Milliseconds = -1
    input: Literal["mouse", "touch", "key", "script", ""] = ""
    sent_attempts: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    blur_during_trial: bool = False
    viewport_w: Annotated[int, Field(ge=0, le=100_000)] = 0
    viewport_h: Annotated[int, Field(ge=0, le=100_000)] = 0


class EventBody(Body):
    """Something that happened on the page."""

    event: Annotated[str, Field(max_length=40)]
    trial: Annotated[int, Field(ge=0)] = 0
    client_ms: Milliseconds = -1
    detail: Annotated[str, Field(max_length=500)] = ""


class FinishBody(Body):
    """How many answers the page has given; `incomplete` when it has tried for long and cannot bring the rest across."""

    given: Annotated[int, Field(ge=0)]
    incomplete: bool = False


def one_or_many_of(body: type[Body]) -> dict[str, Any]:
    """Describe, for the OpenAPI document, a body that a route reads by itself: one item, or a list of them."""
    item = body.model_json_schema()
    schema = {"anyOf": [item, {"type": "array", "items": item}]}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


class PracticeTrial(Body):
    """One trial of the practice: which of its queries, what was chosen, and how long it took."""

    query: Annotated[int, Field(ge=0, le=10_000)]
    winner: Annotated[int, Field(ge=0, le=10_000_000)]
    rt_ms: Milliseconds = -1


class StepBody(Body):
    """What a participant did in a step before or after the trials; each step reads its own fields."""

    agreed: bool = False
    version: Annotated[str, Field(max_length=64)] = ""
    language: Annotated[str, Field(max_length=35)] = ""
    attempt: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    options: Annotated[tuple[Annotated[str, Field(max_length=5000)], ...], Field(max_length=200)] = ()
    trials: Annotated[tuple[PracticeTrial, ...], Field(max_length=500)] = ()
    replies: dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=10_000)]] = Field(
        default_factory=dict, max_length=500
    )


AccountName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._+-][A-Za-z0-9._@+-]{0,63}$")]
Password = Annotated[str, Field(min_length=1, max_length=1024)]


class PasswordBody(Body):
    """The present password and the new one."""

    old: Password
    new: Password


class InvitationBody(Body):
    """The name and role of the account that somebody is invited to make."""

    name: AccountName
    role: Literal["owner", "experimenter", "viewer"] = "experimenter"


class RoleBody(Body):
    """The role that an account is to have."""

    role: Literal["owner", "experimenter", "viewer"]


class ApiTokenBody(Body):
    """An API token to be made: what it is called, what it may do, on which experiment, and for how many days."""

    label: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[^\x00-\x1f\x7f]+$")]
    scope: Literal["read", "write"] = "read"
    experiment: Annotated[str, Field(max_length=60)] = ""
    days: Annotated[int, Field(ge=1, le=366)] = 90


class SecondFactorBody(Body):
    """The password, and for switching a second factor on what the first step returned with a code of the app."""

    password: Password
    setup: Annotated[str, Field(max_length=4096)] = ""
    code: Annotated[str, Field(max_length=64)] = ""


class StateBody(Body):
    """The state an experiment is to be in."""

    state: Literal["open", "paused", "closed"]


Window = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{8,40}$")]


class DraftBody(Body):
    """An experiment's file while it is being written; `draft` where the ZIP of the caller's draft belongs to it, `zip`
    where targets will come in a ZIP that was not sent yet.
    """

    spec: Annotated[str, Field(max_length=2_000_000)]
    zip: bool = False
    draft: bool = False
    slug: Annotated[str, Field(max_length=60)] = ""


class DraftVersionBody(Body):
    """The text of a draft, the version that it was written from (0: none), and the window that saves it."""

    spec: Annotated[str, Field(max_length=2_000_000)]
    known: Annotated[int, Field(ge=0)]
    window: Window


class WindowBody(Body):
    """A window that shows a draft, or has just been closed."""

    window: Window
    closed: bool = False


class NameBody(Body):
    """The name of an experiment: of a copy, or typed once more before it is deleted."""

    name: Annotated[str, Field(max_length=200)]


class SharedBody(Body):
    """Who beside the owner may look at an experiment or change it, by the name of their account."""

    accounts: Annotated[dict[AccountName, Literal["view", "edit"]], Field(max_length=200)]


Json = dict[str, Any]
