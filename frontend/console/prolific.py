"""The Prolific account of an experimenter and the study of an experiment there: the token,
the draft, places and webhooks.

Every request to Prolific goes by the token of whoever asks, so nobody spends from another's account. Payments are in
`frontend.console.prolific_payments`.
"""

import asyncio
import secrets
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Literal
from urllib.parse import urlsplit

from fastapi import APIRouter, Request
from pydantic import Field
from typing_extensions import TypedDict

from frontend.auth import (
    EditableExperiment,
    Experimenter,
    InPerson,
    WithAccount,
    WithExperimenter,
    access_of,
    note,
)
from frontend.console.accounts import forget_prolific
from frontend.console.recruitment import link_of
from frontend.context import Context, WithContext
from frontend.errors import BadRequestError, ConflictError, LostReplyError, PlatformError
from frontend.experiments import ServedExperiment
from frontend.html import plain
from frontend.prolific.credentials import ProlificAccount, read_token, reference_of
from frontend.prolific.payments import PaymentOrder, Spending, cents_of, cost_of_screen_outs, spending_of
from frontend.prolific.platform import Prolific, Study, StudyDraft, decimal_of
from frontend.prolific.webhooks import REMEMBERED_S, check_id, check_signature, read_event
from frontend.schemas import Body
from frontend.store.experiments import Change
from frontend.store.prolific import ProlificRecords, StudyRecord
from frontend.submissions import apply_event, read_submissions, record_of
from salmon.errors import SalmonError
from salmon.spec import Spec
from salmon.spec.schema import ProlificStudy

router = APIRouter(prefix="/api")

#: Where a study is looked at on Prolific's own pages.
_STUDY_PAGE = "https://app.prolific.com/researcher/studies/"
Cents = Annotated[int, Field(ge=0, le=10_000_000_000)]


class ProlificAccountReply(TypedDict):
    """The account's connection to Prolific, without its secrets; `events` counts what webhooks have sent."""

    token: bool
    from_environment: bool
    workspace: str
    webhooks: bool
    events: dict[str, int]


class PaymentRow(TypedDict):
    """A payment; `open` where Prolific has not confirmed it."""

    key: str
    action: Literal["approve", "bonus"]
    count: int
    sum: int
    by: str
    at_ms: int
    state: str
    open: bool


class ProlificStudyReply(TypedDict):
    """The study at Prolific as it was last seen. Amounts are in hundredths of the account's currency."""

    id: str
    page: str
    status: str
    places: int
    taken: int
    reward: int
    currency: str
    counts: dict[str, int]
    seen_ms: int
    own: bool


class ProlificReply(TypedDict):
    """An experiment at Prolific. `problems` say what keeps a study from being made, and `draft_cost` what it would
    cost; who took part in the experiments `not_from` does not see it.

    `limit` is the file's spend_at_most in hundredths, or None; `committed` is what is promised and paid.
    """

    token: bool
    problems: list[str]
    reward: int
    places: int
    minutes: int
    currency: str
    draft_cost: int
    limit: int | None
    committed: int
    study: ProlificStudyReply | None
    not_from: list[str]
    webhooks: bool
    payments: list[PaymentRow]


class GroupsReply(TypedDict):
    """How many people of each earlier experiment are kept out."""

    people: dict[str, int]


class TokenBody(Body):
    """A token of Prolific, and the workspace where the account has several."""

    token: Annotated[str, Field(min_length=1, max_length=600)]
    workspace: Annotated[str, Field(max_length=200)] = ""


class CostBody(Body):
    """What the page showed as the cost: another cost is refused, because nobody has agreed to it."""

    cost: Cents


class StudyBody(Body):
    """The id of a study that was made on Prolific's own page."""

    study: Annotated[str, Field(pattern=r"^[A-Za-z0-9]{8,64}$")]


class PlacesBody(Body):
    """How many places the study is to have, and what the further ones cost by the page."""

    places: Annotated[int, Field(ge=1, le=100_000)]
    cost: Cents


@router.get("/account/prolific")
async def read_connection(context: WithContext, experimenter: InPerson) -> ProlificAccountReply:
    """Return whether there is a token for Prolific, and for which workspace; never the token."""
    return await _connection(context, experimenter)


@router.put("/account/prolific")
async def connect(
    request: Request, body: TokenBody, context: WithContext, experimenter: InPerson
) -> ProlificAccountReply:
    """Try a token at Prolific and keep it, in a file that only the server reads."""
    if experimenter.role == "viewer":
        raise BadRequestError("A viewer recruits nobody, so there is no use for a token.")
    token = read_token(body.token)
    workspaces = await _prolific(context, ProlificAccount(token)).read_workspaces()
    chosen = [each for each in workspaces if body.workspace in {each.id, each.name}] if body.workspace else workspaces
    if len(chosen) != 1:
        names = ", ".join(each.name or each.id for each in workspaces)
        raise BadRequestError(
            f"The token reaches these workspaces: {names}." if names else "The token reaches no workspace.",
            hint="Enter the name of the one to use.",
            where="workspace",
        )
    (workspace,) = chosen
    files, reference = context.prolific_files, reference_of(experimenter.id)
    await asyncio.to_thread(files.write, reference, ProlificAccount(token, workspace.id, workspace.name))
    await note(request, context, experimenter.name, "Prolific token set", workspace.name or workspace.id)
    return await _connection(context, experimenter)


@router.delete("/account/prolific")
async def disconnect(request: Request, context: WithContext, experimenter: InPerson) -> ProlificAccountReply:
    """Forget the token for Prolific, and ask Prolific to send no more events."""
    credentials = await context.read_prolific(experimenter.id)
    if credentials is not None and credentials.webhook_secret and not credentials.from_environment:
        address = _webhook_address(context, request, reference_of(experimenter.id))
        with suppress(PlatformError):  # without the secret, what still comes is refused
            await _prolific(context, credentials).unsubscribe(credentials.workspace, address)
    await forget_prolific(context, experimenter.id)
    await note(request, context, experimenter.name, "Prolific token removed")
    return await _connection(context, experimenter)


@router.get("/experiments/{slug}/prolific")
async def read_study(experiment: EditableExperiment, context: WithContext, experimenter: WithAccount) -> ProlificReply:
    """Return the study of an experiment as it was last seen at Prolific; this asks Prolific nothing."""
    return await reply_of(context, experimenter, experiment)


@router.post("/experiments/{slug}/prolific/refresh")
async def refresh(
    experiment: EditableExperiment, context: WithContext, experimenter: WithExperimenter
) -> ProlificReply:
    """Ask Prolific about the study and its submissions, and apply their statuses to the participants."""
    platform, record = await open_study(context, experimenter, experiment)
    await read_submissions(context, platform, experiment.id, record)
    return await reply_of(context, experimenter, experiment)


@router.post("/experiments/{slug}/prolific/study", status_code=201)
async def create_study(
    request: Request, body: CostBody, experiment: EditableExperiment, context: WithContext, experimenter: InPerson
) -> ProlificReply:
    """Make a draft of the study at Prolific. Nobody sees it, and nothing is paid, until somebody publishes it there."""
    terms = terms_of(experiment.spec)
    records = await context.store.prolific.read(experiment.id)
    problems = problems_of(experiment.spec, records)
    screen_outs = cost_of_screen_outs(experiment.spec, terms)
    spending = spending_of(experiment.spec, terms, None, screen_outs=screen_outs, approved=0, bonuses=records.bonuses)
    if problems:
        raise ConflictError(problems[0], hint="Change the file, then try again.")
    spending.check_places(terms.places)
    _check_cost(body.cost, spending.committed)
    credentials, platform = await open_account(context, experimenter)
    name = await context.store.prolific.begin_creation(experiment.id, f"{experiment.state.slug} {secrets.token_hex(4)}")
    if records.creating:
        found = await platform.find_draft(name)
        if found is not None:
            return await _keep(request, context, experimenter, experiment, found)
    try:
        blocked = await _blocked_groups(context, experimenter, platform, credentials.workspace, terms)
        draft = draft_of(experiment.spec, link_of(request, context, experiment), internal_name=name, blocked=blocked)
        study = await platform.create_study(draft, await platform.read_project(credentials.workspace))
    except LostReplyError:
        raise
    except SalmonError:
        await context.store.prolific.end_creation(experiment.id)
        raise
    return await _keep(request, context, experimenter, experiment, study)


@router.put("/experiments/{slug}/prolific/study")
async def enter_study(
    request: Request, body: StudyBody, experiment: EditableExperiment, context: WithContext, experimenter: InPerson
) -> ProlificReply:
    """Connect the experiment with a study that was made on Prolific's own page."""
    terms_of(experiment.spec)
    _, platform = await open_account(context, experimenter)
    study = await platform.read_study(body.study)
    if not urlsplit(study.link).path.rstrip("/").endswith(f"/e/{experiment.state.slug}"):
        raise ConflictError(
            "This study leads elsewhere: its address is not that of this experiment.",
            hint="Look at the study's URL on Prolific.",
            where="study",
        )
    return await _keep(request, context, experimenter, experiment, study)


@router.delete("/experiments/{slug}/prolific/study")
async def forget_study(
    request: Request, experiment: EditableExperiment, context: WithContext, experimenter: InPerson
) -> ProlificReply:
    """Forget which study belongs to the experiment; at Prolific nothing changes, and what was paid stays known."""
    await context.store.prolific.forget_study(experiment.id)
    await tell(request, context, experimenter, experiment, "study disconnected", "")
    return await reply_of(context, experimenter, experiment)


@router.post("/experiments/{slug}/prolific/places")
async def set_places(
    request: Request, body: PlacesBody, experiment: EditableExperiment, context: WithContext, experimenter: InPerson
) -> ProlificReply:
    """Raise the places of the study, within the limit of the file. Prolific never takes places back."""
    platform, record = await open_study(context, experimenter, experiment)
    study = await platform.read_study(record.id)
    if body.places < study.places:
        raise ConflictError(
            f"The study has {study.places} places, and Prolific takes none back.",
            hint="Pause or stop the study on Prolific instead.",
            where="places",
        )
    records = await context.store.prolific.read(experiment.id)
    spending_for(experiment.spec, study, records).check_places(body.places)
    _check_cost(body.cost, (body.places - study.places) * study.reward)
    if body.places > study.places:
        detail = f"{study.places} → {body.places} places of {decimal_of(study.reward)} {study.currency}".strip()
        await tell(request, context, experimenter, experiment, "places ordered", detail)
        study = await platform.set_places(study.id, body.places)
        await tell(request, context, experimenter, experiment, "places raised", detail)
    now = record_of(study, record, None, now_ms=context.now_ms())
    await context.store.prolific.write_study(experiment.id, now)
    return await reply_of(context, experimenter, experiment)


@router.post("/experiments/{slug}/prolific/groups")
async def update_groups(experiment: EditableExperiment, context: WithContext, experimenter: InPerson) -> GroupsReply:
    """Add to Prolific's groups who took part meanwhile in the experiments of `not_from`; return how many each has."""
    terms = terms_of(experiment.spec)
    credentials, platform = await open_account(context, experimenter)
    await _blocked_groups(context, experimenter, platform, credentials.workspace, terms)
    return {"people": {name: len(await _people_of(context, experimenter, name)) for name in terms.not_from}}


@router.post("/experiments/{slug}/prolific/webhooks")
async def subscribe(
    request: Request, experiment: EditableExperiment, context: WithContext, experimenter: InPerson
) -> ProlificReply:
    """Ask Prolific to send what happens to studies and submissions of the workspace as it happens."""
    credentials, platform = await open_account(context, experimenter)
    reference = await _reference(context, experimenter)
    address = _webhook_address(context, request, reference)
    if not address.startswith("https://") and context.settings.prolific_url.startswith("https://"):
        raise ConflictError(
            "Prolific sends events to https:// addresses only, and this server has none.",
            hint="Statuses come by asking meanwhile; set up HTTPS to get them at once.",
        )
    secret = await platform.webhook_secret(credentials.workspace)
    await asyncio.to_thread(context.prolific_files.write, reference, replace(credentials, webhook_secret=secret))
    await platform.subscribe(credentials.workspace, address)
    await tell(request, context, experimenter, experiment, "webhooks switched on", "")
    return await reply_of(context, experimenter, experiment)


@router.post("/prolific/events/{reference}")
async def receive_event(reference: str, request: Request, context: WithContext) -> dict[str, str]:
    """Take an event of Prolific: who sent it is proved by its signature, and an event
    that comes again changes nothing.
    """
    body = await request.body()
    kept = await asyncio.to_thread(context.prolific_files.read_file, reference)
    at_ms = check_signature(
        kept.webhook_secret if kept else "",
        timestamp=request.headers.get("x-prolific-request-timestamp", ""),
        signature=request.headers.get("x-prolific-request-signature", ""),
        body=body,
        now_ms=context.now_ms(),
    )
    identifier = check_id(request.headers.get("x-event-id", ""))
    event, studies = read_event(body, at_ms=at_ms), context.store.prolific
    if not await studies.claim_event(reference, identifier, seconds=REMEMBERED_S):
        await studies.count_event(reference, "repeated")
        return {"status": "repeated"}
    try:
        outcome = await apply_event(context, reference, event)
    except BaseException:  # also where the request is cancelled: Prolific then sends the event again
        await studies.release_event(reference, identifier)
        raise
    await studies.count_event(reference, outcome)
    return {"status": outcome}


async def open_account(context: Context, experimenter: Experimenter) -> tuple[ProlificAccount, Prolific]:
    """Return the credentials of who asks and the API; ConflictError where there is no token."""
    credentials = await context.read_prolific(experimenter.id)
    if credentials is None:
        raise ConflictError(
            "Your account has no token for Prolific.",
            hint="Make one at Prolific (Settings, API tokens) and enter it on the page Account.",
        )
    platform = _prolific(context, credentials)
    if not credentials.workspace:
        workspaces = await platform.read_workspaces()
        if not workspaces:
            raise ConflictError("The token for Prolific reaches no workspace.", hint="Make another token.")
        credentials = replace(credentials, workspace=workspaces[0].id, workspace_name=workspaces[0].name)
    return credentials, platform


async def open_study(
    context: Context, experimenter: Experimenter, experiment: ServedExperiment
) -> tuple[Prolific, StudyRecord]:
    """Return the API and the study of an experiment; ConflictError where there is none."""
    record = await context.store.prolific.read_study(experiment.id)
    if record is None:
        raise ConflictError("This experiment has no study at Prolific.", hint="Create its draft first.")
    _, platform = await open_account(context, experimenter)
    return platform, record


def terms_of(spec: Spec) -> ProlificStudy:
    """Return what the file says about the study; ConflictError where it says nothing."""
    terms = spec.recruitment.prolific
    if terms is None:
        raise ConflictError(
            "The file does not describe a study at Prolific.",
            hint="Write recruitment: {prolific: {minutes: …, places: …, spend_at_most: …}}.",
            where="recruitment.prolific",
        )
    return terms


def problems_of(spec: Spec, records: ProlificRecords) -> list[str]:
    """Return what keeps a study from being made from this file, one sentence each."""
    recruitment, terms = spec.recruitment, spec.recruitment.prolific
    problems: list[str] = []
    if recruitment.platform != "prolific":
        problems.append("The file says recruitment.platform is another one: write platform: prolific.")
    if terms is None:
        problems.append(
            "The file does not describe the study: write recruitment: {prolific: {minutes: …, places: …, spend_at_most: …}}."
        )
    elif terms.spend_at_most is None:
        problems.append("The file does not say how much may be spent: write spend_at_most under recruitment.prolific.")
    reward, screened_out = spec.payment.reward, spec.payment.screened_out
    if reward is None:
        problems.append("The file does not say what participants get: write payment: {reward: …}.")
    elif terms is not None and terms.screen_out_places and screened_out is not None and screened_out >= reward:
        problems.append("payment.screened_out is not below payment.reward, which Prolific asks for.")
    if not recruitment.completion_code:
        problems.append(
            "The file has no completion code: write one under recruitment, such as completion_code: C7X2Q9."
        )
    if records.study is not None:
        problems.append("There is a study at Prolific already.")
    return problems


def draft_of(spec: Spec, link: str, *, internal_name: str, blocked: tuple[str, ...]) -> StudyDraft:
    """Return the draft of a study: all that Prolific asks for, from the experiment's file."""
    recruitment, terms = spec.recruitment, terms_of(spec)
    description = " ".join(plain(text) for text in (spec.html.title, spec.html.instructions)).strip()
    return StudyDraft(
        name=plain(spec.html.title),
        internal_name=internal_name,
        description=description,
        link=link,
        completion_code=recruitment.completion_code or "",
        reward=cents_of(spec.payment.reward),
        places=terms.places,
        minutes=terms.minutes,
        screen_out_code=recruitment.screen_out_code or "",
        screen_out_reward=cents_of(spec.payment.screened_out),
        screen_out_places=terms.screen_out_places,
        blocked_groups=blocked,
        signed_links=terms.signed_links,
        desktop="desktop" in spec.page.devices,
        mobile="mobile" in spec.page.devices,
    )


def spending_for(spec: Spec, study: Study | None, records: ProlificRecords) -> Spending:
    """Return the spending of an experiment's study; `study` is as Prolific has it now."""
    terms, record = terms_of(spec), records.study
    screen_outs = record.screen_outs if record else cost_of_screen_outs(spec, terms)
    return spending_of(spec, terms, study, screen_outs=screen_outs, approved=records.approved, bonuses=records.bonuses)


async def reply_of(context: Context, experimenter: Experimenter, experiment: ServedExperiment) -> ProlificReply:
    """Return an experiment at Prolific, from what is kept of it."""
    records, credentials = (
        await context.store.prolific.read(experiment.id),
        await context.read_prolific(experimenter.id),
    )
    spec, record = experiment.spec, records.study
    terms = spec.recruitment.prolific
    spending = spending_for(spec, _as_study(record) if record else None, records) if terms else None
    payments = sorted((PaymentOrder.decode(text) for text in records.payments.values()), key=lambda each: -each.at_ms)
    return {
        "token": credentials is not None,
        "problems": problems_of(spec, records),
        "reward": cents_of(spec.payment.reward),
        "places": terms.places if terms else 0,
        "minutes": terms.minutes if terms else 0,
        "currency": spec.payment.currency,
        "draft_cost": spending.committed if spending else 0,
        "limit": spending.most if spending else None,
        "committed": spending.committed if spending and record else 0,
        "study": {
            "id": record.id,
            "page": f"{_STUDY_PAGE}{record.id}",
            "status": record.status,
            "places": record.places,
            "taken": record.taken,
            "reward": record.reward,
            "currency": record.currency,
            "counts": dict(record.counts),
            "seen_ms": record.seen_ms,
            "own": record.account == experimenter.id,
        }
        if record
        else None,
        "not_from": list(terms.not_from) if terms else [],
        "webhooks": bool(credentials and credentials.webhook_secret),
        "payments": [
            {
                "key": each.key,
                "action": each.action,
                "count": each.count,
                "sum": each.sum,
                "by": each.by,
                "at_ms": each.at_ms,
                "state": each.state,
                "open": each.state not in {"done", "refused"},
            }
            for each in payments
        ],
    }


async def tell(
    request: Request, context: Context, experimenter: Experimenter, experiment: ServedExperiment, what: str, detail: str
) -> None:
    """Note what somebody did at Prolific, in the history of the experiment and in the log of the server."""
    change = Change(context.now_ms(), experimenter.name, f"Prolific: {what}", detail)
    await context.store.experiments.note_change(experiment.id, change)
    await note(request, context, experimenter.name, f"Prolific: {what}", f"{experiment.state.slug} {detail}".strip())


def _prolific(context: Context, credentials: ProlificAccount) -> Prolific:
    return Prolific(context.settings.prolific_url, credentials.token)


async def _connection(context: Context, experimenter: Experimenter) -> ProlificAccountReply:
    credentials = await context.read_prolific(experimenter.id)
    counts = await context.store.prolific.read_event_counts(await _reference(context, experimenter))
    return {
        "token": credentials is not None,
        "from_environment": bool(credentials and credentials.from_environment),
        "workspace": (credentials.workspace_name or credentials.workspace) if credentials else "",
        "webhooks": bool(credentials and credentials.webhook_secret),
        "events": counts,
    }


async def _reference(context: Context, experimenter: Experimenter) -> str:
    """Return the name of the file in which the secret of the webhooks is."""
    return await asyncio.to_thread(
        context.prolific_files.reference, experimenter.id, owner=experimenter.role == "owner"
    )


async def _keep(
    request: Request, context: Context, experimenter: Experimenter, experiment: ServedExperiment, study: Study
) -> ProlificReply:
    """Keep the study of an experiment, and return the experiment at Prolific."""
    record = StudyRecord(
        id=study.id,
        account=experimenter.id,
        reference=await _reference(context, experimenter),
        status=study.status,
        places=study.places,
        taken=study.taken,
        reward=study.reward,
        currency=study.currency or experiment.spec.payment.currency,
        screen_outs=cost_of_screen_outs(experiment.spec, terms_of(experiment.spec)),
        seen_ms=context.now_ms(),
        created_ms=context.now_ms(),
    )
    await context.store.prolific.write_study(experiment.id, record)
    detail = f"{study.places} places of {decimal_of(study.reward)} {study.currency}".strip()
    await tell(request, context, experimenter, experiment, "study connected", detail)
    return await reply_of(context, experimenter, experiment)


async def _blocked_groups(
    context: Context, experimenter: Experimenter, platform: Prolific, workspace: str, terms: ProlificStudy
) -> tuple[str, ...]:
    """Return the groups of who took part in the experiments of `not_from`, brought up to date at Prolific."""
    groups: list[str] = []
    for name in terms.not_from:
        people = await _people_of(context, experimenter, name)
        earlier = (await context.catalogue.find(name)).id
        group = await context.store.prolific.read_group(earlier, workspace)
        title = f"Salmon: {name} ({earlier})"
        group = group or await platform.find_group(workspace, title)
        if group is None:
            group = await platform.create_group(workspace, title, people)
        else:
            await platform.add_to_group(group, people)
        await context.store.prolific.write_group(earlier, workspace, group)
        groups.append(group)
    return tuple(groups)


async def _people_of(context: Context, experimenter: Experimenter, name: str) -> list[str]:
    """Return Prolific's ids of who took part in an experiment, for somebody who may change it."""
    earlier = await context.catalogue.find(name)
    if access_of(experimenter, earlier.state) not in {"edit", "own"}:
        raise ConflictError(
            f"You may not see who took part in {name}, which the file names under not_from.",
            hint="Ask its owner to share it with you.",
        )
    arrivals = await context.store.export_reader.read_arrivals(earlier.id)
    # Somebody who came several times stands there once more for each time, with a # behind the id.
    ids = {identity.partition(":")[2].partition("#")[0] for identity in arrivals if identity.startswith("prolific:")}
    return sorted(ids)


def _webhook_address(context: Context, request: Request, reference: str) -> str:
    return f"{context.address(request)}/api/prolific/events/{reference}"


def _as_study(record: StudyRecord) -> Study:
    return Study(record.id, "", "", record.status, "", record.places, record.taken, record.reward, record.currency)


def _check_cost(shown: int, cost: int) -> None:
    """Raise ConflictError where the page showed another cost than this."""
    if shown != cost:
        raise ConflictError(
            f"This costs {decimal_of(cost)} now, and the page showed {decimal_of(shown)}.",
            hint="Nothing was changed. Look at the new sum, then confirm it.",
            where="cost",
        )
