"""For a model that predicts links: the targets with the best scores for each source that has no edge to them yet."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset.links import LinkEdges
from cohort_gnn.trainer.models.links import LinkDecoder

SOURCES, TARGETS = 4096, 1 << 14  # that are compared at a time; 256 MiB of scores


@dataclass(frozen=True)
class Known:
    """The known links by their sources.

    Attributes:
        first: int64 [sources + 1], of each source, and the end.
        target: int64 [links].
    """

    first: np.ndarray
    target: np.ndarray

    @classmethod
    def from_edges(cls, edges: LinkEdges) -> "Known":
        """Edges whose links have no directions are there in both."""
        source, target = edges.endpoints()
        if not edges.has_directions:
            source, target = np.concatenate([source, target]), np.concatenate([target, source])
        counts = np.bincount(source, minlength=edges.num_sources)
        return cls(np.concatenate([[0], np.cumsum(counts)]), target[np.argsort(source, kind="stable")])

    def among(self, begin: int, end: int) -> tuple[Tensor, Tensor]:
        """(source counted from `begin`, target), int64 [n] each, of the edges of sources from `begin` to `end`."""
        counts = np.diff(self.first[begin : end + 1])
        source = np.repeat(np.arange(end - begin), counts)
        return torch.from_numpy(source), torch.from_numpy(self.target[self.first[begin] : self.first[end]])


def queries_of(decoder: LinkDecoder, rows: Tensor) -> Tensor:
    """Rows whose dot products with the rows of targets are the decoder's scores.

    Raises:
        CohortError: the decoder's scores are no such products.
    """
    if decoder.layers is not None:
        hint = "score chosen pairs: cohort.load_model(RUN).link_decoder"
        raise CohortError("--top-k", "a run with --decoder dot or distmult", "--decoder mlp", hint)
    return rows if decoder.weight is None else rows * decoder.weight.detach().to(rows.device)


def find_best_targets(
    decoder: LinkDecoder,
    sources: np.ndarray,
    targets: np.ndarray,
    edges: LinkEdges,
    best: np.ndarray,
    device: torch.device,
    advance: Callable[[int], None],
    best_scores: np.ndarray | None = None,
    exclude_seen: bool = True,
) -> None:
    """Fills `best`, and the scores of these targets.

    Args:
        sources, targets: rows that the model makes, float32 [num_sources, width] and [num_targets, width].
        edges: those of the relation; with `exclude_seen`, targets that a source is linked to by them are left out. The
            source itself is, within one node type.
        best: int64 [num_sources, k], the best target first; -1 where a source has fewer than k others.
        advance: gets the number of sources that are done.
        best_scores: float32 [num_sources, k].
    """
    known, k = Known.from_edges(edges), best.shape[1]
    for begin in range(0, len(sources), SOURCES):
        end = min(begin + SOURCES, len(sources))
        query = queries_of(decoder, torch.from_numpy(sources[begin:end]).to(device))
        source, target = known.among(begin, end if exclude_seen else begin)
        if edges.is_within_one_type:
            own = torch.arange(begin, end)
            source, target = torch.cat([source, own - begin]), torch.cat([target, own])
        by_target = torch.argsort(target, stable=True)
        source, target = source[by_target].to(device), target[by_target].to(device)
        scores = torch.full((end - begin, k), -torch.inf, device=device)
        ids = torch.full((end - begin, k), -1, device=device)
        for first in range(0, len(targets), TARGETS):
            rows = torch.from_numpy(targets[first : first + TARGETS]).to(device)
            products = query @ rows.t()
            bounds = torch.tensor([first, first + len(rows)], device=device)
            in_block = slice(*torch.searchsorted(target, bounds).tolist())
            products[source[in_block], target[in_block] - first] = -torch.inf
            block_scores, places = products.topk(min(k, len(rows)), dim=1)
            scores, order = torch.cat([scores, block_scores], 1).topk(k, dim=1)
            ids = torch.cat([ids, places + first], 1).gather(1, order)
        if best_scores is not None:
            best_scores[begin:end] = scores.cpu().numpy()
        best[begin:end] = ids.masked_fill(scores == -torch.inf, -1).cpu().numpy()
        advance(end - begin)
