"""Parts of a graph's nodes: made, kept beside the data, and read again."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cohort_gnn.base.errors import CohortError, why
from cohort_gnn.base.files import demand_writable, replacing
from cohort_gnn.dataset import _native
from cohort_gnn.dataset.reader import open
from cohort_gnn.dataset.writer import unreplaced

NODES_AT_ONCE = 1 << 16
METHODS = ("metis", "streaming", "random")


@dataclass(frozen=True)
class Partition:
    """The part of each node, and the quality of the parts.

    Attributes:
        parts: int32 [V].
        num_edges, cut_edges: stored edges; those whose ends lie in two parts.
        nodes, train_nodes: int [parts], how many each part has.
    """

    parts: np.ndarray
    num_edges: int
    cut_edges: int
    nodes: list[int]
    train_nodes: list[int]


def partition(
    path: str | os.PathLike, num_parts: int, method: str = "metis", seed: int = 0, memory_bytes: int = 0
) -> Partition:
    """Divides the nodes of a data set so that few edges join two parts, and keeps the parts in its folder.

    The nodes of several types are numbered through, in the order of the types, and divided together.

    A part has at most 1.05 times the mean number of nodes, and of training nodes ("random": as chance has it).

    Args:
        method: "metis": multilevel k-way partitioning in memory (Karypis, Kumar, SIAM J. Sci. Comput. 1998).
            "streaming": node v goes to the part P with the most |N(v) in P| - alpha 1.5 sqrt(|P|), alpha from
            sqrt(parts) E / V^1.5 (Fennel, Tsourakakis et al., WSDM 2014), in ten passes over the mapped file with
            growing alpha (restreaming, Nishimura, Ugander, KDD 2013); 4 bytes a node. "random": a hash of the node.
        seed: of "metis" and "random". The same arguments give the same parts.
        memory_bytes: the most that "metis" may take; 0: what the machine has left.

    Raises:
        CohortError: numbers out of range; no METIS in this build; a graph too large for it; a folder that cannot be
            written.
    """
    if not 0 <= seed < 2**64:
        raise CohortError("--seed", "an integer in [0, 2^64)", str(seed))
    folder = os.fspath(path)
    with unreplaced(folder) as demand_unreplaced:
        parts = _native.partition(folder, method=method, num_parts=num_parts, seed=seed, memory_bytes=memory_bytes)
        result = _measured(folder, parts, num_parts)
        demand_unreplaced()
    file, hint = parts_file(folder, num_parts), "the data set's folder must be writable, and its disk not full"
    with demand_writable(file, "a file that can be written", hint), replacing(file) as made, made.open("wb") as out:
        np.save(out, parts)
    return result


def _measured(folder: str, parts: np.ndarray, num_parts: int) -> Partition:
    """Measures the edge cut and the balance of parts int32 [V], each in [0, num_parts)."""
    data, cut = open(folder, prefer_raw=True), 0
    first_node = data.first_node
    for (source, _, target), edges in data.edge_types.items():
        sources, targets = parts[first_node[source] :], parts[first_node[target] :]
        for first in range(0, len(edges.indptr) - 1, NODES_AT_ONCE):
            starts = edges.indptr[first : first + NODES_AT_ONCE + 1]
            own = np.repeat(targets[first : first + len(starts) - 1], np.diff(starts))
            cut += int(np.count_nonzero(sources[edges.indices[starts[0] : starts[-1]]] != own))
    train_parts = parts[data.train_ids + first_node[data.target]]
    nodes, train = (np.bincount(numbers, minlength=num_parts).tolist() for numbers in (parts, train_parts))
    return Partition(parts, data.num_edges, cut, nodes, train)


def parts_file(path: str | os.PathLike, num_parts: int) -> Path:
    """Where a data set keeps the parts of its nodes, int32 [V]."""
    return Path(path) / f"partition-{num_parts}.npy"


def load_parts(path: str | os.PathLike, num_parts: int) -> np.ndarray:
    """int32 [V], mapped: the part of each node of a data set, in [0, num_parts).

    Raises:
        CohortError: there is no such file, or it is none of this data set.
    """
    file, num_nodes = parts_file(path, num_parts), open(path).num_nodes
    cure = f"make it with: cohort dataset partition {path} --parts {num_parts}"
    try:
        parts = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        actual = "no such file" if isinstance(error, FileNotFoundError) else why(error, "another file")
        raise CohortError(str(file), f"the parts of {num_nodes} nodes", actual, cure) from error
    if parts.shape != (num_nodes,) or parts.dtype != np.int32:
        raise CohortError(str(file), f"int32 [{num_nodes}]", f"{parts.dtype} {list(parts.shape)}", cure)
    if parts.min() < 0 or parts.max() >= num_parts:
        raise CohortError(str(file), f"parts in [0, {num_parts})", f"{parts.min()} .. {parts.max()}", cure)
    return parts
