"""PyG's own loaders without pyg-lib: its two operators at full fanout in plain Python, by the rules of its sources.

With all neighbours nothing is random, so that PyG's loaders over these operators say what a batch has. Finite fanouts
are taken where they leave nothing to chance: at least as many as there are edges, or ``temporal_strategy="last"``.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
import torch_geometric.typing
from torch import Tensor

NODE, EDGE = "node", "node__to__node"  # the names of types where there is one
IN_PYG_LIB = ("WITH_PYG_LIB", "WITH_EDGE_TIME_NEIGHBOR_SAMPLE", "WITH_WEIGHTED_NEIGHBOR_SAMPLE")


@contextmanager
def pygs_sampler() -> Iterator[None]:
    """Inside, PyG's loaders draw by this file, induced subgraphs (of torch-sparse) included."""
    with pytest.MonkeyPatch.context() as patch:
        for name in (*IN_PYG_LIB, "WITH_TORCH_SPARSE"):
            patch.setattr(torch_geometric.typing, name, True)
        for library, induced in ((torch.ops.pyg, False), (torch.ops.torch_sparse, True)):
            patch.setattr(library, "neighbor_sample", _induced if induced else neighbor_sample, raising=False)
            of_types = _hetero_induced if induced else hetero_neighbor_sample
            patch.setattr(library, "hetero_neighbor_sample", of_types, raising=False)
        yield


def hetero_neighbor_sample(
    node_types, edge_types, colptr, row, seeds, fanouts, node_time, edge_time, seed_time, weights, *how
) -> tuple[dict, dict, dict, dict, dict, dict]:
    """(rows, columns, nodes, edges, nodes by hop, edges by hop), each by type; nodes [n] or (tree, node) [n, 2]."""
    *_, disjoint, strategy, _ = how
    assert not (weights and (node_time or edge_time)), "pyg-lib has no weighted temporal draws"
    assert seed_time or not edge_time, "pyg-lib needs times of seeds"
    nodes: dict = {name: [] for name in node_types}  # (tree, id)
    numbers: dict = {name: {} for name in node_types}  # of the same, where they are in nodes
    times: list[int | None] = []  # of trees
    for name, ids in seeds.items():
        for position, seed in enumerate(ids.tolist()):
            of_nodes = node_time and name in node_time
            given = seed_time[name][position] if seed_time else node_time[name][seed] if of_nodes else None
            numbers[name].setdefault((len(times) * disjoint, seed), len(nodes[name]))
            nodes[name].append((len(times) * disjoint, seed))
            times.append(None if given is None else int(given))
    of_nodes = {name: [0, len(found)] for name, found in nodes.items()}  # ends of hops
    edges: dict = {"__".join(name): [] for name in edge_types}
    of_edges: dict = {name: [] for name in edges}
    for hop in range(len(next(iter(fanouts.values()), ()))):
        for name, found in edges.items():
            source, _, target = name.split("__")
            before = len(found)
            when = _times_of_edges(row[name], (edge_time or {}).get(name), (node_time or {}).get(source))
            for local in range(*of_nodes[target][-2:]):
                tree, node = nodes[target][local]
                places = range(int(colptr[name][node]), int(colptr[name][node + 1]))
                allowed = [each for each in places if when is None or when[each] <= times[tree]]
                for place in _taken(allowed, fanouts[name][hop], strategy == "last" and when is not None):
                    key = tree, int(row[name][place])
                    if numbers[source].setdefault(key, len(nodes[source])) == len(nodes[source]):
                        nodes[source].append(key)
                    found.append((numbers[source][key], local, place))
            of_edges[name].append(len(found) - before)
        for name, found in nodes.items():
            of_nodes[name].append(len(found))
    columns = {name: torch.tensor(found, dtype=torch.int64).view(-1, 3).T for name, found in edges.items()}
    rows, cols, places = ({name: each[which] for name, each in columns.items()} for which in range(3))
    ids = {name: torch.tensor(found, dtype=torch.int64).view(-1, 2) for name, found in nodes.items()}
    by_hop = {name: torch.tensor(ends).diff().tolist() for name, ends in of_nodes.items()}
    return rows, cols, ids if disjoint else {name: each[:, 1] for name, each in ids.items()}, places, by_hop, of_edges


def _taken(allowed: list[int], fanout: int, latest: bool) -> list[int]:
    if fanout < 0 or fanout >= len(allowed):
        return allowed
    assert latest or fanout == 0, "left to chance"
    return allowed[len(allowed) - fanout :]


def _times_of_edges(row: Tensor, edge_time: Tensor | None, node_time: Tensor | None) -> list[int] | None:
    if edge_time is None and node_time is None:
        return None
    return (edge_time if edge_time is not None else node_time[row]).tolist()


def neighbor_sample(colptr, row, seed, fanouts, node_time, edge_time, seed_time, weights, *how) -> tuple:
    """The same of one type, without names."""
    typed = [None if each is None else {EDGE: each} for each in (colptr, row, fanouts, edge_time, weights)]
    nodes = [None if each is None else {NODE: each} for each in (seed, node_time, seed_time)]
    of_edges = (*typed[:2], nodes[0], typed[2], nodes[1], typed[3], nodes[2], typed[4])
    out = hetero_neighbor_sample([NODE], [tuple(EDGE.split("__"))], *of_edges, *how)
    return tuple(next(iter(each.values())) for each in out)


def _hetero_induced(node_types, edge_types, colptr, row, seeds, fanouts, num_hops, replace, directed) -> tuple:
    """As of torch-sparse with ``directed=False``: all edges between the nodes."""
    how = (True, False, True, False, "uniform", True)
    *_, nodes, _, _, _ = hetero_neighbor_sample(
        node_types, edge_types, colptr, row, seeds, fanouts, None, None, None, None, *how
    )
    position: dict = {name: {} for name in nodes}
    for name, ids in nodes.items():
        for number, node in enumerate(ids.tolist()):
            position[name].setdefault(node, number)
    found: dict = {"__".join(name): [] for name in edge_types}
    for name, edges in found.items():
        source, _, target = name.split("__")
        for local, node in enumerate(nodes[target].tolist()):
            for place in range(int(colptr[name][node]), int(colptr[name][node + 1])):
                if (neighbour := int(row[name][place])) in position[source]:
                    edges.append((position[source][neighbour], local, place))
    columns = {name: torch.tensor(edges, dtype=torch.int64).view(-1, 3).T for name, edges in found.items()}
    return nodes, *({name: each[which] for name, each in columns.items()} for which in range(3))


def _induced(colptr, row, seed, fanouts, replace, directed) -> tuple:
    of_edges = ({EDGE: colptr}, {EDGE: row}, {NODE: seed}, {EDGE: fanouts})
    out = _hetero_induced([NODE], [tuple(EDGE.split("__"))], *of_edges, len(fanouts), replace, directed)
    return tuple(next(iter(each.values())) for each in out)
