"""Data in shards, which each worker reads for itself: no process holds more than its share, and the driver holds none.

A shard is a file, or a block of Dask collections. Every rank is given whole shards, about as many rows as any other.
"""

import hashlib
import heapq
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import torch

from salmon.errors import SalmonError

#: A name of an array or column, or several columns that form a matrix.
Names = Sequence[str | tuple[str, ...]]
_ARRAYS, _TABLE = ".npz", ".parquet"


class Shard(Protocol):
    """Some of the examples."""

    @property
    def rows(self) -> int:
        """Return the number of examples."""
        ...

    @property
    def identity(self) -> str:
        """Return a text that differs for other examples."""
        ...

    def load(self) -> tuple[torch.Tensor, ...]:
        """Return the examples as tensors of the same length."""
        ...


@dataclass(frozen=True)
class ShardedData:
    """Examples that workers read for themselves: `fit(module, ShardedData.from_files(paths), …)`."""

    shards: tuple[Shard, ...]

    @classmethod
    def from_files(cls, files: Sequence[str | Path | Sequence[str | Path]], names: Names = ()) -> Self:
        """Return the data in these files; each entry is one shard.

        A shard is a .npz file, a .parquet file, or several .npy files, one for each tensor. Files of .npy are mapped
        into memory: the system reads only what is used. `names` selects arrays of a .npz file (by default all, in their
        order) or columns of a .parquet file, in which a tuple of names becomes a matrix:
        `names=(("age", "height"), "label")`. Every worker must see the files under the same path.
        """
        shards = [_open_file(each, tuple(names)) for each in files]
        _check_files(shards)
        return cls(tuple(shard for shard in shards if shard.rows))

    @classmethod
    def from_dask(cls, *collections: Any) -> Self:
        """Return the data in Dask arrays or data frames of the same length; each block
        along the first axis is one shard.
        """
        arrays = [each.to_dask_array(lengths=True) if hasattr(each, "to_dask_array") else each for each in collections]
        chunks = arrays[0].chunks[0]
        lengths = [len(each.chunks[0]) and sum(each.chunks[0]) for each in arrays]
        if np.isnan(lengths).any() or len(set(lengths)) != 1:
            raise SalmonError(
                f"Dask collections of lengths {lengths} cannot be trained on.",
                hint="Give collections of the same length; compute_chunk_sizes() finds an unknown one.",
                where="data",
            )
        whole = [each.rechunk({0: chunks, **dict.fromkeys(range(1, each.ndim), -1)}) for each in arrays]
        blocks = zip(*(each.to_delayed().ravel() for each in whole), strict=True)
        name = " ".join(each.name for each in whole)
        return cls(
            tuple(
                DaskShard(rows, f"{name} {index}", tuple(block))
                for index, (rows, block) in enumerate(zip(chunks, blocks, strict=True))
                if rows
            )
        )

    def __len__(self) -> int:
        return sum(shard.rows for shard in self.shards)

    def describe(self) -> str:
        """Return the number of examples, and a digest that differs for other ones."""
        digest = hashlib.sha256("\n".join(shard.identity for shard in self.shards).encode())
        return f"{len(self)} rows in {len(self.shards)} shards {digest.hexdigest()[:16]}"

    def assign(self, ranks: int) -> list[list[int]]:
        """Return the indices of each rank's shards: the largest shards first, each to the
        rank with the fewest rows so far.
        """
        if len(self.shards) < ranks:
            raise SalmonError(
                f"{len(self.shards)} shards cannot be divided among {ranks} workers.",
                hint="Divide the data into more shards, or take fewer workers.",
                where="data",
            )
        loads = [(0, rank) for rank in range(ranks)]
        assigned: list[list[int]] = [[] for _ in range(ranks)]
        for index in sorted(range(len(self.shards)), key=lambda each: (-self.shards[each].rows, each)):
            rows, rank = heapq.heappop(loads)
            assigned[rank].append(index)
            heapq.heappush(loads, (rows + self.shards[index].rows, rank))
        return [sorted(indices) for indices in assigned]

    def pending_blocks(self, indices: Sequence[int]) -> dict[int, tuple[Any, ...]]:
        """Return the blocks of Dask collections among these shards, which a worker of the cluster must compute."""
        return {index: shard.blocks for index in indices if isinstance(shard := self.shards[index], DaskShard)}

    def with_blocks(self, computed: Mapping[int, Sequence[Any]]) -> Self:
        """Return the data with the values of these blocks, and without the other blocks."""
        return replace(
            self,
            shards=tuple(
                replace(shard, blocks=tuple(computed.get(index, ()))) if isinstance(shard, DaskShard) else shard
                for index, shard in enumerate(self.shards)
            ),
        )


@dataclass(frozen=True)
class FileShard:
    """The examples in one file, or in several .npy files with one tensor each."""

    paths: tuple[Path, ...]
    names: tuple[str | tuple[str, ...], ...]
    rows: int
    #: dtype and shape of an example in each array.
    layout: tuple[str, ...]

    @property
    def identity(self) -> str:
        """Return a digest of the files' contents, which are read piece by piece."""
        found = [str(self.names)]
        for path in self.paths:
            with path.open("rb") as file:
                found.append(hashlib.file_digest(file, "sha256").hexdigest())
        return " ".join(found)

    def load(self) -> tuple[torch.Tensor, ...]:
        """Read the file; .npy files are mapped into memory instead."""
        first = self.paths[0]
        if first.suffix == _ARRAYS:
            with np.load(first, allow_pickle=False) as stored:
                columns = {name: stored[name] for name in _flatten(self.names)}
        elif first.suffix == _TABLE:
            columns = _read_parquet(first, list(_flatten(self.names)))
        else:
            # Copy-on-write: torch refuses arrays that cannot be written, and nothing is ever written to the file.
            return tuple(torch.from_numpy(np.load(path, mmap_mode="c", allow_pickle=False)) for path in self.paths)
        return tuple(
            torch.from_numpy(columns[name] if isinstance(name, str) else np.stack([columns[each] for each in name], 1))
            for name in self.names
        )


@dataclass(frozen=True)
class DaskShard:
    """One block of each of several Dask collections: delayed, or computed by the worker that trains on it."""

    rows: int
    identity: str
    blocks: tuple[Any, ...]

    def load(self) -> tuple[torch.Tensor, ...]:
        """Compute the blocks unless that has happened."""
        values = (each.compute(scheduler="synchronous") if hasattr(each, "dask") else each for each in self.blocks)
        return tuple(torch.as_tensor(np.require(each, requirements="W")) for each in values)


class ShardRows:
    """The rows of some shards, as if they were one table."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        self._parts = [shard.load() for shard in shards]
        lengths = [len(part[0]) for part in self._parts]
        self._starts = np.cumsum([0, *lengths])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def select(self, rows: np.ndarray) -> tuple[torch.Tensor, ...]:
        """Return the examples (b, …) in these rows."""
        if len(self._parts) == 1:
            index = torch.from_numpy(rows)
            return tuple(each.index_select(0, index) for each in self._parts[0])
        found = tuple(each.new_empty((len(rows), *each.shape[1:])) for each in self._parts[0])
        shard_of = np.searchsorted(self._starts, rows, side="right") - 1
        for shard in np.unique(shard_of):
            places = np.flatnonzero(shard_of == shard)
            index = torch.from_numpy(rows[places] - self._starts[shard])
            for into, each in zip(found, self._parts[shard], strict=True):
                into[torch.from_numpy(places)] = each.index_select(0, index)
        return found


def _open_file(given: str | Path | Sequence[str | Path], names: tuple[str | tuple[str, ...], ...]) -> FileShard:
    """Return a shard after reading the headers of its files only."""
    paths = tuple(Path(each).resolve() for each in ([given] if isinstance(given, str | Path) else given))
    try:
        found = {each: (length, layout) for path in paths for each, length, layout in _list_arrays(path)}
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise SalmonError(
            f"{', '.join(map(str, paths))} cannot be read: {error}.",
            hint="Give .npy, .npz or .parquet files that every worker can read.",
            where="data",
        ) from error
    if missing := [name for name in _flatten(names) if name not in found]:
        raise SalmonError(f"{paths[0]} has no {missing[0]!r}.", hint=f"It has {', '.join(found)}.", where=str(paths[0]))
    chosen = names or tuple(found)
    used = [found[name] for name in _flatten(chosen)]
    if len({length for length, _ in used}) != 1:
        raise SalmonError(
            f"The arrays of {paths[0]} have {', '.join(str(length) for length, _ in used)} rows.",
            hint="Give arrays of the same length.",
            where=str(paths[0]),
        )
    return FileShard(paths, chosen, used[0][0], tuple(layout for _, layout in used))


def _list_arrays(path: Path) -> Iterator[tuple[str, int, str]]:
    """Yield name, length and layout of each array or column of a file, from its header."""
    if path.suffix == _TABLE:
        stored = _parquet(path)
        for field in stored.schema_arrow:
            yield field.name, stored.metadata.num_rows, str(field.type)
    elif path.suffix == _ARRAYS:
        with zipfile.ZipFile(path) as archive:
            for member in archive.namelist():
                with archive.open(member) as file:
                    version = np.lib.format.read_magic(file)
                    first = version == (1, 0)
                    read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
                    shape, _, dtype = read(file)
                yield member.removesuffix(".npy"), shape[0] if shape else 0, f"{dtype} {shape[1:]}"
    else:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        yield str(path), len(array) if array.ndim else 0, f"{array.dtype} {array.shape[1:]}"


def _parquet(path: Path) -> Any:
    try:
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise SalmonError("Reading Parquet needs pyarrow.", hint="Install pyarrow, or write .npz files.") from error
    return ParquetFile(path)


def _read_parquet(path: Path, names: list[str]) -> dict[str, np.ndarray]:
    table = _parquet(path).read(columns=names)
    return {name: np.require(table.column(name).to_numpy(), requirements="W") for name in names}


def _flatten(names: Names) -> Iterator[str]:
    for name in names:
        yield from (name,) if isinstance(name, str) else name


def _check_files(shards: Sequence[FileShard]) -> None:
    """Refuse files without examples, and files whose examples are not alike."""
    if not any(shard.rows for shard in shards):
        raise SalmonError("The files have no examples.", hint="Give at least one that is not empty.", where="data")
    for shard in shards:
        if shard.layout != shards[0].layout:
            raise SalmonError(
                f"{shard.paths[0]} has {', '.join(shard.layout)}, but {shards[0].paths[0]} has {', '.join(shards[0].layout)}.",
                hint="Write all shards with the same arrays.",
                where=str(shard.paths[0]),
            )
