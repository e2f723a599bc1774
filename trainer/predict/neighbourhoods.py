"""The in-neighbours of any nodes of a graph, with new nodes and edges that it does not have yet."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset.stored_graph import Relation
from cohort_gnn.spec.graph import EdgeType


@dataclass(frozen=True, eq=False)
class NewEdges:
    """Edges of one edge type that the graph does not have, each with a new node at one end at least.

    Attributes:
        sources, targets: int64 [n]; new nodes have the numbers after those of the graph.
    """

    sources: np.ndarray
    targets: np.ndarray


@dataclass(frozen=True, eq=False)
class Lists:
    """The in-neighbours of some nodes, one list after the other.

    Attributes:
        indptr: int64 [nodes + 1], where each list starts.
        sources: int64 [edges].
    """

    indptr: np.ndarray
    sources: np.ndarray


class Neighbourhoods:
    """Reads lists of in-neighbours from a graph, whose lists new edges make longer.

    A list has the order that the data set would have with the new edges.

    Args:
        edges: of each edge type.
        counts: nodes of each node type in the graph.
        seed: of what is drawn where a list is longer than wanted.
        max_edges: that are read at once.
    """

    def __init__(
        self,
        edges: Mapping[EdgeType, Relation],
        counts: Mapping[str, int],
        seed: int = 0,
        max_edges: int | None = None,
    ):
        self._edges, self._counts, self._seed, self._max_edges = edges, counts, seed, max_edges

    def lists(
        self,
        relation: EdgeType,
        nodes: np.ndarray,
        new: NewEdges | None = None,
        most: int = -1,
        keys: np.ndarray | None = None,
    ) -> Lists:
        """The lists of nodes, int64 [n], each at most once.

        Args:
            keys: int64 [n], by which is drawn; None: the nodes.
            most: longer lists are cut to so many edges, drawn without replacement, by the seed and the target's key;
                -1: they are not.

        Raises:
            CohortError: the lists have more than ``max_edges``.
        """
        stored = self._stored(relation, nodes)
        lists = stored if new is None or not len(new.sources) or not len(nodes) else _joined(stored, nodes, new)
        return lists if most < 0 else self._drawn(lists, nodes if keys is None else keys, most)

    def in_degrees(self, relation: EdgeType, nodes: np.ndarray, new: NewEdges | None = None) -> np.ndarray:
        """int32 [n], without edges from a node to itself."""
        lists = self.lists(relation, nodes, new)
        counts = np.diff(lists.indptr)
        places = np.repeat(np.arange(len(nodes)), counts)
        loops = np.bincount(places[lists.sources == nodes[places]], minlength=len(nodes))
        return (counts - loops).astype(np.int32)

    def _stored(self, relation: EdgeType, nodes: np.ndarray) -> Lists:
        indptr, indices = self._edges[relation].indptr, self._edges[relation].indices
        known = np.minimum(nodes, self._counts[relation[2]] - 1)
        begin = np.asarray(indptr[known])
        counts = np.where(known == nodes, np.asarray(indptr[known + 1]) - begin, 0)
        offsets = _offsets(counts)
        if self._max_edges is not None and offsets[-1] > self._max_edges:
            expected = f"nodes with at most {self._max_edges:,} in-neighbours of one hop"
            hint = "ask for fewer nodes at once, or have fewer of their neighbours drawn"
            raise CohortError(f"{', '.join(relation)}", expected, f"{offsets[-1]:,}", hint)
        return Lists(offsets, np.asarray(indices[_places(begin, counts)], np.int64))

    def _drawn(self, lists: Lists, keys: np.ndarray, most: int) -> Lists:
        counts = np.diff(lists.indptr)
        cut = np.flatnonzero(counts > most)
        if not len(cut):
            return lists
        places = _places(lists.indptr[cut], counts[cut])
        owner = np.repeat(np.arange(len(cut)), counts[cut])
        in_list = places - lists.indptr[cut][owner]
        list_keys = _hashed(keys[cut].astype(np.uint64) + np.uint64(self._seed))
        order = np.lexsort(
            (_hashed(list_keys[owner] + in_list.astype(np.uint64)), owner)
        )  # in each list, the least first
        is_kept = np.ones(len(lists.sources), bool)
        is_kept[places[order[in_list >= most]]] = False
        return Lists(_offsets(np.minimum(counts, most)), lists.sources[is_kept])


def _joined(stored: Lists, nodes: np.ndarray, new: NewEdges) -> Lists:
    """The lists with the new edges into these nodes at their ends: as each has a new node at one end, it leads into a
    new node, which has no others, or comes from one, whose number is higher than those of others."""
    order = np.argsort(nodes, kind="stable")
    at = np.minimum(np.searchsorted(nodes[order], new.targets), len(nodes) - 1)
    wanted = nodes[order][at] == new.targets
    owners, sources = order[at[wanted]], new.sources[wanted]
    by_list = np.lexsort((sources, owners))
    counts, came = np.diff(stored.indptr), np.bincount(owners, minlength=len(nodes))
    offsets = _offsets(counts + came)
    joined = np.empty(offsets[-1], np.int64)
    joined[_places(offsets[:-1], counts)] = stored.sources
    joined[_places(offsets[:-1] + counts, came)] = sources[by_list]
    return Lists(offsets, joined)


def _places(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """int64: starts[0], starts[0] + 1, ... of so many each, one list after the other."""
    offsets = _offsets(counts)
    return np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], counts)


def _offsets(counts: np.ndarray) -> np.ndarray:
    """int64 [n + 1]: where lists of so many elements start."""
    return np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))


def _hashed(values: np.ndarray) -> np.ndarray:
    """uint64 [n]: the output of SplitMix64 for each state (Steele, Lea and Flood, OOPSLA 2014)."""
    with np.errstate(over="ignore"):
        values = values + np.uint64(0x9E3779B97F4A7C15)
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return values ^ (values >> np.uint64(31))
