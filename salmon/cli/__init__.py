"""The command line: `salmon` and `python -m salmon`."""

__all__ = ["main"]


def main() -> None:
    """Run the command named on the command line."""
    from salmon.cli.main import run

    run()
