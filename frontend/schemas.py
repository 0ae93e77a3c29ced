"""Bodies of requests, checked here once."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Milliseconds = Annotated[float, Field(ge=-1, le=86_400_000_000, allow_inf_nan=False)]


class Body(BaseModel):
    """Base of all bodies: unknown fields are refused, so that a typo is not silently dropped."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ArriveBody(Body):
    """What the page knows when it opens: the parameters of its address, and the session it had before a reload."""

    parameters: dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]] = Field(
        default_factory=dict, max_length=64
    )
    session: Annotated[str, Field(max_length=4096)] | None = None


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


AccountName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
Password = Annotated[str, Field(min_length=8, max_length=1024)]


class LoginBody(Body):
    """A name and a password, of a new account or an old one."""

    name: AccountName
    password: Password
    invitation: Annotated[str, Field(max_length=4096)] = ""


class PasswordBody(Body):
    """The present password and the new one."""

    old: Annotated[str, Field(max_length=1024)]
    new: Password


class InvitationBody(Body):
    """The name of the account that somebody is invited to make."""

    name: AccountName


class StateBody(Body):
    """The state an experiment is to be in."""

    state: Literal["open", "paused", "closed"]


class DraftBody(Body):
    """An experiment's file while it is being written; `zip` where targets will come in a ZIP."""

    spec: Annotated[str, Field(max_length=2_000_000)]
    zip: bool = False
    slug: Annotated[str, Field(max_length=60)] = ""


class NameBody(Body):
    """The name of an experiment: of a copy, or typed once more before it is deleted."""

    name: Annotated[str, Field(max_length=200)]


class SharedBody(Body):
    """Who beside the owner may see and change an experiment."""

    names: Annotated[tuple[AccountName, ...], Field(max_length=200)]


Json = dict[str, Any]
