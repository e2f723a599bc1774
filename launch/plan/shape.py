"""A graph that is not there: degrees of its nodes, and what batches of it read, from a small simulation."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cohort_gnn.base.errors import CohortError, why
from cohort_gnn.cache.planner import Counts

MOST_NODES, LEAST_NODES = 1 << 16, 1 << 12  # that stand for all
FEW_EDGES, MOST_EDGES = 500_000, 2_000_000  # of theirs: few, if LEAST_NODES have no more; more are thinned out
COUNTED_EPOCHS = 2  # as sampler/presample.cc


@dataclass(frozen=True)
class Degrees:
    """Of nodes that stand for all, as many for each of them: int64 [n] each, popular nodes first."""

    ins: np.ndarray
    outs: np.ndarray


def powerlaw(num_nodes: int, num_edges: int) -> Degrees:
    """Degrees of the graphs of ``cohort dataset generate --kind powerlaw``: both ends of an edge are
    floor(num_nodes u^2), u uniform."""
    count, random = _nodes_for(num_nodes, num_edges / num_nodes), np.random.default_rng(0)
    mean = num_edges / num_nodes * count * np.diff(np.sqrt(np.linspace(0, 1, count + 1)))
    return Degrees(random.poisson(mean), random.poisson(mean))


def degrees_of_file(path: Path) -> tuple[Degrees, float]:
    """(degrees, the mean of all that the file has).

    Args:
        path: .npy, integers [n] (in-degrees: a node is as often a source as it has in-neighbours) or [n, 2] (in-degrees
            and out-degrees), of all nodes of a graph or of a sample of them.

    Raises:
        CohortError: it is not that, or no node has an edge.
    """
    expected = "a .npy file of degrees: integers [n], or [n, 2] with in-degrees and out-degrees"
    try:
        values = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise CohortError(str(path), expected, why(error) if isinstance(error, OSError) else "another file") from None
    is_table = isinstance(values, np.ndarray) and (values.ndim == 1 or values.ndim == 2 and values.shape[1] == 2)
    if not is_table or values.dtype.kind not in "iu" or len(values) == 0:
        shape = f"{values.dtype} {list(values.shape)}" if isinstance(values, np.ndarray) else "several arrays"
        raise CohortError(str(path), expected, shape)
    ins, outs = values.reshape(len(values), -1)[:, [0, -1]].astype(np.int64).T
    if min(ins.min(), outs.min()) < 0 or 0 in (ins.sum(), outs.sum()):
        raise CohortError(str(path), "degrees of at least 0, and some edges", "a negative degree, or no edge")
    order = np.lexsort((-ins, -outs))
    bounds = np.linspace(0, len(order), _nodes_for(len(order), ins.mean()) + 1).astype(np.int64)
    chosen = order[np.random.default_rng(0).integers(bounds[:-1], bounds[1:])]  # one of each part
    return Degrees(ins[chosen], outs[chosen]), float(ins.mean())


def _nodes_for(num_nodes: int, mean_degree: float) -> int:
    return int(min(num_nodes, MOST_NODES, max(LEAST_NODES, FEW_EDGES / max(1, mean_degree))))


@dataclass(frozen=True)
class ExpectedBatch:
    """A whole batch, as the mean over all.

    Attributes:
        nodes, edges: that each hop adds, the seeds first among the nodes.
        counts: as a short run of the sampler counts them, of the nodes that stand for all.
        indptr: int64 [their number + 1], of their lists.
        nodes_each: of the graph, for which one of them stands.
    """

    nodes: list[float]
    edges: list[float]
    counts: Counts
    indptr: np.ndarray
    nodes_each: float


def expected_batch(
    degrees: Degrees, num_nodes: int, num_seeds: int, batch_size: int, fanout: list[int], presample_batches: int = 200
) -> ExpectedBatch:
    """What batches read if neighbours are drawn at random in proportion to their out-degrees.

    The simulation follows expectations, not single batches. Each epoch has the same seeds, and lists do not change: so
    some nodes are in many lists that are drawn from, and others of the same degree in none. Therefore each of the nodes
    that stand for all gets lists at random in which it is, and reads are what these lists give. The plan of a run knows
    counts of a short run alone, so these are drawn, too; what they promise is the mean of what nodes of a count read.

    Args:
        num_seeds: of an epoch.
        presample_batches: most that are counted.

    >>> batch = expected_batch(powerlaw(2_449_029, 123_718_280), 2_449_029, 195_922, 8192, [25, 10])
    >>> [round(sum(batch.nodes), -4), round(sum(batch.edges), -4)]  # measured: 1.22 and 2.03 million
    [1220000.0, 2040000.0]
    """
    random, count = np.random.default_rng(1), len(degrees.ins)
    nodes_each, epoch = num_nodes / count, -(-num_seeds // batch_size)
    counted_of_epoch = min(-(-presample_batches // COUNTED_EPOCHS), epoch)
    num_counted = COUNTED_EPOCHS * counted_of_epoch
    kept = min(1.0, MOST_EDGES / max(degrees.ins.sum(), degrees.outs.sum(), 1))
    places = np.repeat(np.arange(count), np.ceil(kept * degrees.outs).astype(np.int64))  # of nodes in lists
    lists = np.repeat(np.arange(count), np.ceil(kept * degrees.ins).astype(np.int64))
    places = places if len(lists) else lists
    lists = lists[random.integers(0, max(1, len(lists)), len(places))]
    num_standing = max(1, round(count * num_seeds / num_nodes))
    seeds = (np.arange(num_standing) * 2 + 1) * count // (2 * num_standing)  # popular nodes and others
    added, times = np.zeros(count), np.zeros(count, np.int64)  # of a batch; of the counted batches
    added[seeds] = min(batch_size, num_seeds) / nodes_each / len(seeds)
    times[seeds] = random.binomial(COUNTED_EPOCHS, counted_of_epoch / epoch, len(seeds))
    reads, counted, drawn_from, counted_lists = added, times, np.zeros(count), np.zeros(count, np.int64)
    counted_edges = np.zeros(count, np.int64)
    nodes, edges = [nodes_each * float(added.sum())], []
    for fanout_of_hop in fanout:
        picks = degrees.ins if fanout_of_hop < 0 else np.minimum(degrees.ins, fanout_of_hop)
        chance = picks / np.maximum(degrees.ins, 1)
        drawn_from, counted_lists = drawn_from + added, counted_lists + times
        counted_edges = counted_edges + times * picks
        edges.append(nodes_each * float((added * picks).sum()))
        missed = -np.log1p(-np.minimum(added * chance, 1 - 1e-12))
        rate = np.bincount(places, missed[lists], count).astype(np.float64)
        rate *= (added * picks).sum() / max(1e-12, np.bincount(places, (added * chance)[lists], count).sum())
        added = (1 - reads) * -np.expm1(-rate)
        draws = np.bincount(places, random.binomial(times[lists], chance[lists]), count)
        once = np.divide(added, rate, out=np.zeros(count), where=rate > 0)  # draws of a node that no other preceded
        times = random.binomial(np.rint(draws / kept).astype(np.int64), np.minimum(1, once))
        reads, counted = reads + added, counted + times
        nodes.append(nodes_each * float(added.sum()))
    counts = Counts(
        num_counted,
        counted.astype(np.uint32),
        counted_lists.astype(np.uint32),
        counted_edges.astype(np.uint64),
        promised=(_promises(counted, reads * num_counted), _promises(counted_lists, drawn_from * num_counted)),
    )
    return ExpectedBatch(nodes, edges, counts, np.concatenate([[0], np.cumsum(degrees.ins)]), nodes_each)


def _promises(counted: np.ndarray, expected: np.ndarray) -> list[float]:
    """float [largest count + 1]: the mean of what those of each count expect; of a count that none has, the count."""
    number = np.bincount(counted)
    means = np.bincount(counted, expected) / np.maximum(1, number)
    return np.where(number > 0, means, np.arange(len(number))).tolist()
