"""A large gradient is exchanged in parts during the backward pass, with the results of a single exchange after it."""

from functools import partial

import numpy as np
import pytest
import torch

from salmon.training import NoiseScale, TorchGroup, VirtualGroup, exchange
from salmon.training.exchange import NOTES, LayerExchange, divide_layers
from salmon.training.groups import VirtualRanks, count_all_reduce
from tests.unit.training.problems import losses, train

SIZES = [5, 300_000, 7, 200_000, 100_000, 9]


class RecordingRanks(VirtualRanks):
    """Two ranks, of which this process has one; the other one has the same gradient."""

    def __init__(self):
        super().__init__(2, 2)
        self.sent = []

    @property
    def local(self):
        return range(1)

    def begin_reduce(self, vectors):
        self.sent.append(vectors.shape[1])
        return lambda: 2 * vectors[0]


def send(announced):
    """Return what was sent when each layer was announced and at the end, and the resulting gradient and notes."""
    ranks, gradients = RecordingRanks(), torch.randn(1, sum(SIZES), generator=torch.Generator().manual_seed(0))
    layers = gradients[0].split(SIZES)
    exchanged = LayerExchange(SIZES, ranks, torch.float32)
    add, sent = exchanged.begin(4), []
    for layer in announced:
        add(layer, layers[layer])
        sent.append(len(ranks.sent))
    total, notes = exchanged.finish(gradients, torch.arange(NOTES, dtype=torch.float32)[None])
    assert torch.allclose(total, gradients[0] / 2)
    assert notes.tolist() == [0, 2, 4, 6, 8]
    assert ranks.sent == [300_009, 300_007, 5 + NOTES]
    return sent


def test_layers_are_divided_into_parts_of_a_megabyte_the_last_ones_first():
    assert divide_layers(SIZES) == [range(3, 6), range(1, 3), range(1)]
    assert divide_layers([3, 4]) == [range(2)]
    assert divide_layers([300_000, 4]) == [range(2)]


def test_a_part_is_sent_when_all_its_layers_are_announced_but_the_last_one_waits_for_the_notes():
    assert send([5, 4, 3, 2, 1, 0]) == [0, 0, 1, 1, 2, 2]


def test_parts_are_sent_in_the_same_order_whatever_is_announced_first():
    assert send([0, 1, 2, 3, 4, 5]) == [0, 0, 0, 0, 0, 2]


@pytest.mark.parametrize("announced", [[], [5, 4], [1, 2], [3, 4, 5, 2]], ids=str)
def test_layers_that_are_not_announced_follow_at_the_end(announced):
    send(announced)


class Skipping(torch.nn.Module):
    """Two wide layers, of which the second one is used only if the batch of a rank begins with a positive number."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(6, 600), torch.nn.Linear(600, 600)
        self.out = torch.nn.Linear(600, 1)

    def forward(self, inputs):
        hidden = self.first(inputs).tanh()
        return self.out(self.second(hidden).tanh() if inputs[0, 0].item() > 0 else hidden)


def wide():
    return torch.nn.Sequential(
        torch.nn.Linear(6, 600), torch.nn.Tanh(), torch.nn.Linear(600, 600), torch.nn.Tanh(), torch.nn.Linear(600, 1)
    )


@pytest.mark.slow
@pytest.mark.parametrize("module", [wide, Skipping])
@pytest.mark.parametrize("options", [{}, {"monitors": [NoiseScale()]}], ids=["plain", "monitored"])
def test_the_results_are_those_of_a_single_exchange_after_the_backward_pass(cluster, monkeypatch, module, options):
    torch.manual_seed(0)
    start = module().state_dict()

    def trained(group, **more):
        fresh = module()
        fresh.load_state_dict(start)
        return train(
            group=group, module=fresh, optimizer=partial(torch.optim.SGD, lr=0.002), epochs=1, **options, **more
        )

    there, here = trained(TorchGroup(cluster)), trained(VirtualGroup(2))
    entries = sum(each.numel() for each in wide().parameters())
    first = 6 * 600 + 600
    assert (
        np.diff(here.history["bytes_sent"]).tolist()
        == [count_all_reduce(2, torch.zeros(entries - first)) + count_all_reduce(2, torch.zeros(first + NOTES))] * 5
    )
    monkeypatch.setattr(exchange, "_PART", 1 << 30)
    single = trained(VirtualGroup(2))
    assert there.history["bytes_sent"].tolist() == here.history["bytes_sent"].tolist()
    for each in (there, here):
        assert losses(each) == pytest.approx(losses(single), rel=1e-4)
        assert each.state.weights == pytest.approx(single.state.weights, abs=1e-5)
    if "monitors" in options:
        assert there.history["noise_scale"] == pytest.approx(single.history["noise_scale"], rel=1e-2)
