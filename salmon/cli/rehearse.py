"""Implement `salmon rehearse`: a whole study with simulated people, on a server of its
own that is removed afterwards.
"""

import asyncio
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from salmon.cli.check import find_archive
from salmon.cli.data_directory import DataDirectory
from salmon.client import ApiClient
from salmon.errors import SpecError, StartError, listed
from salmon.parent_watch import SUPERVISED
from salmon.rehearsal import ANSWERS_WITHOUT_END, KINDS, Kind, RehearsedStudy, Walk, draw_people, fill_in
from salmon.simulate import bayes_accuracy, random_world
from salmon.spec import ParsedSpec, check_archive, parse_spec, targets_of

_START_SECONDS = 60.0
#: Files that `--out` gets, as the console's Export page has them.
_FILES = ("responses.csv", "participants.csv", "quality.csv", "events.csv")
_MOST_SENTENCES = 5
_ACCOUNT = "rehearsal"


def rehearse(
    spec: Annotated[Path, typer.Argument(help="The experiment's YAML file.", exists=True, dir_okay=False)],
    targets: Annotated[
        Path | None,
        typer.Option(help="The ZIP of targets; by default targets.zip next to the YAML file, if it exists."),
    ] = None,
    people: Annotated[int, typer.Option(help="How many people take part.", min=1, max=2000)] = 50,
    coin: Annotated[float, typer.Option(help="Share who choose by chance.", min=0, max=1)] = 0.1,
    fast: Annotated[float, typer.Option(help="Share who choose by chance within 150 ms.", min=0, max=1)] = 0.05,
    rule: Annotated[float, typer.Option(help="Share who choose by a rule, whatever the head.", min=0, max=1)] = 0.05,
    leaving: Annotated[float, typer.Option(help="Share who leave in the middle.", min=0, max=1)] = 0.05,
    pace: Annotated[float, typer.Option(help="How many times faster than people they think.", min=1, max=1000)] = 20.0,
    d: Annotated[int, typer.Option(help="Dimensions of the true embedding.", min=1, max=20)] = 2,
    seed: Annotated[int, typer.Option(help="The same seed draws the same people and embedding.", min=0)] = 0,
    out: Annotated[Path | None, typer.Option(help="A folder for the files that a real study would export.")] = None,
    data: Annotated[
        Path | None, typer.Option(help="Keep the server's data in this new directory, for `salmon serve --data`.")
    ] = None,
) -> None:
    """Rehearse a study: simulated people walk through the actual experiment, from the platform's link to the way out.

    A Salmon of its own is started and removed; nothing reaches other servers or a platform. The exit code is 1 if
    anybody was stopped by an error.

    Example: salmon rehearse experiment.yaml --people 50
    """
    archive = find_archive(spec, targets)
    parsed = _read(spec, archive)
    world = random_world(len(targets_of(parsed.spec, parsed.manifest)), d, seed)
    shares: dict[Kind, float] = {"coin": coin, "fast": fast, "rule": rule, "leaving": leaving}
    console = Console(stderr=True)
    for warning in parsed.warnings:
        print(warning.sentence(spec.name), file=sys.stderr)
    with ExitStack() as stack:
        root = data or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="salmon-rehearsal-"))) / "data"
        if root.exists():
            raise StartError(f"{root} exists already.", hint="Name a new directory with --data.")
        with console.status("Starting a server of its own ..."):
            server = stack.enter_context(running_server(root))
            slug = server.launch(spec, archive)
        links = [fill_in(link, parsed.spec.recruitment.platform, place) for place, link in server.links(slug, people)]
        walkers = draw_people(world, links, shares, seed)
        trials = parsed.spec.html.max_queries if parsed.spec.html.max_queries > 0 else ANSWERS_WITHOUT_END
        began = time.monotonic()
        with Progress(console=console, transient=True) as progress:
            task = progress.add_task("Answers", total=people * trials)
            rehearsal = RehearsedStudy(parsed.spec, pace, lambda: progress.advance(task))
            walks = asyncio.run(rehearsal.run(walkers))
        seconds = time.monotonic() - began
        with console.status("Reading what the console shows ..."):
            rows = server.experimenter.read(f"experiments/{slug}/participants?wait=yes&limit=5000")["participants"]
            overview = server.experimenter.read(f"experiments/{slug}/overview")
            payment = server.experimenter.read(f"experiments/{slug}/payment")
            if out is not None:
                out.mkdir(parents=True, exist_ok=True)
                (out / "payment.csv").write_bytes(server.experimenter.download(f"experiments/{slug}/payment/all.csv"))
                for name in _FILES:
                    (out / name).write_bytes(server.experimenter.download(f"experiments/{slug}/exports/{name}"))
        for line in report_lines(walks, rows, overview, seconds, bayes_accuracy(world)):
            print(line)
        print(payment_line(payment))
        Console().print(table_of_kinds(walks, rows))
        for kept in (path for path in (out, data) if path is not None):
            print(kept)
    if any(walk.outcome == "failed" for walk in walks):
        raise typer.Exit(1)


def report_lines(
    walks: Sequence[Walk],
    rows: Sequence[Mapping[str, Any]],
    overview: Mapping[str, Any],
    seconds: float,
    best_possible: float,
) -> Iterator[str]:
    """Yield what became of the rehearsal, as sentences."""
    outcomes = Counter(walk.outcome for walk in walks)
    answers = sum(walk.answers for walk in walks)
    stored = overview["answers"]["total"]
    times = np.array([each for walk in walks for each in walk.query_seconds] or [0.0]) * 1000
    yield (
        f"{len(walks)} people: {outcomes['completed']} completed, {outcomes['screened_out']} screened out,"
        f" {outcomes['left']} left in the middle, {outcomes['failed']} stopped by an error."
    )
    yield f"{answers:,} answers were given in {seconds:.0f} s, and {stored:,} are stored."
    yield f"Queries came after {np.median(times):.0f} ms (median), 99 % of them within {np.quantile(times, 0.99):.0f} ms."
    for sampler in overview["samplers"]:
        if sampler["accuracy"] is not None:
            yield (
                f"The held-out accuracy of {sampler['name']} is {sampler['accuracy']:.1%}, of {sampler['evaluated']:,} answers;"
                f" the truth itself would predict {best_possible:.1%}."
            )
    ways_out = Counter(
        walk.said.replace(walk.participant or " ", "{id}") for walk in walks if walk.outcome == "completed"
    )
    for said, count in ways_out.most_common(_MOST_SENTENCES):
        yield f"The way out of {count} people: {said or 'a word of thanks, without a code'}."
    statuses = Counter(str(row["status"]).replace("_", " ") for row in rows)
    yield f"The console shows {listed((f'{count} {status}' for status, count in statuses.items()), 'and')}."
    for said, count in Counter(walk.said for walk in walks if walk.outcome == "failed").most_common(_MOST_SENTENCES):
        yield f"{count} of {len(walks)} people were stopped: {said}"


def payment_line(payment: Mapping[str, Any]) -> str:
    """Return what the page Payment would say about everybody, as a sentence."""
    parts = [
        f"{each['count']} {str(each['action']).replace('_', ' ')}"
        + (f" ({each['amount']} {payment['currency']})" if float(each["amount"]) else "")
        for each in payment["sums"]
        if each["count"]
    ]
    return f"Payment: {listed(parts, 'and')}." if parts else "Payment: nothing to do about anybody."


def table_of_kinds(walks: Sequence[Walk], rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return, for each kind of people, how many were flagged and how many the console proposes to exclude."""
    found = {str(row["puid"]): row for row in rows} | {str(row["participant"]): row for row in rows}
    table = Table("people", "took part", "flagged", "proposed for exclusion")
    for kind in KINDS:
        of_kind = [walk for walk in walks if walk.person.kind == kind]
        known = [found[walk.participant] for walk in of_kind if walk.participant in found]
        flagged = sum(bool(row["flags"]) for row in known)
        if of_kind:
            table.add_row(kind, str(len(of_kind)), str(flagged), str(sum(not row["keep_auto"] for row in known)))
    return table


def _read(spec: Path, archive: Path | None) -> ParsedSpec:
    """Return the experiment of the files; SpecError lists everything that is wrong with them."""
    manifest = None
    if archive is not None:
        manifest, problems = check_archive(archive, trusted=True)
        if manifest is None:
            raise SpecError(problems, name=archive.name)
    return parse_spec(spec.read_bytes(), name=spec.name, manifest=manifest)


@dataclass(frozen=True)
class Server:
    """A server that was started here, and the experimenter who asks it."""

    root: Path
    experimenter: ApiClient

    def launch(self, spec: Path, archive: Path | None) -> str:
        """Open an experiment; return its name."""
        zip_of_targets = ("--targets", str(archive.resolve())) if archive else ()
        link = self.run("launch", str(spec.resolve()), *zip_of_targets).splitlines()[-1]
        return link.rstrip("/").rpartition("/")[2]

    def links(self, slug: str, people: int) -> list[tuple[int, str]]:
        """Return (number, link) of so many people, as the recruitment page has them for the platform."""
        guide = self.experimenter.read(f"experiments/{slug}/recruitment")
        if not guide["invited_only"]:
            return [(number, str(guide["link"])) for number in range(1, people + 1)]
        table = self.experimenter.download(f"experiments/{slug}/recruitment/invitations.csv?count={people}").decode()
        return [(place, line.split(",")[-1]) for place, line in enumerate(table.split()[1:], start=1)]

    def run(self, *arguments: str, text: str = "") -> str:
        """Run a command on this server's data; return what it prints."""
        done = subprocess.run(
            (sys.executable, "-m", "salmon", *arguments, "--data", str(self.root)),
            env=_environment(),
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise StartError(f"`salmon {arguments[0]}` failed: {done.stderr.strip()}")
        return done.stdout.strip()


@contextmanager
def running_server(root: Path) -> Generator[Server]:
    """Run `salmon serve` on a new data directory while a `with` block runs; it ends when this process does."""
    root.mkdir(parents=True)
    log = root / "rehearsal.log"
    address = DataDirectory(root.resolve()).running / "address"
    with log.open("wb") as output:
        process = subprocess.Popen(
            (sys.executable, "-m", "salmon", "serve", "--port", "0", "--data", str(root.resolve())),
            env={**_environment(), SUPERVISED: "1"},
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        _wait_for(lambda: address.exists() and address.read_text().startswith("http"), process, log)
        password = secrets.token_urlsafe(16)
        here = address.read_text().strip().replace("localhost", "127.0.0.1")
        server = Server(root.resolve(), ApiClient(here, _ACCOUNT, password))
        server.run("user", "add", _ACCOUNT, "--owner", text=password + "\n")
        yield server
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait(_START_SECONDS)


def _wait_for(condition: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            said = log.read_text(errors="replace").strip().splitlines()
            raise StartError("The rehearsal's own server did not start.", hint="\n".join(said[-5:]))
        time.sleep(0.1)


def _environment() -> dict[str, str]:
    """Return the environment without what belongs to another server, for programs that
    find Salmon where it is installed.

    They must not look in the present directory: a clone in it has the name of the package.
    """
    own = {name: value for name, value in os.environ.items() if not name.startswith("SALMON_")}
    return {**own, "PYTHONSAFEPATH": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
