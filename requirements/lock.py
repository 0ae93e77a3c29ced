"""Rewrite serve.txt, test.txt, docs.txt and frontend.txt: pin every package, with the
hash of every file of its version.

Run `make lock` after a change of dependencies. torch has a file of its own, torch.txt, because its builds come from two
indexes with different files. To change its version, replace everything below the comment of torch.txt by the new pin
(`torch==…`); this program adds the hashes of the package index and of PyTorch's builds for CPUs,
and keeps hashes that are there already.
"""

import re
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pip._internal.models.index import PyPI

HERE = Path(__file__).parent
TORCH = HERE / "torch.txt"
OPTIONS = ("--strip-extras", "--no-emit-index-url", "--no-emit-find-links", "--constraint", str(TORCH))
CPU_BUILDS = "https://download.pytorch.org/whl/cpu"
PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^ \\;]+)")
#: torch, and what only its builds for graphics cards require: install-torch brings these where they are wanted.
LEFT_OUT = re.compile(r"(torch|triton)==|(nvidia|cuda)-")


def compile_pins(output: Path, source: str, *arguments: str) -> list[str]:
    """Return the lines `name==version` that satisfy a source of requirements."""
    command = (sys.executable, "-m", "piptools", "compile", "-q", *OPTIONS, "--no-emit-options", "--no-header")
    command += ("--no-annotate", "--allow-unsafe", *arguments, "--output-file", str(output), source)
    subprocess.run(command, check=True, cwd=HERE.parent)
    lines = output.read_text().splitlines()
    return [line.strip() for line in lines if PINNED.match(line) and not LEFT_OUT.match(line)]


def hashes_of(pin: str) -> list[str]:
    """Return the hashes that the package index gives for the files of a version."""
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
    entries = [entry(pin, hashes) for pin, hashes in zip(pins, found, strict=True)]
    output.write_text("\n".join(entries) + "\n")


def cpu_hashes_of(pin: str) -> list[str]:
    """Return the hashes of PyTorch's builds for CPUs, which its own index names; none where that does not answer."""
    version = PINNED.match(pin)[2]
    try:
        page = urllib.request.urlopen(f"{CPU_BUILDS}/torch/", timeout=30).read().decode()
    except OSError as error:
        print(f"{CPU_BUILDS} does not answer ({error}): the hashes of its builds stay as they are.", file=sys.stderr)
        return []
    return re.findall(rf"torch-{re.escape(version)}(?:%2B|\+)cpu-[^/#]*\.whl#sha256=([0-9a-f]{{64}})", page)


def lock_torch() -> None:
    """Add the hashes of the package index and of the builds for CPUs to torch.txt."""
    text = TORCH.read_text()
    comment = "".join(line for line in text.splitlines(keepends=True) if line.startswith("#"))
    pin = next(match[0] for line in text.splitlines() if (match := PINNED.match(line)))
    known = re.findall(r"--hash=sha256:([0-9a-f]{64})", text)
    TORCH.write_text(f"{comment}{entry(pin, sorted({*known, *hashes_of(pin), *cpu_hashes_of(pin)}))}\n")


def entry(pin: str, hashes: list[str]) -> str:
    """Return a pin with its hashes, as pip reads them."""
    return " \\\n".join([pin, *(f"    --hash=sha256:{digest}" for digest in hashes)])


if __name__ == "__main__":
    lock_torch()
    lock(HERE / "serve.txt", "--extra", "server", "--extra", "build")
    lock(HERE / "test.txt", "--extra", "build", "--extra", "test", "--constraint", str(HERE / "serve.txt"))
    versions = ("--constraint", str(HERE / "serve.txt"), "--constraint", str(HERE / "test.txt"))
    lock(HERE / "docs.txt", *versions, source=str(HERE / "docs.in"))
    lock(HERE / "frontend.txt", "--constraint", str(HERE / "serve.txt"), source=str(HERE / "frontend.in"))
