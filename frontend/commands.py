"""Commands that need the store: they speak to a running Salmon through its data directory or SALMON_REDIS_URL."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.console import Console

from frontend.auth import LOCAL, make_account
from frontend.context import Context, open_context
from frontend.errors import ConflictError
from frontend.launching import free_slug, slug_of
from frontend.launching import launch as launch_experiment
from frontend.settings import Settings
from frontend.transfer.bundle_writer import write_bundle
from frontend.transfer.import_answers import ImportFiles, import_file
from frontend.transfer.import_bundle import Imported
from frontend.transfer.source import ExportSource
from frontend.transfer.subprocesses import BUNDLE, ExportOrder
from salmon.cli.data_directory import DataDirectory
from salmon.cli.serve import DEFAULT_DATA, DataOption
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
    data: DataOption = DEFAULT_DATA,
) -> None:
    """Put an experiment on the running server and print the link for participants.

    Example: salmon launch examples/colors/experiment.yaml
    """
    beside = spec.parent / "targets.zip"
    path = spec.expanduser().resolve()

    async def put(context: Context) -> tuple[str, list[str]]:
        made, warnings = await launch_experiment(
            context,
            path.read_bytes(),
            spec_name=path,
            archive=targets or (beside if beside.exists() else None),
            name=name,
            owner=LOCAL,
            state="draft" if draft else "open",
        )
        return made.slug, warnings

    slug, warnings = _with_store(data, put)
    for warning in warnings:
        print(warning, file=sys.stderr)
    print(f"{_address(data)}/e/{slug}/")


def export_bundle(
    slug: Annotated[str, typer.Argument(help="The experiment's name in its link.")],
    out: Annotated[Path | None, typer.Option(help="The ZIP to write; by default SLUG-bundle.zip.")] = None,
    personal: Annotated[
        bool, typer.Option(help="Include platform ids; a bundle without them cannot be imported.")
    ] = True,
    data: DataOption = DEFAULT_DATA,
) -> None:
    """Write everything of an experiment into one ZIP: tables, a data dictionary, and what `salmon import` restores.

    Example: salmon export colors --out colors.zip
    """
    order = ExportOrder(slug, *BUNDLE, personal=personal)
    path = (out or Path(order.filename)).expanduser().resolve()
    # Under its name there is never half a bundle.
    temporary = path.with_name(f".{path.name}.part")

    async def put(context: Context) -> None:
        source = await ExportSource.open(context, order)
        with temporary.open("wb") as file:
            await write_bundle(source, file.write)
            file.flush()
            os.fsync(file.fileno())

    try:
        with Console(stderr=True).status(f"Writing {path.name} ..."):
            _with_store(data, put)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    print(path)


def import_files(
    file: Annotated[
        Path,
        typer.Argument(
            help="A ZIP that `salmon export` has written; or responses.csv or .json of any Salmon, its .rdb backup, or"
            " a table of tripletTools or the jsPsych template.",
            exists=True,
            dir_okay=False,
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
    """Bring an experiment in: a bundle with all that belongs to it, or the answers of another program. It is paused then.

    Example: salmon import responses.csv --config init.yaml --targets targets.zip
    """
    files = ImportFiles(file, file.name, config, targets)

    async def put(context: Context) -> Imported:
        otherwise = await free_slug(context, file.name.partition(".")[0], given=False)
        return await import_file(context, files, slug=slug_of(name) if name else "", otherwise=otherwise, owner=LOCAL)

    with Console(stderr=True).status(f"Checking and importing {file.name} ..."):
        made = _with_store(data, put)
    print(made.sentence, file=sys.stderr)
    print(f"{_address(data)}/e/{made.slug}/")


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


@user.command(name="add")
def add_user(
    name: Annotated[str, typer.Argument(help="Letters, digits, dots, dashes and underscores.")],
    owner: Annotated[
        bool, typer.Option("--owner", help="Create the owner's account, in case the first link was lost.")
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
    if len(password) < 8:
        raise ConflictError("The password has fewer than 8 characters.", hint="Choose a longer one.")
    _with_store(data, lambda context: make_account(context, name, password, owner=owner))
    print(f"{name} can log in at {_address(data)}/console/")


def _with_store(data: Path, work: Callable[[Context], Awaitable[Result]]) -> Result:
    """Do something on the store of a running Salmon."""

    async def run() -> Result:
        async with open_context(_settings(data)) as context:
            return await work(context)

    return asyncio.run(run())


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
    return Settings(redis_url=url, secret=credentials.secret, data=str(directory.root))


def _address(data: Path) -> str:
    """Return where the running Salmon is reached, as it noted when it started."""
    public = os.environ.get("SALMON_PUBLIC_URL", "").rstrip("/")
    noted = DataDirectory(data.expanduser().resolve()).running / "address"
    return public or (noted.read_text().strip() if noted.exists() else "http://localhost:8421")
