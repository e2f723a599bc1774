"""Links in a run that learns them: the seeds to sample, and how well a model predicts links that are held out."""

import functools

import numpy as np
import torch
from torch import Tensor, nn

from cohort_gnn.base.distinct import distinct
from cohort_gnn.dataset import StoredGraph
from cohort_gnn.dataset.learned import link_rows_of, seen_until
from cohort_gnn.dataset.links import HeldOut, LinkEdges, held_out_of
from cohort_gnn.dataset.tasks import Task
from cohort_gnn.spec.metrics import ranked
from cohort_gnn.spec.run import TrainerSpec
from cohort_gnn.trainer.loader.node_weights import degree_weights, nodes_by_time, order_of, weight_sums
from cohort_gnn.trainer.loader.source import REDRAWS, OfPairs
from cohort_gnn.trainer.loop.ranked_links import Queries, RankedLinks
from cohort_gnn.trainer.loop.ranks import Ranks
from cohort_gnn.trainer.loop.seeds import Seeds
from cohort_gnn.trainer.models.best_targets import Known, pairs_left_out
from cohort_gnn.trainer.models.links import scores_of_links
from cohort_gnn.trainer.models.targets import LinkTargets, ranked_metrics

SCORES_AT_ONCE = 1 << 20
POWER_OF_DEGREE = "0.75"  # of word2vec (Mikolov et al., NeurIPS 2013) for words by how often they occur


class HeldOutLinks:
    """The links of a split, scored by the rows of nodes, each of which is made once however many links need it.

    Attributes:
        seeds: the different nodes of links and negatives, ascending; in time, these at the times of the links, then
            those that `ranked` needs.
        ranked: what ranks all targets; None: nothing does.

    Args:
        held: the links and their negatives; None: none rank among negatives.
        in_time: a link is scored by the rows that its nodes have at its time.
        first: what is added to the ids of sources, and to those of targets and negatives: nodes of several types are
            numbered through.
    """

    def __init__(
        self,
        held: HeldOut | None,
        first: tuple[int, int] = (0, 0),
        ranked: RankedLinks | None = None,
        in_time: bool = False,
    ):
        self.ranked, self._shared = ranked, held is not None and held.shared
        self._num_links = 0 if held is None else len(held.pairs)
        none = np.zeros(0, np.int64)
        endpoints = np.zeros((0, 2), np.int64) if held is None else _endpoints_of(held, first)
        ids, times = (none, none if in_time else None) if ranked is None else ranked.seeds(first)
        if in_time:
            link_times = none if held is None or held.times is None else held.times
            own_times = np.broadcast_to(link_times[:, None], endpoints.shape)
            pairs, places = np.unique(
                np.stack([endpoints, own_times], axis=-1).reshape(-1, 2), axis=0, return_inverse=True
            )
            self.seeds = Seeds(np.concatenate([pairs[:, 0], ids]), np.concatenate([pairs[:, 1], times]))
            self._places = torch.from_numpy(places.reshape(endpoints.shape))
            self._of_ranked = torch.arange(len(pairs), len(self.seeds))
        else:
            nodes = distinct(endpoints, ids)
            self.seeds = Seeds(nodes)
            self._places = torch.from_numpy(np.searchsorted(nodes, endpoints))
            self._of_ranked = torch.from_numpy(np.searchsorted(nodes, ids))

    @property
    def first_row(self) -> np.ndarray:
        """int64 [sources], the first link of each source at each time."""
        assert self.ranked is not None
        return self.ranked.queries.first_row

    def sums(self, rows: Tensor, decoder: nn.Module, targets: LinkTargets, ranks: Ranks) -> Tensor:
        """What this rank's share of the links, and of their sources, adds to the sums of all, as ``targets`` has them.

        Args:
            rows: float32 [m, width], of those nodes whose rows this rank has made; zeros for others.
        """
        rows, parts = ranks.sum(rows), []
        if targets.num_link_sums:
            parts.append(self._sums_of_links(rows, decoder, targets, ranks))
        if self.ranked is not None:
            parts.append(self.ranked.sums(rows, self._of_ranked, decoder, slice(ranks.rank, None, ranks.size)))
        elif targets.ranked:
            parts.append(rows.new_zeros(len(targets.ranked) + 1, dtype=torch.float64))
        return torch.cat(parts)

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


def _endpoints_of(held: HeldOut, first: tuple[int, int]) -> np.ndarray:
    """int64 [n, m]: of each link the source, the target and its negatives; shared negatives are pairs after them."""
    endpoints = np.concatenate([held.pairs, held.negatives], axis=0 if held.shared else 1)
    return endpoints + np.array([first[0], *[first[1]] * (endpoints.shape[1] - 1)])


def seeds_of_links(
    data: StoredGraph, task: Task, options: TrainerSpec
) -> tuple[dict[str, Seeds], dict[str, HeldOutLinks]]:
    """Seeds of each split, and the held-out links of "val" and "test". To train there are pairs int64 [n, 2], the rows
    of a task of links, or all edges of the relation that is predicted, in time at their own times; for the others
    nodes. Nodes of all types are numbered through."""
    relation = options.graph.relation
    assert relation is not None
    first = (data.first_node[relation[0]], data.first_node[relation[2]])
    if task.kind == "link":
        rows = link_rows_of(task)["train"]
        assert rows.targets is not None
        pairs, times = np.stack([rows.sources, rows.targets], 1), seen_until(task, rows)
        degrees = np.bincount(rows.targets, minlength=data.node_types[relation[2]].num_nodes)
        links = _links_of_task(data, task, options, first)
    else:
        edges = LinkEdges(data, relation)
        pairs, times, degrees = edges.endpoints().T, edges.lists.edge_times, np.diff(edges.lists.indptr)
        links = _links_held_out(edges, options, first)
    none = np.zeros(0, np.int64)
    seeds = {split: links[split].seeds if split in links else Seeds(none) for split in ("val", "test")}
    train = Seeds(
        pairs + np.array(first),
        times if options.in_time else None,
        target_weights=weights_of_targets(data, options, degrees),
        target_times=times_of_targets(data, options),
    )
    return {"train": train} | seeds, links


def _links_held_out(edges: LinkEdges, options: TrainerSpec, first: tuple[int, int]) -> dict[str, HeldOutLinks]:
    """The held-out links of "val" and "test", of edges."""
    held_out, names, seen, links = held_out_of(edges), ranked_metrics(options), None, {}
    if held_out and names:
        seen = Known.from_edges(edges)
    for split, held in held_out.items():
        among_all = None
        if names and len(held.pairs):
            times = held.times if options.in_time else None
            queries = Queries.from_links(held.pairs[:, 0], times, held.pairs[:, 1], edges.num_targets)
            left_out = functools.partial(pairs_left_out, seen, edges)
            node_times = node_times_of(edges.data, options)
            among_all = RankedLinks(queries, edges.num_targets, names, left_out, node_times)
        links[split] = HeldOutLinks(held, first, among_all, options.in_time)
    return links


def _links_of_task(
    data: StoredGraph, task: Task, options: TrainerSpec, first: tuple[int, int]
) -> dict[str, HeldOutLinks]:
    """Those of a task, of the splits that have rows."""
    links, num_targets = {}, data.node_types[str(task.target_type)].num_nodes
    for split, rows in link_rows_of(task).items():
        if split == "train" or not rows.num_rows:
            continue
        times, node_times = rows.times if options.in_time else None, node_times_of(data, options)
        queries = Queries.from_links(rows.sources, times, rows.targets, num_targets, task.rows_until)
        arguments = queries, num_targets, ranked_metrics(options), _none_left_out, node_times
        ranks = RankedLinks(*arguments, keep=kept_targets(task, options))
        links[split] = HeldOutLinks(None, first, ranks, options.in_time)
    return links


def kept_targets(task: Task, options: TrainerSpec) -> int:
    """How many targets the table of the test has for each source: the k of the task's metric, or else of the run's."""
    named = [rank for name in (task.metric, *ranked_metrics(options)) if name and (rank := ranked(name))]
    return named[0][1]


def _none_left_out(sources: np.ndarray) -> tuple[Tensor, Tensor]:
    return torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64)


def draws_of_pairs(options: TrainerSpec) -> OfPairs:
    """What batches of pairs to learn have besides: negatives, and the edges that they do not draw."""
    mode = "in_batch" if options.negatives_from == "batch" else "triplet"
    graph = options.graph
    assert graph.relation is not None
    if options.task_name is None:
        return OfPairs(mode, options.negatives, REDRAWS, "reverse", graph.edge_types.index(graph.relation))
    types = list(graph.counts)
    source, target = (types.index(name) for name in graph.relation[::2])
    return OfPairs(mode, options.negatives, REDRAWS, unrelated=True, source_type=source, target_type=target)


def weights_of_targets(data: StoredGraph, options: TrainerSpec, degrees: np.ndarray) -> np.ndarray | None:
    """The sums of the weights by which targets of negatives are drawn, see `weight_sums`; None: all weigh the same.

    Args:
        degrees: int64 [targets], of how many links to learn each is the target.
    """
    kind, _, power = options.negatives_from.partition(":")
    if kind != "degree":
        return None
    weights = degree_weights(np.concatenate([[0], np.cumsum(degrees)]), power or POWER_OF_DEGREE)
    return weight_sums("--negatives-from", weights, len(weights), order=order_of(times_of_targets(data, options)))


def node_times_of(data: StoredGraph, options: TrainerSpec) -> np.ndarray | None:
    """int64 [targets], since when targets exist; None: at all times, or times are not used."""
    assert options.graph.relation is not None
    times = data.node_types[options.graph.relation[2]].node_times
    return None if times is None or not options.in_time else np.asarray(times)


def times_of_targets(data: StoredGraph, options: TrainerSpec) -> np.ndarray | None:
    """int64 [2, targets], as `nodes_by_time` makes them, of the nodes that negatives are drawn from; None: they are
    drawn from all."""
    times = node_times_of(data, options)
    return None if times is None else nodes_by_time(times)
