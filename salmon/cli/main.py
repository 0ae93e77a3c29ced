"""Build and run the command line `salmon`.

A command's module is imported when the command is called or its help is shown, so that `salmon fit` loads neither the
web application nor the store. Commands of the application are named here and live in `frontend.commands`: the library
names them and never imports them itself.
"""

import os
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple, cast

import typer
from typer.core import TyperCommand, TyperGroup

from salmon.errors import SalmonError, SpecError, StartError

Runnable = TyperCommand | TyperGroup


class Command(NamedTuple):
    """Where a command is implemented, and the line that `salmon --help` shows for it."""

    function: str
    summary: str
    needs_server: bool = False


#: Name of the command -> its implementation, in the order of `salmon --help`.
COMMANDS = {
    "serve": Command("salmon.cli.serve:serve", "Start store, backend and web pages, and keep them running.", True),
    "check": Command("salmon.cli.check:check", "Check an experiment's files without starting anything."),
    "schema": Command("salmon.cli.check:schema", "Print the JSON schema of experiment files, for editors."),
    "plan": Command("salmon.cli.plan:plan", "Say how many answers, people and hours a study needs."),
    "fit": Command("salmon.cli.fit:fit", "Fit an embedding to a file of answers."),
    "choose": Command("salmon.cli.choose:choose", "Choose dimension and noise model on held-out answers."),
    "groups": Command("salmon.cli.groups:groups", "Find groups of people who see similarity differently."),
    "race": Command("salmon.cli.race:race", "Say which of the samplers that race is ahead."),
    "report": Command("salmon.cli.report:report", "Write the report of a study from its bundle."),
    "rehearse": Command(
        "salmon.cli.rehearse:rehearse",
        "Walk simulated people through an experiment, from the link to the way out.",
        True,
    ),
    "launch": Command("frontend.commands:launch", "Create an experiment on the running server.", True),
    "example": Command("frontend.commands:example", "Create one of the examples on the running server.", True),
    "export": Command(
        "frontend.commands:export_bundle", "Write a bundle: one ZIP with all data of an experiment.", True
    ),
    "import": Command("frontend.commands:import_files", "Import a bundle or the answers of another program.", True),
    "verify": Command("frontend.commands:verify", "Compare every answer with its checksum.", True),
    "person": Command("frontend.commands:person", "Find, export or erase one person.", True),
    "user": Command("frontend.commands:user", "Manage the accounts of experimenters.", True),
    "install-service": Command(
        "salmon.cli.install_service:install_service", "Let systemd start Salmon with the machine.", True
    ),
    "cluster": Command("salmon.cli.cluster:cluster", "Workers elsewhere that dial out to one TLS port.", True),
    "slurm": Command("salmon.cli.slurm:slurm", "Print the batch file of workers on a SLURM cluster.", True),
    "doctor": Command("frontend.doctor:doctor", "Look at a server from outside and say what is wrong.", True),
    "frontend": Command("frontend.commands:frontend", "Run the web process alone.", True),
    "backend": Command("salmon.cli.serve:backend", "Run the learning process alone.", True),
}
#: The command that installs what the server needs.
_INSTALL_SERVER = 'pip install "salmon-triplets[server]"'
_SERVER_PACKAGES = ("fastapi", "redis", "distributed", "torch")


class LazyCommands(TyperGroup):
    """The group of all commands; each is imported when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands, most important first."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> TyperCommand | None:
        """Return what the help page needs of one command, without importing it; None if there is none of this name."""
        del ctx
        command = COMMANDS.get(cmd_name)
        return TyperCommand(cmd_name, help=command.summary) if command else None

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Runnable | None, list[str]]:
        """Import and return the command that is called, with the arguments that are left."""
        name, found, rest = super().resolve_command(ctx, args)
        return name, load(name) if name and found else None, rest


def build() -> Runnable:
    """Return the whole command line as a value."""
    app = typer.Typer(
        cls=LazyCommands,
        name="salmon",
        help="Ask people which of two things is more like a third, and fit an embedding to their answers.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.callback()(lambda: None)
    return cast("Runnable", typer.main.get_command(app))


def load(name: str) -> Runnable:
    """Import one command; without the packages of the server, say which command installs them."""
    command = COMMANDS[name]
    if command.needs_server and (missing := [package for package in _SERVER_PACKAGES if not find_spec(package)]):
        raise StartError(
            f"`salmon {name}` needs the server's packages; {' and '.join(missing)} cannot be imported.",
            hint=f"Install them: {_INSTALL_SERVER}",
        )
    module, _, function = command.function.partition(":")
    found = getattr(import_module(module), function)
    if isinstance(found, typer.Typer):
        return cast("Runnable", typer.main.get_command(found))
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(name)(found)
    return cast("Runnable", typer.main.get_command(app))


def main() -> None:
    """Run the command line; any error ends as a sentence on standard error and a non-zero exit code."""
    try:
        build()()
    except SpecError as error:
        for problem in error.problems:
            print(problem.sentence(error.name), file=sys.stderr)
        raise SystemExit(1) from None
    except SalmonError as error:
        print(f"salmon: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except Exception as error:  # the outermost place: an unexpected error still ends in a sentence
        if os.environ.get("SALMON_LOG_LEVEL") == "DEBUG":
            raise
        print(
            f"salmon: Unexpected error ({type(error).__name__}: {error})."
            " Set SALMON_LOG_LEVEL=DEBUG and run the command again to see the traceback.",
            file=sys.stderr,
        )
        raise SystemExit(1) from None
