"""A minibatch in PyG's form."""

import weakref

import torch
from torch_geometric.data import Data

from cohort.trainer.source import edges_of, indptr_of, record_stream


class Batch(Data):
    """A minibatch, in PyG's form.

    ``x`` [num_nodes, dim] (the data set's feature dtype) and ``edge_index`` int64 [2, num_edges] are views of a shared
    slot: they are valid as long as they are referenced, and hold the slot for that long. Keep ``batch.clone()`` if you
    want a batch for longer than a step. So is ``indptr`` int64 [num_targets + 1]: edges are ordered by target, those
    of target i are [indptr[i], indptr[i + 1]), and targets are all nodes but those first reached in the last hop.
    ``y`` int64 [num_nodes], ``n_id`` int64 [num_nodes] (global ids, seeds first), ``input_id`` int64 [batch_size]
    (positions in the seed set) are copies.

    ``e_id`` int64 [num_edges], a view, is there where the loader was asked for it: the place of each edge in the data
    set's ``indices``, as PyG's loader has it. So is ``edge_weight`` float32 [num_edges], the edges' weights.

    Views may be used on the CUDA stream that was current when the batch came; call ``record_stream`` where another one
    uses them.

    Pickling makes a copy of all, as ``copy.deepcopy`` and ``clone()`` do.
    """

    def record_stream(self, stream: torch.cuda.Stream | None, *names: str) -> "Batch":
        """Says that work on another CUDA stream uses the batch: its memory is not filled again before the work is done
        that ``stream`` has when the last view goes. Not said, the sampler may write the next batch into what the stream
        still reads. ``Tensor.record_stream`` does nothing for views.

        Args:
            stream: a stream of the batch's GPU. On the CPU, where nothing is done, it may be None.
            names: of attributes; none: all.

        Raises:
            CohortError: ``stream`` is none, or one of another GPU.
        """
        slot = self.__dict__["_slot"]() if "_slot" in self.__dict__ else None  # gone where no view is left
        for name in names or self.keys():
            value = self[name]
            if not isinstance(value, torch.Tensor):
                continue
            if slot is not None and slot.holds(value.untyped_storage().data_ptr()):
                record_stream(slot, stream)
            elif value.is_cuda:
                value.record_stream(stream)
        return self

    def __reduce__(self):
        # As PyG pickles and copies it, torch would keep the views' memory, and so the slot, for good.
        return Batch.from_dict, (self.clone().to_dict(),)

    def __deepcopy__(self, memo: dict) -> "Batch":
        return self.clone()


@torch.inference_mode(False)
def batch_of(slot) -> Batch:
    """The batch in a slot; it holds the slot. Its tensors are ordinary ones inside torch.inference_mode() too: others
    have neither a version, by which ``edge_index`` knows its offsets, nor a base."""
    of_edges = {name: value for name in ("e_id", "edge_weight") if (value := getattr(slot, name)) is not None}
    batch = Batch(
        x=slot.x,
        edge_index=edges_of(slot),
        indptr=indptr_of(slot),
        y=slot.y.clone(),
        n_id=slot.n_id.clone(),
        input_id=slot.input_id.clone(),
        batch_size=slot.num_seeds,
        num_sampled_nodes=slot.num_sampled_nodes,
        num_sampled_edges=slot.num_sampled_edges,
        **of_edges,
    )
    batch.__dict__["_slot"] = weakref.ref(slot)  # no attribute of PyG's, and no reference that would hold the slot
    return batch
