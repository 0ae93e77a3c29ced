"""Modules, optimisers and data as people have them in PyTorch."""

from copy import deepcopy
from functools import partial

import numpy as np
import pytest
import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, OneCycleLR, ReduceLROnPlateau, StepLR
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from salmon.errors import SalmonError
from salmon.training import CPSGD, QSGD, Crossbow, RateSchedule, fit
from salmon.training.examples import ShuffledOrder
from tests.unit.training.problems import ROWS, losses, network, regression, train

WAYS = [{}, {"averaging": CPSGD(3)}, {"averaging": Crossbow(2), "batch_size": 6}, {"compression": QSGD(8)}]
SQUARED = torch.nn.MSELoss(reduction="none")


class LastOutput(torch.nn.Module):
    """The last output of a recurrent layer."""

    def __init__(self, kind):
        super().__init__()
        self.layer, self.out = kind(2, 4, batch_first=True), torch.nn.Linear(4, 1)

    def forward(self, inputs):
        return self.out(self.layer(inputs.view(len(inputs), 3, 2))[0][:, -1])


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_parameters_that_require_no_gradient_stay(way):
    module = network()
    module[0].requires_grad_(False)
    frozen, free = module[0].weight.clone(), module[2].weight.clone()
    train(2, module=module, **way)
    assert torch.equal(module[0].weight, frozen)
    assert not torch.equal(module[2].weight, free)


def test_a_module_of_frozen_parameters_is_refused():
    with pytest.raises(SalmonError, match="no parameters to train"):
        train(1, module=network().requires_grad_(False))


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_modules_of_other_precisions_train_and_keep_it(dtype, way, tmp_path):
    data = tuple(each.to(dtype) for each in regression())
    module = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1)).to(dtype)
    trained = train(2, module=module, data=data, epochs=8, checkpoint=tmp_path, **way)
    assert losses(trained)[-1] < losses(trained)[0] / 2
    assert {each.dtype for each in module.parameters()} == {dtype}
    assert module[1].running_mean.dtype == dtype
    assert (
        train(2, module=module, data=data, epochs=9, checkpoint=tmp_path, resume=True, **way).history["epoch"][-1] == 9
    )


def test_double_precision_is_that_of_torch():
    data, module = tuple(each.double() for each in regression()), network().double()
    alone = deepcopy(module)
    optimizer = torch.optim.SGD(alone.parameters(), lr=0.02, momentum=0.9)
    for chosen in ShuffledOrder(ROWS, [0, 0]).part(0, ROWS).reshape(-1, 20):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(alone(data[0][chosen]), data[1][chosen]).backward()
        optimizer.step()
    train(3, module=module, data=data, epochs=1)
    for ours, theirs in zip(module.parameters(), alone.parameters(), strict=True):
        assert torch.allclose(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_recurrent_modules_train(kind, way):
    trained = train(2, module=LastOutput(kind), optimizer=partial(torch.optim.Adam, lr=0.02), epochs=20, **way)
    assert losses(trained)[-10:].mean() < 0.8 * losses(trained)[:6].mean()


def test_a_recurrent_module_is_trained_alike_by_one_rank_and_by_three():
    first = LastOutput(torch.nn.LSTM)
    alone, shared = (train(ranks, module=deepcopy(first)) for ranks in (1, 3))
    assert losses(shared) == pytest.approx(losses(alone), rel=1e-3)


def test_a_module_that_reads_values_trains_one_batch_at_a_time():
    class Scaled(torch.nn.Linear):
        def forward(self, inputs):
            return super().forward(inputs) * (1.0 if inputs.abs().sum().item() > 0 else 0.0)

    trained = train(3, module=Scaled(6, 1), epochs=8)
    assert losses(trained)[-1] < losses(trained)[0] / 5


@pytest.mark.parametrize(
    ("ranks", "way"), [(1, {}), (2, {}), (2, {"averaging": CPSGD(2)}), (1, {"averaging": Crossbow(2)})]
)
def test_a_last_batch_of_one_example_does_not_crash_batchnorm(ranks, way):
    module = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
    data = tuple(each[:41] for each in regression())
    trained = train(ranks, module=module, data=data, batch_size=20, epochs=3, **way)
    assert trained.history["examples"][-1] == 3 * 41
    assert trained.history["batch_size"].max() in {21, 41}


def test_padding_does_not_enter_the_statistics_of_batchnorm():
    module = torch.nn.Sequential(torch.nn.BatchNorm1d(6, momentum=1.0), torch.nn.Linear(6, 1))
    train(2, module=module, batch_size=5, epochs=5 / 120)
    first = ShuffledOrder(ROWS, [0, 0]).part(0, 2)
    assert module[0].running_mean.numpy() == pytest.approx(regression()[0][first].mean(dim=0).numpy(), abs=1e-6)


def test_batches_too_small_for_batchnorm_are_refused():
    module = torch.nn.Sequential(torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 1))
    with pytest.raises(SalmonError, match="at least 8 examples"):
        train(4, module=module, batch_size=7)


def test_parameter_groups_are_those_of_torch():
    module, (inputs, labels) = network(), regression()
    alone = deepcopy(module)
    optimizer = torch.optim.Adam(
        [
            {"params": [alone[2].weight]},
            {"params": [alone[0].bias, alone[2].bias], "weight_decay": 0.0},
            {"params": [alone[0].weight], "lr": 0.001},
        ],
        lr=0.01, weight_decay=0.1,
    )  # fmt: skip
    for chosen in ShuffledOrder(ROWS, [0, 0]).part(0, ROWS).reshape(-1, 20):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(alone(inputs[chosen]), labels[chosen]).backward()
        optimizer.step()
    groups = [("*.bias", {"weight_decay": 0.0}), ("0.*", {"lr": 0.001})]
    options = {"optimizer": partial(torch.optim.Adam, lr=0.01, weight_decay=0.1), "parameter_groups": groups}
    trained = train(2, module=module, epochs=1, **options)
    for ours, theirs in zip(module.parameters(), alone.parameters(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5)
    assert trained.history["learning_rate"][0] == pytest.approx(0.01)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_run_with_parameter_groups_resumes(tmp_path, way):
    options = {"optimizer": partial(torch.optim.Adam, lr=0.01), "parameter_groups": [("*.bias", {"lr": 0.1})], **way}
    whole = train(2, epochs=4, **options)
    train(2, epochs=2, checkpoint=tmp_path, **options)
    assert losses(train(2, epochs=4, checkpoint=tmp_path, resume=True, **options)).tolist() == losses(whole).tolist()


def test_a_group_without_parameters_is_refused():
    with pytest.raises(SalmonError, match=r"matches 'head\.\*'.*0\.weight"):
        train(1, parameter_groups=[("head.*", {"lr": 1.0})])


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_the_norm_of_a_gradient_is_clipped(way):
    before = torch.nn.utils.parameters_to_vector(network().parameters()).detach().numpy()
    trained = train(2, momentum=0, rate=1.0, clip_norm=0.01, epochs=1 / 24, **{**way, "batch_size": 5})
    moved = np.linalg.norm(trained.state.arrays["weights"] - before, axis=1)
    assert len(trained.history) == 1
    assert (moved > 0.005).all()
    assert (moved <= 0.01001).all()
    with pytest.raises(SalmonError, match="clip_norm is 0"):
        train(1, clip_norm=0)


@pytest.mark.parametrize(
    ("scheduler", "unit"),
    [
        (partial(StepLR, step_size=2, gamma=0.1), "epoch"),
        (partial(CosineAnnealingLR, T_max=24), "step"),
        (partial(OneCycleLR, max_lr=1.0, total_steps=24, cycle_momentum=False), "step"),
    ],
    ids=["step", "cosine", "one cycle"],
)
def test_a_scheduler_of_torch_gives_the_learning_rate(scheduler, unit):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    reference, expected = scheduler(optimizer), []
    for step in range(24):
        expected.append(0.02 * optimizer.param_groups[0]["lr"])
        optimizer.step()
        if step < 23 and (unit == "step" or step % 6 == 5):
            reference.step()
    rates = train(2, policies=[RateSchedule(scheduler, unit)]).history["learning_rate"]
    assert rates == pytest.approx(expected)


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (lambda: RateSchedule(ReduceLROnPlateau), "does not follow from the number of epochs"),
        (lambda: RateSchedule(partial(StepLR, step_size=1), "batch"), "unit is 'batch'"),
        (
            lambda: train(
                1, policies=[RateSchedule(partial(OneCycleLR, max_lr=1.0, total_steps=2, cycle_momentum=False))]
            ),
            "ends before epoch 3",
        ),
    ],
    ids=["plateau", "unit", "too short"],
)
def test_schedulers_that_cannot_be_followed_are_refused(start, words):
    with pytest.raises(SalmonError, match=words):
        start()


class Pairs(Dataset):
    """A dataset that returns one example at a time."""

    def __init__(self):
        self.inputs, self.labels = regression()

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        return self.inputs[index], self.labels[index]


class Stream(IterableDataset):
    def __iter__(self):
        return iter(Pairs())


class Named(Pairs):
    def __getitem__(self, index):
        return {"inputs": self.inputs[index]}


@pytest.mark.parametrize(
    "data",
    [TensorDataset(*regression()), Pairs(), DataLoader(Pairs(), batch_size=20, shuffle=True)],
    ids=["tensors", "dataset", "loader"],
)
def test_a_dataset_or_a_loader_trains_as_its_tensors_do(data):
    options = {} if isinstance(data, DataLoader) else {"batch_size": 20}
    optimizer = partial(torch.optim.SGD, lr=0.02, momentum=0.9)
    trained = fit(network(), data, optimizer, loss=SQUARED, epochs=4, **options)
    assert losses(trained).tolist() == losses(train(1)).tolist()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (DataLoader(Pairs()), "sampler or batches of its own"),
        (DataLoader(Pairs(), shuffle=True, drop_last=True), "sampler or batches of its own"),
        (Stream(), "has no length"),
        (Named(), "are not tensors"),
    ],
    ids=["an order of its own", "dropped examples", "a stream", "names"],
)
def test_data_that_would_be_read_otherwise_are_refused(data, words):
    with pytest.raises(SalmonError, match=words):
        fit(network(), data, torch.optim.SGD, loss=SQUARED)


def test_the_final_parameters_are_plain_tensors_of_the_module():
    trained = train(2)
    assert np.allclose(
        torch.nn.utils.parameters_to_vector(trained.module.parameters()).detach().numpy(), trained.state.weights
    )
