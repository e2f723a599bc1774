"""`.npz` files and folders of `.npy` files: CSR matrices (adj_*, attr_*), plain src, dst and x, PyG's names, or a
sparse adjacency matrix as SciPy saves it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import scipy  # its packages load on first use

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import arrays
from cohort_gnn.dataset.array_file import ArrayFile, NamedArrays
from cohort_gnn.dataset.arrays import MASKS
from cohort_gnn.dataset.layouts.graph import Graph
from cohort_gnn.dataset.layouts.streams import Edges, Rows, Weights
from cohort_gnn.dataset.meta import SPLITS
from cohort_gnn.spec.graph import NODE_TYPE

HINT = (
    "names are src, dst, x, labels, edge_weights and edge_attr; or PyG's: x, edge_index, y, edge_weight and edge_attr; "
    "or adj_*, attr_* and labels of CSR matrices; or those of scipy.sparse.save_npz; "
    "of splits train_ids or train_mask, val_ids ..."
)
IS_ARRAY = "_is_array"  # of scipy.sparse.save_npz: whether it was an array, not a matrix
LABELS, WEIGHTS = ("labels", "y"), ("edge_weights", "edge_weight")


def read_npz(source: Path) -> Graph:
    """The graph of an .npz file or of a folder of .npy files, with those splits that there are."""
    inputs = NamedArrays(source, HINT)
    if "adj_indptr" in inputs:
        graph = _graph_of_matrices(inputs)
    elif "format" in inputs and "src" not in inputs:
        graph = _graph_of_sparse(inputs)
    elif "edge_index" in inputs and "src" not in inputs:
        arrays.demand_shape(inputs.place("edge_index"), inputs["edge_index"], (2, None))
        graph = _graph_of_arrays(inputs, Edges.from_pairs(inputs["edge_index"]))
    else:
        edges = Edges.from_arrays(inputs.place("src, dst"), inputs["src"], inputs["dst"])
        graph = _graph_of_arrays(inputs, edges)
    names = max((SPLITS, MASKS), key=lambda names: sum(name in inputs for name in names))
    read = _mask if names is MASKS else _ids
    there = {key: partial(read, inputs, key) for key in names if key in inputs}
    if there:
        graph.take_splits(source, there, names)
    if graph.nodes[NODE_TYPE].features is None:
        hint = f"pass --features FILE; {HINT}"
        problem = CohortError(str(source), "an array x", ", ".join(sorted(inputs.names)) or "no arrays", hint)
        graph.missing["features"] = problem
    if unused := [name for name in inputs.unread() if name not in (*there, IS_ARRAY)]:
        graph.notes.append(f"{source.name}: not used: {', '.join(unused)}")
    return graph


def _ids(inputs: NamedArrays, key: str) -> np.ndarray:
    return inputs[key].read()


def _mask(inputs: NamedArrays, key: str) -> np.ndarray:
    """bool [V]"""
    hint = f"ids have the name {key.removesuffix('mask')}ids"
    return arrays.mask(inputs.place(key), inputs[key].read(), key, hint)


def _graph_of_arrays(inputs: NamedArrays, edges: Edges) -> Graph:
    """These edges, and x, labels and weights by name, as far as present."""
    weights, labels = (_either(inputs, names) for names in (WEIGHTS, LABELS))
    features = Rows.from_file(inputs["edge_attr"]) if "edge_attr" in inputs else None
    rows = inputs["x"] if "x" in inputs else None
    node_array = labels if rows is None else rows
    return Graph.homogeneous(
        name=inputs.path.resolve().stem,
        edges=replace(edges, weights=None if weights is None else Weights.from_array(weights), features=features),
        features=None if rows is None else Rows.from_file(rows),
        labels=labels,
        num_nodes=None if node_array is None else len(node_array),
        any_task=True,
    )


def _either(inputs: NamedArrays, names: tuple[str, str]) -> ArrayFile | None:
    """The array that has one of two names."""
    there = [name for name in names if name in inputs]
    if len(there) > 1:
        raise CohortError(str(inputs.path), f"{names[0]} or {names[1]}", "both", "leave one of the two out")
    return inputs[there[0]] if there else None


def _graph_of_matrices(inputs: NamedArrays) -> Graph:
    """Adjacency and attributes as CSR matrices; row i, column j of the adjacency is the edge i -> j."""
    if (name := next((name for name in ("edge_weights", "edge_attr") if name in inputs), None)) is not None:
        place = inputs.place(name)
        raise CohortError(place, "edges as src and dst beside it", "a CSR matrix", "write the edges as src and dst")
    adjacency = _matrix(inputs, "adj")
    attributes = _matrix(inputs, "attr") if "attr_indptr" in inputs else None
    num_nodes = adjacency.shape[0] if attributes is None else attributes.shape[0]
    if adjacency.shape != (num_nodes, num_nodes):
        place, expected = inputs.place("adj_shape"), f"[{num_nodes}, {num_nodes}], a row and a column for each node"
        raise CohortError(place, expected, str(list(adjacency.shape)))
    features = None if attributes is None else Rows.from_matrix(inputs.place("attr"), attributes.astype(np.float32))
    if features is None and "attr_matrix" in inputs:
        features = Rows.from_file(inputs["attr_matrix"])
    adjacency.eliminate_zeros()
    coo = adjacency.tocoo()
    return Graph.homogeneous(
        name=inputs.path.resolve().stem,
        edges=Edges.in_memory(inputs.place("adj_indices"), coo.row, coo.col),
        features=features,
        labels=inputs["labels"] if "labels" in inputs else None,
        num_nodes=num_nodes,
        any_task=True,
    )


def _graph_of_sparse(inputs: NamedArrays) -> Graph:
    """What scipy.sparse.save_npz wrote: entry (i, j) is the edge i -> j, its value the weight unless it is a bool."""
    kind = inputs.text("format")
    if kind not in ("csr", "csc", "coo"):
        hint = f"scipy.sparse.save_npz('csr.npz', scipy.sparse.load_npz('{inputs.path.name}').tocsr())"
        raise CohortError(inputs.place("format"), "csr, csc or coo", repr(kind), hint)
    data, place = inputs["data"], str(inputs.path)
    shape = arrays.integers(inputs.place("shape"), inputs["shape"].read(), (2,))
    if shape[0] != shape[1]:
        expected, hint = "a row and a column for each node", "feature rows are a .npy file: matrix.toarray()"
        raise CohortError(inputs.place("shape"), expected, str(shape.tolist()), hint)
    num_nodes = int(shape[0])
    arrays.demand_plausible(place, num_nodes, len(data))
    if kind == "coo":
        edges = Edges.from_arrays(place, inputs["row"], inputs["col"])
    else:
        indptr = arrays.integers(inputs.place("indptr"), inputs["indptr"].read(), (num_nodes + 1,))
        edges = Edges.from_columns(place, indptr, inputs["indices"])
        edges = edges.transposed() if kind == "csc" else edges
    shape_text = f"{inputs.path.name}: {len(data):,} entries"
    if data.dtype.kind != "b":
        edges, shape_text = edges.with_column(Weights.from_array(data)), f"{shape_text}; their values are edge weights"
    return Graph.homogeneous(edges, num_nodes=num_nodes, name=inputs.path.resolve().stem, notes=[shape_text])


def _matrix(inputs: NamedArrays, name: str) -> scipy.sparse.csr_matrix:
    place = inputs.place(name)
    shape = arrays.integers(f"{place}_shape", inputs[f"{name}_shape"].read(), (2,))
    if (shape < 1).any():
        raise CohortError(f"{place}_shape", "two positive lengths", str(shape.tolist()))
    data, indices, indptr = (inputs[f"{name}_{part}"].read() for part in ("data", "indices", "indptr"))
    return arrays.csr_matrix(f"{place}_", data, indices, indptr, shape.tolist())
