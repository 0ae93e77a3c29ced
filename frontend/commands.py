"""Commands that need the store: they speak to a running Salmon through its data directory or SALMON_REDIS_URL."""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast, get_args

import typer
from rich.console import Console

from frontend.auth import make_account, note
from frontend.console.accounts import change_role, link_of, make_reset, remove_account
from frontend.console.experiments import examples
from frontend.context import Context, open_context
from frontend.errors import BadRequestError, ConflictError
from frontend.launching import free_slug, slug_of
from frontend.launching import launch as launch_experiment
from frontend.settings import Settings
from frontend.store.accounts import LOCAL, Role
from frontend.transfer import erasure
from frontend.transfer.bundle_writer import write_bundle
from frontend.transfer.import_answers import ImportFiles, import_file
from frontend.transfer.import_bundle import Imported
from frontend.transfer.nightly_bundles import file_at
from frontend.transfer.source import ExportSource
from frontend.transfer.subprocesses import BUNDLE, ExportOrder
from salmon import parent_watch
from salmon.cli.check import find_archive
from salmon.cli.data_directory import DataDirectory, write_private_or_stop
from salmon.cli.serve import DEFAULT_DATA, DataOption
from salmon.client import ApiClient, ServerError
from salmon.errors import StartError

Result = TypeVar("Result")


def launch(
    spec: Annotated[Path, typer.Argument(help="The experiment's YAML file.", exists=True, dir_okay=False)],
    targets: Annotated[
        Path | None,
        typer.Option(help="The ZIP of targets; by default targets.zip next to the YAML file, if it exists."),
    ] = None,
    name: Annotated[str, typer.Option(help="The name in the link; by default it is taken from the file.")] = "",
    draft: Annotated[bool, typer.Option("--draft", help="Create a draft instead of opening the experiment.")] = False,
    server: Annotated[
        str, typer.Option(help="The address of a server elsewhere; SALMON_TOKEN holds an API token that may change.")
    ] = "",
    data: DataOption = DEFAULT_DATA,
) -> None:
    """Put an experiment on the running server and print the link for participants.

    Example: salmon launch examples/colors/experiment.yaml
    """
    path = spec.expanduser().resolve()
    if server:
        _launch_elsewhere(server, path, find_archive(spec, targets), name=name, opened=not draft)
        return

    async def put(context: Context) -> tuple[str, list[str]]:
        made, warnings = await launch_experiment(
            context,
            path.read_bytes(),
            spec_name=path,
            archive=find_archive(spec, targets),
            name=name,
            owner=LOCAL,
            state="draft" if draft else "open",
        )
        await note(None, context, "server", "experiment created", made.slug)
        return made.slug, warnings

    slug, warnings = _with_store(data, put)
    for warning in warnings:
        print(warning, file=sys.stderr)
    print(f"{_address(data)}/e/{slug}/")


def example(
    name: Annotated[str, typer.Argument(help="Which example; without a name, all are listed.")] = "",
    data: DataOption = DEFAULT_DATA,
) -> None:
    """Put an example on the running server, and print links: to try it as a participant, and for participants.

    Example: salmon example eggs
    """
    known = {each.name: each for each in examples()}
    if not name:
        for each in known.values():
            print(f"{each.name:10} {each.spec.read_text().partition(chr(10))[0].removeprefix('# ')}")
        return
    if name not in known:
        raise StartError(f"There is no example called {name!r}.", hint=f"There are {', '.join(known)}.")

    async def put(context: Context) -> tuple[str, str]:
        each = known[name]
        made, _ = await launch_experiment(
            context,
            each.spec.read_bytes(),
            spec_name=each.spec,
            archive=each.archive,
            name="",
            owner=LOCAL,
            state="open",
        )
        await note(None, context, "server", "experiment created", made.slug)
        return made.slug, context.signer.sign_tryout(made.experiment)

    slug, key = _with_store(data, put)
    print(f"Try it as a participant (nothing is recorded): {_address(data)}/e/{slug}/?tryout={key}")
    print(f"For participants: {_address(data)}/e/{slug}/")
    print(f"Watch it: {_address(data)}/console/experiments/{slug}/")


def _launch_elsewhere(server: str, spec: Path, archive: Path | None, *, name: str, opened: bool) -> None:
    """Create an experiment on a server that is reached over the network, and print the link for participants."""
    token = os.environ.get("SALMON_TOKEN", "")
    if not token:
        raise StartError(
            "A server elsewhere needs an API token.",
            hint="Make one that may change on the page Account of its console, and put it into SALMON_TOKEN.",
        )
    try:
        made = ApiClient(server, token=token).create(spec, targets=archive, name=name, opened=opened)
    except ServerError as error:
        for sentence in error.problems:
            print(sentence, file=sys.stderr)
        raise
    for warning in made["warnings"]:
        print(warning, file=sys.stderr)
    print(made["address"])


def export_bundle(
    slug: Annotated[str, typer.Argument(help="The experiment's name in its link.")] = "",
    every: Annotated[bool, typer.Option("--all", help="Write a bundle of every experiment into a directory.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="The ZIP to write, by default SLUG-bundle.zip; with --all a directory, by default this one."),
    ] = None,
    personal: Annotated[
        bool, typer.Option(help="Include platform ids; a bundle without them cannot be imported.")
    ] = True,
    data: DataOption = DEFAULT_DATA,
) -> None:
    """Write everything of an experiment into one ZIP: tables, a data dictionary, and what `salmon import` restores.

    Example: salmon export colors --out colors.zip
    """
    if every == bool(slug):
        raise BadRequestError("Name one experiment, or write --all.", hint="Example: salmon export colors")
    if not every:
        order = ExportOrder(slug, *BUNDLE, personal=personal)
        _write_bundle(data, order, (out or Path(order.filename)).expanduser().resolve())
        return
    folder = (out or Path()).expanduser().resolve()
    if not folder.is_dir():
        raise BadRequestError(
            f"There is no directory {folder}.", hint="Make it first: with --all, --out names a directory."
        )

    async def names(context: Context) -> list[str]:
        return sorted(state.slug for state in await context.store.experiments.list() if not state.rehearsal_of)

    for name in _with_store(data, names):
        order = ExportOrder(name, *BUNDLE, personal=personal)
        _write_bundle(data, order, folder / order.filename)


def _write_bundle(data: Path, order: ExportOrder, path: Path) -> None:
    """Write a bundle to a path, under whose name there is never half a bundle."""
    temporary = path.with_name(f".{path.name}.part")

    async def put(context: Context) -> dict[str, str]:
        source = await ExportSource.open(context, order)
        with temporary.open("wb") as file:
            await write_bundle(source, file.write)
            file.flush()
            os.fsync(file.fileno())
        return await source.media_problems()

    try:
        with Console(stderr=True).status(f"Writing {path.name} ..."):
            problems = _with_store(data, put)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    for sentence in problems.values():
        print(f"{sentence} It is not in the bundle.", file=sys.stderr)
    print(path)


def import_files(
    file: Annotated[
        str,
        typer.Argument(
            help="A ZIP that `salmon export` has written, here or at an address such as `s3://bucket/eggs.zip`; or"
            " responses.csv or .json of any Salmon, its .rdb backup, or a table of tripletTools or the jsPsych template.",
        ),
    ],
    config: Annotated[
        Path | None,
        typer.Option(help="The experiment file of the answers: YAML, or the output of /config.", exists=True),
    ] = None,
    targets: Annotated[Path | None, typer.Option(help="The ZIP of targets of the answers.", exists=True)] = None,
    name: Annotated[
        str, typer.Option(help="The name in the link; by default the name of the experiment or of the file.")
    ] = "",
    data: DataOption = DEFAULT_DATA,
) -> None:
    """Bring an experiment in: a bundle with all that belongs to it, or the answers of
    another program. It is paused then.

    Example: salmon import responses.csv --config init.yaml --targets targets.zip
    """

    async def put(context: Context) -> Imported:
        otherwise = await free_slug(context, files.name.partition(".")[0], given=False)
        made = await import_file(context, files, slug=slug_of(name) if name else "", otherwise=otherwise, owner=LOCAL)
        await note(None, context, "server", "experiment imported", made.slug)
        return made

    with (
        file_at(file) as path,
        Console(stderr=True).status(f"Checking and importing {path.name} ..."),
    ):
        files = ImportFiles(path, path.name, config, targets)
        made = _with_store(data, put)
    print(made.sentence, file=sys.stderr)
    print(f"{_address(data)}/e/{made.slug}/")


def verify(data: DataOption = DEFAULT_DATA) -> None:
    """Compare every answer of the running server with the checksum that was recorded with it.

    Example: salmon verify
    """

    async def find(context: Context) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        reader = context.store.export_reader
        reader.leave_out_damaged = True
        for state in await context.store.experiments.list():
            reader.damaged.clear()
            await reader.verify(state.experiment, until="+")
            found[state.slug] = list(reader.damaged)
        return found

    found = _with_store(data, find)
    for slug, damaged in found.items():
        print(
            f"{slug}: {f'{len(damaged)} damaged answers: {chr(32).join(damaged)}' if damaged else 'every answer is intact'}"
        )
    if any(found.values()):
        raise ConflictError(
            "Answers are not as they were recorded: the disk or the memory of the store is damaged.",
            hint="Restore a backup; exports with damaged=leave_out omit them.",
        )


def frontend(
    port: Annotated[int, typer.Option(help="The port to listen on.", min=0, max=65535)] = 8421,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
) -> None:
    """Run the web process alone; SALMON_REDIS_URL, SALMON_SECRET and SALMON_DATA say on what.

    Example: SALMON_REDIS_URL=redis://frontend:…@redis:6379 salmon frontend --host 0.0.0.0
    """
    environment = {**os.environ, "SALMON_HOST": host, "SALMON_PORT": str(port)}
    os.execve(sys.executable, (sys.executable, "-m", "frontend"), environment)  # noqa: S606


user = typer.Typer(help="Manage the accounts of experimenters.", no_args_is_help=True)


@user.callback()
def _accounts() -> None:
    """Manage the accounts of experimenters."""


@user.command(name="list")
def list_users(data: DataOption = DEFAULT_DATA) -> None:
    """Print the accounts with their roles.

    Example: salmon user list
    """
    for account in _with_store(data, lambda context: context.store.accounts.list()):
        factor = "  with a second factor" if account.second_factor else ""
        print(f"{account.name:<24} {account.role}{factor}")


@user.command(name="add")
def add_user(
    name: Annotated[str, typer.Argument(help="Letters, digits, dots, dashes and underscores.")],
    owner: Annotated[
        bool, typer.Option("--owner", help="Create the owner's account, in case the first link was lost.")
    ] = False,
    viewer: Annotated[
        bool,
        typer.Option("--viewer", help="Create an account that looks at what is shared with it, and changes nothing."),
    ] = False,
    data: DataOption = DEFAULT_DATA,
) -> None:
    """Make an account for an experimenter; the password is asked for, or read from standard input.

    Example: salmon user add ada
    """
    if sys.stdin.isatty():
        password = typer.prompt("Password", hide_input=True, confirmation_prompt=True)
    else:
        password = sys.stdin.readline().rstrip("\n")
    role: Role = "viewer" if viewer else "experimenter"

    async def make(context: Context) -> None:
        made = await make_account(context, name, password, owner=owner, role=role)
        await note(None, context, "server", "account created", f"{name}, {made.role}")

    _with_store(data, make)
    print(f"{name} can log in at {_address(data)}/console/")


@user.command(name="remove")
def remove_user(
    name: Annotated[str, typer.Argument(help="The account's name.")], data: DataOption = DEFAULT_DATA
) -> None:
    """Remove an account with its sessions, API tokens and shares; its experiments pass to the owner of the server.

    Example: salmon user remove ada
    """

    async def remove(context: Context) -> int:
        given = await remove_account(context, name)
        await note(None, context, "server", "account removed", name)
        return given

    given = _with_store(data, remove)
    print(f"{name} was removed. Experiments that passed to the owner: {given}.")


@user.command(name="role")
def set_role(
    name: Annotated[str, typer.Argument(help="The account's name.")],
    role: Annotated[str, typer.Argument(help="owner, experimenter or viewer.")],
    data: DataOption = DEFAULT_DATA,
) -> None:
    """Give an account another role; its sessions end.

    Example: salmon user role ada viewer
    """
    if role not in get_args(Role):
        raise StartError(f"There is no role {role!r}.", hint=f"The roles are {', '.join(get_args(Role))}.")

    async def change(context: Context) -> None:
        await change_role(context, name, cast("Role", role))
        await note(None, context, "server", "role changed", f"{name} is {role}")

    _with_store(data, change)
    print(f"{name} is {role} now.")


@user.command(name="reset")
def reset_user(
    name: Annotated[str, typer.Argument(help="The account's name.")],
    second_factor: Annotated[
        bool, typer.Option("--second-factor", help="Remove the account's second factor as well.")
    ] = False,
    data: DataOption = DEFAULT_DATA,
) -> None:
    """Print a link with which somebody chooses a new password, once, within a day.

    Example: salmon user reset ada
    """

    async def reset(context: Context) -> str:
        secret = await make_reset(context, name, by="server")
        account = await context.store.accounts.read(name)
        if second_factor and account is not None:
            await context.store.accounts.remove_second_factor(account)
        await note(None, context, "server", "password reset offered", name)
        return secret

    print(link_of(_address(data), _with_store(data, reset)))


person = typer.Typer(help="Find, export or erase one person.", no_args_is_help=True)


@person.callback()
def _people() -> None:
    """Find, export or erase one person: by a platform id, a participant id, or a parameter of the link."""


PersonArgument = Annotated[str, typer.Argument(help="A platform id, a participant id, or a parameter of the link.")]


@person.command(name="find")
def find_person(name: PersonArgument, data: DataOption = DEFAULT_DATA) -> None:
    """Print what is stored about a person, as counts for each experiment and kept bundle.

    Example: salmon person find 5f3c9a77e1b24d0012ab34cd
    """
    found = _with_eraser(data, lambda context: erasure.find_person(context, _order("find", name)))
    for each in found["experiments"]:
        counts = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in each["stored"].items() if count)
        print(f"{each['slug']}: participant {each['participant']} ({each['status']}): {counts or 'nothing else'}")
    for each in found["bundles"]:
        print(f"kept bundle {each['bundle']}: participant {each['participant']}")
    if not found["experiments"] and not found["bundles"]:
        print(f"Nothing is stored about {name!r}.")


@person.command(name="export")
def export_person(
    name: PersonArgument,
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("person.json"),
    data: DataOption = DEFAULT_DATA,
) -> None:
    """Write everything that is stored about a person into a readable JSON file.

    Example: salmon person export 5f3c9a77e1b24d0012ab34cd --out person.json
    """
    found = _with_eraser(data, lambda context: erasure.export_person(context, _order("export", name)))
    write_private_or_stop(out, json.dumps(found, ensure_ascii=False, indent=1) + "\n")
    print(out)


@person.command(name="erase")
def erase_person(
    name: PersonArgument,
    answers: Annotated[
        erasure.AnswersOf, typer.Option(help="keep: the answers stay as rows of nobody. remove: they go, too.")
    ],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    data: DataOption = DEFAULT_DATA,
) -> None:
    """Erase a person everywhere in the data directory; this cannot be undone.

    Example: salmon person erase 5f3c9a77e1b24d0012ab34cd --answers keep
    """
    if not yes:
        typer.confirm(f"Erase everything about {name!r}? This cannot be undone.", abort=True)

    async def erase(context: Context) -> erasure.Erasure:
        identifier = await erasure.order_erasure(context, _order("erase", name, answers))
        while True:
            await erasure.carry_out(context)
            known = (await erasure.read_erasures(context))[identifier]
            if known.ended:
                return known
            await asyncio.sleep(1)  # a web process carries it out

    with Console(stderr=True).status(f"Erasing {name} ..."):
        done = _with_eraser(data, erase)
    if done.state == "failed":
        raise ConflictError(done.error)
    what = "are nobody's now" if answers == "keep" else "were removed"
    print(f"Erased from {', '.join(done.slugs)}. {done.removed} answers {what}; nothing of the person is left.")
    for line in (*(f"Kept bundle written anew: {bundle}" for bundle in done.bundles), *done.unreached):
        print(line)


def _order(
    do: Literal["find", "export", "erase"], name: str, answers: erasure.AnswersOf = "keep"
) -> erasure.PeopleOrder:
    """Return an order of whoever runs commands on the server, who sees all experiments."""
    return erasure.PeopleOrder(do, name, LOCAL, LOCAL, "owner", answers=answers)


def _with_eraser(data: Path, work: Callable[[Context], Awaitable[Result]]) -> Result:
    """Do something on the store of a running Salmon, as its eraser."""

    async def run() -> Result:
        async with erasure.open_eraser(_settings(data)) as context:
            return await work(context)

    return _run_privately(run())


def _with_store(data: Path, work: Callable[[Context], Awaitable[Result]]) -> Result:
    """Do something on the store of a running Salmon."""

    async def run() -> Result:
        async with open_context(_settings(data)) as context:
            return await work(context)

    return _run_privately(run())


def _run_privately(work: Coroutine[Any, Any, Result]) -> Result:
    """Do something that writes into the data directory, as the server does: for its own user only."""
    before = os.umask(parent_watch.PRIVATE_UMASK)
    try:
        return asyncio.run(work)
    finally:
        os.umask(before)


def _settings(data: Path) -> Settings:
    """Return the settings of the running Salmon: the environment's, or those of its data directory."""
    if os.environ.get("SALMON_REDIS_URL") and os.environ.get("SALMON_SECRET"):
        return Settings()  # pyright: ignore[reportCallIssue]
    directory = DataDirectory(data.expanduser().resolve())
    if not (directory.root / "credentials.json").exists():
        raise StartError(
            f"There is no Salmon in {directory.root}.",
            hint="Start it with `salmon serve`, or name its data directory with --data.",
        )
    credentials = directory.credentials()
    url = os.environ.get("SALMON_REDIS_URL") or directory.redis_url("frontend", credentials.frontend)
    eraser = os.environ.get("SALMON_ERASER_URL", "")
    if not os.environ.get("SALMON_REDIS_URL"):
        eraser = directory.redis_url("eraser", credentials.eraser)
    return Settings(redis_url=url, eraser_url=eraser, secret=credentials.secret, data=directory.files_location)


def _address(data: Path) -> str:
    """Return where the running Salmon is reached, as it noted when it started."""
    public = os.environ.get("SALMON_PUBLIC_URL", "").rstrip("/")
    noted = DataDirectory(data.expanduser().resolve()).running / "address"
    return public or (noted.read_text().strip() if noted.exists() else "http://localhost:8421")
