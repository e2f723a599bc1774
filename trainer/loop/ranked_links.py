"""Metrics of links among all targets: recall@k, ndcg@k and map@k, as recommenders are measured."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cohort_gnn.base.distinct import distinct
from cohort_gnn.spec.metrics import ranked
from cohort_gnn.trainer.models.best_targets import SOURCES, best_of, queries_of
from cohort_gnn.trainer.models.links import LinkDecoder

LeftOut = Callable[[np.ndarray], tuple[Tensor, Tensor]]


@dataclass(frozen=True, eq=False)
class Queries:
    """Different sources, at their times, and the targets that are right for them.

    Attributes:
        sources: int64 [n], ascending; in time by their own times first.
        times: int64 [n], ascending, up to which they see the graph; None: at any time.
        first_row: int64 [n], the first of the links that each is of.
        keys: int64 [any], ascending: query * num_targets + target, of each right target.
        counts: int64 [n], of right targets.
    """

    sources: np.ndarray
    times: np.ndarray | None
    first_row: np.ndarray
    keys: np.ndarray
    counts: np.ndarray

    @classmethod
    def from_links(
        cls,
        sources: np.ndarray,
        times: np.ndarray | None,
        targets: np.ndarray | None,
        num_targets: int,
        until: int | None = None,
    ) -> "Queries":
        """Of links, int64 [m] each; targets may be unknown. Those later than ``until`` see no more than it."""
        parts = [sources] if times is None else [times, sources]
        unique, first_row, query = np.unique(np.stack(parts, 1), axis=0, return_index=True, return_inverse=True)
        query = query.reshape(-1)
        keys = np.zeros(0, np.int64) if targets is None else distinct(query * num_targets + targets)
        counts = np.bincount(keys // num_targets, minlength=len(unique))
        columns = [np.ascontiguousarray(column) for column in unique.T]
        if times is not None and until is not None:
            columns[0] = np.minimum(columns[0], until)
        return cls(columns[-1], None if times is None else columns[0], first_row, keys, counts)


@dataclass(frozen=True, eq=False)
class Moment:
    """Queries of one time.

    Attributes:
        begin, end: the queries.
        candidates: int64 [any] ascending, the targets that exist; None: all.
    """

    begin: int
    end: int
    candidates: np.ndarray | None


class RankedLinks:
    """How well the right targets of sources rank among all targets; in time, among those that exist.

    Of the k best targets of a source, r of which are right in all, with h_i = 1 where the i-th is right: "recall@k" is
    sum h_i / r; "ndcg@k" sum h_i / log2(i + 1), divided by the same sum where the first min(k, r) are right; "map@k"
    sum h_i (h_1 + .. + h_i) / i, divided by min(k, r). Metrics are means over the sources with right targets, and those
    of torch_geometric.metrics. A source at two times counts as two.

    Args:
        queries: the sources.
        num_targets: of all.
        names: of the metrics.
        left_out: (place among its argument, target), int64 [any] each, of the targets of some sources that do not rank.
        target_times: int64 [num_targets], since when targets exist; None: always.
        keep: how many of the best targets of each source are kept.

    Attributes:
        moments: by time.
        best: int64 [queries, keep], the best targets of this rank's share of the sources, the best first; -1 where
            there are fewer; 0 of other sources.
    """

    def __init__(
        self,
        queries: Queries,
        num_targets: int,
        names: Sequence[str],
        left_out: LeftOut,
        target_times: np.ndarray | None = None,
        keep: int = 0,
    ):
        self.queries, self._num_targets, self._left_out, self._keep = queries, num_targets, left_out, keep
        self._ranks = [kind_and_k for name in names if (kind_and_k := ranked(name)) is not None]
        self._keys, self._counts = torch.from_numpy(queries.keys), torch.from_numpy(queries.counts)
        self.moments = list(_moments_of(queries, target_times))
        self.best = torch.zeros(len(queries.sources), keep, dtype=torch.int64)

    def seeds(self, first: tuple[int, int]) -> tuple[np.ndarray, np.ndarray | None]:
        """int64 [n] each: the nodes whose rows are needed and their times: all sources, then of each moment all
        candidates. `first` is added to the ids of sources, and to those of targets."""
        every = np.arange(self._num_targets)
        targets = [every if moment.candidates is None else moment.candidates for moment in self.moments]
        ids = np.concatenate([self.queries.sources + first[0], *(first[1] + ids for ids in targets)])
        if self.queries.times is None:
            return ids, None
        moments = np.array([self.queries.times[moment.begin] for moment in self.moments], np.int64)
        return ids, np.concatenate([self.queries.times, np.repeat(moments, list(map(len, targets)))])

    def sums(self, rows: Tensor, places: Tensor, decoder: LinkDecoder, which: slice) -> Tensor:
        """float64 [metrics + 1]: the sums of the metrics over some of the sources, and how many of these have right
        targets.

        Args:
            rows: float32 [any, width].
            places: int64 [n] among them, of `seeds`.
            which: of the sources.
        """
        sums = torch.zeros(len(self._ranks) + 1, dtype=torch.float64, device=rows.device)
        self.best = torch.zeros_like(self.best)
        chosen, begin = torch.arange(len(self.queries.sources))[which], len(self.queries.sources)
        for moment in self.moments:
            end = begin + (self._num_targets if moment.candidates is None else len(moment.candidates))
            own = chosen[(chosen >= moment.begin) & (chosen < moment.end)]
            targets, begin = _rows_at(rows, places[begin:end]), end
            for some in own.split(SOURCES) if len(own) else ():
                sums += self._sums_of(some, rows[places[some].to(rows.device)], targets, moment.candidates, decoder)
        return sums

    def _sums_of(
        self, some: Tensor, sources: Tensor, targets: Tensor, candidates: np.ndarray | None, decoder: LinkDecoder
    ) -> Tensor:
        most = max([self._keep, *(k for _, k in self._ranks)])
        if not (sources.isfinite().all() and targets.isfinite().all()):  # of weights that diverged
            self.best[some] = -1
            return torch.full((len(self._ranks) + 1,), torch.nan, dtype=torch.float64, device=sources.device)
        left_out = self._left_out(self.queries.sources[some.numpy()])
        there = None if candidates is None else torch.from_numpy(candidates)
        best, _ = best_of(queries_of(decoder, sources), targets, most, left_out, there)
        self.best[some] = best[:, : self._keep].cpu()
        counts, device = self._counts[some], best.device
        answered = counts > 0
        some, counts, best = some[answered].to(device), counts[answered].to(device), best[answered.to(device)]
        if not len(some):
            return torch.zeros(len(self._ranks) + 1, dtype=torch.float64, device=device)
        keys, best_keys = self._keys.to(device), some[:, None] * self._num_targets + best
        nearest = keys[torch.searchsorted(keys, best_keys).clamp(max=len(keys) - 1)]
        hits = ((nearest == best_keys) & (best >= 0)).double()
        rank = torch.arange(1, most + 1, device=device).double()
        values = [_metric(kind, hits[:, :k], counts, rank[:k]) for kind, k in self._ranks]
        return torch.stack([*(value.sum() for value in values), hits.new_tensor(len(hits))])


def _moments_of(queries: Queries, target_times: np.ndarray | None) -> Iterator[Moment]:
    """The queries by their times, of which there are some."""
    count = len(queries.sources)
    starts = np.zeros(min(count, 1), np.int64)
    if queries.times is not None:
        starts = np.flatnonzero(np.diff(queries.times, prepend=queries.times[:1] - 1))
    for begin, end in zip(starts.tolist(), [*starts[1:].tolist(), count], strict=False):
        candidates = None
        if queries.times is not None and target_times is not None:
            candidates = np.flatnonzero(target_times <= queries.times[begin])
        yield Moment(begin, end, candidates)


def _rows_at(rows: Tensor, places: Tensor) -> Tensor:
    """rows[places], without a copy of rows that lie one after the other."""
    if len(places) and places[-1] - places[0] == len(places) - 1 and (places.diff() == 1).all():
        return rows[places[0] : places[-1] + 1]
    return rows[places.to(rows.device)]


def _metric(kind: str, hits: Tensor, counts: Tensor, rank: Tensor) -> Tensor:
    """float64 [n] of hits float64 [n, k], the number of right targets [n], and 1 .. k [k]."""
    if kind == "recall":
        return hits.sum(dim=1) / counts
    most = counts.clamp(max=len(rank))
    if kind == "ndcg":
        gains = 1 / (rank + 1).log2()
        return (hits * gains).sum(dim=1) / gains.cumsum(0)[most - 1]
    return (hits * hits.cumsum(dim=1) / rank).sum(dim=1) / most
