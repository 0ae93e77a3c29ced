"""A run continued from a checkpoint equals one that was never interrupted."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from sklearn.model_selection import cross_val_score

from salmon.errors import SalmonError
from salmon.training import (
    ADPSGD,
    CPSGD,
    QSGD,
    AdaDamp,
    Checkpoint,
    Crossbow,
    DaskClassifier,
    DaskRegressor,
    GeoDamp,
    NoiseScale,
    RadaDamp,
    SmoothedLoss,
)
from salmon.training.state import describe_value
from tests.program import REPOSITORY
from tests.unit.training.problems import losses, regression, train

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
    second = train(3, epochs=4, checkpoint=tmp_path, resume=True, **way)
    assert losses(second).tolist() == losses(whole).tolist()
    assert [{**row, "seconds": 0} for row in second.history.rows] == [
        {**row, "seconds": 0} for row in whole.history.rows
    ]
    assert (second.state.weights == whole.state.weights).all()


def test_only_the_last_checkpoint_is_kept_and_it_holds_no_objects(tmp_path):
    train(1, checkpoint=tmp_path)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".npz"]
    assert json.loads((tmp_path / "training.json").read_text())["progress"]["epoch"] == 4


def wide_layers():
    return torch.nn.Sequential(torch.nn.Linear(20, 256), torch.nn.ReLU(), torch.nn.Linear(256, 2))


def wider():
    """A network with as many parameters as the usual one, in another order."""
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Sigmoid(), torch.nn.Linear(8, 1))


def flipped():
    inputs, labels = regression()
    return inputs, -labels


def halved(output, target):
    return 0.5 * ((output - target) ** 2).mean(dim=1)


class HalvedFrom:
    """A policy that halves the rate from an epoch on."""

    def __init__(self, epoch):
        self.epoch = epoch

    def __call__(self, figures, plan):
        return replace(plan, rate_factor=0.5) if figures["epoch"] >= self.epoch else plan


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"data": flipped()}, "data differs"),
        ({"module": wider()}, "module differs"),
        ({"loss": halved}, "loss was .*MSELoss.* and is halved"),
        ({"loss": torch.nn.L1Loss(reduction="none")}, "loss was"),
        ({"optimizer": partial(torch.optim.Adam, lr=0.02)}, "optimizer"),
        ({"rate": 0.03}, "optimizer"),
        ({"batch_size": 10}, "batch_size was"),
        ({"averaging": CPSGD(4)}, "averaging was"),
        ({"averaging": CPSGD(2), "seed": 1}, "averaging was .*; seed was 0 and is 1"),
        ({"compression": QSGD(4)}, "compression was None and is QSGD"),
        ({"monitors": [SmoothedLoss()]}, "monitors was"),
        ({"policies": [HalvedFrom(2)]}, "policies was"),
        ({"policies": []}, "policies was"),
    ],
    ids=lambda each: None if isinstance(each, dict) else each[:30],
)
def test_a_run_that_differs_from_the_checkpoint_is_refused_by_name(tmp_path, change, named):
    train(2, checkpoint=tmp_path, policies=[HalvedFrom(1)])
    with pytest.raises(SalmonError, match=named):
        train(2, **{"checkpoint": tmp_path, "resume": True, "policies": [HalvedFrom(1)], **change})


def test_versions_and_closures_belong_to_the_description(tmp_path):
    def bounded(limit):
        return lambda output, target: (output - target).clamp(-limit, limit).square().mean(dim=1)

    train(1, checkpoint=tmp_path, loss=bounded(2))
    train(1, checkpoint=tmp_path, loss=bounded(2), resume=True, epochs=5)
    with pytest.raises(SalmonError, match="loss differs"):
        train(1, checkpoint=tmp_path, loss=bounded(3), resume=True)
    kept = tmp_path / "training.json"
    kept.write_text(kept.read_text().replace(f"torch {torch.__version__}", "torch 1.0"))
    with pytest.raises(SalmonError, match=r"versions was .* torch 1\.0"):
        train(1, checkpoint=tmp_path, loss=bounded(2), resume=True)


def test_a_description_is_the_same_in_every_process():
    described = "[HalvedFrom(1), halved, {'a', 'b', 'c'}, RuntimeError]"
    code = (
        "from tests.unit.training.test_checkpoint import HalvedFrom, halved\n"
        "from salmon.training.state import describe_value\n"
        f"print(hash('a'), describe_value({described}))\n"
    )
    # Another seed than that of this process, so that its sets have other orders.
    seed = next(each for each in ("1", "2") if each != os.environ.get("PYTHONHASHSEED"))
    hashed, text = subprocess.run(
        (sys.executable, "-c", code), cwd=REPOSITORY, env={**os.environ, "PYTHONHASHSEED": seed},
        stdout=subprocess.PIPE, text=True, check=True,
    ).stdout.strip().split(" ", 1)  # fmt: skip
    assert int(hashed) != hash("a")
    assert text == str(describe_value([HalvedFrom(1), halved, {"a", "b", "c"}, RuntimeError]))
    assert "HalvedFrom(epoch=1)" in text


def test_without_resume_a_fit_starts_anew(tmp_path):
    first = train(1, checkpoint=tmp_path)
    again = train(1, checkpoint=tmp_path)
    assert losses(again).tolist() == losses(first).tolist()
    assert len(train(1, checkpoint=tmp_path, epochs=5, resume=True).history) == len(first.history) * 5 // 4


def test_resuming_needs_a_folder_and_a_single_state_to_start_from(tmp_path):
    with pytest.raises(SalmonError, match="no checkpoint to resume from"):
        train(1, resume=True)
    with pytest.raises(SalmonError, match="both from start and from the checkpoint"):
        train(1, resume=True, checkpoint=tmp_path, start=train(1).state)


def test_the_chosen_number_of_replicas_is_kept(tmp_path):
    first = train(1, averaging=Crossbow(), batch_size=4, epochs=2, checkpoint=tmp_path)
    second = train(1, averaging=Crossbow(), batch_size=4, epochs=3, checkpoint=tmp_path, resume=True)
    assert second.job.averaging.count == first.job.averaging.count


def test_cross_validation_on_noise_gives_chance_with_a_checkpoint_folder(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(240, 20)), np.arange(240) % 2
    model = DaskClassifier(wide_layers, optimizer__lr=0.1, max_epochs=30, random_state=0, checkpoint=tmp_path / "kept")
    scores = cross_val_score(model, X, y, cv=3)
    # Three folds of 80: the standard deviation of the mean of chance is 0.032.
    assert abs(scores.mean() - 0.5) < 0.12
    # The module can memorise what it is trained on, so a fold that continued from another one would score near 1.
    assert model.fit(X, y).score(X, y) > 0.95
    assert model.fit(X, 1 - y).score(X, 1 - y) > 0.95


def test_an_estimator_resumes_only_on_the_same_data(tmp_path):
    inputs, labels = (each.numpy() for each in regression())
    model = DaskRegressor(
        torch.nn.Linear(6, 1), optimizer__lr=0.02, max_epochs=2, random_state=0, checkpoint=tmp_path
    ).fit(inputs, labels)
    model.set_params(max_epochs=3, resume=True).fit(inputs, labels)
    assert model.history_["epoch"][-1] == 3
    assert len(model.history_) == 3 * len(inputs) / 32 + 0.75
    with pytest.raises(SalmonError, match="data differs"):
        model.fit(inputs, -labels)


@pytest.mark.parametrize("damage", ["training.json", "*.npz"])
def test_a_damaged_checkpoint_is_reported(tmp_path, damage):
    train(1, checkpoint=tmp_path)
    (path,) = tmp_path.glob(damage)
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(SalmonError, match="cannot be read"):
        train(1, checkpoint=tmp_path, resume=True)


def test_loading_returns_none_before_the_first_checkpoint(tmp_path):
    assert Checkpoint(tmp_path / "none").load({}) is None


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
    resumed = train(2, epochs=kept["epoch"] + 2, checkpoint=tmp_path, resume=True)
    assert resumed.history["step"].tolist() == list(range(1, len(resumed.history) + 1))
    assert losses(resumed).tolist() == losses(train(2, epochs=kept["epoch"] + 2)).tolist()
