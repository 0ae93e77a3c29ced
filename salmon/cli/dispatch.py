"""Finds the commands and runs one: those of the library here, those that need the store through an entry point."""

from __future__ import annotations

import os
import sys
from importlib.metadata import entry_points

import typer

from salmon.errors import SalmonError, SpecError

#: Packages offer commands under this entry-point group: a function that takes the Typer app and adds to it.
COMMANDS = "salmon.commands"


def build() -> typer.Typer:
    """The whole command line as a value."""
    from salmon.cli.backend import backend
    from salmon.cli.check import check
    from salmon.cli.fit import fit
    from salmon.cli.serve import serve

    app = typer.Typer(
        name="salmon",
        help="Ask people which of two things is more like a third, and draw the map of how they see similarity.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    for command in (serve, check, fit, backend):
        app.command()(command)
    for entry in entry_points(group=COMMANDS):
        entry.load()(app)
    return app


def run() -> None:
    """Run the command line; whatever goes wrong, the user reads a sentence and the exit code is 1."""
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
    except Exception as error:  # the outermost place: what nobody foresaw still ends in a sentence
        if os.environ.get("SALMON_LOG_LEVEL") == "DEBUG":
            raise
        print(
            f"salmon: Something unforeseen went wrong ({type(error).__name__}: {error})."
            " Set SALMON_LOG_LEVEL=DEBUG and run the command again to see where.",
            file=sys.stderr,
        )
        raise SystemExit(1) from None
