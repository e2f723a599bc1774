"""The argument ``subgraph_type``: which edges the batches of a loader have beside the edges that were drawn."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data.storage import EdgeStorage

from cohort_gnn.base.errors import CohortError, warn_user
from cohort_gnn.dataset import Relation, StoredGraph
from cohort_gnn.spec.graph import EdgeType
from cohort_gnn.spec.types import checked
from cohort_gnn.trainer.loader.batch import OfSlot
from cohort_gnn.trainer.loader.reverse_types import names_no_edges, reverse_types_of
from cohort_gnn.trainer.loader.trees import TreeOptions, demand_shared
from cohort_gnn.trainer.offsets import keep_offsets

SubgraphKind = Literal["directional", "bidirectional", "induced"]
OF_EDGES = ("e_id", "edge_weight", "edge_attr")
MOST_EDGES = 1 << 22  # that are read at once


def checked_kind(subgraph_type) -> str:
    """The argument, which may be PyG's enumeration.

    Raises:
        CohortError: it is neither.
    """
    return checked("subgraph_type", getattr(subgraph_type, "value", subgraph_type), SubgraphKind)


class Subgraph:
    """Batches have the drawn edges alone.

    Attributes:
        unweighted: the edge types without weights, where others have some.
    """

    kind = "directional"
    unweighted: Sequence[EdgeType] = ()

    def finish(self, batch: OfSlot) -> None:
        """Gives the batch its other edges, and removes the weights of edge types without weights."""
        self.complete(batch)
        for name in self.unweighted:
            batch.store_of(name).pop("edge_weight", None)

    def complete(self, batch: OfSlot) -> None:
        """Gives the batch its other edges."""

    def demand_excludes(self, exclude: str, data: StoredGraph, relation: EdgeType) -> None:
        """Raises CohortError if batches would have edges that `exclude` leaves out of the draws.

        Args:
            relation: of the pairs.
        """


DRAWN = Subgraph()


class Bidirectional(Subgraph):
    """Batches have the drawn edges and their reverses, as of PyG's ``to_bidirectional``: each pair of nodes once, by
    target, then by source. Of several drawn edges that give the same pair, an edge in the pair's direction is kept, of
    these the first. Edge types without a reverse keep the drawn edges, and what these have beside their ends.

    Args:
        reverses: of each edge type that has a reverse.
        keeps_rows: edges keep what they have beside their ends; of a graph whose only edge type is its own reverse.
    """

    kind = "bidirectional"

    def __init__(self, reverses: dict[EdgeType, EdgeType], keeps_rows: bool):
        self._reverses, self._keeps_rows = reverses, keeps_rows

    @torch.inference_mode(False)
    def complete(self, batch: OfSlot) -> None:
        drawn = {name: batch.store_of(name).edge_index for name in {*self._reverses, *self._reverses.values()}}
        for name, reverse in self._reverses.items():
            store, sizes = batch.store_of(name), [len(batch.store_of(end).n_id) for end in name[::2]]
            edge_index, edges = _union(drawn[name], drawn[reverse], *sizes)
            for key in OF_EDGES:
                rows = store.get(key)
                if rows is not None and self._keeps_rows:
                    store[key] = rows[edges % len(rows)]
                else:
                    store.pop(key, None)
            _put(store, edge_index, sizes[1])
        _forget_hops(batch)

    def demand_excludes(self, exclude: str, data: StoredGraph, relation: EdgeType) -> None:
        place = f'exclude, with subgraph_type="{self.kind}"'
        if exclude == "self":
            hint = "a reverse edge of a pair, which is drawn, would bring the pair back"
            raise CohortError(place, '"reverse" or "none"', '"self"', hint)
        reverse = self._reverses.get(relation)
        if exclude != "none" and reverse is not None and reverse != data.reverse_of(relation):
            expected = f'"none", or a data set that names {reverse} as the reverse of {relation}'
            hint = "leave the reverses out, and write the data set with reverse_edges=True"
            raise CohortError(place, expected, repr(exclude), hint)


class Induced(Subgraph):
    """Batches have all edges of the graph between their nodes, by target, then by their place in the target's list. The
    thread that calls `complete` reads them from the data set's files.

    Args:
        arrays: what batches have of edges besides their ends, of OF_EDGES.
    """

    kind = "induced"

    def __init__(self, data: StoredGraph, arrays: list[str]):
        self._data, self._arrays = data, arrays

    @torch.inference_mode(False)
    def complete(self, batch: OfSlot) -> None:
        nodes = {name: batch.store_of(name).n_id.cpu().numpy() for name in self._data.node_types}
        for name, relation in self._data.edge_types.items():
            self._fill(batch.store_of(name), relation, nodes[name[0]], nodes[name[2]])
        _forget_hops(batch)

    def _fill(self, store: EdgeStorage, lists: Relation, sources: np.ndarray, targets: np.ndarray) -> None:
        """Gives the store its edges and their arrays."""
        device = store.edge_index.device
        edge_index, e_id = edges_between(lists, sources, targets)
        if "e_id" in self._arrays:
            store.e_id = torch.from_numpy(e_id).to(device)
        if "edge_weight" in self._arrays:
            weights = lists.edge_weights
            chosen = np.ones(len(e_id), np.float32) if weights is None else weights[e_id]
            store.edge_weight = torch.from_numpy(chosen).to(device)
        table = lists.edge_table if "edge_attr" in self._arrays else None
        if table is not None and table.x is not None:
            rows = torch.from_numpy(table.x[e_id])
            store.edge_attr = (rows.view(torch.bfloat16) if table.feature_dtype == "bfloat16" else rows).to(device)
        _put(store, torch.from_numpy(edge_index).to(device), len(targets))

    def demand_excludes(self, exclude: str, data: StoredGraph, relation: EdgeType) -> None:
        if exclude != "none":
            place = f'exclude, with subgraph_type="{self.kind}"'
            hint = "an induced subgraph has all edges between its nodes, also those that are pairs of the batch"
            raise CohortError(place, '"none"', f'"{exclude}"', hint)


def edges_between(lists: Relation, sources: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All edges from some nodes to some nodes, by target, then by their place in the target's list.

    Args:
        sources: int64 [n], different nodes of the source type.
        targets: int64 [m], of the target type.

    Returns:
        int64 [2, edges], positions in ``sources`` and in ``targets``, and int64 [edges], their places in ``indices``.
    """
    order = np.argsort(sources)
    ascending = sources[order]
    begins, counts = lists.indptr[targets], lists.indptr[targets + 1] - lists.indptr[targets]
    totals = np.cumsum(counts)
    first, pieces = 0, [(np.zeros(0, np.int64),) * 3]
    while first < len(targets) and len(sources):
        before = totals[first] - counts[first]
        last = max(first + 1, int(np.searchsorted(totals, before + MOST_EDGES, side="right")))
        position = np.repeat(np.arange(first, last), counts[first:last])
        places = np.arange(len(position)) + (begins - (totals - counts) + before)[position]
        neighbours = lists.indices[places]
        at = np.minimum(np.searchsorted(ascending, neighbours), len(ascending) - 1)
        is_there = ascending[at] == neighbours
        pieces.append((order[at[is_there]], position[is_there], places[is_there]))
        first = last
    source, target, e_id = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
    return np.stack([source, target]), e_id


def subgraph_of(kind: str, data: StoredGraph, options: dict, trees: TreeOptions) -> Subgraph:
    """The subgraph that the batches of a loader have.

    Args:
        options: of the sampler, which is not asked for arrays of edges that batches do not have from it.

    Raises:
        CohortError: the options ask for arrays of edges that such batches do not have, or for disjoint batches.
    """
    subgraph = _subgraph_for_kind(kind, data, options, trees)
    lists = {} if options["importance_sampling"] else data.edge_types
    subgraph.unweighted = [name for name, relation in lists.items() if relation.edge_weights is None]
    return subgraph


def _subgraph_for_kind(kind: str, data: StoredGraph, options: dict, trees: TreeOptions) -> Subgraph:
    if kind == "directional":
        return Subgraph()
    if options["importance_sampling"]:
        hint = "only drawn edges have shares of means: leave one of the two arguments out"
        raise CohortError("subgraph_type", "'directional', with importance_sampling", repr(kind), hint)
    if kind == "induced":
        demand_shared(trees, f"subgraph_type={kind!r}")
        return _induced(data, options)
    for name in ("edge_ids", "edge_weights") if names_no_edges(data, kind) else ():
        if options[name]:
            hint = "a reverse edge has another edge type than the edge that was drawn; PyG leaves them out, too"
            raise CohortError(name, f"False, for several edge types and subgraph_type={kind!r}", "True", hint)
    reverses = reverse_types_of(data)
    if without := [name for name in data.edge_types if name not in reverses]:
        warn_user(
            f"subgraph_type='bidirectional': no reverses of {', '.join(map(str, without))}, whose reverse edge type is"
            " unknown; write the data set with reverse_edges=True"
        )
    return Bidirectional(reverses, not any(map(data.key_of, reverses)))


def _induced(data: StoredGraph, options: dict) -> Induced:
    """Also changes the options of the sampler, which then fetches no arrays of the drawn edges: all are replaced."""
    wanted = {"e_id": options["edge_ids"] or options["edge_features"], "edge_weight": options["edge_weights"]}
    wanted["edge_attr"] = options["edge_features"]
    if options["edge_features"] and any(table.x is None for table in data.edge_tables):
        hint = "say edge_attr=False, or keep the raw features when the data set is prepared"
        raise CohortError("edge_attr", 'raw features of edges, for subgraph_type="induced"', "encoded ones", hint)
    options |= {"edge_ids": False, "edge_weights": False, "edge_features": False}
    return Induced(data, [name for name in OF_EDGES if wanted[name]])


def _forget_hops(batch: OfSlot) -> None:
    """Removes the numbers of nodes and edges by hop, since the edges are no longer in the order of hops."""
    for store in batch.stores:
        for counts in ("num_sampled_nodes", "num_sampled_edges"):
            store.pop(counts, None)


def _union(edges: Tensor, reverses: Tensor, num_sources: int, num_targets: int) -> tuple[Tensor, Tensor]:
    """Edges and the reverses of others, each pair of nodes once, by target, then by source.

    Args:
        edges: int64 [2, n].
        reverses: int64 [2, m], edges from targets to sources.

    Returns:
        int64 [2, edges], and int64 [edges], the column of each in ``edges``, or n plus its column in ``reverses``.
    """
    sources, targets = torch.cat([edges, reverses.flip(0)], dim=1)
    pairs, order = torch.sort(targets * num_sources + sources, stable=True)
    is_first = torch.ones_like(pairs, dtype=torch.bool)
    torch.ne(pairs[1:], pairs[:-1], out=is_first[1:])
    pairs = pairs[is_first]
    return torch.stack([pairs % num_sources, pairs // num_sources]), order[is_first]


def _put(store: EdgeStorage, edge_index: Tensor, num_targets: int) -> None:
    """Gives the store edges that stand by target, and their offsets, int64 [num_targets + 1], where it has some."""
    targets = torch.arange(num_targets + 1, device=edge_index.device)
    indptr = torch.searchsorted(edge_index[1].contiguous(), targets)
    store.edge_index = keep_offsets(edge_index, indptr)
    if "indptr" in store:
        store.indptr = indptr
