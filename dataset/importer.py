"""`cohort dataset import`: .npz files and folders of .npy become data sets. No pickle is ever loaded."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import scipy.sparse

from cohort.base.errors import CohortError
from cohort.dataset import arrays
from cohort.dataset.pca import principal_components
from cohort.dataset.writer import SPLITS, demand_split, random_splits, write_dataset

UNREADABLE = (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error)


class Source:
    """The named arrays of an .npz file or of a folder of .npy files, each read when asked for."""

    def __init__(self, path: str | os.PathLike):
        self.path = Path(path)
        if self.path.is_dir():
            self._files = None
            self.keys = sorted(file.stem for file in self.path.glob("*.npy"))
        elif self.path.is_file():
            self._files = self._load(self.path)
            if not isinstance(self._files, np.lib.npyio.NpzFile):
                raise CohortError(str(self.path), "an .npz file or a folder of .npy files", "a single array")
            self.keys = sorted(self._files.files)
        else:
            raise CohortError(str(self.path), "an .npz file or a folder of .npy files", "no such file or folder")

    def place(self, key: str) -> str:
        return f"{self.path}: {key}"

    def __getitem__(self, key: str) -> np.ndarray:
        if key not in self.keys:
            found = ", ".join(self.keys) or "no arrays"
            raise CohortError(str(self.path), f"an array {key}", found, "FORMAT.md lists the layouts that are known")
        if self._files is None:
            return self._load(self.path / f"{key}.npy", mmap_mode="r")
        try:
            return self._files[key]
        except UNREADABLE as error:
            raise CohortError(self.place(key), "an array without Python objects", str(error)) from error

    def close(self) -> None:
        if self._files is not None:
            self._files.close()

    @staticmethod
    def _load(path: Path, mmap_mode: str | None = None):
        try:
            return np.load(path, mmap_mode=mmap_mode, allow_pickle=False)
        except UNREADABLE as error:
            hint = "write it again with numpy.savez or numpy.save; pickled objects are never loaded"
            raise CohortError(str(path), "arrays in NumPy's .npz or .npy format", str(error), hint) from error


def import_npz(
    source: str | os.PathLike,
    out: str | os.PathLike,
    *,
    undirected: bool = False,
    pca: int | None = None,
    row_normalize: bool = False,
    split: Sequence[float] = (0.6, 0.2, 0.2),
    seed: int = 0,
    overwrite: bool = False,
) -> None:
    """Turns an .npz file (or a folder of .npy files) into a data set. FORMAT.md lists the two layouts.

    Args:
        undirected: put every edge in both directions and drop duplicates.
        pca: this many dense float32 features instead of the given ones.
        row_normalize: divide each feature row by the sum of its absolute values (before `pca`).
        split: parts of the labelled nodes for train, val and test, drawn with `seed`; unused when the input has ids.

    Raises:
        CohortError: for input that is missing, damaged or out of range.
    """
    demand_split(split, seed)
    inputs = Source(source)
    try:
        read = _read_csr if "adj_indptr" in inputs.keys else _read_plain
        (src, dst), x = read(inputs)
        labels = arrays.labels(inputs.place("labels"), inputs["labels"], x.shape[0])
        splits = _splits(inputs, labels, split, seed)
    finally:
        inputs.close()
    if undirected:
        src, dst = arrays.both_directions(src, dst, x.shape[0])
    if row_normalize:
        x = _row_normalize(x)
    if pca is not None:
        x = principal_components(x, pca, seed)
    name = Path(source).resolve().stem
    write_dataset(out, graph=(src, dst), x=x, labels=labels, splits=splits, name=name, overwrite=overwrite)


def _read_csr(inputs: Source):
    """Adjacency and attributes as CSR matrices; row i, column j of the adjacency is the edge i -> j."""
    adjacency, attributes = _matrix(inputs, "adj"), _matrix(inputs, "attr")
    num_nodes = attributes.shape[0]
    if adjacency.shape != (num_nodes, num_nodes):
        place, expected = inputs.place("adj_shape"), f"[{num_nodes}, {num_nodes}], as attr_shape has rows"
        raise CohortError(place, expected, str(list(adjacency.shape)))
    degrees = np.diff(adjacency.indptr)
    src = np.repeat(np.arange(num_nodes, dtype=np.int64), degrees)
    present = adjacency.data != 0
    return (src[present], adjacency.indices[present].astype(np.int64)), attributes.astype(np.float32)


def _matrix(inputs: Source, name: str) -> scipy.sparse.csr_matrix:
    shape = arrays.integers(inputs.place(f"{name}_shape"), inputs[f"{name}_shape"], (2,))
    if (shape < 1).any():
        raise CohortError(inputs.place(f"{name}_shape"), "two positive lengths", str(shape.tolist()))
    indptr = arrays.integers(inputs.place(f"{name}_indptr"), inputs[f"{name}_indptr"], (int(shape[0]) + 1,))
    indices = arrays.integers(inputs.place(f"{name}_indices"), inputs[f"{name}_indices"])
    data = inputs[f"{name}_data"]
    arrays.demand_shape(inputs.place(f"{name}_data"), data, indices.shape)
    if data.dtype.kind not in "biuf":
        raise CohortError(inputs.place(f"{name}_data"), "numbers", f"dtype {data.dtype}")
    if indptr[0] != 0 or indptr[-1] != len(indices) or (np.diff(indptr) < 0).any():
        expected = f"values that ascend from 0 to {len(indices)}"
        raise CohortError(inputs.place(f"{name}_indptr"), expected, f"{indptr[0]} .. {indptr[-1]}, or a step down")
    arrays.demand_nodes(inputs.place(f"{name}_indices"), indices, int(shape[1]))
    return scipy.sparse.csr_matrix((data, indices, indptr), shape=tuple(shape.tolist()))


def _read_plain(inputs: Source):
    """src and dst of the edges src -> dst, and x."""
    x = arrays.features(inputs.place("x"), inputs["x"])
    return arrays.edges(inputs.place(""), inputs["src"], inputs["dst"], x.shape[0]), x


def _splits(inputs: Source, labels: np.ndarray, parts: Sequence[float], seed: int) -> list[np.ndarray]:
    """The input's own ids when it has all three, else random ones."""
    if not set(SPLITS) <= set(inputs.keys):
        return random_splits(labels, parts, seed)
    return [arrays.integers(inputs.place(split), inputs[split]) for split in SPLITS]


def _row_normalize(x):
    """Rows whose absolute values add up to 1, float32; rows of zeros stay."""
    sums = np.asarray(abs(x).sum(axis=1, dtype=np.float64)).reshape(-1, 1)
    scale = np.divide(1.0, sums, out=np.zeros_like(sums), where=sums != 0)
    if scipy.sparse.issparse(x):
        return scipy.sparse.csr_matrix(scipy.sparse.diags(scale[:, 0]) @ x, dtype=np.float32)
    return (x * scale).astype(np.float32)
