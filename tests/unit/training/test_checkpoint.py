"""A run continued from a checkpoint equals one that was never interrupted."""

import json
import os
import signal
import subprocess
import sys

import pytest

from salmon.errors import SalmonError
from salmon.training import ADPSGD, CPSGD, QSGD, AdaDamp, Checkpoint, Crossbow, GeoDamp, NoiseScale, RadaDamp
from tests.program import REPOSITORY
from tests.unit.training.problems import losses, train

pytestmark = pytest.mark.slow

WAYS = [
    {"batch_size": RadaDamp(8, memory=0.9), "monitors": [NoiseScale()], "compression": QSGD(4)},
    {"batch_size": AdaDamp(8, dwell=3)},
    {"averaging": CPSGD(4)},
    {"averaging": ADPSGD(sampling_steps=8, initial_period=3), "batch_size": GeoDamp(12, delay=1, factor=1.5)},
    {"averaging": Crossbow(2, momentum=0.5), "batch_size": 5},
]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_run_in_two_halves_equals_a_run_in_one_piece(tmp_path, way):
    whole = train(3, epochs=4, **way)
    train(3, epochs=2, checkpoint=tmp_path, **way)
    second = train(3, epochs=4, checkpoint=tmp_path, **way)
    assert losses(second).tolist() == losses(whole).tolist()
    assert [{**row, "seconds": 0} for row in second.history.rows] == [
        {**row, "seconds": 0} for row in whole.history.rows
    ]
    assert (second.state.weights == whole.state.weights).all()


def test_only_the_last_checkpoint_is_kept_and_it_holds_no_objects(tmp_path):
    train(1, checkpoint=tmp_path)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".npz"]
    assert json.loads((tmp_path / "training.json").read_text())["progress"]["epoch"] == 4


def test_the_checkpoint_of_another_run_is_refused(tmp_path):
    train(1, checkpoint=tmp_path)
    with pytest.raises(SalmonError, match="another run"):
        train(1, checkpoint=tmp_path, batch_size=10)


@pytest.mark.parametrize("damage", ["training.json", "*.npz"])
def test_a_damaged_checkpoint_is_reported(tmp_path, damage):
    train(1, checkpoint=tmp_path)
    (path,) = tmp_path.glob(damage)
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(SalmonError, match="cannot be read"):
        train(1, checkpoint=tmp_path)


def test_loading_returns_none_before_the_first_checkpoint(tmp_path):
    assert Checkpoint(tmp_path / "none").load("any") is None


def test_a_driver_that_is_killed_loses_at_most_an_epoch(tmp_path):
    # The run writes a line in each of its six steps per epoch and is killed in the middle of an epoch.
    code = (
        "import sys\n"
        "from tests.unit.training.problems import train\n"
        "watch = lambda module: print('step', flush=True) or {}\n"
        "train(2, epochs=1000, checkpoint=sys.argv[1], watch=watch)\n"
    )
    running = subprocess.Popen(
        (sys.executable, "-c", code, str(tmp_path)), cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    )
    with running:
        for _ in range(33):
            running.stdout.readline()
        os.kill(running.pid, signal.SIGKILL)
        left = 33 + len(running.stdout.readlines())
    kept = json.loads((tmp_path / "training.json").read_text())["progress"]
    assert kept["step"] >= 6 * (left // 6) - 6
    resumed = train(2, epochs=kept["epoch"] + 2, checkpoint=tmp_path)
    assert resumed.history["step"].tolist() == list(range(1, len(resumed.history) + 1))
    assert losses(resumed).tolist() == losses(train(2, epochs=kept["epoch"] + 2)).tolist()
