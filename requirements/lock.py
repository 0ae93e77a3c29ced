"""Writes serve.txt, test.txt and frontend.txt anew: every package pinned, every file of each version by its hash.

Run by a developer after a change of dependencies: `make lock`. torch is left out: its CPU build differs by platform and
carries no hash here (torch.txt pins its version).
"""

import re
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pip._internal.models.index import PyPI

HERE = Path(__file__).parent
OPTIONS = ("--strip-extras", "--no-emit-index-url", "--no-emit-find-links", "--constraint", str(HERE / "torch.txt"))
PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^ \\;]+)")


def compile_pins(output: Path, source: str, *arguments: str) -> list[str]:
    """The lines `name==version` that satisfy a source of requirements."""
    command = (sys.executable, "-m", "piptools", "compile", "-q", *OPTIONS, "--no-emit-options", "--no-header")
    command += ("--no-annotate", "--allow-unsafe", *arguments, "--output-file", str(output), source)
    subprocess.run(command, check=True, cwd=HERE.parent)
    return [
        line.strip()
        for line in output.read_text().splitlines()
        if PINNED.match(line) and not line.startswith("torch==")
    ]


def hashes_of(pin: str) -> list[str]:
    """The hashes of all files of a version, from the package index."""
    name, version = PINNED.match(pin).groups()
    page = (
        urllib.request.urlopen(f"{PyPI.simple_url}/{re.sub(r'[-_.]+', '-', name).lower()}/", timeout=60).read().decode()
    )
    stem = re.sub(r"[-_.]+", "[-_.]+", re.escape(name).replace("\\-", "-").replace("\\.", "."))
    file = re.compile(
        rf"/{stem}-{re.escape(version)}(?:-[^/#]*\.whl|\.tar\.gz|\.zip)#sha256=([0-9a-f]{{64}})", re.IGNORECASE
    )
    return sorted(set(file.findall(page)))


def lock(output: Path, *arguments: str, source: str = "pyproject.toml") -> None:
    """Write one lock file."""
    pins = compile_pins(output, source, *arguments)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(hashes_of, pins))
    if missing := [pin for pin, hashes in zip(pins, found, strict=True) if not hashes]:
        raise SystemExit(f"The index names no files for {', '.join(missing)}.")
    entries = [
        " \\\n".join([pin, *(f"    --hash=sha256:{digest}" for digest in hashes)])
        for pin, hashes in zip(pins, found, strict=True)
    ]
    output.write_text("\n".join(entries) + "\n")


if __name__ == "__main__":
    lock(HERE / "serve.txt", "--extra", "server", "--extra", "build")
    lock(HERE / "test.txt", "--extra", "build", "--extra", "test", "--constraint", str(HERE / "serve.txt"))
    lock(HERE / "frontend.txt", "--constraint", str(HERE / "serve.txt"), source=str(HERE / "frontend.in"))
