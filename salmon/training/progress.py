"""A line on the terminal that says how far a run is."""

from collections.abc import Callable, Generator
from contextlib import contextmanager

from salmon.distributed.state import Job, Row, TrainingState


@contextmanager
def shown(job: Job, state: TrainingState, *, enabled: bool) -> Generator[Callable[[tuple[Row, ...]], None]]:
    """A function to which each stretch of rows is given; with `enabled` it moves a bar of epochs."""
    if not enabled:
        yield _show_nothing
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("training"), BarColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    with Progress(*columns, transient=False) as bar:
        task = bar.add_task("", total=job.epochs, completed=int(state.figures.get("epoch", 0.0)))

        def show(rows: tuple[Row, ...]) -> None:
            if rows:
                bar.update(task, completed=rows[-1]["epoch"], description=sentence(rows[-1]))

        yield show


def sentence(row: Row) -> str:
    """The last step in one line."""
    workers = f"{row['workers']:.0f} worker{'' if row['workers'] == 1 else 's'}"
    return (
        f"epoch {row['epoch']:.2f}, step {row['step']:,.0f}, loss {row['loss']:.4g}, batch {row['batch_size']:,.0f}, "
        f"rate {row['learning_rate']:.3g}, {workers}"
    )


def _show_nothing(rows: tuple[Row, ...]) -> None:
    del rows
