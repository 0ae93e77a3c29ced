"""What is loaded and what is needed: the library works without the packages of the server and without torch."""

import subprocess
import sys
import tomllib

import pytest

from salmon.cli.main import load
from salmon.errors import StartError
from tests.program import REPOSITORY

HEAVY = ("dask", "distributed", "fastapi", "jinja2", "redis", "torch")

FIT = """
import numpy as np
from salmon import OrdinalEmbedding
rng = np.random.default_rng(0)
truth = rng.normal(size=(9, 2))
queries = np.stack([rng.permutation(9)[:3] for _ in range(400)])
near, far = (((truth[queries[:, 0]] - truth[queries[:, k]]) ** 2).sum(axis=1) for k in (1, 2))
rows = np.where((near < far)[:, None], queries, queries[:, [0, 2, 1]])
assert OrdinalEmbedding(random_state=0).fit(rows).score(rows) > 0.9
"""


def loaded(code: str) -> set[str]:
    """Which of the heavy packages a fresh interpreter has loaded after this code."""
    code += f"\nimport sys\nprint('loaded:', *[name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run((sys.executable, "-c", code), cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return set(done.stdout.rpartition("loaded:")[2].split())


@pytest.mark.parametrize(
    "command",
    [["fit", "--help"], ["check", "--help"], ["check", "examples/colors/experiment.yaml"], ["--help"]],
    ids=" ".join,
)
def test_a_command_of_the_library_loads_nothing_of_the_server(command: list[str]) -> None:
    code = f"import sys\nsys.argv = ['salmon', *{command}]\nfrom salmon.cli.main import main\n"
    assert loaded(code + "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n") == set()


@pytest.mark.parametrize("code", ["from salmon import OrdinalEmbedding", FIT, "import salmon.triplets.offline"])
def test_the_library_loads_nothing_heavy_before_it_needs_it(code: str) -> None:
    assert loaded(code) == set()


def test_fits_of_many_answers_work_without_torch_and_say_so() -> None:
    code = """
import sys, warnings
import numpy as np
from salmon.learning import fit
rng = np.random.default_rng(0)
truth = rng.normal(size=(30, 2))
queries = np.stack([rng.permutation(30)[:3] for _ in range(20_000)])
near, far = (((truth[queries[:, 0]] - truth[queries[:, k]]) ** 2).sum(axis=1) for k in (1, 2))
rows = np.where((near < far)[:, None], queries, queries[:, [0, 2, 1]])
with_torch = fit(rows, 30, 2, noise="STE", seed=0)
assert "torch" in sys.modules
import salmon.learning.objective as objective
objective._tensors.cache_clear()
for name in [name for name in sys.modules if name.partition(".")[0] == "torch"]:
    sys.modules[name] = None
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    without = fit(rows, 30, 2, noise="STE", seed=0)
print(len(told), told[0].message)
assert abs(with_torch.loss - without.loss) < 1e-6 * with_torch.loss
"""
    done = subprocess.run((sys.executable, "-c", code), cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1 torch is not installed, so fits of many answers take longer")


def test_a_command_of_the_server_says_which_packages_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("salmon.cli.main.find_spec", lambda name: None if name in {"fastapi", "redis"} else object())
    with pytest.raises(StartError) as error:
        load("serve")
    assert str(error.value) == (
        "`salmon serve` needs the server's packages; fastapi and redis cannot be imported."
        ' Install them: pip install "salmon-triplets[server]"'
    )


def test_the_library_alone_requires_no_package_of_the_server() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert not {*HEAVY, "uvicorn"} & set(project["dependencies"])
    assert {"dask", "distributed", "torch"} <= set(project["optional-dependencies"]["training"])
    assert "salmon-triplets[training]" in project["optional-dependencies"]["server"]
