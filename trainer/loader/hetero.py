"""Minibatches of graphs of several node and edge types, in PyG's form."""

from collections.abc import Mapping
from itertools import accumulate, pairwise

import numpy as np
import torch
from torch_geometric.data import HeteroData
from torch_geometric.data.storage import BaseStorage
from torch_geometric.sampler import NumNeighbors

from cohort_gnn.base.errors import CohortError
from cohort_gnn.spec.graph import EdgeType, GraphTypes
from cohort_gnn.spec.types import Fanout, checked
from cohort_gnn.trainer.loader.arguments import ids_of
from cohort_gnn.trainer.loader.batch import OfSlot, hold
from cohort_gnn.trainer.source import AllRows, edges_by_type, tables_of


class HeteroBatch(OfSlot, HeteroData):
    """A minibatch of a graph of several types, in PyG's form.

    Each node type has ``n_id`` int64 [nodes] (ids of the type; seeds first, then by hop), ``num_sampled_nodes`` (a
    number for the seeds and for each hop) and, where the data set has features of the type, ``x`` [nodes, dim]. The
    type of the seeds has ``batch_size`` and ``input_id`` int64 [batch_size], the data set's target type has ``y``.
    Seeds of a `LinkNeighborLoader` are the endpoints of pairs, of two types or of one.

    Each edge type has ``edge_index`` int64 [2, edges] (positions in ``n_id`` of the source type and of the target
    type), ``num_sampled_edges`` (a number for each hop) and, where the loader was asked for it, ``e_id`` int64
    [edges], the place of each edge in the ``indices`` of its type. Edge types with weights have ``edge_weight`` float32
    [edges]. In disjoint batches, each node type has ``batch`` int64 [nodes], a copy: the number of
    the seed, or of the pair, whose tree each node is in. Edge types whose edges have features in the data set have
    ``edge_attr`` [edges, dim];
    all edge types then have ``e_id``. Edges are ordered by hop, then by target.

    With ``subgraph_type="bidirectional"``, each edge type also has the reverses of the edges that were drawn of its
    reverse edge type: of the type that the data set names, else of ("b", "rev_NAME", "a") for ("a", "NAME", "b") and
    the other way round, else of the type itself within one node type, else of the only type in the other direction.
    Each pair of nodes is there once, ordered by target, then by source. As in PyG, such edge types have no ``e_id``,
    ``edge_weight`` and ``edge_attr``, and edge types without a reverse have the drawn edges and these attributes.
    Batches have no ``num_sampled_nodes`` and ``num_sampled_edges``. With ``subgraph_type="induced"``, each edge type
    has all edges of the graph between the batch's nodes, ordered by target, then by place in ``indices``;
    ``num_sampled_nodes`` and ``num_sampled_edges`` are missing.

    ``x``, ``edge_index``, ``e_id``, ``edge_weight`` and ``edge_attr`` are views of a shared slot, as those of `Batch`:
    valid as long as they are referenced, and holding the slot for that long. ``n_id``, ``y``, ``input_id`` and, on a
    GPU, ``x`` are copies.

    Pickling makes a copy of all, as ``copy.deepcopy`` and ``clone()`` do.
    """

    def store_of(self, name: str | EdgeType) -> BaseStorage:
        return self[name]


def canonical(types: GraphTypes, name) -> EdgeType:
    """The edge type that PyG takes a name for: (source, name, target); (source, target), which is the only one between
    these, else the one called "to"; the name alone, which is the only one of this name; or all of it as a text.
    """
    parts = tuple(name.split("__")) if isinstance(name, str) else tuple(name)
    if len(parts) == 3:
        return parts
    named = [each for each in types.edge_types if parts in ((each[0], each[2]), (each[1],))]
    return named[0] if len(named) == 1 else (parts[0], "to", parts[-1])


def hops_of(num_neighbors):
    """A list for all edge types, checked; or what has a list for each, as it is."""
    by_type = isinstance(num_neighbors, Mapping | NumNeighbors)
    return num_neighbors if by_type else checked("num_neighbors", num_neighbors, Fanout)


def fanout_of(types: GraphTypes, num_neighbors) -> list[int]:
    """[edge types x hops] from a list for all edge types, or from a list for each.

    Raises:
        CohortError: an edge type is missing or unknown, or lists have different lengths.
    """
    default = None
    if isinstance(num_neighbors, NumNeighbors):
        num_neighbors, default = num_neighbors.values, num_neighbors.default
    if not isinstance(num_neighbors, Mapping):
        return checked("num_neighbors", num_neighbors, Fanout) * len(types.edge_types)
    given = dict.fromkeys(types.edge_types, default) if default is not None else {}
    given |= {canonical(types, name): values for name, values in num_neighbors.items()}
    for expected, found, what in ((types.edge_types, given, "none for"), (given, types.edge_types, "one for")):
        if unmatched := [name for name in expected if name not in found]:
            edge_types = ", ".join(map(str, types.edge_types))
            hint = "[0, 0] leaves an edge type out of two hops"
            raise CohortError("num_neighbors", f"a list for each of {edge_types}", f"{what} {unmatched[0]}", hint)
    place = "num_neighbors[{}]"
    lists = [checked(place.format(name), given[name], Fanout) for name in types.edge_types]
    if len({len(fanout) for fanout in lists}) > 1:
        lengths = ", ".join(str(len(fanout)) for fanout in lists)
        raise CohortError("num_neighbors", "as many hops for each edge type", f"lists of {lengths} hops")
    return [picks for fanout in lists for picks in fanout]


def seeds_of(types: GraphTypes, input_nodes, may_repeat: bool) -> tuple[str, np.ndarray]:
    """(node type, int64 [n] ids of the type) from the name of a type, or from (name, ids or mask or None). The only
    type need not be named.

    Raises:
        CohortError: it is neither, or ids are not of the type.
    """
    of_type = input_nodes if isinstance(input_nodes, tuple | list) and len(input_nodes) == 2 else (input_nodes, None)
    (name, ids), (first, *others) = of_type, types.counts
    if not others and not isinstance(name, str):
        name, ids = first, input_nodes
    if not isinstance(name, str) or name not in (first, *others):
        expected = f"a node type, or (node type, ids): one of {', '.join(types.counts)}"
        hint = f'for example input_nodes=("{types.target}", data.train_ids)'
        hint = hint if others else "the data set has one node type: pass the ids alone"
        raise CohortError("input_nodes", expected, repr(name)[:80], hint)
    return name, ids_of(ids, types.counts[name], may_repeat)


def pairs_type_of(types: GraphTypes, edge_label_index) -> tuple[EdgeType, object]:
    """(edge type, pairs) from an edge type, for all its edges, or from (edge type, pairs). The only type need not be
    named.

    Raises:
        CohortError: it is neither.
    """
    of_type = edge_label_index if isinstance(edge_label_index, tuple | list) else ()
    name, pairs = of_type if len(of_type) == 2 and not _is_name(of_type) else (edge_label_index, None)
    first, *others = types.edge_types
    if _is_name(name) or (isinstance(name, str) and pairs is not None):
        name = canonical(types, name)
    elif not others:
        name, pairs = first, edge_label_index
    if not isinstance(name, tuple) or name not in (first, *others):
        expected = f"an edge type, or (edge type, pairs): one of {', '.join(map(str, types.edge_types))}"
        hint = f"for example edge_label_index=({first}, pairs)"
        hint = hint if others else "the data set has one edge type: pass the pairs alone"
        raise CohortError("edge_label_index", expected, repr(name)[:80], hint)
    return name, pairs


def _is_name(given) -> bool:
    """Whether it is parts of an edge type's name."""
    return isinstance(given, tuple | list) and len(given) > 0 and all(isinstance(part, str) for part in given)


@torch.inference_mode(False)
def hetero_batch_of(types: GraphTypes, slot, input_type: str | EdgeType, rows: AllRows) -> HeteroBatch:
    """The batch in a slot; it holds the slot. Its tensors are ordinary ones inside torch.inference_mode() too.

    Args:
        input_type: node type of the seeds, or edge type of the pairs whose endpoints they are.
        rows: of each node type, as BatchSource.all_rows has them; None: slots have rows.
    """
    batch = HeteroBatch()
    nodes = slot.nodes_of_types
    sizes = [sum(per_hop) for per_hop in nodes]
    n_id = slot.n_id.clone().split(sizes)
    trees = None if slot.tree is None else slot.tree.clone().split(sizes)
    for number, (name, x) in enumerate(zip(types.counts, tables_of(slot, rows), strict=True)):
        store = batch[name]
        if x is not None:
            store.x = x
        store.n_id = n_id[number]
        store.num_nodes = len(n_id[number])
        store.num_sampled_nodes = nodes[number]
        if trees is not None:
            store.batch = trees[number]
    batch[types.target].y = slot.y.clone()
    batch[input_type].input_id = slot.input_id.clone()
    if isinstance(input_type, str):  # as in PyG: the number of seeds is no number of pairs
        batch[input_type].batch_size = slot.num_seeds
    edges = edges_by_type(slot, types)
    ends = accumulate((sum(per_hop) for per_hop in slot.edges_of_relations), initial=0)
    for number, ((edge_type, edge_index), per_hop, (begin, end)) in enumerate(
        zip(edges.items(), slot.edges_of_relations, pairwise(ends), strict=True)
    ):
        edge_store = batch[edge_type]
        edge_store.edge_index = edge_index
        edge_store.num_sampled_edges = per_hop
        if slot.e_id is not None:
            edge_store.e_id = slot.e_id[begin:end]
        if slot.edge_weight is not None:
            edge_store.edge_weight = slot.edge_weight[begin:end]
        edge_attr = slot.edge_table(number)
        if edge_attr is not None:
            edge_store.edge_attr = edge_attr
    if rows is not None:
        slot.leave_rows()
    hold(batch, slot)
    return batch
