"""Pages of the console. They come with the data that they show first; their scripts use
the same routes as any client.
"""

import asyncio
import secrets

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response
from typing_extensions import TypedDict

from frontend.auth import (
    Experimenter,
    InPerson,
    WithAccount,
    WithExperiment,
    WithExperimenter,
    WithOwner,
    access_of,
    may_edit,
    may_see,
)
from frontend.console.accounts import (
    AccountRow,
    InvitationRow,
    list_accounts,
    list_invitations,
    read_log,
    read_own_account,
)
from frontend.console.dashboard import TargetRow, read_targets, samplers_with_embedding
from frontend.console.experiments import ExampleRow, read_examples
from frontend.console.participants import list_erasures
from frontend.context import Context, WithContext
from frontend.errors import NotFoundError
from frontend.experiments import ServedExperiment
from frontend.html import clean
from frontend.pages import ExperimentHead, ExperimentLine, ExperimentsPage, Frame, ScriptedPage, Tab, TabPage
from frontend.participant.arrival import link_for
from frontend.store.accounts import LOCAL, Role
from frontend.store.experiments import Change, State
from frontend.store.sessions import Access
from frontend.transfer.erasure import ErasureRow
from frontend.transfer.rehearsals import find_rehearsal
from salmon.spec import TargetKind


class MapTarget(TypedDict):
    """A target as the map draws it."""

    index: int
    kind: TargetKind
    media: str
    width: int
    height: int
    name: str
    file: str
    html: str


class LaunchData(TypedDict):
    """What the editor of a new experiment begins with."""

    examples: list[ExampleRow]


class PeopleData(TypedDict):
    """What the page of all accounts begins with."""

    own: str
    accounts: list[AccountRow]
    invitations: list[InvitationRow]
    log: list[Access]


class PrivacyData(TypedDict):
    """What the privacy page begins with."""

    erasures: list[ErasureRow]
    may_erase: bool
    keep_bundles_days: int


class TabData(TypedDict):
    """What the script of every tab of an experiment begins with."""

    slug: str
    may_edit: bool


class OverviewData(TabData):
    """What the overview begins with."""

    samplers: list[str]
    names: list[str]


class MapData(TabData):
    """What the map begins with."""

    answers: int
    samplers: list[str]
    targets: list[MapTarget]


class TargetsData(TabData):
    """What the page of targets begins with."""

    targets: list[TargetRow]


class ParticipantsData(TabData):
    """What the page of participants begins with."""

    samplers: list[str]


class ExportsData(TabData):
    """What the page of exports begins with."""

    samplers: list[str]
    names: list[str]


class AnalysisData(TabData):
    """What the page of plans, comparisons and reports begins with: the experiment as it stands."""

    targets: int
    d: int
    currency: str
    races: bool
    names: list[str]


class SharedAccount(TypedDict):
    """An account that an experiment can be shared with."""

    name: str
    role: Role
    may: str


class SettingsData(TabData):
    """What the settings of an experiment begin with."""

    state: State
    everybodys: bool
    revision: int
    spec: str
    zip: bool
    answers: int
    accounts: list[SharedAccount]
    changes: list[Change]
    access: str
    rehearsal: str
    keep_bundles_days: int


router = APIRouter()


@router.get("/console", include_in_schema=False)
async def add_slash() -> Response:
    """Redirect to the list; the pages' own links are relative to it."""
    return RedirectResponse("/console/", status_code=307)


@router.get("/console/", response_class=Response)
async def experiments_page(request: Request, context: WithContext, experimenter: WithAccount) -> Response:
    """Return the experiments of this server."""
    lines: list[ExperimentLine] = []
    names = await context.store.accounts.names()
    for state in await context.store.experiments.list():
        if not may_see(experimenter, state):
            continue
        try:
            parsed = await context.catalogue.revision(state.experiment, state.revision)
        except NotFoundError:
            continue  # stored by a version whose description cannot be read any more
        lines.append(
            ExperimentLine(
                slug=state.slug,
                title=parsed.spec.title,
                state=state.state,
                owner=names.get(state.owner, state.owner),
                targets=len(parsed.targets),
                answers=state.counters.get("answers", 0),
                participants=await context.store.participants.count(state.experiment),
                created_ms=state.created_ms,
                address=f"{context.address(request)}/e/{state.slug}/",
                is_rehearsal=bool(state.rehearsal_of),
            )
        )
    return context.pages.show(ExperimentsPage(_frame(context, experimenter), tuple(lines)))


@router.get("/console/new", response_class=Response)
async def launch_page(request: Request, context: WithContext, experimenter: WithExperimenter) -> Response:
    """Return the editor of a new experiment."""
    frame = _frame(context, experimenter, styled=True)
    return context.pages.show(
        ScriptedPage("launch", frame, LaunchData(examples=await read_examples(request, context, experimenter))),
        headers={"Content-Security-Policy": frame.policy},
    )


@router.get("/console/account", response_class=Response)
async def account_page(context: WithContext, experimenter: InPerson) -> Response:
    """Return the page of one's own password, second factor, sessions and API tokens."""
    return context.pages.show(
        ScriptedPage("account", _frame(context, experimenter), await read_own_account(context, experimenter))
    )


@router.get("/console/people", response_class=Response)
async def people_page(context: WithContext, owner: WithOwner) -> Response:
    """Return the page of everybody who may log in, of invitations and of the log."""
    data: PeopleData = {
        "own": owner.name,
        "accounts": await list_accounts(context, owner),
        "invitations": await list_invitations(context, owner),
        "log": await read_log(context, owner, limit=200),
    }
    return context.pages.show(ScriptedPage("people", _frame(context, owner), data))


@router.get("/console/privacy", response_class=Response)
async def privacy_page(context: WithContext, experimenter: WithExperimenter) -> Response:
    """Return the page on which one person is found, exported and erased."""
    data: PrivacyData = {
        "erasures": await list_erasures(context, experimenter),
        "may_erase": bool(context.settings.eraser_url),
        "keep_bundles_days": context.settings.keep_bundles_days,
    }
    return context.pages.show(ScriptedPage("privacy", _frame(context, experimenter), data))


@router.get("/console/experiments/{slug}/", response_class=Response)
async def first_tab(
    request: Request, experiment: WithExperiment, context: WithContext, experimenter: WithAccount
) -> Response:
    """Return the overview of an experiment."""
    return await other_tab(request, experiment, "overview", context, experimenter)


@router.get("/console/experiments/{slug}/{tab}", response_class=Response)
async def other_tab(
    request: Request, experiment: WithExperiment, tab: Tab, context: WithContext, experimenter: WithAccount
) -> Response:
    """Return another tab of an experiment: map, targets, participants, analysis,
    recruitment, payment, exports or settings.
    """
    state = experiment.state
    head = ExperimentHead(
        slug=state.slug,
        title=experiment.spec.title,
        state=state.state,
        revision=state.revision,
        owner=await context.store.accounts.name_of(state.owner),
        address=(address := f"{context.address(request)}/e/{state.slug}/"),
        link=link_for(address, experiment.spec.recruitment.platform),
        access=access_of(experimenter, state),
        rehearses=(await context.store.experiments.read(state.rehearsal_of)).slug if state.rehearsal_of else "",
    )
    data = await _data(context, experimenter, experiment, tab)
    frame = _frame(context, experimenter, styled=tab == "settings")
    return context.pages.show(TabPage(tab, frame, head, data), headers={"Content-Security-Policy": frame.policy})


async def _data(context: Context, experimenter: Experimenter, experiment: ServedExperiment, tab: Tab) -> TabData:
    """Return what a tab's script begins with."""
    every: TabData = {"slug": experiment.state.slug, "may_edit": may_edit(experimenter, experiment.state)}
    match tab:
        case "map":
            rows = await read_targets(experiment, context)
            names = await asyncio.to_thread(_labels, experiment)
            found: TabData = MapData(
                **every,
                answers=experiment.state.counters.get("answers", 0),
                samplers=samplers_with_embedding(experiment.spec),
                targets=[
                    MapTarget(
                        index=row["index"],
                        kind=row["kind"],
                        media=row["media"],
                        width=row["width"],
                        height=row["height"],
                        name=name,
                        file=row["name"],
                        # A map is drawn inside our own page: HTML is cleaned, whatever the experiment trusts.
                        html=clean(row["html"], trusted=False) if row["kind"] == "html" else row["html"],
                    )
                    for row, name in zip(rows, names, strict=True)
                ],
            )
        case "targets":
            found = TargetsData(**every, targets=await read_targets(experiment, context))
        case "exports":
            active = samplers_with_embedding(experiment.spec)
            found = ExportsData(**every, samplers=active, names=list(experiment.spec.samplers))
        case "analysis":
            names = await asyncio.to_thread(_labels, experiment)
            active = list(experiment.active_samplers)
            found = AnalysisData(
                **every,
                targets=len(experiment.targets),
                d=experiment.dimensions_of(active[0]) if active else 2,
                currency=experiment.spec.payment.currency if experiment.spec.payment.reward is not None else "",
                races=bool(experiment.spec.sampling.race),
                names=list(names),
            )
        case "settings":
            found = await _settings(context, experimenter, experiment)
        case "overview":
            names = await asyncio.to_thread(_labels, experiment)
            found = OverviewData(**every, samplers=samplers_with_embedding(experiment.spec), names=list(names))
        case "participants" | "recruitment" | "payment":
            found = ParticipantsData(**every, samplers=samplers_with_embedding(experiment.spec))
    return found


async def _settings(context: Context, experimenter: Experimenter, experiment: ServedExperiment) -> SettingsData:
    store, state = context.store, experiment.state
    stored = await store.experiments.read_revision(experiment.id, state.revision)
    accounts = await store.accounts.list()
    access = access_of(experimenter, state)
    return {
        "slug": state.slug,
        "may_edit": may_edit(experimenter, state),
        "state": state.state,
        "everybodys": state.owner == LOCAL,
        "revision": state.revision,
        "spec": stored.source,
        "zip": stored.manifest is not None,
        "answers": state.counters.get("answers", 0),
        # Only who may share an experiment learns who else has an account.
        "accounts": [
            {"name": account.name, "role": account.role, "may": state.shared.get(account.id, "")}
            for account in accounts
            if account.id != state.owner and account.role != "owner" and access == "own"
        ],
        "changes": list(await store.experiments.read_changes(experiment.id)),
        "access": access,
        "keep_bundles_days": context.settings.keep_bundles_days,
        "rehearsal": scratch.slug if (scratch := await find_rehearsal(context, experiment.id)) else "",
    }


def _labels(experiment: ServedExperiment) -> tuple[str, ...]:
    # numpy is loaded with the first map that somebody looks at.
    from salmon.export.map_drawing import target_labels

    return target_labels(experiment.targets)


def _frame(context: Context, experimenter: Experimenter, *, styled: bool = False) -> Frame:
    """Return the frame of a page; `styled` where the editor adds styles of its own."""
    nonce = secrets.token_urlsafe(16) if styled else ""
    return Frame(experimenter.name, experimenter.role, experimenter.csrf, context.warning, nonce)
