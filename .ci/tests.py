"""Run all tests, or with `--fast` those that take less than two minutes together; end with one line of totals.

Three runs of pytest are under way at any time, because those that kill processes or drive a browser mostly wait. A
fourth saves hardly a minute on two cores. Tests that fail are run once more when nothing else runs: they have failed if
they fail again, and are named either way.
"""  # noqa: INP001

import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

#: Folders that run together, the longest first, and in how many parts their files do.
GROUPS = (
    (("tests/crash",), 1),
    (("tests/browser",), 3),
    (("tests/unit",), 1),
    (("tests/integration",), 4),
    (("tests/simulation",), 1),
    (("tests/contracts", "tests/properties"), 1),
    (("tests/architecture",), 1),
)
FAST = ((("tests/unit",), 1), (("tests/properties", "tests/architecture"), 1))
AT_ONCE = 3
#: The exit status of pytest where tests failed and nothing else went wrong.
TESTS_FAILED = 1


class Run(NamedTuple):
    """How a run of pytest ended: its exit status, and how many tests passed, failed and were skipped."""

    status: int
    passed: int
    failed: int
    skipped: int


def main(arguments: list[str]) -> int:
    """Return 0 if every run of pytest ended well."""
    fast = arguments == ["--fast"]
    options = ("-m", "not slow") if fast else ()
    parts = [part for folders, count in (FAST if fast else GROUPS) for part in parts_of(folders, count)]
    with tempfile.TemporaryDirectory() as folder:
        places = [Path(folder, str(place)) for place in range(len(parts))]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            runs = list(pool.map(lambda part, place: run(part, options, place), parts, places))
        runs = [
            run_again(first, part, options, place) if first.status == TESTS_FAILED else first
            for first, part, place in zip(runs, parts, places, strict=True)
        ]
    passed, failed, skipped = (sum(counts) for counts in zip(*(each[1:] for each in runs), strict=True))
    sys.stdout.write(f"{passed} passed, {failed} failed, {skipped} skipped\n")
    return 1 if failed or any(each.status for each in runs) else 0


def parts_of(folders: tuple[str, ...], count: int) -> list[tuple[str, ...]]:
    """Return the folders themselves, or so many parts of their files."""
    if count == 1:
        return [folders]
    files = sorted(str(path) for folder in folders for path in Path(folder).rglob("test_*.py"))
    return [tuple(files[part::count]) for part in range(count)]


def run(paths: tuple[str, ...], options: tuple[str, ...], folder: Path) -> Run:
    """Run pytest on files or folders and print what it said at the end, as several runs would mix.

    `folder` keeps which tests failed.
    """
    report = folder / "report.xml"
    report.unlink(missing_ok=True)
    began = time.monotonic()
    done = subprocess.run(  # noqa: S603
        command(paths, report, "-o", f"cache_dir={folder / 'cache'}", *options),
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # more would compete for the same cores
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    sys.stdout.write(f"{' '.join(paths)}: {time.monotonic() - began:.0f} s\n{done.stdout}")
    sys.stdout.flush()
    return Run(done.returncode, *outcomes(report))


def run_again(first: Run, paths: tuple[str, ...], options: tuple[str, ...], folder: Path) -> Run:
    """Run the tests that failed once more; return the run as if they had only run now."""
    sys.stdout.write(f"{first.failed} failed beside other runs, and run once more alone:\n")
    alone = run(paths, (*options, "-v", "--last-failed"), folder)
    return Run(alone.status, first.passed + first.failed - alone.failed, alone.failed, first.skipped)


def command(folders: tuple[str, ...], report: Path, *options: str) -> tuple[str, ...]:
    """Return the command that runs pytest on these folders and writes its outcomes to the report."""
    return (sys.executable, "-m", "pytest", "-q", "--durations=15", f"--junitxml={report}", *options, *folders)


def outcomes(report: Path) -> tuple[int, int, int]:
    """Return how many tests of a report passed, failed (errors included) and were skipped (expected failures included).

    A run that ended without a report counts as one failure.
    """
    if not report.exists():
        return 0, 1, 0
    suites = list(ET.parse(report).getroot().iter("testsuite"))  # noqa: S314
    tests, failures, errors, skipped = (
        sum(int(suite.get(name, "0")) for suite in suites) for name in ("tests", "failures", "errors", "skipped")
    )
    return tests - failures - errors - skipped, failures + errors, skipped


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
