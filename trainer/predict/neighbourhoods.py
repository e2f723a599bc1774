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
            most: of longer lists so many edges are drawn, without replacement, by the seed, the target's key and the
                length of the list; -1: they are taken whole.

        Raises:
            CohortError: the lists have more than ``max_edges``.
        """
        begin, counts = self._stored(relation, nodes)
        came, others = _new_sources(nodes, new)
        lengths = counts + came
        offsets = _offsets(lengths if most < 0 else np.minimum(lengths, most))
        if self._max_edges is not None and offsets[-1] > self._max_edges:
            expected = f"nodes with at most {self._max_edges:,} in-neighbours of one hop"
            hint = "ask for fewer nodes at once, or have fewer of their neighbours drawn"
            raise CohortError(f"{', '.join(relation)}", expected, f"{offsets[-1]:,}", hint)
        owner = np.repeat(np.arange(len(nodes)), np.diff(offsets))
        places = np.arange(offsets[-1]) - offsets[owner]
        cut = np.flatnonzero(lengths > most) if most >= 0 else np.empty(0, np.int64)
        if len(cut):
            drawn = self._drawn((nodes if keys is None else keys)[cut], lengths[cut], most)
            places[(offsets[cut, None] + np.arange(most)).ravel()] = drawn.ravel()
        indices, after = self._edges[relation].indices, places - counts[owner]
        is_stored = after < 0
        sources = np.empty(len(places), np.int64)
        sources[is_stored] = indices[(begin[owner] + places)[is_stored]]
        sources[~is_stored] = others[(_offsets(came)[owner] + after)[~is_stored]]
        return Lists(offsets, sources)

    def in_degrees(self, relation: EdgeType, nodes: np.ndarray, new: NewEdges | None = None) -> np.ndarray:
        """int32 [n], without edges from a node to itself."""
        lists = self.lists(relation, nodes, new)
        counts = np.diff(lists.indptr)
        places = np.repeat(np.arange(len(nodes)), counts)
        loops = np.bincount(places[lists.sources == nodes[places]], minlength=len(nodes))
        return (counts - loops).astype(np.int32)

    def _stored(self, relation: EdgeType, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """int64 [n]: where the lists of nodes begin in the graph, and their lengths; new nodes have none."""
        indptr = self._edges[relation].indptr
        known = np.minimum(nodes, self._counts[relation[2]] - 1)
        begin = np.asarray(indptr[known])
        return begin, np.where(known == nodes, np.asarray(indptr[known + 1]) - begin, 0)

    def _drawn(self, keys: np.ndarray, lengths: np.ndarray, most: int) -> np.ndarray:
        """int64 [n, most]: places in lists of so many edges, ascending; each set of places is as likely as the others
        (Robert Floyd's algorithm: Bentley and Floyd, Programming Pearls, CACM 30(9), 1987)."""
        states, chosen = _hashed(keys.astype(np.uint64) + np.uint64(self._seed)), np.empty((len(keys), most), np.int64)
        for i in range(most):
            last = lengths - most + i
            place = (_hashed(states + np.uint64(i)) % (last + 1).astype(np.uint64)).astype(np.int64)
            chosen[:, i] = np.where((chosen[:, :i] == place[:, None]).any(axis=1), last, place)
        chosen.sort(axis=1)
        return chosen


def _new_sources(nodes: np.ndarray, new: NewEdges | None) -> tuple[np.ndarray, np.ndarray]:
    """(int64 [nodes], how many new edges lead into each; their sources, one list after the other). They stand at the
    ends of lists: as each has a new node at one end, it leads into a new node, which has no others, or comes from one,
    whose number is higher than those of others."""
    if new is None or not len(new.sources) or not len(nodes):
        return np.zeros(len(nodes), np.int64), np.empty(0, np.int64)
    order = np.argsort(nodes, kind="stable")
    at = np.minimum(np.searchsorted(nodes[order], new.targets), len(nodes) - 1)
    wanted = nodes[order][at] == new.targets
    owners, sources = order[at[wanted]], new.sources[wanted]
    return np.bincount(owners, minlength=len(nodes)), sources[np.lexsort((sources, owners))]


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
