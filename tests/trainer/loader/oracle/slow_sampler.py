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
    key: tuple[int, int, int], hop: int, neighbours: list[int], fanout: int, dependency: int
) -> list[int]:
    """Of the neighbours, as all nodes are numbered, those with the smallest numbers; see sampler/draw.h."""
    if fanout < 0 or len(neighbours) <= fanout:
        return list(range(len(neighbours)))
    seed, epoch, step = key
    of_epoch, numbers = random_64(seed, epoch, 2**64 - 1), []
    for position, node in enumerate(neighbours):
        again = 0
        while again < position and neighbours[position - again - 1] == node:
            again += 1
        turn = (node * 0x9E3779B97F4A7C15 & 2**64 - 1) * dependency >> 64
        period = (step + turn) // dependency
        numbers.append((random_64(of_epoch, node, 1 << 62 | hop << 56 | again << 40 | period), position))
    return sorted(position for _, position in sorted(numbers)[:fanout])


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
) -> tuple[dict, dict]:
    """({type: (n_id, nodes by hop)}, {relation: (source, target, e_id, edges by hop)}) of one batch; with ``trees``,
    {type: (n_id, nodes by hop, tree of each node)}.

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
        dependency: layer sampling: a node keeps its number for so many batches, and `layer_dependency`; 0: none.
        windows: relation -> how much earlier than its tree an edge may be; None, and of others: at any time before.
    """
    batch_key = random_64(*key)
    nodes: dict = {}  # (tree, id)
    for name in data.node_types:
        ids = [int(seed) for seed in seeds.get(name, ())]
        nodes[name] = list(zip(trees.get(name, ()) if trees else [0] * len(ids), ids, strict=True))
    ends = {name: [0, len(ids)] for name, ids in nodes.items()}
    edges: dict = {name: ([], [], []) for name in data.edge_types}
    per_hop: dict = {name: [] for name in data.edge_types}
    for hop in range(len(next(iter(fanouts.values())))):
        for number, (name, relation) in enumerate(data.edge_types.items()):
            source, target, e_id = edges[name]
            before = len(source)
            for local in range(*ends[name[2]][-2:]):
                tree, node = nodes[name[2]][local]
                row, end = relation.indptr[node : node + 2].tolist()
                # Without trees, every endpoint of a pair is expanded in hop 0.
                excluded = (barred or {}).get(name, ()) if hop == 0 or trees else ()
                allowed = [place for place in range(row, end) if (relation.indices[place], node) not in excluded]
                node += data.first_node[name[2]] + (tree << 40)
                width = fanouts[name][hop]
                if times is not None and relation.edge_times is not None:
                    oldest = times[tree] - windows[name] if windows and name in windows else -(2**63)
                    allowed = [place for place in allowed if oldest <= relation.edge_times[place] <= times[tree]]
                    allowed = allowed[-width or len(allowed) :] if latest and width >= 0 else allowed
                if by_weight and relation.edge_weights is not None:
                    places = [place - row for place in allowed]
                    drawn = by_weight(batch_key, node, hop, relation.edge_weights[row:end], places, width, number)
                elif dependency:
                    of_all = [data.first_node[name[0]] + int(relation.indices[place]) for place in allowed]
                    drawn = layer_positions(key, 0 if layer_dependency else hop, of_all, width, dependency)
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
        for name, ids in nodes.items():
            ends[name].append(len(ids))
    counted = {name: [b - a for a, b in pairwise(ends[name])] for name in nodes}
    of_nodes: dict = {}
    for name, pairs in nodes.items():
        of_trees, ids = (np.array(each, np.int64) for each in (zip(*pairs, strict=True) if pairs else ((), ())))
        of_nodes[name] = (ids, counted[name]) + ((of_trees,) if trees else ())
    return (of_nodes, {name: (*(np.array(each, np.int64) for each in edges[name]), per_hop[name]) for name in edges})


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
    for name, (source, target, e_id, per_hop) in edges.items():
        store, relation = batch.store_of(name), graph.edge_types[name]
        assert store.edge_index.tolist() == [source.tolist(), target.tolist()]
        assert store.e_id.tolist() == e_id.tolist() and store.num_sampled_edges == per_hop
        if "indptr" in store:
            targets = np.arange(sum(store.num_sampled_nodes[:-1]) + 1)
            assert store.indptr.tolist() == np.searchsorted(target, targets).tolist()
        assert "edge_weight" not in store or store.edge_weight.tolist() == relation.edge_weights[e_id].tolist()
        times = how.get("times")
        if times is not None and relation.edge_times is not None:  # no edge is outside its seed's span of time
            age = np.array(times)[nodes[name[2]][2][target]] - relation.edge_times[e_id]
            assert (age >= 0).all() and (age <= (how.get("windows") or {}).get(name, age.max(initial=0))).all()
