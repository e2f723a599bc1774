"""A minibatch in PyG's form."""

import weakref
from typing import Self

import torch
from torch_geometric.data import Data
from torch_geometric.data.data import BaseData
from torch_geometric.data.storage import BaseStorage

from cohort_gnn.spec.graph import EdgeType
from cohort_gnn.trainer.source import AllRows, check_stream, edges_of, indptr_of, record_stream, tables_of


class OfSlot(BaseData):
    """What minibatches of one node type and of several share: their views hold a slot."""

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
        """What has the attributes of the nodes or edges of a type."""
        raise NotImplementedError

    def __reduce__(self):
        # As PyG pickles and copies it, torch would keep the views' memory, and so the slot, for good.
        return type(self).from_dict, (self.clone().to_dict(),)

    def __deepcopy__(self, memo: dict) -> Self:
        return self.clone()


def hold(batch: OfSlot, slot) -> None:
    """Has the batch know its slot: by no attribute of PyG's, and no reference that would hold the slot."""
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
    also ``seed_time`` int64 [batch_size]. If the data set has edge weights, batches have ``edge_weight``
    float32 [num_edges].

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


@torch.inference_mode(False)
def batch_of(slot, rows: AllRows) -> Batch:
    """The batch in a slot; it holds the slot. Its tensors are ordinary ones inside torch.inference_mode() too: others
    have neither a version, by which ``edge_index`` knows its offsets, nor a base.

    Args:
        rows: as BatchSource.all_rows has them; None: slots have rows.
    """
    trees = {} if slot.tree is None else {"batch": slot.tree.clone()}
    names = ("e_id", "edge_weight", "edge_attr")
    of_edges = {name: value for name in names if (value := getattr(slot, name)) is not None}
    batch = Batch(
        x=tables_of(slot, rows)[0],
        edge_index=edges_of(slot),
        indptr=indptr_of(slot),
        y=slot.y.clone(),
        n_id=slot.n_id.clone(),
        input_id=slot.input_id.clone(),
        batch_size=slot.num_seeds,
        num_sampled_nodes=slot.num_sampled_nodes,
        num_sampled_edges=slot.num_sampled_edges,
        **of_edges,
        **trees,
    )
    if rows is not None:
        slot.leave_rows()
    hold(batch, slot)
    return batch
