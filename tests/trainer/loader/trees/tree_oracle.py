"""What disjoint and temporal batches must be, by PyG's documented rules: a slow sampler in Python."""

import numpy as np


def allowed_edges(graph, node: int, time: int | None, out=frozenset()) -> np.ndarray:
    """Places in ``indices`` of the edges into a node that are no later than the time, in the order of the list.

    ``out``: {(source, target)} that are left out.
    """
    places = np.arange(graph.indptr[node], graph.indptr[node + 1])
    places = places if time is None else places[graph.edge_times[places] <= time]
    is_left = [(source, node) not in out for source in graph.indices[places].tolist()]
    return places[np.array(is_left, bool)]


def expect_sound(
    graph, batch, fanout: list[int], seeds: list[int], times: list[int] | None, latest: bool, out=frozenset()
) -> None:
    """Each seed has a tree with nodes of its own, grown hop by hop from edges that it may have; ``out``: those that no
    tree may have, (source, target)."""
    n_id, tree, e_id = batch.n_id.tolist(), batch.batch.tolist(), batch.e_id.tolist()
    source, target = batch.edge_index.tolist()
    assert n_id[: len(seeds)] == list(seeds) and tree[: len(seeds)] == list(range(len(seeds)))
    assert len(set(zip(tree, n_id, strict=True))) == len(n_id) == sum(batch.num_sampled_nodes)
    assert batch.y.tolist() == [node % 3 for node in n_id] and batch.x[:, 0].tolist() == n_id
    known, edge, first = len(seeds), 0, 0
    for hop, picks in enumerate(fanout):
        end, reached = first + batch.num_sampled_nodes[hop], edge
        for node in range(first, end):
            may = allowed_edges(graph, n_id[node], None if times is None else times[tree[node]], out).tolist()
            count = len(may) if picks < 0 else min(picks, len(may))
            drawn = e_id[edge : edge + count]
            assert target[edge : edge + count] == [node] * count and batch.indptr[node] == edge
            assert drawn == sorted(set(drawn)) and set(drawn) <= set(may), "edges that may be drawn, each once"
            assert not latest or drawn == may[len(may) - count :]
            for each, place in zip(source[edge : edge + count], drawn, strict=True):
                assert (n_id[each], tree[each]) == (graph.indices[place], tree[node])
                assert each <= known, "new nodes in the order of their edges"
                known = max(known, each + 1)
            edge += count
        assert batch.num_sampled_edges[hop] == edge - reached and batch.num_sampled_nodes[hop + 1] == known - end
        first = end
    assert edge == len(e_id) and known == len(n_id)


def subgraph_of(graph, seed: int, time: int | None, num_hops: int) -> set[int]:
    """Places of all edges that lead to the seed in so many hops and are no later than the time."""
    edges, reached, frontier = set(), {seed}, {seed}
    for _ in range(num_hops):
        found = {int(place) for node in frontier for place in allowed_edges(graph, node, time)}
        edges |= found
        frontier = {int(graph.indices[place]) for place in found} - reached
        reached |= frontier
    return edges
