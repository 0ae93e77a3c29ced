"""Write build/sbom.cdx.json: everything that a server installs and every script of others
in its pages, as CycloneDX JSON.

Packages come from the lock files of `requirements/`, with their hashes; scripts of others from their own lock file. Run
`make sbom`.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
LOCKED = ("serve.txt", "torch.txt")
VENDORED = ROOT / "frontend" / "static" / "vendor" / "vendor.lock.json"
#: Scripts that experiments of the first Salmon may ask for; their versions stand in their names.
LEGACY = {
    "jquery": ("3.2.1", "jquery-3.2.1.min.js"),
    "bootstrap": ("4.0.0", "bootstrap-4.0.0.bundle.min.js"),
}


def main(output: Path) -> int:
    """Write the list and return the exit code."""
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as merged:
        merged.write("\n".join((HERE / name).read_text() for name in LOCKED))
        merged.flush()
        command = (sys.executable, "-m", "cyclonedx_py", "requirements", "--pyproject", str(ROOT / "pyproject.toml"))
        command += ("--mc-type", "application", "--of", "JSON", "--output-reproducible", "-o", str(output), merged.name)
        done = subprocess.run(command, check=False)
    if done.returncode:
        return done.returncode
    content = json.loads(output.read_text())
    content["components"] += scripts()
    output.write_text(json.dumps(content, indent=2) + "\n")
    print(f"{output}: {len(content['components'])} components")
    return 0


def scripts() -> list[dict[str, object]]:
    """Return the components that are no Python packages."""
    vendored = json.loads(VENDORED.read_text()).values()
    found = [
        component(name, each["version"], "" if "packages" in entry else entry["sha256"])
        for entry in vendored
        for name, each in entry.get("packages", {entry["package"]: entry}).items()
    ]
    return found + [component(name, version, "") for name, (version, _) in LEGACY.items()]


def component(name: str, version: str, sha256: str) -> dict[str, object]:
    """Return one component of the package index of JavaScript."""
    made: dict[str, object] = {
        "type": "library",
        "name": name,
        "version": version,
        "purl": f"pkg:npm/{name}@{version}",
        "bom-ref": f"npm-{name}-{version}",
    }
    return made | ({"hashes": [{"alg": "SHA-256", "content": sha256}]} if sha256 else {})


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "sbom.cdx.json"))
