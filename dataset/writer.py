"""Writing a data set: every way in ends here, with one full check before the folder appears."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from cohort_gnn.base.errors import CohortError, found_full, why
from cohort_gnn.dataset import _native, arrays
from cohort_gnn.dataset.check import check
from cohort_gnn.spec.types import checked_arguments

ROWS_AT_ONCE = 4096


def demand_no_problem(out: str | os.PathLike, folder: Path) -> None:
    """Raises CohortError for the first problem of the data set in `folder`, which is to become `out`."""
    for problem in check(folder):
        inside = os.path.relpath(problem.place, folder)
        raise CohortError(f"{out}: {inside}", problem.expected, problem.found, problem.hint)


@checked_arguments
def generate(
    out: str | os.PathLike,
    *,
    kind: str,
    nodes: int,
    edges: int,
    dim: int,
    dtype: str = "float32",
    classes: int = 2,
    seed: int = 0,
    split: Sequence[float] = (0.6, 0.2, 0.2),
    undirected: bool = False,
    edge_weights: bool = False,
    edge_dim: int = 0,
    overwrite: bool = False,
    rows: np.ndarray | None = None,
    write_rows: Callable[[Path, dict[str | None, Any]], None] | None = None,
) -> None:
    """Writes a random data set; kind is sbm, powerlaw or rmat (described in FORMAT.md).

    Args:
        edges: number of edges to draw.
        undirected: store each edge in both directions, as two edges.
        edge_weights: each edge has a weight in (0, 1], the same in both directions.
        edge_dim: features of each edge, float32, which tell whether its ends have the same class; 0: edges have none.
        rows: [R, D], each node's row is drawn at random from these rows, which then determine dimension and dtype.
        write_rows: function (folder, {None: rows}) that writes the feature rows, in place of features.npy.
    """
    demand_split(split, seed)
    options = _native.GenerateOptions(
        kind=kind,
        nodes=nodes,
        edges=edges,
        dim=dim,
        dtype=dtype,
        classes=classes,
        seed=seed,
        split=list(split),
        undirected=undirected,
        edge_weights=edge_weights,
        edge_dim=edge_dim,
    )
    if rows is None and write_rows is None:
        _native.generate(os.fspath(out), options, overwrite)
        return
    with output_folder(out, overwrite) as folder:
        _native.generate_graph(folder.path, Path(folder.out).name, options)
        if rows is None:
            labels = np.load(Path(folder.path) / "labels.npy", mmap_mode="r")
            made: GeneratedRows | DrawnRows = GeneratedRows(_native.FeatureGenerator(options), labels, dtype)
        else:
            made = DrawnRows(rows, nodes, dtype, seed)
        write: Callable[[Path, dict], None] = write_rows or _write_raw
        write(Path(folder.path), {None: made})


def _write_raw(folder: Path, tables: dict[str | None, DrawnRows]) -> None:
    (rows,) = tables.values()
    starts = range(0, rows.num_rows, ROWS_AT_ONCE)
    pieces = (rows.drawn(np.arange(first, min(first + ROWS_AT_ONCE, rows.num_rows))) for first in starts)
    write_rows(folder / "features.npy", pieces)


class DrawnRows:
    """Feature rows [V, D], each one of the rows of a table [R, D], drawn at random."""

    def __init__(self, table: np.ndarray, num_nodes: int, dtype: str, seed: int):
        self.table, self.num_rows, self.dtype = table, num_nodes, dtype
        self.row_bytes = table.shape[1] * table.itemsize
        index_dtype = np.min_scalar_type(len(table) - 1)
        self._drawn = np.random.default_rng(seed).integers(len(table), size=num_nodes, dtype=index_dtype)

    def drawn(self, ids: np.ndarray) -> np.ndarray:
        """[n, D]: the rows of nodes int64 [n]."""
        return self.table[self._drawn[ids]]

    def slice(self, first: int, last: int) -> np.ndarray:
        """uint8 [last - first, row_bytes]"""
        return self.take(np.arange(first, last))

    def take(self, ids: np.ndarray) -> np.ndarray:
        """uint8 [n, row_bytes]: the bytes of the rows of nodes int64 [n]."""
        return np.ascontiguousarray(self.drawn(ids)).view(np.uint8).reshape(len(ids), self.row_bytes)


class GeneratedRows:
    """The feature rows [V, D] of a random data set, made when they are asked for."""

    def __init__(self, generator: _native.FeatureGenerator, labels: np.ndarray, dtype: str):
        self._generator, self.labels = generator, labels
        self.num_rows, self.row_bytes, self.dtype = len(labels), generator.row_bytes, dtype
        self._buffer = np.empty((0, self.row_bytes), dtype=np.uint8)

    def slice(self, first: int, last: int) -> np.ndarray:
        """uint8 [last - first, row_bytes], in memory that the next slice takes again: new pages would cost more."""
        if len(self._buffer) < last - first:
            self._buffer = np.empty((last - first, self.row_bytes), dtype=np.uint8)
        out = self._buffer[: last - first]
        self._generator.write(self.labels, np.arange(first, last), out)
        return out

    def take(self, ids: np.ndarray) -> np.ndarray:
        """uint8 [n, row_bytes]: the bytes of the rows of nodes int64 [n]."""
        out = np.empty((len(ids), self.row_bytes), dtype=np.uint8)
        self._generator.write(self.labels, ids, out)
        return out


def random_splits(labels: np.ndarray, parts: Sequence[float], seed: int) -> list[np.ndarray]:
    """Train, val and test ids: random parts of the nodes that have a label, each ascending."""
    demand_split(parts, seed)
    labelled = np.flatnonzero(arrays.labelled(labels))
    shuffled = np.random.default_rng(seed).permutation(labelled)
    bounds = np.rint(np.minimum(np.cumsum(parts), 1.0) * len(labelled)).astype(np.int64)
    return [np.sort(ids) for ids in np.split(shuffled, bounds)[:3]]


def splits_by_time(labels: np.ndarray, times: np.ndarray, parts: Sequence[float]) -> list[np.ndarray]:
    """Train, val and test ids: the labelled nodes with the earliest, the next and the latest times, each ascending.
    Nodes of equal times are in one part: the one in which the first of them would be.

    Args:
        labels: of all nodes, [V].
        times: int64 [V].
        parts: shares of the labelled nodes.
    """
    labelled = np.flatnonzero(arrays.labelled(labels))
    ordered = labelled[np.argsort(times[labelled], kind="stable")]
    ascending = times[ordered]
    bounds = np.rint(np.minimum(np.cumsum(parts), 1.0) * len(ordered)).astype(np.int64)
    bounds_by_time = [
        int(np.searchsorted(ascending, ascending[bound - 1], side="right")) if bound else 0 for bound in bounds
    ]
    return [np.sort(ids) for ids in np.split(ordered, bounds_by_time)[:3]]


def demand_split(parts: Sequence[float], seed: int) -> None:
    """Raises CohortError unless there are three parts that fit into one whole, and a seed that is not negative."""
    if not 0 <= seed < 2**64:
        raise CohortError("--seed", "an integer in [0, 2^64)", str(seed))
    if len(parts) != 3:
        hint = "shares of training, validation and test, such as 0.8,0.1,0.1; they may add up to less than 1"
        raise CohortError("--split-ratio", "three parts", ",".join(str(part) for part in parts), hint)
    if not all(part >= 0 for part in parts) or not sum(parts) <= 1 + 1e-9:
        actual = ",".join(str(part) for part in parts)
        raise CohortError("--split-ratio", "three parts of at least 0 that add up to at most 1", actual, "0.6,0.2,0.2")


@contextlib.contextmanager
def output_folder(
    out: str | os.PathLike, overwrite: bool, keeps_others: bool = False
) -> Iterator[_native.OutputFolder]:
    """A folder (its `path`) that takes the place of `out` when all went well, and leaves nothing otherwise.

    Args:
        keeps_others: what others have put into `out`, such as runs, comes along; else a run is not overwritten.
    """
    folder = _native.OutputFolder(os.fspath(out), overwrite, keeps_others)
    try:
        yield folder
        folder.commit()
    except OSError as error:
        if full := found_full(error):
            hint = "free some space or write to another disk"
            raise CohortError(str(out), "disk space for the data set", full, hint) from error
        place = str(error.filename or out)
        raise CohortError(
            place, "files that can be read and written", why(error), "check permissions: ls -l"
        ) from error
    finally:
        folder.discard()


@contextlib.contextmanager
def unreplaced(folder: str | os.PathLike) -> Iterator[Callable[[], None]]:
    """Yields what raises CohortError if another command (append, import --overwrite) has replaced the data set since:
    files of the old one and of the new one do not belong together. Errors inside are looked at in this light, too."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:  # opening the data set says why
        yield lambda: None
        return

    def demand() -> None:
        if not os.path.samestat(os.stat(folder), os.fstat(descriptor)):
            actual = "one that another command has replaced meanwhile"
            raise CohortError(str(folder), "a data set that stays as it is", actual, "run this command again")

    try:
        yield demand
    except Exception:
        demand()
        raise
    finally:
        os.close(descriptor)


def write_rows(path: Path, chunks: Iterable[np.ndarray], done: Callable[[int], None] = lambda rows: None) -> list[int]:
    """Writes rows [n, D] of one type, n in each chunk, into a .npy file; returns its shape, [0, 0] without any.

    Args:
        done: called with the number of rows written so far.
    """
    shape, dtype = [0, 0], np.dtype(np.float32)
    with path.open("wb") as file:
        start = 0
        for rows in chunks:
            if rows.size == 0:
                continue
            if shape[0] == 0:
                shape, dtype = [0, rows.shape[1]], rows.dtype
                start = write_header(file, dtype, shape)
            file.write(np.ascontiguousarray(rows).data.cast("B"))
            shape[0] += len(rows)
            done(shape[0])
        file.seek(0)
        if write_header(file, dtype, shape) != start and shape[0]:
            raise AssertionError("headers of one length")
    return shape


def write_header(file: BinaryIO, dtype: np.dtype, shape: Sequence[int]) -> int:
    """Writes the header of a .npy file, as long as that of any number of rows; returns where the data start."""
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": tuple(shape)}
    np.lib.format.write_array_header_1_0(file, header)
    return file.tell()
