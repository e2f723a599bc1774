"""Minibatches in PyG's form."""

import weakref
from collections.abc import Callable, Sequence
from typing import Self

import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.data import BaseData
from torch_geometric.data.storage import BaseStorage

from cohort_gnn.spec.graph import EdgeType, GraphTypes
from cohort_gnn.trainer.loader.source import (
    AllRows,
    check_stream,
    edges_by_type,
    record_stream,
    slot_offsets,
    tables_of,
)
from cohort_gnn.trainer.offsets import copy_offsets


class OfSlot(BaseData):
    """The base of `Batch` and `HeteroBatch`, whose views hold a slot."""

    def record_stream(self, stream: torch.cuda.Stream | None, *names: str) -> Self:
        """Declares that another CUDA stream uses the batch. The sampler then fills the memory again only after the work
        that ``stream`` has when the last view is released. Without this call, the sampler may overwrite rows that the
        stream still reads. ``Tensor.record_stream`` has no effect on views.

        Args:
            stream: a stream of the batch's GPU. On the CPU this method does nothing, and ``stream`` may be None.
            names: names of attributes; without names: all attributes.

        Raises:
            CohortError: ``stream`` is not a stream, or belongs to another GPU.
        """
        slot = self.__dict__["_slot"]() if "_slot" in self.__dict__ else None  # gone where no view is left
        for store in self.stores:
            for name, value in store.items():
                if not isinstance(value, torch.Tensor) or (names and name not in names):
                    continue
                if slot is not None and slot.holds(value.untyped_storage().data_ptr()):
                    record_stream(slot, stream)
                elif value.is_cuda:
                    check_stream(value.device, stream)
                    value.record_stream(stream)
        return self

    def store_of(self, name: str | EdgeType) -> BaseStorage:
        """The storage with the attributes of the nodes or edges of a type."""
        raise NotImplementedError

    def clone(self, *args: str) -> Self:
        """A copy of the attributes named, by default of all; layers need not sort its edges again."""
        return self._with_offsets(super().clone, args)

    def to(self, *args, **kwargs) -> Self:
        """As of PyG, on the batch itself; layers need not sort its edges again on the other device."""
        return self._with_offsets(super().to, args, **kwargs)

    def cpu(self, *args: str) -> Self:
        """As `to`."""
        return self._with_offsets(super().cpu, args)

    def cuda(self, *args, **kwargs) -> Self:
        """As `to`."""
        return self._with_offsets(super().cuda, args, **kwargs)

    def _with_offsets(self, copied: Callable[..., Self], args: tuple, **kwargs) -> Self:
        """What a method of PyG makes of the batch, whose edges then have their offsets, too."""
        before = [store.get("edge_index") for store in self.edge_stores]
        made = copied(*args, **kwargs)
        for edge_index, store in zip(before, made.edge_stores, strict=True):
            if edge_index is not None:
                copy_offsets(edge_index, store["edge_index"])
        return made

    def __reduce__(self):
        # As PyG pickles and copies it, torch would keep the views' memory, and so the slot, for good.
        return type(self).from_dict, (self.clone().to_dict(),)

    def __deepcopy__(self, memo: dict) -> Self:
        return self.clone()


def hold(batch: OfSlot, slot) -> None:
    """Gives the batch a weak reference to its slot, which is no attribute of PyG's and does not hold the slot."""
    batch.__dict__["_slot"] = weakref.ref(slot)


class Batch(OfSlot, Data):
    """A minibatch, in PyG's form.

    ``x`` [num_nodes, dim] (in the data set's feature dtype), ``edge_index`` int64 [2, num_edges] and ``indptr`` int64
    [num_targets + 1] are views of a shared slot: they are valid as long as they are referenced, and keep the slot in
    use for that long. To keep a batch for longer than a step, use ``batch.clone()``. On a GPU, ``x`` is a copy. Edges
    are ordered by target: the edges of target i are [indptr[i], indptr[i + 1]). Targets are all nodes except those
    first reached in the last hop. ``y`` [num_nodes, ...] (in the form of the labels), ``n_id`` int64 [num_nodes]
    (global ids, seeds first) and ``input_id`` int64 [batch_size] (positions in the seed set) are copies.

    With ``edge_ids=True`` the loader adds ``e_id`` int64 [num_edges], a view: the position of each edge in the data
    set's ``indices``; of a graph in memory its column in ``edge_index``, a copy, as in PyG's loader. A disjoint loader
    adds ``batch`` int64 [num_nodes], a copy: the number of the seed whose tree each node is in; if seeds have times,
    also ``seed_time`` int64 [batch_size], and ``time`` int64 [num_nodes] if the data set has times of nodes. If the
    data set has edge weights, batches have ``edge_weight`` float32 [num_edges].

    If the data set has features of edges, ``edge_attr`` [num_edges, dim] (in their type), a view, has the row of each
    edge in the order of ``edge_index``, and batches have ``e_id``, too.

    With ``subgraph_type="bidirectional"``, edges are the drawn edges and their reverses, each pair of nodes once,
    ordered by target, then by source, and all nodes are targets. Where a pair is the reverse of a drawn edge only,
    ``e_id``, ``edge_weight`` and ``edge_attr`` are those of the drawn edge; of several drawn edges between two nodes,
    the first counts. As in PyG, batches have neither ``num_sampled_nodes`` nor ``num_sampled_edges``. Edges and what
    belongs to them are copies. With ``subgraph_type="induced"``, the same holds, but edges are all edges of the graph
    between the nodes, ordered by target, then by ``e_id``.

    Views may be used on the CUDA stream that was current when the batch arrived; call ``record_stream`` before another
    stream uses them.

    Pickling, ``copy.deepcopy`` and ``clone()`` copy everything.
    """

    def store_of(self, name: str | EdgeType) -> BaseStorage:
        return self._store


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
    the seed, or of the pair, whose tree each node is in; if seeds have times, node types with times in the data set
    have ``time`` int64 [nodes]. Edge types whose edges have features in the data set have
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


@torch.inference_mode(False)
def batch_of(
    form: type[OfSlot],
    types: GraphTypes,
    slot,
    input_type: str | EdgeType,
    rows: AllRows,
    edge_order: Sequence[EdgeType] = (),
) -> OfSlot:
    """The batch in a slot; it holds the slot. Its tensors are ordinary ones inside torch.inference_mode() too: others
    have neither a version, by which ``edge_index`` knows its offsets, nor a base.

    Args:
        form: HeteroBatch; or Batch, of a graph of one node type and one edge type.
        input_type: node type of the seeds, or edge type of the pairs whose endpoints they are.
        rows: as BatchSource.all_rows has them; None: slots have rows.
        edge_order: the edge types, in the order in which the batch has them; empty: that of `types`.
    """
    batch, nodes, edges = form(), slot.nodes_of_types, slot.edges_of_relations
    sizes = [sum(per_hop) for per_hop in nodes]
    n_id, trees = _parts(slot.n_id.clone(), sizes), _parts(None if slot.tree is None else slot.tree.clone(), sizes)
    for number, (name, x) in enumerate(zip(types.counts, tables_of(slot, rows), strict=True)):
        store = batch.store_of(name)
        store["x"], store["n_id"], store["num_sampled_nodes"] = x, n_id[number], nodes[number]
        if trees:
            store["batch"] = trees[number]
        if form is HeteroBatch:
            store["num_nodes"] = sizes[number]
    batch.store_of(types.target)["y"] = slot.y.clone()
    seeds = batch.store_of(input_type)
    seeds["input_id"] = slot.input_id.clone()
    if isinstance(input_type, str):  # as in PyG: the number of seeds is no number of pairs
        seeds["batch_size"] = slot.num_seeds
    for edge_type in edge_order:
        batch.store_of(edge_type)  # which makes it
    sizes = [sum(per_hop) for per_hop in edges]
    e_id, weights = _parts(slot.e_id, sizes), _parts(slot.edge_weight, sizes)
    for number, (edge_type, edge_index) in enumerate(edges_by_type(slot, types).items()):
        store = batch.store_of(edge_type)
        store["edge_index"], store["num_sampled_edges"] = edge_index, edges[number]
        if e_id:
            store["e_id"] = e_id[number]
        if weights:
            store["edge_weight"] = weights[number]
        if (edge_attr := slot.edge_table(number)) is not None:
            store["edge_attr"] = edge_attr
        if form is Batch:
            store["indptr"] = slot_offsets(slot, number)
    if rows is not None:
        slot.leave_rows()
    hold(batch, slot)
    return batch


def _parts(array: torch.Tensor | None, sizes: list[int]) -> Sequence[torch.Tensor]:
    """An array's part for each type; none where there is no array."""
    if array is None:
        return ()
    return (array,) if len(sizes) == 1 else array.split(sizes)
