"""Data that workers read themselves: every example is drawn once in an epoch, and the driver's
memory does not grow with them.
"""

import tracemalloc
from itertools import pairwise

import dask.array
import dask.dataframe
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from salmon.errors import SalmonError
from salmon.training import CPSGD, AdaDamp, Crossbow, ShardedData, TorchGroup, VirtualGroup
from salmon.training.examples import ShardedExamples
from tests.unit.training.problems import losses, regression, train

BOUNDS = (0, 50, 53, 90, 120)


def pieces():
    inputs, labels = (each.numpy() for each in regression())
    return [(inputs[start:stop], labels[start:stop]) for start, stop in pairwise(BOUNDS)]


def write_npz(folder):
    paths = [folder / f"{index}.npz" for index in range(4)]
    for path, (inputs, labels) in zip(paths, pieces(), strict=True):
        np.savez(path, inputs=inputs, labels=labels)
    return ShardedData.from_files(paths)


def write_npy(folder):
    paths = [(folder / f"inputs-{index}.npy", folder / f"labels-{index}.npy") for index in range(4)]
    for pair, arrays in zip(paths, pieces(), strict=True):
        for path, array in zip(pair, arrays, strict=True):
            np.save(path, array)
    return ShardedData.from_files(paths)


def write_parquet(folder):
    paths = [folder / f"{index}.parquet" for index in range(4)]
    names = tuple(f"x{column}" for column in range(6))
    for path, (inputs, labels) in zip(paths, pieces(), strict=True):
        pq.write_table(pa.table({**dict(zip(names, inputs.T, strict=True)), "y": labels[:, 0]}), path)
    return ShardedData.from_files(paths, (names, ("y",)))


def make_dask(folder):
    del folder
    inputs, labels = (each.numpy() for each in regression())
    chunks = tuple(np.diff(BOUNDS).tolist())
    return ShardedData.from_dask(
        dask.array.from_array(inputs, chunks=(chunks, 2)), dask.array.from_array(labels, chunks=(chunks, 1))
    )


KINDS = [write_npz, write_npy, write_parquet, make_dask]


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("ranks", [1, 3])
def test_every_example_is_drawn_once_in_an_epoch(tmp_path, make, ranks):
    examples = ShardedExamples(make(tmp_path), 0, range(ranks), ranks, 2)
    orders = []
    for epoch in (0, 1):
        drawn, position = [], 0
        while position < 120:
            size = min(32, 120 - position)
            (inputs, labels), counted = examples.draw(epoch, position, size)
            assert counted.sum() == pytest.approx(size, abs=ranks)
            drawn.append(torch.cat([inputs, labels], dim=2)[counted > 0])
            position += size
        rows = torch.cat(drawn)
        whole = torch.cat(regression(), dim=1)
        assert sorted(map(tuple, rows.tolist())) == sorted(map(tuple, whole.tolist()))
        orders.append(rows)
    assert not torch.equal(*orders)
    shares = torch.cat([torch.cat(each, dim=1) for row in range(ranks) for each in examples.share(row)])
    assert sorted(map(tuple, shares.tolist())) == sorted(map(tuple, whole.tolist()))


@given(rows=st.lists(st.integers(1, 1000), min_size=1, max_size=12), ranks=st.integers(1, 12))
def test_shards_are_divided_evenly(rows, ranks):
    class Rows:
        def __init__(self, count):
            self.rows = count

    data = ShardedData(tuple(map(Rows, rows)))
    if len(rows) < ranks:
        with pytest.raises(SalmonError, match=f"{len(rows)} shards cannot be divided among {ranks} workers"):
            data.assign(ranks)
        return
    assigned = data.assign(ranks)
    assert sorted(index for each in assigned for index in each) == list(range(len(rows)))
    loads = [sum(rows[index] for index in each) for each in assigned]
    assert min(loads) > 0
    assert max(loads) - min(loads) <= max(rows)


@pytest.mark.parametrize("make", KINDS)
def test_all_kinds_of_shards_train_alike(tmp_path, make):
    reference = train(2, data=write_npz(tmp_path))
    assert losses(train(2, data=make(tmp_path))) == pytest.approx(losses(reference), rel=1e-5)
    assert losses(reference)[-1] < losses(reference)[0] / 5
    assert losses(reference)[-6:].mean() == pytest.approx(losses(train(2))[-6:].mean(), rel=0.5)


@pytest.mark.slow
@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize(
    "options", [{}, {"averaging": CPSGD(3)}, {"averaging": Crossbow(2)}, {"batch_size": AdaDamp(8)}], ids=str
)
def test_workers_train_on_their_own_shards(cluster, tmp_path, make, options):
    there, here = (
        train(group=group, data=make(tmp_path), **options) for group in (TorchGroup(cluster), VirtualGroup(2))
    )
    assert losses(there) == pytest.approx(losses(here), rel=1e-3)


@pytest.mark.slow
def test_collections_are_given_as_they_are_and_may_be_persisted(cluster):
    inputs, labels = (dask.array.from_array(each.numpy(), chunks=(30, -1)) for each in regression())
    frame = dask.dataframe.from_pandas(pd.DataFrame(regression()[1].numpy(), columns=["y"]), chunksize=30)
    expected = losses(train(2, data=[inputs, labels]))
    assert losses(train(2, data=[inputs, frame])) == pytest.approx(expected, rel=1e-5)
    kept = cluster.client.persist([inputs, labels])
    assert losses(train(group=TorchGroup(cluster), data=kept)) == pytest.approx(expected, rel=1e-3)


@pytest.mark.slow
def test_workers_without_a_shard_do_not_take_part(cluster, tmp_path):
    arrays = dict(zip(("inputs", "labels"), (each.numpy() for each in regression()), strict=True))
    np.savez(tmp_path / "all.npz", **arrays)
    history = train(group=TorchGroup(cluster), data=ShardedData.from_files([tmp_path / "all.npz"])).history
    assert set(history["workers"]) == {1}


def test_a_checkpoint_of_other_shards_is_refused(tmp_path):
    folder = tmp_path / "kept"
    write_npz(tmp_path)
    paths = [tmp_path / f"{index}.npz" for index in range(4)]
    train(1, data=ShardedData.from_files(paths), epochs=1, checkpoint=folder)
    train(1, data=ShardedData.from_files(paths), epochs=2, checkpoint=folder, resume=True)
    np.savez(paths[2], inputs=pieces()[2][0] + 1, labels=pieces()[2][1])
    with pytest.raises(SalmonError, match="data differs"):
        train(1, data=ShardedData.from_files(paths), epochs=3, checkpoint=folder, resume=True)


def peak_memory(act):
    """Return the most memory that this process allocated in a call, apart from what it had before, in bytes.

    Python and NumPy, which reads the files, report what they allocate; the system's count would
    miss memory that is used again.
    """
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture
def large_files(tmp_path):
    """Ten shards of 13 MB."""
    rng = np.random.default_rng(0)
    inputs, labels = rng.standard_normal((50_000, 64), np.float32), rng.standard_normal((50_000, 1), np.float32)
    paths = [tmp_path / f"{index}.npz" for index in range(10)]
    for path in paths:
        np.savez(path, inputs=inputs, labels=labels)
    return paths


@pytest.mark.slow
def test_the_memory_of_the_driver_is_flat_in_the_size_of_the_data(cluster, large_files):
    def train_on(paths):
        data = ShardedData.from_files(paths)
        train(
            group=TorchGroup(cluster), module=torch.nn.Linear(64, 1), data=data, rate=1e-3, batch_size=4096, epochs=0.2
        )

    size = sum(path.stat().st_size for path in large_files[2:])
    train_on(large_files[:2])
    # Eight more shards, 104 MB, of which the driver reads the headers.
    assert size > 100e6
    assert peak_memory(lambda: train_on(large_files)) < 0.1 * size
    # A single shard in the driver would show.
    assert peak_memory(ShardedData.from_files(large_files[:1]).shards[0].load) > 0.1 * size


def wrong_length(folder):
    np.savez(folder / "a.npz", inputs=np.zeros((3, 2)), labels=np.zeros(4))
    return ShardedData.from_files([folder / "a.npz"])


def other_columns(folder):
    np.savez(folder / "a.npz", inputs=np.zeros((3, 2)))
    np.savez(folder / "b.npz", inputs=np.zeros((3, 4)))
    return ShardedData.from_files([folder / "a.npz", folder / "b.npz"])


def no_such_name(folder):
    np.savez(folder / "a.npz", inputs=np.zeros((3, 2)))
    return ShardedData.from_files([folder / "a.npz"], ("labels",))


def broken(folder):
    (folder / "a.npz").write_bytes(b"not a file of arrays")
    return ShardedData.from_files([folder / "a.npz"])


def objects(folder):
    np.save(folder / "a.npy", np.array([{}, {}], dtype=object))
    return ShardedData.from_files([folder / "a.npy"])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (wrong_length, "have 3, 4 rows"),
        (other_columns, r"b\.npz has float64 \(4,\), but .*a\.npz has float64 \(2,\)"),
        (no_such_name, "has no 'labels'"),
        (broken, "cannot be read"),
        (objects, "cannot be read"),
        (lambda folder: ShardedData.from_files([folder / "missing.npy"]), "cannot be read"),
        (lambda folder: ShardedData.from_files([]), "have no examples"),
        (
            lambda folder: ShardedData.from_dask(dask.array.zeros((4, 1)), dask.array.zeros((5, 1))),
            "lengths .4, 5. cannot be trained on",
        ),
    ],
    ids=["lengths", "columns", "name", "broken", "objects", "missing", "none", "collections"],
)
def test_files_that_cannot_be_trained_on_are_refused_with_their_name(tmp_path, make, words):
    with pytest.raises(SalmonError, match=words):
        make(tmp_path)
