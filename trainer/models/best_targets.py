"""For a model that predicts links: the targets with the best scores for each source that has no edge to them yet."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset.links import LinkEdges
from cohort_gnn.nn.row_tiles import row_tiles
from cohort_gnn.trainer.models.links import LinkDecoder

SOURCES, TARGETS = 4096, 1 << 14  # that are compared at a time; 256 MiB of scores
TILE_SOURCES = 16  # of `row_tiles`: a request has few sources
TIED = 256  # sources whose last of k scores others have, too, that are looked through at a time


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
    def from_edges(cls, edges: LinkEdges, until: int | None = None) -> "Known":
        """Edges whose links have no directions are there in both; with `until`, those later than it are not there."""
        source, target = edges.endpoints()
        if until is not None and edges.lists.edge_times is not None:
            is_there = edges.lists.edge_times <= until
            source, target = source[is_there], target[is_there]
        if not edges.has_directions:
            source, target = np.concatenate([source, target]), np.concatenate([target, source])
        counts = np.bincount(source, minlength=edges.num_sources)
        return cls(np.concatenate([[0], np.cumsum(counts)]), target[np.argsort(source, kind="stable")])

    def among(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(place among `ids`, target), int64 [n] each, of the links of these sources."""
        first = self.first[ids]
        counts = self.first[ids + 1] - first
        begins = np.cumsum(counts) - counts
        links = np.repeat(first - begins, counts) + np.arange(counts.sum())
        return np.repeat(np.arange(len(ids)), counts), self.target[links]


def best_of(
    query: Tensor,
    targets: np.ndarray | Tensor,
    k: int,
    left_out: tuple[Tensor, Tensor],
    candidates: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The targets whose rows have the largest dot products with each query: ids int64 [n, k], the best first, of equal
    products the smaller id, -1 where a query has fewer than k targets; and the products, float32 [n, k].

    Args:
        query: float32 [n, width], on the device that computes.
        targets: float32 [num_targets, width].
        left_out: (query, target), int64 [any] each: pairs that do not count.
        candidates: int64 [num_targets] ascending, the ids of the targets that have these rows; None: 0, 1, ...
    """
    if candidates is not None:
        place = torch.searchsorted(candidates, left_out[1])
        is_there = candidates[place.clamp(max=len(candidates) - 1)] == left_out[1] if len(candidates) else place < 0
        ids, scores = best_of(query, targets, k, (left_out[0][is_there], place[is_there]))
        named = torch.cat([candidates, candidates.new_full((1,), -1)]).to(ids.device)  # -1 is the last
        return named[ids], scores
    by_target = torch.argsort(left_out[1], stable=True)
    source, target = (ids[by_target].to(query.device) for ids in left_out)
    scores = torch.full((len(query), k), -torch.inf, device=query.device)
    ids = torch.full((len(query), k), -1, device=query.device)
    for first in range(0, len(targets), TARGETS):
        rows = torch.as_tensor(targets[first : first + TARGETS]).to(query.device)
        products = query @ rows.t()
        bounds = torch.tensor([first, first + len(rows)], device=query.device)
        in_block = slice(*torch.searchsorted(target, bounds).tolist())
        products[source[in_block], target[in_block] - first] = -torch.inf
        block_scores, places = _first_of_largest(products, min(k, len(rows)))
        scores, order = torch.cat([scores, block_scores], 1).sort(dim=1, descending=True, stable=True)
        scores, ids = scores[:, :k], torch.cat([ids, places + first], 1).gather(1, order[:, :k])
    return ids.masked_fill(scores == -torch.inf, -1), scores


def _first_of_largest(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of each row and their places, the largest first, of equal ones the first. topk takes any of these:
    those for k are not the first of those for k + 1."""
    largest, places = values.topk(min(k + 1, values.shape[1]), dim=1)
    last = largest[:, k - 1 : k]
    tied = ((largest[:, k:] == last) & (last > -torch.inf)).nonzero()[:, 0]
    places = places[:, :k].clone()
    for some in tied.split(TIED):
        row, bound = values[some], last[some]
        above, equal = ~(row <= bound), row == bound  # NaN is above all, as in topk
        room = k - above.sum(dim=1, keepdim=True)
        places[some] = (above | equal & (equal.cumsum(1, dtype=torch.int32) <= room)).nonzero()[:, 1].view(-1, k)
    places = places.sort(dim=1).values
    largest, order = values.gather(1, places).sort(dim=1, descending=True, stable=True)
    return largest, places.gather(1, order)


def best_alone(
    query: Tensor, targets: np.ndarray, k: int, left_out: tuple[Tensor, Tensor], candidates: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """What `best_of` finds, whichever queries stand beside a query.

    Raises:
        CohortError: a product is no number.
    """
    with torch.no_grad(), row_tiles(TILE_SOURCES):
        ids, scores = best_of(query, targets, k, left_out, candidates)
    return ids, demand_numbers(scores)


def demand_numbers(scores: Tensor) -> Tensor:
    """The scores; raises CohortError where nothing can be chosen by them, as of weights that diverged."""
    if not (scores < torch.inf).all():
        hint = "the run may have diverged: train with a smaller --lr; cohort dataset check finds features like these"
        raise CohortError("scores", "finite numbers, to choose the best by", "NaN or infinity", hint)
    return scores


def pairs_left_out(known: "Known | None", edges: LinkEdges, ids: np.ndarray) -> tuple[Tensor, Tensor]:
    """(place among `ids`, target), int64 [n] each, of what no link of these sources is: what is known, and, within one
    node type, the source itself."""
    none = np.zeros(0, np.int64)
    place, target = known.among(ids) if known else (none, none)
    if edges.is_within_one_type:
        place, target = np.concatenate([place, np.arange(len(ids))]), np.concatenate([target, ids])
    return torch.from_numpy(place), torch.from_numpy(target)


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
    there: np.ndarray | None = None,
    until: int | None = None,
) -> None:
    """Fills `best`, and the scores of these targets.

    Args:
        sources, targets: rows that the model makes, float32 [num_sources, width] and [num_targets, width].
        edges: those of the relation; with `exclude_seen`, targets that a source is linked to by them are left out. The
            source itself is, within one node type.
        best: int64 [num_sources, k], the best target first; -1 where a source has fewer than k others.
        advance: gets the number of sources that are done.
        best_scores: float32 [num_sources, k].
        there: int64 [any] ascending, the targets that may be chosen; None: all.
        until: edges later than this time link nothing; None: all do.
    """
    candidates = None if there is None else torch.from_numpy(there)
    targets = targets if there is None else targets[there]
    known = Known.from_edges(edges, until) if exclude_seen else None
    for begin in range(0, len(sources), SOURCES):
        end = min(begin + SOURCES, len(sources))
        query = queries_of(decoder, torch.from_numpy(sources[begin:end]).to(device))
        left_out = pairs_left_out(known, edges, np.arange(begin, end))
        best_ids, scores = best_alone(query, targets, best.shape[1], left_out, candidates)
        if best_scores is not None:
            best_scores[begin:end] = scores.cpu().numpy()
        best[begin:end] = best_ids.cpu().numpy()
        advance(end - begin)
