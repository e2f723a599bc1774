"""PyG's raw/ folders of Planetoid: ind.NAME.x, tx, allx, y, ty, ally, graph (pickles) and test.index (text)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import scipy  # its packages load on first use

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import arrays
from cohort_gnn.dataset.array_file import MemoryArray
from cohort_gnn.dataset.layouts.graph import Graph
from cohort_gnn.dataset.layouts.inert_pickle import load_inert_pickle
from cohort_gnn.dataset.layouts.streams import Edges, Rows
from cohort_gnn.dataset.tables.text_file import TextFile
from cohort_gnn.dataset.tables.text_options import TextOptions

NUM_VAL = 500  # the public split: train as in y, 500 to validate, test as in test.index
PICKLES = ("tx", "allx", "y", "ty", "ally", "graph")  # x is the start of allx
HINT = "download the raw files of Planetoid again"


def is_planetoid(folder: Path) -> bool:
    return any(folder.glob("ind.*.graph"))


def read_planetoid(folder: Path) -> Graph:
    """The graph of a folder with one set of ind.NAME.* files, as PyG's Planetoid reads it (split "public")."""
    names = sorted(path.name.split(".")[1] for path in folder.glob("ind.*.graph"))
    if len(names) != 1:
        hint = "keep the files of one data set"
        raise CohortError(str(folder), "the files of one data set", ", ".join(names), hint)
    parts = _load(folder, names[0])
    x, labels = _rows(folder, parts)
    src, dst = _edges(folder / f"ind.{names[0]}.graph", parts.graph, x.shape[0])
    num_train = len(parts.y)
    ids = [
        np.arange(num_train),
        np.arange(num_train, min(num_train + NUM_VAL, parts.allx.shape[0])),
        np.sort(parts.test_index),
    ]
    return Graph.homogeneous(
        name=names[0],
        edges=Edges.in_memory(str(folder / f"ind.{names[0]}.graph"), src, dst),
        features=Rows.from_matrix(str(folder), x),
        labels=MemoryArray(str(folder), labels),
        splits=lambda: ids,
        num_nodes=x.shape[0],
        dedupe=True,
        self_loops="remove",
    )


def _load(folder: Path, name: str) -> SimpleNamespace:
    """The files of one data set by their names, and test_index: rows of x and y for train, test (t) and all others
    (all)."""
    contents = {part: load_inert_pickle(folder / f"ind.{name}.{part}") for part in PICKLES}
    for part, kind, text in (
        *((part, scipy.sparse.csr_matrix, "a SciPy CSR matrix") for part in ("tx", "allx")),
        *((part, np.ndarray, "a NumPy array") for part in ("y", "ty", "ally")),
        ("graph", dict, "a dict of lists"),
    ):
        if not isinstance(contents[part], kind):
            raise CohortError(str(folder / f"ind.{name}.{part}"), text, type(contents[part]).__name__, HINT)
    index_file = folder / f"ind.{name}.test.index"
    test_index = TextFile(index_file, TextOptions(header="no")).read([0], np.int64)
    parts = SimpleNamespace(**contents, test_index=test_index)
    for rows, targets, part in ((parts.allx, parts.ally, "ally"), (parts.tx, parts.ty, "ty")):
        arrays.demand_shape(str(folder / f"ind.{name}.{part}"), targets, (rows.shape[0], None))
    first = parts.allx.shape[0]
    distinct = len(np.unique(test_index))
    if not len(test_index) == distinct == parts.tx.shape[0] or (test_index < first).any():
        expected = f"{parts.tx.shape[0]} distinct nodes from {first}, one for each row of tx"
        raise CohortError(str(index_file), expected, f"{len(test_index)} from {test_index.min(initial=0)}", HINT)
    return parts


def _rows(folder: Path, parts: SimpleNamespace) -> tuple[scipy.sparse.csr_matrix, np.ndarray]:
    """x float32 [V, D] and labels int64 [V]: row i of tx and ty belongs to node test_index[i].

    Nodes between the tests' that no row belongs to (citeseer has 15) get zeros and no label.
    """
    if parts.allx.shape[1] != parts.tx.shape[1] or parts.ally.shape[1] != parts.ty.shape[1]:
        expected = f"{parts.allx.shape[1]} and {parts.ally.shape[1]} columns in tx and ty, as in allx and ally"
        raise CohortError(str(folder), expected, f"{parts.tx.shape[1]} and {parts.ty.shape[1]}", HINT)
    first = parts.allx.shape[0]
    num_tests = int(parts.test_index.max(initial=first - 1)) + 1 - first
    if num_tests > 2 * len(parts.test_index) + 1000:
        raise CohortError(str(folder), "test nodes without large gaps", f"node {first + num_tests - 1}", HINT)
    num_nodes = first + num_tests
    nodes = np.concatenate([np.arange(first), parts.test_index])  # of the rows of allx and tx
    ones = np.ones(len(nodes), np.float32)
    place = scipy.sparse.csr_matrix((ones, (nodes, np.arange(len(nodes)))), shape=(num_nodes, len(nodes)))
    x = (place @ scipy.sparse.vstack([parts.allx, parts.tx], format="csr", dtype=np.float32)).tocsr()
    one_hot = np.zeros((num_nodes, parts.ally.shape[1]))
    one_hot[nodes] = np.concatenate([parts.ally, parts.ty])
    return x, np.where(one_hot.any(axis=1), one_hot.argmax(axis=1), -1)


def _edges(path: Path, graph: dict, num_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Both ends of the edges node -> neighbour."""
    degrees, neighbours = [], []
    for node, listed in graph.items():
        if not isinstance(listed, list) or not all(isinstance(end, int) for end in [node, *listed]):
            raise CohortError(str(path), "a dict from nodes to lists of nodes", f"{str(node)[:20]}: other things", HINT)
        degrees.append(len(listed))
        neighbours += listed
    src = np.repeat(np.fromiter(graph, np.int64, len(graph)), degrees)
    return arrays.edges(f"{path}: ", src, np.array(neighbours, dtype=np.int64), num_nodes)
