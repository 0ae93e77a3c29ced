"""Pages of the console. They come with the data that they show first; their scripts use the same routes as any client."""

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from frontend.auth import LOCAL, Experimenter, WithExperiment, WithExperimenter, may_see
from frontend.console.accounts import list_accounts
from frontend.console.dashboard import read_targets, samplers_with_embedding
from frontend.console.experiments import read_examples
from frontend.context import Context, WithContext
from frontend.errors import NotFoundError
from frontend.experiments import ServedExperiment
from frontend.html import clean
from frontend.pages import ExperimentHead, ExperimentLine, ExperimentsPage, Frame, ScriptedPage, Tab, TabPage
from frontend.schemas import Json

router = APIRouter()


@router.get("/console", include_in_schema=False)
async def add_slash() -> Response:
    """Redirect to the list; the pages' own links are relative to it."""
    return RedirectResponse("/console/", status_code=307)


@router.get("/console/", response_class=Response)
async def experiments_page(request: Request, context: WithContext, experimenter: WithExperimenter) -> Response:
    """Return the experiments of this server."""
    lines: list[ExperimentLine] = []
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
                owner=state.owner,
                targets=len(parsed.targets),
                answers=state.counters.get("answers", 0),
                participants=await context.store.participants.count(state.experiment),
                created_ms=state.created_ms,
                address=f"{context.address(request)}/e/{state.slug}/",
            )
        )
    return context.pages.show(ExperimentsPage(_frame(experimenter), tuple(lines)))


@router.get("/console/new", response_class=Response)
async def launch_page(context: WithContext, experimenter: WithExperimenter) -> Response:
    """Return the editor of a new experiment."""
    return context.pages.show(
        ScriptedPage("launch", _frame(experimenter), {"examples": await read_examples(experimenter)})
    )


@router.get("/console/account", response_class=Response)
async def account_page(context: WithContext, experimenter: WithExperimenter) -> Response:
    """Return the page of one's own password and, for the owner, of everybody who may log in."""
    accounts = await list_accounts(context, experimenter) if experimenter.role == "owner" else []
    return context.pages.show(ScriptedPage("account", _frame(experimenter), {"accounts": accounts}))


@router.get("/console/experiments/{slug}/", response_class=Response)
async def first_tab(
    request: Request, experiment: WithExperiment, context: WithContext, experimenter: WithExperimenter
) -> Response:
    """Return the overview of an experiment."""
    return await other_tab(request, experiment, "overview", context, experimenter)


@router.get("/console/experiments/{slug}/{tab}", response_class=Response)
async def other_tab(
    request: Request, experiment: WithExperiment, tab: Tab, context: WithContext, experimenter: WithExperimenter
) -> Response:
    """Return another tab of an experiment: map, targets, participants, exports or settings."""
    state = experiment.state
    head = ExperimentHead(
        slug=state.slug,
        title=experiment.spec.title,
        state=state.state,
        revision=state.revision,
        owner=state.owner,
        address=f"{context.address(request)}/e/{state.slug}/",
    )
    data = {"slug": state.slug, **await _data(context, experimenter, experiment, tab)}
    return context.pages.show(TabPage(tab, _frame(experimenter), head, data))


async def _data(context: Context, experimenter: Experimenter, experiment: ServedExperiment, tab: Tab) -> Json:
    """Return what a tab's script begins with."""
    match tab:
        case "map":
            rows = await read_targets(experiment, context)
            kept = ("index", "kind", "name", "media", "width", "height")
            return {
                "samplers": samplers_with_embedding(experiment.spec),
                "targets": [
                    # A map is drawn inside our own page: HTML is cleaned, whatever the experiment trusts.
                    {name: row[name] for name in kept}
                    | {"html": clean(row["html"], trusted=False) if row["kind"] == "html" else row["html"]}
                    for row in rows
                ],
            }
        case "targets":
            return {"targets": await read_targets(experiment, context)}
        case "exports":
            return {"samplers": samplers_with_embedding(experiment.spec), "names": list(experiment.spec.samplers)}
        case "settings":
            return await _settings(context, experimenter, experiment)
        case "overview" | "participants":
            return {"samplers": samplers_with_embedding(experiment.spec)}


async def _settings(context: Context, experimenter: Experimenter, experiment: ServedExperiment) -> Json:
    store, state = context.store, experiment.state
    stored = await store.experiments.read_revision(experiment.id, state.revision)
    return {
        "state": state.state,
        "owner": state.owner,
        "everybodys": state.owner == LOCAL,
        "revision": state.revision,
        "spec": stored.source,
        "zip": stored.manifest is not None,
        "answers": state.counters.get("answers", 0),
        "shared": list(state.shared),
        "accounts": [account.name for account in await store.accounts.list() if account.name != state.owner],
        "changes": [vars(change) for change in await store.experiments.read_changes(experiment.id)],
        "may_delete": experimenter.role == "owner" or state.owner == experimenter.name,
    }


def _frame(experimenter: Experimenter) -> Frame:
    return Frame(experimenter.name, experimenter.role, experimenter.csrf)
