"""The R of docs/analysis-in-r.md and of bundles, run by a real R where there is one. It needs nothing beside base R."""

import re
import secrets
import shutil
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import httpx
import pytest

from frontend.settings import Settings
from frontend.store import Store
from tests.bundles import bundle_of
from tests.living import started
from tests.program import REPOSITORY

pytestmark = pytest.mark.slow
PAGE = (REPOSITORY / "docs" / "analysis-in-r.md").read_text()
BLOCKS = re.findall(r"^```r\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
#: Blocks that need packages of CRAN.
WITH_PACKAGES = [block for block in BLOCKS if "library(" in block]


def run_r(script: str, folder: Path) -> str:
    """Run a script in a folder; return what it printed."""
    if shutil.which("Rscript") is None:
        pytest.skip("there is no R on this machine, so this test was not run (install the package r-base-core)")
    (folder / "script.R").write_text(script)
    done = subprocess.run(
        ("Rscript", "--vanilla", "script.R"), cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
async def unpacked(client: httpx.AsyncClient, settings: Settings, store: Store, tmp_path: Path) -> Path:
    """The folder of an unpacked bundle, with the embedding that `salmon fit` finds in its answers."""
    slug = f"r-{secrets.token_hex(3)}"
    crowd, _ = await started(client, settings, store, slug)
    await crowd.answer(120)
    with zipfile.ZipFile(BytesIO(await bundle_of(settings, store, slug))) as archive:
        archive.extractall(tmp_path)
    (responses,) = tmp_path.rglob("responses.csv")
    command = (sys.executable, "-m", "salmon", "fit", "responses.csv", "-o", "embedding.csv")
    done = subprocess.run(command, cwd=responses.parent, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return responses.parent


def test_the_page_s_base_r_runs_on_a_bundle(unpacked: Path) -> None:
    base = [block for block in BLOCKS if block not in WITH_PACKAGES]
    assert len(base) == 3
    checks = """
    cat("triplets", nrow(triplets), "of", nrow(kept), "\\n")
    heads <- targets$filename[triplets$head + 1]
    stopifnot(nrow(triplets) > 0, !anyNA(heads), all(triplets$winner != triplets$loser))
    stopifnot(nrow(map) == nrow(targets), is.numeric(map$dim_0), is.numeric(map$dim_1))
    """
    said = run_r("\n".join([*base, checks]), unpacked)
    rows = (unpacked / "responses.csv").read_text().splitlines()
    assert f"triplets {len(rows) - 1 - excluded(unpacked)} of" in said
    assert (unpacked / "Rplots.pdf").read_bytes().startswith(b"%PDF")


def excluded(folder: Path) -> int:
    header, *rows = (line.split(",") for line in (folder / "responses.csv").read_text().splitlines())
    return sum(row[header.index("excluded")] == "true" for row in rows)


def test_the_bundle_s_own_analysis_runs(unpacked: Path) -> None:
    (script,) = unpacked.rglob("analysis.R")
    said = run_r(script.read_text(), unpacked)
    assert "median response time:" in said


def test_the_blocks_with_packages_are_r(tmp_path: Path) -> None:
    """lme4 is no part of R: its block is run where it is installed, and read elsewhere."""
    assert len(WITH_PACKAGES) == 1
    (tmp_path / "block.R").write_text(WITH_PACKAGES[0])
    assert "expressions 3" in run_r('cat("expressions", length(parse("block.R")), "\\n")', tmp_path)
