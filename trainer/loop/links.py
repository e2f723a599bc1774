"""Held-out links in a run of ``--task link``: the seeds to sample, and how well a model predicts them."""

import numpy as np
import torch
from torch import Tensor, nn

from cohort_gnn.dataset import StoredGraph
from cohort_gnn.dataset.links import HeldOut, LinkEdges, held_out_of
from cohort_gnn.spec.run import TrainerSpec
from cohort_gnn.trainer.loader.node_weights import degree_weights, nodes_by_time, order_of, weight_sums
from cohort_gnn.trainer.loop.ranked_links import RankedLinks
from cohort_gnn.trainer.loop.ranks import Ranks
from cohort_gnn.trainer.loop.seeds import Seeds
from cohort_gnn.trainer.models.best_targets import Known
from cohort_gnn.trainer.models.links import scores_of_links
from cohort_gnn.trainer.models.targets import LinkTargets, ranked_metrics

SCORES_AT_ONCE = 1 << 20
POWER_OF_DEGREE = "0.75"  # of word2vec (Mikolov et al., NeurIPS 2013) for words by how often they occur


class HeldOutLinks:
    """The links of a split, scored by the rows of nodes, each of which is made once however many links need it.

    Attributes:
        seeds: the different nodes of links and negatives, ascending; in time, these at the times of the links.

    Args:
        in_time: a link is scored by the rows that its nodes have at its time.
        first: what is added to the ids of sources, and to those of targets and negatives: nodes of several types are
            numbered through.
        ranked: what ranks all targets, which then are among the nodes, too; None: nothing does.
    """

    def __init__(
        self,
        held: HeldOut,
        first: tuple[int, int] = (0, 0),
        ranked: RankedLinks | None = None,
        in_time: bool = False,
    ):
        if held.shared:
            endpoints = np.concatenate([held.pairs, held.negatives])
        else:
            endpoints = np.concatenate([held.pairs, held.negatives], axis=1)
        endpoints = endpoints + np.array([first[0], *[first[1]] * (endpoints.shape[1] - 1)])
        self._ranked = ranked if len(held.pairs) else None
        targets = first[1] + np.arange(0 if self._ranked is None else self._ranked.num_targets)
        if in_time:
            assert held.times is not None
            times = np.broadcast_to(held.times[:, None], endpoints.shape)
            pairs, places = np.unique(np.stack([endpoints, times], axis=-1).reshape(-1, 2), axis=0, return_inverse=True)
            self.seeds = Seeds(np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1]))
            self._places = torch.from_numpy(places.reshape(endpoints.shape))
        else:
            nodes = np.union1d(endpoints, targets)
            self.seeds = Seeds(nodes)
            self._places = torch.from_numpy(np.searchsorted(nodes, endpoints))
        if self._ranked is not None:
            self._first_target = int(np.searchsorted(self.seeds.ids, first[1]))
            self._sources = torch.from_numpy(np.searchsorted(self.seeds.ids, first[0] + self._ranked.sources))
        self._num_links, self._shared = len(held.pairs), held.shared

    def sums(self, rows: Tensor, decoder: nn.Module, targets: LinkTargets, ranks: Ranks) -> Tensor:
        """What this rank's share of the links, and of their sources, adds to the sums of all, as ``targets`` has them.

        Args:
            rows: float32 [m, width], of those nodes whose rows this rank has made; zeros for others.
        """
        rows = ranks.sum(rows)
        if self._ranked is None:
            sums = rows.new_zeros(targets.num_sums - targets.num_link_sums, dtype=torch.float64)
        else:
            own_sources, end = slice(ranks.rank, None, ranks.size), self._first_target + self._ranked.num_targets
            sources = rows[self._sources[own_sources].to(rows.device)]
            sums = self._ranked.sums(sources, rows[self._first_target : end], decoder, own_sources)
        return torch.cat([self._sums_of_links(rows, decoder, targets, ranks), sums])

    def _sums_of_links(self, rows: Tensor, decoder: nn.Module, targets: LinkTargets, ranks: Ranks) -> Tensor:
        own = self._places[: self._num_links][ranks.rank :: ranks.size]
        pieces = own.split(max(1, SCORES_AT_ONCE // own.shape[1]))
        if not self._shared:
            sums = torch.zeros(targets.num_link_sums, dtype=torch.float64, device=rows.device)
            for places in pieces:
                sums += targets.sums(scores_of_links(decoder, rows, places.to(rows.device)))
            return sums
        negatives = self._places[self._num_links :].split(SCORES_AT_ONCE)
        scores, others = (
            torch.cat([scores_of_links(decoder, rows, places.to(rows.device)).flatten() for places in group])
            for group in (pieces, negatives)
        )
        return targets.sums_among(scores, others)


def edges_to_learn(data: StoredGraph, options: TrainerSpec) -> LinkEdges:
    """All edges of the relation that is predicted."""
    assert options.graph.relation is not None
    return LinkEdges(data, options.graph.relation)


def seeds_of_links(data: StoredGraph, options: TrainerSpec) -> tuple[dict[str, Seeds], dict[str, HeldOutLinks]]:
    """Seeds of each split, and the held-out links of "val" and "test". To train there are pairs int64 [n, 2], all edges
    of the relation that is predicted, in time at their own times; for the others nodes. Nodes of all types are numbered
    through."""
    edges = edges_to_learn(data, options)
    first = (data.first_node[edges.relation[0]], data.first_node[edges.relation[2]])
    held_out, names, seen = held_out_of(edges), ranked_metrics(options), None
    if held_out and names:
        seen = Known.from_edges(edges)
    links = {
        split: HeldOutLinks(
            held, first, None if seen is None else RankedLinks(held, edges, seen, names), options.in_time
        )
        for split, held in held_out.items()
    }
    none = np.zeros(0, np.int64)
    seeds = {split: links[split].seeds if split in links else Seeds(none) for split in ("val", "test")}
    times = edges.lists.edge_times if options.in_time else None
    pairs, weights = edges.endpoints().T + np.array(first), weights_of_targets(data, options)
    train = Seeds(pairs, times, target_weights=weights, target_times=times_of_targets(data, options))
    return {"train": train} | seeds, links


def weights_of_targets(data: StoredGraph, options: TrainerSpec) -> np.ndarray | None:
    """The sums of the weights by which targets of negatives are drawn, see `weight_sums`; None: all weigh the same."""
    kind, _, power = options.negatives_from.partition(":")
    if kind != "degree":
        return None
    edges = edges_to_learn(data, options)
    weights = degree_weights(edges.lists.indptr, power or POWER_OF_DEGREE)
    return weight_sums("--negatives-from", weights, edges.num_targets, order=order_of(times_of_targets(data, options)))


def times_of_targets(data: StoredGraph, options: TrainerSpec) -> np.ndarray | None:
    """int64 [2, targets], as `nodes_by_time` makes them, of the nodes that negatives are drawn from; None: they are
    drawn from all."""
    assert options.graph.relation is not None
    times = data.node_types[options.graph.relation[2]].node_times
    return None if times is None or not options.in_time else nodes_by_time(np.asarray(times))
