"""`.npz` files and folders of `.npy` files: CSR matrices (adj_*, attr_*), or plain src, dst and x."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import scipy  # its packages load on first use

from cohort.base.errors import CohortError
from cohort.dataset import arrays
from cohort.dataset.array_file import UNREADABLE, open_npy
from cohort.dataset.layouts.graph import (
    Edges,
    Graph,
    Rows,
    Weights,
    edges_of_arrays,
    edges_of_files,
    rows_of_file,
    rows_of_matrix,
    weights_of_array,
    weights_of_file,
)
from cohort.dataset.writer import SPLITS

HINT = (
    "names are src, dst, x, labels and edge_weights; or PyG's: x, edge_index, y and edge_weight; or adj_*, attr_* and "
    "labels of CSR matrices; of splits train_ids or train_mask, val_ids ..."
)


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
        self.demand(key)
        if self._files is None:
            return self._load(self.path / f"{key}.npy", mmap_mode="r")
        try:
            found = self._files[key]
        except UNREADABLE as error:
            raise CohortError(self.place(key), "an array without Python objects", str(error)) from error
        if not isinstance(found, np.ndarray):  # a member without the start of a .npy file
            raise CohortError(self.place(key), "an array in NumPy's .npy format", "other bytes", "write the file again")
        return found

    def mask(self, key: str) -> np.ndarray:
        """bool [V]"""
        hint = f"ids have the name {key.removesuffix('mask')}ids"
        return arrays.mask(self.place(key), self[key], key, hint)

    def demand(self, key: str) -> None:
        if key not in self.keys:
            found = ", ".join(self.keys) or "no arrays"
            raise CohortError(str(self.path), f"an array {key}", found, HINT)

    @property
    def is_folder(self) -> bool:
        return self._files is None

    @staticmethod
    def _load(path: Path, mmap_mode: str | None = None):
        try:
            return np.load(path, mmap_mode=mmap_mode, allow_pickle=False)
        except UNREADABLE as error:
            hint = "write it again with numpy.savez or numpy.save; pickled objects are never loaded"
            raise CohortError(str(path), "arrays in NumPy's .npz or .npy format", str(error), hint) from error


def read_npz(source: Path) -> Graph:
    """The graph of an .npz file or of a folder of .npy files."""
    inputs = Source(source)
    edges, rows, num_nodes = (_read_csr if "adj_indptr" in inputs.keys else _read_plain)(inputs)
    inputs.demand("labels")

    def labels() -> tuple[str, np.ndarray]:
        return inputs.place("labels"), inputs["labels"]

    def splits() -> list[np.ndarray]:
        return [arrays.integers(inputs.place(split), inputs[split]) for split in SPLITS]

    weights = _weights(inputs)
    has_splits = set(SPLITS) <= set(inputs.keys)
    return Graph(
        name=source.resolve().stem,
        edges=edges,
        features=rows,
        edge_weights=weights,
        labels=labels,
        splits=splits if has_splits else None,
        num_nodes=num_nodes,
        any_task=True,
    )


def _weights(inputs: Source) -> Weights | None:
    """edge_weights [E], of the edges src -> dst."""
    if "edge_weights" not in inputs.keys:
        return None
    place = inputs.place("edge_weights")
    if "adj_indptr" in inputs.keys:
        raise CohortError(place, "edges as src and dst beside it", "a CSR matrix", "write the edges as src and dst")
    if inputs.is_folder:
        return weights_of_file(open_npy(inputs.path / "edge_weights.npy"))
    return weights_of_array(place, inputs["edge_weights"])


def _read_plain(inputs: Source) -> tuple[Edges, Rows, int]:
    """src and dst of the edges src -> dst, and x."""
    if inputs.is_folder:
        for key in ("src", "dst", "x"):
            inputs.demand(key)
        x, src, dst = (open_npy(inputs.path / f"{key}.npy") for key in ("x", "src", "dst"))
        rows = rows_of_file(x)
        return edges_of_files(inputs.place("src, dst"), src, dst), rows, len(x)
    x = arrays.features(inputs.place("x"), inputs["x"])
    ends = arrays.edges(inputs.place(""), inputs["src"], inputs["dst"], x.shape[0])
    return edges_of_arrays(inputs.place("src, dst"), *ends), rows_of_matrix(inputs.place("x"), x), x.shape[0]


def _read_csr(inputs: Source) -> tuple[Edges, Rows, int]:
    """Adjacency and attributes as CSR matrices; row i, column j of the adjacency is the edge i -> j."""
    adjacency, attributes = _matrix(inputs, "adj"), _matrix(inputs, "attr")
    num_nodes = attributes.shape[0]
    if adjacency.shape != (num_nodes, num_nodes):
        place, expected = inputs.place("adj_shape"), f"[{num_nodes}, {num_nodes}], as attr_shape has rows"
        raise CohortError(place, expected, str(list(adjacency.shape)))
    src = np.repeat(np.arange(num_nodes, dtype=np.int64), np.diff(adjacency.indptr))
    present = adjacency.data != 0
    edges = edges_of_arrays(inputs.place("adj_indices"), src[present], adjacency.indices[present])
    return edges, rows_of_matrix(inputs.place("attr"), attributes.astype(np.float32)), num_nodes


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
