"""What an append would make of the edges and features of a request, by what the import did to those before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import torch

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import StoredGraph
from cohort_gnn.dataset.components import read_components
from cohort_gnn.dataset.importing.row_options import row_normalized
from cohort_gnn.dataset.reverses import are_by_source
from cohort_gnn.dataset.stored_graph import Relation
from cohort_gnn.dataset.treatment import Treatment, read_treatment
from cohort_gnn.spec.graph import EdgeType
from cohort_gnn.trainer.predict.neighbourhoods import NewEdges

AS_GIVEN = Treatment(transpose=False, reverse=False, dedupe=False, self_loops="keep")
NONE = NewEdges(np.empty(0, np.int64), np.empty(0, np.int64))


class AsAppended:
    """Makes of what a request brings what `cohort dataset append` would.

    Args:
        data: which says so in import.json; without this file edges are taken as they are.
    """

    def __init__(self, data: StoredGraph):
        self._data, self._treatment = data, read_treatment(data.path) or AS_GIVEN
        self._components = None if self._treatment.pca is None else read_components(data.path)
        self._counts = {name: table.num_nodes for name, table in data.node_types.items()}

    @property
    def given_dim(self) -> int | None:
        """How many columns rows of new nodes have before --pca; None: as many as the data set has."""
        return None if self._components is None else len(self._components.mean)

    def rows(self, rows: torch.Tensor) -> torch.Tensor:
        """float32 [n, features] of new nodes, of rows as they were before the import; where it kept no components, of
        rows after --pca."""
        if self._treatment.pca is not None and self._components is None:
            return rows
        x = row_normalized(rows.numpy()) if self._treatment.row_normalize else rows.numpy()
        return torch.from_numpy(x if self._components is None else self._components.coordinates(x, "x"))

    def edges(
        self, requested: Mapping[EdgeType, NewEdges], new_nodes: Mapping[str, int], times: Mapping[str, np.ndarray]
    ) -> dict[EdgeType, NewEdges]:
        """Edges in their directions, with the times since when they exist, loops and equal edges as after the import.

        Args:
            requested: whose times are their own.
            new_nodes: how many there are of each type, at least of those that have some.
            times: int64 [new nodes], since when those of a type exist.

        Raises:
            CohortError: the edges of a relation and those of its reverse are others; edges have no times.
        """
        directed = self._with_reverses(requested) if self._data.has_names else self._in_directions(requested)
        edges = {}
        for relation, stored in self._data.edge_types.items():
            loops = 0
            if self._treatment.self_loops == "add" and relation[0] == relation[2]:
                loops = new_nodes.get(relation[0], 0)
            if relation in directed or loops:
                came = self._in_time(relation, stored, directed.get(relation, NONE), times)
                edges[relation] = self._settled(relation, came, loops)
        for relation, reverse in self._reverse_pairs():
            if {relation, reverse} <= set(requested) and not _are_reverses(edges[relation], edges[reverse]):
                expected = f"the edges of {', '.join(reverse)} in the other direction, as the data set has them"
                raise CohortError(
                    f"new_edges {', '.join(relation)}", expected, "others", "give one of the two: the other follows"
                )
        return edges

    def reverse_of(self, relation: EdgeType) -> EdgeType:
        """The relation that has the reverse of each edge of this one; itself if none has."""
        others = [
            one if other == relation else other for one, other in self._reverse_pairs() if relation in (one, other)
        ]
        return others[0] if others else relation

    def _reverse_pairs(self) -> Iterator[tuple[EdgeType, EdgeType]]:
        """Each relation that is the reverse of another, with that one."""
        for relation, stored in self._data.edge_types.items():
            if stored.reverse_of not in (None, relation):
                yield relation, stored.reverse_of

    def _in_directions(self, requested: Mapping[EdgeType, NewEdges]) -> dict[EdgeType, NewEdges]:
        """Of a graph of one type."""
        edges = {name: _transposed(some) if self._treatment.transpose else some for name, some in requested.items()}
        return {name: _both_ways(some) if self._treatment.reverse else some for name, some in edges.items()}

    def _with_reverses(self, requested: Mapping[EdgeType, NewEdges]) -> dict[EdgeType, NewEdges]:
        edges = dict(requested)
        for relation, reverse in self._reverse_pairs():
            for one, other in ((relation, reverse), (reverse, relation)):
                if one in requested and other not in edges:
                    edges[other] = self._made(other, one, requested[one])
        return edges

    def _made(self, made: EdgeType, original: EdgeType, edges: NewEdges) -> NewEdges:
        """The edges of a relation, of the reverse ones that are given."""
        stored, edges = self._data.edge_types[made], _transposed(edges)
        if stored.edge_times is None or stored.edge_table is None:
            return edges
        if are_by_source("new_edges", self._data, made, original, edges.times is not None):
            edges = _chosen(edges, np.argsort(edges.sources, kind="stable"))
        return edges

    def _in_time(
        self, relation: EdgeType, stored: Relation, edges: NewEdges, times: Mapping[str, np.ndarray]
    ) -> NewEdges:
        """The edges since the later of their own times and those of their sources."""
        if stored.edge_times is None:
            return replace(edges, times=None)
        born, since = self._data.node_types[relation[0]].node_times, edges.times
        if born is not None:
            count, is_new = self._counts[relation[0]], edges.sources >= self._counts[relation[0]]
            births = np.empty(len(edges.sources), np.int64)
            births[~is_new] = born[edges.sources[~is_new]]
            if is_new.any():
                births[is_new] = times[relation[0]][edges.sources[is_new] - count]
            since = births if since is None else np.maximum(since, births)
        if since is None:
            place = f"new_edges {', '.join(relation)}: time"
            raise CohortError(place, "one for each edge, as the data set's edges have", "none")
        return replace(edges, times=since)

    def _settled(self, relation: EdgeType, edges: NewEdges, num_loops: int) -> NewEdges:
        """With loops and equal edges as the import has them; `num_loops`: of new nodes, each of which gets one."""
        if relation[0] == relation[2] and self._treatment.self_loops != "keep":
            edges = _chosen(edges, edges.sources != edges.targets)
        if num_loops:  # edges have neither times nor features then
            loops = self._counts[relation[0]] + np.arange(num_loops)
            both = (np.concatenate((some, loops)) for some in (edges.sources, edges.targets))
            edges = NewEdges(*both)
        if self._treatment.dedupe:  # they have no features then
            keys = [edges.targets, edges.sources, *([] if edges.times is None else [edges.times])]
            edges = _chosen(edges, np.sort(np.unique(np.stack(keys), axis=1, return_index=True)[1]))
        return edges


def _chosen(edges: NewEdges, some: np.ndarray) -> NewEdges:
    """Those of a mask, or of these places."""
    times = None if edges.times is None else edges.times[some]
    rows = None if edges.rows is None else edges.rows[torch.from_numpy(some)]
    return NewEdges(edges.sources[some], edges.targets[some], times, rows)


def _transposed(edges: NewEdges) -> NewEdges:
    return replace(edges, sources=edges.targets, targets=edges.sources)


def _both_ways(edges: NewEdges) -> NewEdges:
    """Each edge and its reverse after it."""
    twice = _chosen(edges, np.repeat(np.arange(len(edges.sources)), 2))
    sources, targets = twice.sources.copy(), twice.targets.copy()
    sources[1::2], targets[1::2] = edges.targets, edges.sources
    return replace(twice, sources=sources, targets=targets)


def _are_reverses(edges: NewEdges, others: NewEdges) -> bool:
    here, there = (np.stack(pair) for pair in ((edges.sources, edges.targets), (others.targets, others.sources)))
    return here.shape == there.shape and np.array_equal(here[:, np.lexsort(here)], there[:, np.lexsort(there)])
