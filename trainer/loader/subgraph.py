"""The argument ``subgraph_type``: which edges the batches of a loader have beside the edges that were drawn."""

import warnings
from typing import Literal

import torch
from torch import Tensor
from torch_geometric.data.storage import EdgeStorage

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import Dataset, HeteroDataset
from cohort_gnn.nn.block import keep_offsets
from cohort_gnn.spec.graph import EdgeType
from cohort_gnn.spec.types import checked
from cohort_gnn.trainer.loader.batch import Batch
from cohort_gnn.trainer.loader.hetero import HeteroBatch

Kind = Literal["directional", "bidirectional"]
OF_EDGES = ("e_id", "edge_weight", "edge_attr")


def checked_kind(subgraph_type) -> str:
    """The argument, which may be PyG's enumeration.

    Raises:
        CohortError: it is neither.
    """
    return checked("subgraph_type", getattr(subgraph_type, "value", subgraph_type), Kind)


class Subgraph:
    """Batches have the drawn edges alone."""

    kind = "directional"

    def complete(self, batch: Batch | HeteroBatch) -> None:
        """Gives the batch its other edges."""

    def demand_excludes(self, exclude: str, data: Dataset | HeteroDataset, relation: EdgeType | None) -> None:
        """Raises CohortError if batches would have edges that `exclude` leaves out of the draws.

        Args:
            relation: of the pairs; None: the graph has one edge type.
        """


DRAWN = Subgraph()


class Bidirectional(Subgraph):
    """Batches have the drawn edges and their reverses, as of PyG's ``to_bidirectional``: each pair of nodes once, by
    target, then by source. Of several drawn edges that give the same pair, an edge in the pair's direction is kept, of
    these the first.

    Args:
        reverses: of each edge type that has a reverse; None: the graph has one edge type.
    """

    kind = "bidirectional"

    def __init__(self, reverses: dict[EdgeType, EdgeType] | None):
        self._reverses = reverses

    @torch.inference_mode(False)
    def complete(self, batch: Batch | HeteroBatch) -> None:
        if self._reverses is None:
            num_nodes = len(batch.n_id)
            edge_index, edges = _union(batch.edge_index, batch.edge_index, num_nodes, num_nodes)
            rows = {name: batch[name][edges % batch.edge_index.size(1)] for name in OF_EDGES if name in batch}
            batch.update(rows)
            batch.indptr = _put(batch._store, edge_index, num_nodes)
        else:
            drawn = {name: batch[name].edge_index for name in batch.edge_types}
            for name, reverse in self._reverses.items():
                sizes = (len(batch[name[0]].n_id), len(batch[name[2]].n_id))
                edge_index, _ = _union(drawn[name], drawn[reverse], *sizes)
                _put(batch[name], edge_index, sizes[1])
        for store in batch.stores:
            for counts in ("num_sampled_nodes", "num_sampled_edges"):
                store.pop(counts, None)

    def demand_excludes(self, exclude: str, data: Dataset | HeteroDataset, relation: EdgeType | None) -> None:
        place = f'exclude, with subgraph_type="{self.kind}"'
        if exclude == "self":
            hint = "a reverse edge of a pair, which is drawn, would bring the pair back"
            raise CohortError(place, '"reverse" or "none"', '"self"', hint)
        if exclude == "none" or relation is None or self._reverses is None or not isinstance(data, HeteroDataset):
            return
        reverse = self._reverses.get(relation)
        if reverse is not None and reverse != data.reverse_of(relation):
            expected = f'"none", or a data set that names {reverse} as the reverse of {relation}'
            hint = "leave the reverses out, and write the data set with reverse_edges=True"
            raise CohortError(place, expected, repr(exclude), hint)


def subgraph_of(kind: str, data: Dataset | HeteroDataset, options: dict) -> Subgraph:
    """Of a loader.

    Args:
        options: of the sampler, which is not asked for what such batches do not have.

    Raises:
        CohortError: the options ask for arrays of edges that such batches do not have.
    """
    if kind == "directional":
        return DRAWN
    if not isinstance(data, HeteroDataset):
        return Bidirectional(None)
    for name in ("edge_ids", "edge_weights"):
        if options[name]:
            hint = "a reverse edge has another edge type than the edge that was drawn; PyG leaves them out, too"
            raise CohortError(name, f"False, for several edge types and subgraph_type={kind!r}", "True", hint)
    options["edge_features"] = False
    return Bidirectional(_reverses_of(data))


def _reverses_of(data: HeteroDataset) -> dict[EdgeType, EdgeType]:
    """The reverse of each edge type: the one that the data set names, else the one that PyG would take. Warns of edge
    types without one, as PyG does."""
    reverses = {name: reverse for name in data.edge_types if (reverse := _reverse_of(data, name)) is not None}
    if without := [name for name in data.edge_types if name not in reverses]:
        warnings.warn(
            f"subgraph_type='bidirectional': no reverses of {', '.join(map(str, without))}, whose reverse edge type is"
            " unknown; write the data set with reverse_edges=True",
            stacklevel=4,
        )
    return reverses


def _reverse_of(data: HeteroDataset, name: EdgeType) -> EdgeType | None:
    source, relation, target = name
    named = data.reverse_of(name)
    if named is not None and named != name:
        return named
    by_name = relation.removeprefix("rev_") if relation.startswith("rev_") else f"rev_{relation}"
    if (target, by_name, source) in data.edge_types:
        return target, by_name, source
    back = [other for other in data.edge_types if (other[0], other[2]) == (target, source)]
    return named or (back[0] if len(back) == 1 else None)


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


def _put(store: EdgeStorage, edge_index: Tensor, num_targets: int) -> Tensor:
    """Gives the store edges that stand by target; returns their offsets, int64 [num_targets + 1]."""
    targets = torch.arange(num_targets + 1, device=edge_index.device)
    indptr = torch.searchsorted(edge_index[1].contiguous(), targets)
    store.edge_index = keep_offsets(edge_index, indptr)
    return indptr
