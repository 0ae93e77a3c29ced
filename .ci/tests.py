"""Run all tests, or with `--fast` those that take less than two minutes together; end with one line of totals.

Two processes run independent tests side by side. Tests that start servers, kill processes or drive a browser run alone
afterwards, because some of them measure memory or wait for a time-out.
"""  # noqa: INP001

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

#: Folders of independent tests, in two halves that take about the same time.
HALVES = (("tests/unit",), ("tests/contracts", "tests/properties", "tests/architecture"))
FAST_HALVES = (("tests/unit",), ("tests/properties", "tests/architecture"))
ALONE = ("tests/integration", "tests/crash", "tests/browser")


def main(arguments: list[str]) -> int:
    """Return 0 if every run of pytest ended well."""
    fast = arguments == ["--fast"]
    left_out = ["-m", "not slow"] if fast else []
    with tempfile.TemporaryDirectory() as folder:
        reports = [Path(folder, f"{number}.xml") for number in range(3)]
        statuses = run_side_by_side(FAST_HALVES if fast else HALVES, reports, left_out)
        if not fast:
            statuses.append(subprocess.run(command(ALONE, reports[2]), check=False).returncode)  # noqa: S603
        totals = [outcomes(report) for report, _ in zip(reports, statuses, strict=False)]
    passed, failed, skipped = (sum(numbers) for numbers in zip(*totals, strict=True))
    sys.stdout.write(f"{passed} passed, {failed} failed, {skipped} skipped\n")
    return 1 if any(statuses) or failed else 0


def run_side_by_side(halves: tuple[tuple[str, ...], ...], reports: list[Path], options: list[str]) -> list[int]:
    """Return the exit statuses of pytest on these groups of folders; the output of the second follows that of the first."""
    # One thread each: more would compete for the same two cores.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    first, second = (command(folders, report, *options) for folders, report in zip(halves, reports, strict=False))
    with tempfile.TemporaryFile() as output:
        running = subprocess.Popen(second, env=environment, stdout=output, stderr=subprocess.STDOUT)  # noqa: S603
        try:
            statuses = [subprocess.run(first, env=environment, check=False).returncode, running.wait()]  # noqa: S603
        finally:
            running.kill()
            running.wait()
        output.seek(0)
        sys.stdout.write(output.read().decode(errors="replace"))
        sys.stdout.flush()
    return statuses


def command(folders: tuple[str, ...], report: Path, *options: str) -> tuple[str, ...]:
    """Return the command that runs pytest on these folders and writes its outcomes to the report."""
    return (sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *options, *folders)


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
