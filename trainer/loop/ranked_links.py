"""Metrics of held-out links among all targets: recall@k, ndcg@k and map@k, as recommenders are measured."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from cohort_gnn.dataset.links import HeldOut, LinkEdges
from cohort_gnn.spec.metrics import ranked
from cohort_gnn.trainer.models.best_targets import SOURCES, Known, best_of, pairs_left_out, queries_of
from cohort_gnn.trainer.models.links import LinkDecoder


class RankedLinks:
    """How well the held-out targets of sources rank among all targets.

    Targets that the source has an edge to in the data set, which are those it was trained on, and the source itself are
    left out. Of the k best targets of a source, r of whose links are held out, with h_i = 1 where the i-th is one of
    them: "recall@k" is sum h_i / r; "ndcg@k" sum h_i / log2(i + 1), divided by the same sum where the first min(k, r)
    are; "map@k" sum h_i (h_1 + .. + h_i) / i, divided by min(k, r). Metrics are means over the sources, and those of
    torch_geometric.metrics.

    Args:
        held: the links of a split.
        edges: those of the data set.
        seen: the links that they are.
        names: of the metrics.

    Attributes:
        sources: int64 [n], the different sources of the links, ascending.
        num_targets: of the relation.
    """

    def __init__(self, held: HeldOut, edges: LinkEdges, seen: Known, names: Sequence[str]):
        self._edges, self._seen = edges, seen
        self._ranks = [kind_and_k for name in names if (kind_and_k := ranked(name)) is not None]
        self.num_targets = edges.num_targets
        keys = np.unique(edges.keys(*held.pairs.T))
        self.sources, place, counts = np.unique(keys // edges.num_targets, return_inverse=True, return_counts=True)
        self._counts = torch.from_numpy(counts)
        self._keys = torch.from_numpy(place * edges.num_targets + keys % edges.num_targets)  # by place; ascending

    def sums(self, sources: Tensor, targets: Tensor, decoder: LinkDecoder, which: slice) -> Tensor:
        """float64 [metrics + 1]: the sums of the metrics over some of the sources, and how many these are.

        Args:
            sources: float32 [any, width], the rows of these sources.
            targets: float32 [num_targets, width].
            which: of the sources.
        """
        places = torch.arange(len(self.sources))[which]
        sums = torch.zeros(len(self._ranks) + 1, dtype=torch.float64, device=sources.device)
        for own, rows in zip(places.split(SOURCES), sources.split(SOURCES), strict=True):
            if not (rows.isfinite().all() and targets.isfinite().all()):  # of weights that diverged
                sums += torch.nan
            elif len(own):
                sums += self._sums_of(own, queries_of(decoder, rows), targets)
        return sums

    def _sums_of(self, places: Tensor, query: Tensor, targets: Tensor) -> Tensor:
        most = max(k for _, k in self._ranks)
        left_out = pairs_left_out(self._seen, self._edges, self.sources[places.numpy()])
        best, _ = best_of(query, targets, most, left_out)
        keys, device = self._keys.to(query.device), query.device
        best_keys = places.to(device)[:, None] * self.num_targets + best
        nearest = keys[torch.searchsorted(keys, best_keys).clamp(max=len(keys) - 1)]
        hits = ((nearest == best_keys) & (best >= 0)).double()
        counts, rank = self._counts[places].to(device), torch.arange(1, most + 1, device=device)
        values = [_metric(kind, hits[:, :k], counts, rank[:k].double()) for kind, k in self._ranks]
        return torch.stack([*(value.sum() for value in values), hits.new_tensor(len(hits))])


def _metric(kind: str, hits: Tensor, counts: Tensor, rank: Tensor) -> Tensor:
    """float64 [n] of hits float64 [n, k], the number of held-out links [n], and 1 .. k [k]."""
    if kind == "recall":
        return hits.sum(dim=1) / counts
    most = counts.clamp(max=len(rank))
    if kind == "ndcg":
        gains = 1 / (rank + 1).log2()
        return (hits * gains).sum(dim=1) / gains.cumsum(0)[most - 1]
    return (hits * hits.cumsum(dim=1) / rank).sum(dim=1) / most
