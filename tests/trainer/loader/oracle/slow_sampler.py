"""Sampling in plain Python: what docs/how-to/types.md says, one edge after the other."""

from collections.abc import Callable
from itertools import accumulate, pairwise

import numpy as np

MASK = 0xFFFFFFFF
MASS = 2**32 - 1  # units of all weights of a list together


def philox(counter: list[int], key: list[int]) -> list[int]:
    """Philox4x32-10 of Salmon et al., SC 2011."""
    for _ in range(10):
        product0, product1 = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [
            (product1 >> 32) ^ counter[1] ^ key[0],
            product1 & MASK,
            (product0 >> 32) ^ counter[3] ^ key[1],
            product0 & MASK,
        ]
        key = [(key[0] + 0x9E3779B9) & MASK, (key[1] + 0xBB67AE85) & MASK]
    return counter


def random_64(key: int, a: int, b: int) -> int:
    out = philox([a & MASK, a >> 32, b & MASK, b >> 32], [key & MASK, key >> 32])
    return out[1] << 32 | out[0]


def drawn_positions(
    key: int, node: int, hop: int, relation: int, degree: int, fanout: int, replace: bool = False
) -> list[int]:
    """Floyd's method, or draws with replacement, see sampler/draw.h."""
    if replace and fanout >= 0:
        picks = range(fanout if degree else 0)
        return [random_64(key, node, hop << 48 | relation << 40 | pick) * degree >> 64 for pick in picks]
    if fanout < 0 or degree <= fanout:
        return list(range(degree))
    positions: list[int] = []
    for pick in range(fanout):
        bound = degree - fanout + pick + 1
        candidate = random_64(key, node, hop << 48 | relation << 40 | pick) * bound >> 64
        positions.append(bound - 1 if candidate in positions else candidate)
    return sorted(positions)


def layer_positions(
    key: tuple[int, int, int], hop: int, neighbours: list[int], fanout: int, dependency: int, least: dict | None = None
) -> tuple[list[int], list[float]]:
    """Of the neighbours, as all nodes are numbered, those with the smallest numbers, and their shares of the mean; see
    sampler/draw.h.

    Args:
        least: importance sampling: the least degree of each neighbour; None: all have the same.
    """
    degrees = [least[node] if least else 1 for node in neighbours]
    picks = picks_by_importance(degrees, fanout) if least else fanout
    if fanout < 0 or len(neighbours) <= picks:
        return list(range(len(neighbours))), [1 / len(neighbours) for _ in neighbours]
    seed, epoch, step = key
    of_epoch, numbers = random_64(seed, epoch, 2**64 - 1), []
    for position, node in enumerate(neighbours):
        again = 0
        while again < position and neighbours[position - again - 1] == node:
            again += 1
        turn = (node * 0x9E3779B97F4A7C15 & 2**64 - 1) * dependency >> 64
        period = (step + turn) // dependency
        number = random_64(of_epoch, node, 1 << 62 | hop << 56 | again << 40 | period)
        numbers.append((number * degrees[position] >> 32 if least else number, position))
    numbers.sort()
    drawn = sorted(position for _, position in numbers[:picks])
    inverse = [max(numbers[picks][0], degrees[position] << 32) >> 16 for position in drawn] if least else [1] * picks
    return drawn, [each / sum(inverse) for each in inverse]


def picks_by_importance(degrees: list[int], fanout: int) -> int:
    """How many neighbours with these least degrees are drawn; see sampler/draw.h."""
    if fanout <= 0 or len(degrees) <= fanout:
        return fanout
    of_inverses = sum(2**32 // degree for degree in degrees) / 2**32 / len(degrees)
    return min(max(int(fanout * (sum(degrees) / len(degrees)) * of_inverses), fanout), len(degrees))


def least_degrees(lists: list[list[int]], fanout: int) -> dict[int, int]:
    """Of each node, the length of the shortest list that it is in, or the fanout."""
    least: dict[int, int] = {}
    for neighbours in lists:
        for node in neighbours:
            least[node] = min(least.get(node, MASS), max(len(neighbours), fanout))
    return least


def cumulative_of(weights) -> list[int]:
    """Units of the edges of a list, up to and with each; see sampler/weighted_draw.h."""
    weights = [float(weight) for weight in weights]
    total, left = sum(weights), sum(weight > 0 for weight in weights)
    cumulative, before, so_far = [], 0, 0.0
    for weight in weights:
        so_far += weight
        if weight > 0:
            left -= 1
            before = min(max(int(MASS * (so_far / total)), before + 1), MASS - left)
        cumulative.append(before)
    return cumulative


def weighted_positions(
    key: int, node: int, hop: int, weights, allowed: list[int], fanout: int, relation=0
) -> list[int]:
    """Those of the allowed edges of a list that are drawn, as places in `allowed`."""
    if fanout < 0:
        return list(range(len(allowed)))
    units = [end - begin for begin, end in pairwise([0, *cumulative_of(weights)])]
    free = {place: units[position] for place, position in enumerate(allowed) if units[position]}
    drawn = []
    for pick in range(min(fanout, len(free))):
        unit = random_64(key, node, hop << 48 | relation << 40 | pick) * sum(free.values()) >> 64
        ends = accumulate(free.values())
        drawn.append(next(place for place, end in zip(free, ends, strict=True) if unit < end))
        del free[drawn[-1]]
    return sorted(drawn)


def sample(
    data,
    fanouts: dict,
    seeds: dict,
    key: tuple[int, int, int],
    barred: dict | None = None,
    by_weight=None,
    trees: dict | None = None,
    times: list[int] | None = None,
    latest: bool = False,
    replace: bool = False,
    windows: dict | None = None,
    dependency: int = 0,
    layer_dependency: bool = False,
    importance_sampling: bool = False,
) -> tuple[dict, dict]:
    """({type: (n_id, nodes by hop)}, {relation: (source, target, e_id, shares of means, edges by hop)}) of one batch;
    with ``trees``, {type: (n_id, nodes by hop, tree of each node)}. Shares are those of layer sampling.

    Args:
        data: a Dataset or a HeteroDataset.
        fanouts: relation -> picks by hop.
        seeds: node type -> ids.
        key: seed of the loader, epoch, step.
        barred: relation -> {(source, target)} that hop 0 does not draw, with trees no hop.
        by_weight: weighted_positions, which draws from relations that have weights; None: all draws are uniform.
        trees: node type -> the tree of each seed; None: all nodes are in one tree, number 0.
        times: of each tree; None: edges of any time are drawn.
        latest: the last of the allowed edges are taken.
        replace: uniform draws are with replacement.
        dependency: layer sampling: a node keeps its number for so many batches, and `layer_dependency` and
            `importance_sampling`; 0: none.
        windows: relation -> how much earlier than its tree an edge may be; None, and of others: at any time before.
    """
    batch_key = random_64(*key)
    nodes = {name: in_trees(seeds.get(name, ()), trees and trees.get(name, ())) for name in data.node_types}
    ends = {name: [0, len(ids)] for name, ids in nodes.items()}
    edges: dict = {name: ([], [], [], []) for name in data.edge_types}
    per_hop: dict = {name: [] for name in data.edge_types}
    for hop in range(len(next(iter(fanouts.values())))):
        for number, (name, relation) in enumerate(data.edge_types.items()):
            source, target, e_id, shares = edges[name]
            before, width, lists = len(source), fanouts[name][hop], []
            for local in range(*ends[name[2]][-2:]):
                tree, node = nodes[name[2]][local]
                row, end = relation.indptr[node : node + 2].tolist()
                # Without trees, every endpoint of a pair is expanded in hop 0.
                excluded = (barred or {}).get(name, ()) if hop == 0 or trees else ()
                allowed = [place for place in range(row, end) if (relation.indices[place], node) not in excluded]
                node += data.first_node[name[2]] + (tree << 40)
                if times is not None and relation.edge_times is not None:
                    allowed = exist_until(relation, allowed, times[tree], (windows or {}).get(name))
                    allowed = allowed[-width or len(allowed) :] if latest and width >= 0 else allowed
                of_all = [data.first_node[name[0]] + int(relation.indices[place]) for place in allowed]
                lists.append((local, tree, node, row, end, allowed, of_all))
            least = least_degrees([each[-1] for each in lists], width) if importance_sampling else None
            for local, tree, node, row, end, allowed, of_all in lists:
                if by_weight and relation.edge_weights is not None:
                    places = [place - row for place in allowed]
                    drawn = by_weight(batch_key, node, hop, relation.edge_weights[row:end], places, width, number)
                elif dependency:
                    drawn, means = layer_positions(key, hop * (not layer_dependency), of_all, width, dependency, least)
                    shares += means
                else:
                    drawn = drawn_positions(batch_key, node, hop, number, len(allowed), width, replace)
                for position in drawn:
                    neighbour = tree, int(relation.indices[allowed[position]])
                    if neighbour not in nodes[name[0]]:
                        nodes[name[0]].append(neighbour)
                    source.append(nodes[name[0]].index(neighbour))
                    target.append(local)
                    e_id.append(allowed[position])
            per_hop[name].append(len(source) - before)
        ends = {name: [*ends[name], len(ids)] for name, ids in nodes.items()}
    counted = {name: [b - a for a, b in pairwise(ends[name])] for name in nodes}
    of_nodes: dict = {}
    for name, pairs in nodes.items():
        of_trees, ids = (np.array(each, np.int64) for each in (zip(*pairs, strict=True) if pairs else ((), ())))
        of_nodes[name] = (ids, counted[name]) + ((of_trees,) if trees else ())
    return of_nodes, {name: (*arrays_of(*lists), per_hop[name]) for name, lists in edges.items()}


def in_trees(ids, trees) -> list[tuple[int, int]]:
    """(tree, id) of each; None: all are in one tree, number 0."""
    return list(zip([0] * len(ids) if trees is None else trees, map(int, ids), strict=True))


def arrays_of(*lists) -> list[np.ndarray]:
    """Of ids, and at last of shares."""
    kinds = [np.int64] * (len(lists) - 1) + [np.float32]
    return [np.array(values, kind) for values, kind in zip(lists, kinds, strict=True)]


def exist_until(relation, places: list[int], time: int, window: int | None) -> list[int]:
    """Those of the edges that are not later than this time, and within the window before it."""
    oldest = -(2**63) if window is None else time - window
    return [place for place in places if oldest <= relation.edge_times[place] <= time]


def expect_batch(
    graph, batch, fanouts: dict, seeds: dict, key: tuple[int, int, int], named: Callable[[int], int] = int, **how
) -> None:
    """The batch is the one that sample() draws, with the rows and labels of the data set.

    Args:
        named: what the batch calls a tree.
        how: more arguments of sample().
    """
    nodes, edges = sample(graph, fanouts, seeds, key, **how)
    for name, (n_id, per_hop, *trees) in nodes.items():
        store, x = batch.store_of(name), graph.node_types[name].x
        assert store.n_id.tolist() == n_id.tolist() and store.num_sampled_nodes == per_hop
        assert [store[key].tolist() for key in ["batch"] if key in store] == [list(map(named, each)) for each in trees]
        assert ("x" in store) == (x is not None)
        if x is not None:
            np.testing.assert_array_equal(store.x.cpu().numpy(), x[n_id])
    assert batch.store_of(graph.target).y.tolist() == graph.y[nodes[graph.target][0]].tolist()
    for name, (source, target, e_id, shares, per_hop) in edges.items():
        store, relation = batch.store_of(name), graph.edge_types[name]
        assert store.edge_index.tolist() == [source.tolist(), target.tolist()]
        assert store.e_id.tolist() == e_id.tolist() and store.num_sampled_edges == per_hop
        if "indptr" in store:
            targets = np.arange(sum(store.num_sampled_nodes[:-1]) + 1)
            assert store.indptr.tolist() == np.searchsorted(target, targets).tolist()
        is_mean = how.get("importance_sampling", False)
        expected = shares if is_mean else None if relation.edge_weights is None else relation.edge_weights[e_id]
        assert ("edge_weight" in store) == (expected is not None)
        if expected is not None:
            assert store.edge_weight.tolist() == expected.tolist()
        times = how.get("times")
        if times is not None and relation.edge_times is not None:  # no edge is outside its seed's span of time
            age = np.array(times)[nodes[name[2]][2][target]] - relation.edge_times[e_id]
            assert (age >= 0).all() and (age <= (how.get("windows") or {}).get(name, age.max(initial=0))).all()
