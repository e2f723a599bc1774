"""LinkNeighborLoader: a loader like PyG's, whose seeds are pairs of nodes."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data.data import BaseData
from torch_geometric.sampler import NegativeSampling

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import Relation, StoredGraph
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.dataset.arrays import demand_shape, edge_times
from cohort_gnn.dataset.reverses import warn_of_opposites
from cohort_gnn.spec.graph import EdgeType
from cohort_gnn.spec.types import checked
from cohort_gnn.trainer.loader.arguments import is_set, tensor_of
from cohort_gnn.trainer.loader.batch import OfSlot
from cohort_gnn.trainer.loader.hetero import pairs_type_of
from cohort_gnn.trainer.loader.memory_graph import MemoryGraph
from cohort_gnn.trainer.loader.negatives import negatives_of
from cohort_gnn.trainer.loader.neighbor import NeighborLoader
from cohort_gnn.trainer.loader.node_weights import nodes_by_time
from cohort_gnn.trainer.loader.source import REDRAWS, OfPairs
from cohort_gnn.trainer.loader.state import digest_of

Exclude = Literal["reverse", "self", "none"]


class _Same:
    """The default of an argument for which None has a meaning."""

    def __repr__(self) -> str:
        return "SAME"


SAME: Any = _Same()  # as of the loader


class LinkNeighborLoader(NeighborLoader):
    """Yields minibatches of pairs of nodes as PyG ``Data``, for link prediction.

    Examples:
        >>> loader = cohort.LinkNeighborLoader("data/cora", [10, 5], neg_sampling="binary", batch_size=64, device="cpu")
        >>> batch = next(iter(loader))
        >>> batch.edge_label_index.shape, int(batch.edge_label.sum())  # 64 pairs, 64 negatives
        (torch.Size([2, 128]), 64)
        >>> loader.close()

    Minibatches of a data set with several node types are ``HeteroData``.

    A batch has the sampled neighbourhood of all endpoints, and PyG's attributes:

    - ``edge_label_index`` int64 [2, pairs]: sources and targets as positions in ``n_id``, pairs of the loader first,
      then negatives; ``edge_label`` [pairs]: labels of pairs, 0 for negatives;
    - with triplets instead of both: ``src_index`` and ``dst_pos_index`` int64 [pairs], ``dst_neg_index`` int64 [pairs]
      or [pairs, amount];
    - ``input_id`` int64: positions of the batch's pairs in ``edge_label_index`` of the loader;
    - with ``disjoint=True`` or ``time_attr``: ``batch`` int64 [num_nodes], the pair that a node belongs to, by its
      number in the batch. Each end of each pair has a tree of its own. A negative belongs to the pair whose time it
      has: number i of binary ones to pair i modulo the number of pairs, those of triplets to their pair;
    - ``x``, ``y``, ``n_id``, ``edge_index``, ... as a `NeighborLoader` has them. The first nodes are the different
      endpoints, in order of first occurrence: all sources, then all targets.

    With several node types, the pairs belong to one edge type; ``edge_label_index``, ``edge_label`` and ``input_id``
    are attributes of ``batch[edge_type]``, ``src_index`` of the source type, ``dst_pos_index`` and ``dst_neg_index`` of
    the target type. ``HeteroBatch`` describes the others. The first nodes of both types are the endpoints of the type.

    Args:
        data: folder of a data set, a ``Dataset``, or a PyG ``Data``, as for `NeighborLoader`.
        num_neighbors: in-neighbours to draw per node, for each hop; as for `NeighborLoader`.
        edge_label_index: the pairs: int64 [2, n] node ids, source and target, which may repeat; or int64 [n] edges of
            the graph, by ``e_id``; None: all edges, in this order. Several node types: (edge type, one of these), with
            ids and places of that type; or an edge type, for all its edges. With ``exclude="none"``, pairs may be of an
            edge type that the graph does not have, between two of its node types: they are no edges.
        edge_label: labels of the pairs, [n, ...]. With binary negatives, labels that start at 0 are raised by 1;
            without labels, pairs have 1.
        neg_sampling: negatives to draw for each batch: "binary", "triplet", or PyG's ``NegativeSampling`` with an
            amount: a ratio of the number of pairs, for triplets the number of targets for each source. Nodes are drawn
            from the nodes of their type, keyed by (seed, epoch, step): in proportion to ``src_weight`` and
            ``dst_weight`` of ``NegativeSampling``, [nodes of the type], with replacement; without weights uniformly.
            Or "in_batch", with an amount {"mode": "in_batch", "amount": 3}: triplets whose ``dst_neg_index`` are
            targets of other pairs of the batch, drawn uniformly with replacement, so that no node is sampled for
            negatives (unless batches are disjoint). The negatives of a batch of one pair are drawn from all nodes.
            With ``time_attr``, and nodes that have times (of a graph in memory those of this name, of a data set its
            own or those of this name in ``node_tensors``), only nodes are drawn that are no later than their pair; if
            there is none, the earliest.
        neg_sampling_ratio: the same as binary negatives of this amount.
        reject_edges: a negative that is an edge of the graph, of the pairs' edge type, is drawn again, at most 8 times;
            with "in_batch" also a negative that is its own pair.
        exclude: edges that no batch has: "self": those that are pairs of the batch; "reverse": these and their reverse
            edges; "none". Parallel edges of the same nodes count as one. Other neighbours are drawn in their place.
            Several edge types: edges of the pairs' type and, with "reverse", of the types that have the same edges, in
            the other direction or in this one: those that the data set names by ``reverse_of``, and those whose edges
            are exactly the reverse edges; without one, reverse edges of the pairs' type itself if it is within one node
            type. There is a warning if an opposite edge type has other edges and nothing is said of it.
        edge_label_time: int64 times of the pairs, required with ``time_attr``: both ends of a pair, and its negatives,
            get edges up to this time. If a pair is itself an edge of the graph, a smaller time excludes that edge.
            Batches have ``edge_label_time`` int64, a time for each column of ``edge_label_index``; with triplets
            ``seed_time`` int64 [pairs]. Of several node types, these are beside ``edge_label_index``, and of both
            types of the pairs.
        options: keyword arguments of `NeighborLoader`: ``batch_size`` (pairs), ``shuffle``, ``seed``, ...

    Raises:
        CohortError: as `NeighborLoader`.
        TypeError: arguments that PyG's loader does not have either.
    """

    _times_argument = "edge_label_time"
    _digests_of_draws: Sequence[str | None] = ()  # of weights, then of times, of sources and of targets; none: of none

    def __init__(
        self,
        data: str | os.PathLike | StoredGraph | BaseData,
        num_neighbors: Sequence[int] | Mapping[EdgeType, Sequence[int]],
        edge_label_index: Tensor | np.ndarray | tuple | None = None,
        edge_label: Tensor | None = None,
        *,
        neg_sampling: str | NegativeSampling | dict | None = None,
        neg_sampling_ratio: float | None = None,
        reject_edges: bool = False,
        exclude: Exclude = "reverse",
        edge_label_time: Tensor | np.ndarray | None = None,
        **options,
    ):
        if wrong := [name for name in ("input_nodes", "input_time") if name in options]:
            raise TypeError(f"LinkNeighborLoader() got an unexpected keyword argument {wrong[0]!r}")
        if options.get("seed_order", "shuffle") != "shuffle":
            hint = "leave it out: pairs are shuffled"
            raise CohortError("seed_order", '"shuffle", for pairs', str(options["seed_order"]), hint)
        self._negatives = negatives_of(neg_sampling, neg_sampling_ratio)
        drawn = (self._negatives.mode, self._negatives.amount, REDRAWS if is_set("reject_edges", reject_edges) else 0)
        self._pair_request = OfPairs(*drawn, checked("exclude", exclude, Exclude))
        self._edge_label = edge_label
        super().__init__(data, num_neighbors, edge_label_index, input_time=edge_label_time, **options)

    def _checked_seeds(self, edge_label_index) -> np.ndarray:
        graph = open_dataset(self._sampler.data)
        name, pairs = pairs_type_of(self._types, edge_label_index, self._pair_request.exclude == "none")
        self._input_type, self._ends, lists = name, name[::2], graph.edge_types.get(name)
        self._key = name if lists is None else graph.key_of(name)
        num_nodes, types = [self._types.counts[end] for end in self._ends], list(self._types.counts)
        if lists is None:
            source, target = (types.index(end) for end in self._ends)
            self._pair_request = replace(self._pair_request, unrelated=True, source_type=source, target_type=target)
        else:
            self._pair_request = replace(self._pair_request, relation=self._types.edge_types.index(name))
        self._ids = _pairs_of(pairs, lists, num_nodes, self._key or None, self._graph)
        self._subgraph.demand_excludes(self._pair_request.exclude, graph, name)
        if self._pair_request.exclude == "reverse":
            warn_of_opposites(graph, name, 'Until then, batches have all its edges, as with exclude="self".')
        self._edge_label = _checked_labels(self._edge_label, len(self._ids), self._pair_request)
        return self._ids + np.array([self._types.first_node[end] for end in self._ends])

    def _register(self, seeds: np.ndarray, times, **negative_options: Sequence[np.ndarray | None]) -> None:
        node_times = [self._times_of_nodes(end) for end in self._ends]
        counts, keys = [self._types.counts[end] for end in self._ends], list(map(self._sampler.key_of, self._ends))
        weights = self._negatives.sums(counts, keys, times=node_times)
        drawn_by = [pair for pair in (weights, node_times) if any(array is not None for array in pair)]
        self._digests_of_draws = [None if array is None else digest_of(array) for pair in drawn_by for array in pair]
        super()._register(seeds, times, weights=weights, node_times=node_times)

    def _times_of_nodes(self, name: str) -> np.ndarray | None:
        """Times of the nodes of a type that negatives are drawn from, as `nodes_by_time` makes them; None: they have
        none, or nothing is drawn by time."""
        attribute, num_nodes = self._trees.time_attr, self._types.counts[name]
        if attribute is None or self._negatives.mode == "none":
            return None
        times = self._node_tensors.get(name, {}).get(attribute)
        if times is not None:
            place = f"node_tensors: {attribute}"
            times = edge_times(place, np.asarray(times.cpu()))
            demand_shape(place, times, (num_nodes,))
        elif self._graph is not None:
            times = self._graph.times_of(self._sampler.key_of(name) or None, np.arange(num_nodes))
        elif (stored := self._sampler.node_times.get(name)) is not None:
            times = stored.cpu().numpy()
        return None if times is None else nodes_by_time(times)

    def with_edges(
        self,
        edge_label_index,
        edge_label=None,
        *,
        shuffle=False,
        num_neighbors=None,
        batch_size=None,
        drop_last=False,
        neg_sampling=SAME,
        reject_edges=SAME,
        exclude=SAME,
        edge_label_time=None,
    ) -> "LinkNeighborLoader":
        """A loader with other pairs (validation, test) and the same sampler; iterate over one loader at a time.

        Negatives, ``reject_edges`` and ``exclude`` are this loader's, unless they are given; ``neg_sampling=None``: no
        negatives.
        """
        own = self._pair_request
        how = {
            "shuffle": shuffle,
            "drop_last": drop_last,
            "exclude": own.exclude if exclude is SAME else exclude,
            "neg_sampling": self._negatives if neg_sampling is SAME else neg_sampling,
            "reject_edges": own.redraws > 0 if reject_edges is SAME else reject_edges,
        }
        pairs = {"edge_label_index": edge_label_index, "edge_label": edge_label, "edge_label_time": edge_label_time}
        return LinkNeighborLoader(self.data, **pairs, **self._shared(num_neighbors, batch_size), **how)

    def _batch_of(self, slot) -> OfSlot:
        batch = self._batch_from_slot(slot)
        pairs, source, target = (batch.store_of(name) for name in (self._input_type, *self._ends))
        pairs.pop("batch_size", None)  # as in PyG: the number of seeds is no number of pairs
        endpoints, num_pairs = slot.endpoints.clone(), len(pairs.input_id)
        if self._trees.disjoint:
            for store in batch.node_stores:
                store.batch = self._pair_request.pairs_of(store.batch, num_pairs, len(endpoints))
        if self._pair_request.are_triplets:
            source.src_index, target.dst_pos_index = endpoints[: 2 * num_pairs].view(2, -1)
            negative_targets = endpoints[2 * num_pairs :].view(num_pairs, int(self._pair_request.negatives))
            target.dst_neg_index = negative_targets.squeeze(-1)
            if self._times is not None:
                source.seed_time = target.seed_time = self._all_times[pairs.input_id]
            return batch
        pairs.edge_label_index = endpoints.view(2, -1)
        if self._times is not None:  # negative n has the time of pair n modulo the pairs: sampler/pairs.h
            pair_index = torch.arange(pairs.edge_label_index.size(1), device=self.device) % max(num_pairs, 1)
            pairs.edge_label_time = self._all_times[pairs.input_id[pair_index]]
        if (labels := self._labels_of(pairs.input_id, pairs.edge_label_index.size(1) - num_pairs)) is not None:
            pairs.edge_label = labels
        return batch

    def _labels_of(self, input_id: Tensor, num_negatives: int) -> Tensor | None:
        if self._edge_label is None and self._pair_request.negative_mode == "none":
            return None
        if self._edge_label is None:
            labels = torch.ones(len(input_id), device=input_id.device)
        else:
            labels = self._edge_label[input_id.to(self._edge_label.device)].to(input_id.device)
        return torch.cat([labels, labels.new_zeros(num_negatives, *labels.shape[1:])])

    def _identity(self) -> dict:
        type_members = {"input_type": list(self._key)} if self._key else {}
        own = self._pair_request
        drawn = [own.negative_mode, float(own.negatives), own.redraws, own.exclude, *self._digests_of_draws]
        return super()._identity() | {"pairs": drawn} | type_members


def _pairs_of(
    edge_label_index,
    lists: Relation | None,
    num_nodes: Sequence[int],
    name: EdgeType | None,
    columns: MemoryGraph | None,
) -> np.ndarray:
    """int64 [n, 2] node ids from the argument.

    Args:
        lists: the edges that pairs may be; None: they are none.
        num_nodes: of the type of sources, and of that of targets.
        name: of the edges' type; None: there is only one.
        columns: of a graph in memory, which name its edges; else their places in ``lists`` do.

    Raises:
        CohortError: it is neither pairs of nodes nor edges of the graph.
    """
    place, expected = "edge_label_index", "int64 [2, n] node ids, or [n] places of edges in the data set's indices"
    try:
        if edge_label_index is None and lists is not None:
            edge_label_index = np.arange(lists.num_edges)
        array = np.asarray(torch.as_tensor(edge_label_index).cpu())
    except (TypeError, ValueError, RuntimeError) as error:
        raise CohortError(place, expected, repr(edge_label_index)[:80]) from error
    if not np.issubdtype(array.dtype, np.integer) or not (array.ndim == 1 or (array.ndim == 2 and len(array) == 2)):
        hint = "of a [n, 2] tensor: its .t()" if array.ndim == 2 and array.shape[1] == 2 else ""
        raise CohortError(place, expected, f"{array.dtype} {list(array.shape)}", hint)
    if lists is None and array.ndim == 1:
        raise CohortError(
            place, "int64 [2, n] node ids, of pairs that are no edges", f"{array.dtype} {list(array.shape)}"
        )
    bounds, what = ([lists.num_edges], "edges") if lists is not None and array.ndim == 1 else (num_nodes, "node ids")
    for ids, bound in zip(array.reshape(len(bounds), -1), bounds, strict=True):
        if ids.size and (ids.min() < 0 or ids.max() >= bound):
            raise CohortError(place, f"{what} in [0, {bound})", f"{ids.min()} .. {ids.max()}")
    if lists is not None and array.ndim == 1:
        array = array if columns is None else columns.columns_of(name).argsort().numpy()[array]
        target = np.searchsorted(lists.indptr, array, side="right") - 1
        array = np.stack([lists.indices[array], target])
    return np.ascontiguousarray(array.T, dtype=np.int64)


def _checked_labels(labels, num_pairs: int, pair_draws: OfPairs) -> Tensor | None:
    """The argument ``edge_label``, as batches have it.

    Raises:
        CohortError: it does not fit the pairs or the negatives.
    """
    if labels is None:
        return None
    if pair_draws.are_triplets:
        hint = "dst_pos_index and dst_neg_index of a batch tell positives from negatives"
        raise CohortError("edge_label", "None, with triplets", type(labels).__name__, hint)
    expected = f"a tensor [{num_pairs}, ...], one label per pair"
    labels = tensor_of("edge_label", labels, expected)
    if labels.dim() < 1 or len(labels) != num_pairs:
        raise CohortError("edge_label", expected, f"{list(labels.shape)}")
    if pair_draws.negative_mode == "binary" and num_pairs and labels.min() == 0:
        if (
            not labels.is_floating_point()
            and labels.dtype != torch.bool
            and labels.max() == torch.iinfo(labels.dtype).max
        ):
            actual = f"{labels.max()} in {labels.dtype}"
            raise CohortError("edge_label", "labels that can be raised by 1", actual, "pass edge_label.long()")
        return labels + 1
    return labels
