"""Look up known weaknesses of every locked package with pip-audit: `make audit`.

The exit code is 1 where one is known, and 0 where none is. Where no source of advisories answers, nothing can be said:
then one sentence says so, and the exit code is 0, so that a machine without network can run it.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
LOCKED = ("serve.txt", "test.txt", "torch.txt")
SILENT = (
    "No source of advisories answers on this machine, so nothing was audited. Run `make audit` where PyPI is reached."
)
SECONDS = 300


def main(names: tuple[str, ...]) -> int:
    """Audit lock files and return the exit code."""
    known: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for name in names:
        found = look_up(HERE / name)
        if found is None:
            print(SILENT)
            return 0
        known.update(found)
    weak = {pin: problems for pin, problems in known.items() if problems}
    for (name, version), problems in sorted(weak.items()):
        for problem in problems:
            mended = ", ".join(problem.get("fix_versions", [])) or "no version yet"
            print(f"{name} {version}: {problem['id']} (mended in {mended})")
    print(f"{len(known)} packages were audited; {len(weak)} have known weaknesses.")
    return 1 if weak else 0


def look_up(path: Path) -> dict[tuple[str, str], list[dict[str, Any]]] | None:
    """Return (name, version) → weaknesses for the packages that the source knows; None where it does not answer."""
    command = (sys.executable, "-m", "pip_audit", "--requirement", str(path), "--disable-pip", "--require-hashes")
    try:
        done = subprocess.run(
            (*command, "--progress-spinner", "off", "--format", "json"),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        packages = json.loads(done.stdout)["dependencies"]
    except (subprocess.TimeoutExpired, ValueError, KeyError):
        return None
    audited = {(each["name"], each["version"]): each["vulns"] for each in packages if "vulns" in each}
    return audited or None


if __name__ == "__main__":
    raise SystemExit(main(tuple(sys.argv[1:]) or LOCKED))
