"""The in-neighbours of any nodes of a graph, with new nodes and edges that it does not have yet."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import _native as dataset_native
from cohort_gnn.dataset.stored_graph import Relation
from cohort_gnn.spec.graph import EdgeType


class TooManyEdges(CohortError):
    """The lists of a hop have more edges than may be read at once."""


@dataclass(frozen=True, eq=False)
class NewEdges:
    """Edges of one edge type that the graph does not have, each with a new node at one end at least.

    Attributes:
        sources, targets: int64 [n]; new nodes have the numbers after those of the graph.
        times: int64 [n]; None: the graph's edges have none.
        rows: float32 [n, dim]; None: the model reads none of them.
    """

    sources: np.ndarray
    targets: np.ndarray
    times: np.ndarray | None = None
    rows: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Lists:
    """The in-neighbours of some nodes, one list after the other.

    Attributes:
        indptr: int64 [nodes + 1], where each list starts.
        sources: int64 [edges].
        places: int64 [edges], of an edge among those of the graph; of the i-th new one, their number plus i.
    """

    indptr: np.ndarray
    sources: np.ndarray
    places: np.ndarray


class Neighbourhoods:
    """Reads lists of in-neighbours from a graph, whose lists new edges make longer.

    A list has the order that the data set would have with the new edges.

    Args:
        edges: of each edge type.
        seed: of what is drawn where a list is longer than wanted.
        max_edges: that are read at once.
    """

    def __init__(
        self,
        edges: Mapping[EdgeType, Relation],
        seed: int = 0,
        max_edges: int | None = None,
    ):
        self._edges, self._seed, self._max_edges = edges, seed, max_edges

    def lists(
        self,
        relation: EdgeType,
        nodes: np.ndarray,
        new: NewEdges | None = None,
        most: int = -1,
        keys: np.ndarray | None = None,
        span: tuple[int, int] | None = None,
    ) -> Lists:
        """The lists of nodes, int64 [n], each at most once.

        Args:
            keys: int64 [n], by which is drawn; None: the nodes.
            most: of longer lists so many edges are drawn, without replacement, by the seed, the target's key and the
                length of the list; -1: they are taken whole.
            span: the first and the last time that edges in lists may have; None: any, or they have no times.

        Raises:
            TooManyEdges: the lists have more than ``max_edges``.
        """
        none, stored = np.empty(0, np.int64), self._edges[relation]
        came = NewEdges(none, none) if new is None else new
        most_edges = np.iinfo(np.int64).max if self._max_edges is None else self._max_edges
        how: dict[str, Any] = {"most": most, "seed": self._seed, "most_edges": most_edges}
        how["are_numbered"] = stored.edge_table is not None
        if stored.edge_times is not None:
            how |= {"times": stored.edge_times, "new_times": none if came.times is None else came.times}
            how |= {} if span is None else {"oldest": span[0], "latest": span[1]}
        read = stored.indptr, stored.indices, nodes, nodes if keys is None else keys
        lists = Lists(*dataset_native.lists_of_nodes(*read, came.sources, came.targets, **how))
        if lists.indptr[-1] > most_edges:
            expected = f"nodes with at most {most_edges:,} in-neighbours of one hop"
            hint = "ask for fewer nodes at once, or have fewer of their neighbours drawn"
            raise TooManyEdges(f"{', '.join(relation)}", expected, f"{lists.indptr[-1]:,}", hint)
        return lists

    def in_degrees(
        self, relation: EdgeType, nodes: np.ndarray, new: NewEdges | None = None, span: tuple[int, int] | None = None
    ) -> np.ndarray:
        """int32 [n], without edges from a node to itself; new edges and ``span`` as for `lists`."""
        lists = self.lists(relation, nodes, new, span=span)
        counts = np.diff(lists.indptr)
        places = np.repeat(np.arange(len(nodes)), counts)
        loops = np.bincount(places[lists.sources == nodes[places]], minlength=len(nodes))
        return (counts - loops).astype(np.int32)
