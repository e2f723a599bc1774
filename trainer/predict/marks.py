"""Which targets have in-neighbours that are marked: the longest part of finding what a change reaches."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from cohort_gnn.dataset import StoredGraph
from cohort_gnn.dataset import _native as dataset_native
from cohort_gnn.spec.graph import EdgeType
from cohort_gnn.trainer.predict.row_digests import Digests, DigestsOf


@dataclass(frozen=True, eq=False)
class Marks:
    """Of one edge type.

    Attributes:
        sources: bool [source nodes].
        reached: bool [target nodes], those that have one of them as in-neighbour.
    """

    relation: EdgeType
    sources: np.ndarray
    reached: np.ndarray


def mark_targets(
    data: StoredGraph, relation: EdgeType, sources: np.ndarray, reached: np.ndarray, there: Marks | None = None
) -> None:
    """Sets reached, bool [target nodes], where an in-neighbour is one of the sources, bool [source nodes].

    Args:
        there: is used if it is the answer.
    """
    if there is not None and there.relation == relation and np.array_equal(there.sources, sources):
        reached |= there.reached
    else:
        edges = data.edge_types[relation]
        dataset_native.mark_targets(edges.indptr, edges.indices, sources, reached)


def marks_since(
    data: StoredGraph, before: Digests, now: Mapping[DigestsOf, np.ndarray], look: Callable[[], None]
) -> Marks | None:
    """The targets that an update looks for first: those of the nodes that have changed, or, if none has, of the nodes
    whose lists have. None: nothing has changed, or the graph has several types, or no raw features.

    Args:
        now: `plain_digests` of the data set.
        look: as it takes it.
    """
    after = {what: digests for (what, _), digests in now.items()}
    if len(data.edge_types) != 1 or len(data.node_types) != 1:
        return None
    (name,), (relation,) = data.node_types, data.edge_types
    if after.keys() != {name, relation}:
        return None
    changes = Digests({name: after[name]}, {relation: after[relation]}).since(before)
    changed = changes.nodes[name] if len(changes.nodes[name]) else changes.lists[relation]
    if not len(changed):
        return None
    edges, sources = data.edge_types[relation], np.zeros(len(after[name]), bool)
    sources[changed], reached = True, np.zeros(len(after[relation]), bool)
    dataset_native.mark_targets(edges.indptr, edges.indices, sources, reached, look)
    return Marks(relation, sources, reached)
