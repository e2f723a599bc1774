"""Batches of pairs of nodes in plain Python: what sampler/pairs.h and sampler/draw.h say, one edge after the other."""

import math
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate

import numpy as np
import torch
from hypothesis import strategies as st
from slow_sampler import expect_batch, random_64
from torch_geometric.sampler import NegativeSampling


def endpoint(batch_key: int, number: int, end: int, attempt: int, nodes: int | list[int]) -> int:
    """`nodes`: how many there are, or the integer weight of each."""
    bits = random_64(batch_key, number, 1 << 63 | attempt << 1 | end)
    if isinstance(nodes, int):
        return bits * nodes >> 64
    drawn = bits * sum(nodes) >> 64
    return next(node for node, end_of_node in enumerate(accumulate(nodes)) if drawn < end_of_node)


def units_of(weights) -> list[int]:
    """Integers of which all weights together have less than 2^62, as powers of 2 go, and a positive one at least 1."""
    exact = [Fraction(float(weight)) for weight in weights]
    total, scale = sum(exact), Fraction(2) ** 1200
    while total * scale >= 2**62:
        scale /= 2
    return [max(math.floor(weight * scale), weight > 0) for weight in exact]


def weighted_ends(draw, mode: str) -> list[str]:
    """Which ends of negatives are drawn by weight: names of arguments of PyG's NegativeSampling."""
    ends = {"binary": ["src_weight", "dst_weight"], "triplet": ["dst_weight"]}.get(mode, [])
    return [name for name in ends if draw(st.booleans())]


def neg_sampling_of(how: dict, weights: dict) -> NegativeSampling | dict | None:
    """The argument of the loader."""
    if how["mode"] == "in_batch":
        return {name: how[name] for name in ("mode", "amount")}
    return None if how["mode"] == "none" else NegativeSampling(how["mode"], how["amount"], **weights)


def weights_of(random, num_nodes: int) -> torch.Tensor:
    """Weights of very different sizes, several of them 0."""
    weights = torch.from_numpy(random.choice([0, 1, 0.3, 1e-30, 2e6], num_nodes))
    weights[random.integers(num_nodes)] = 0.7
    return weights


def with_negatives(lists, pairs, how: dict, batch_key: int, num_sources: int) -> tuple[list, list]:
    """(sources, targets), negatives last.

    Args:
        lists: in-neighbours of each node.
        pairs: (source, target) of the batch.
        how: mode, amount, redraws; src_weight and dst_weight, if negatives are drawn by weight.
        num_sources: nodes that a source may be.
    """
    sources, targets = [list(map(int, ends)) for ends in zip(*pairs, strict=True)]
    mode, amount, redraws = how["mode"], how["amount"], how["redraws"]
    of_sources, of_targets = num_sources, len(lists)
    if how.get("src_weight") is not None:
        of_sources = units_of(how["src_weight"])
    if how.get("dst_weight") is not None:
        of_targets = units_of(how["dst_weight"])
    count = 0 if mode == "none" else math.ceil(len(pairs) * amount)
    for number in range(count):
        pair = number // max(int(amount), 1)  # of a triplet
        for attempt in range(redraws + 1):
            source = endpoint(batch_key, number, 0, attempt, of_sources) if mode == "binary" else sources[pair]
            if mode == "in_batch" and len(pairs) > 1:
                others = targets[:pair] + targets[pair + 1 : len(pairs)]
                target = others[endpoint(batch_key, number, 1, attempt, len(others))]
            else:
                target = endpoint(batch_key, number, 1, attempt, of_targets)
            if source not in lists[target] and not (mode == "in_batch" and target == targets[pair]):
                break
        if mode == "binary":
            sources.append(source)
        targets.append(target)
    return sources, targets


@lru_cache(maxsize=4)
def same_edges(graph, relation) -> set[tuple[tuple, bool]]:
    """The relations that have the edges of a relation, and whether in the other direction: those that are marked, and
    those whose edges say so."""
    of = {name: sorted(map(tuple, edges.edge_index().T.tolist())) for name, edges in graph.edge_types.items()}

    def is_reverse(a, b) -> bool:
        if graph.edge_types[a].reverse_of == b or graph.edge_types[b].reverse_of == a:
            return True
        return (a[0], a[2]) == (b[2], b[0]) and of[a] != [] and of[a] == sorted(pair[::-1] for pair in of[b])

    found, ahead = set(), [(relation, False)]
    while ahead:
        one = ahead.pop()
        if one not in found:
            found.add(one)
            ahead += [(other, not one[1]) for other in of if is_reverse(one[0], other)]
    if len({name for name, _ in found}) == 1 and relation[0] == relation[2]:
        found.add((relation, True))
    return found


def barred_edges(graph, relation, pairs, exclude: str) -> dict[tuple, set[tuple[int, int]]]:
    """Of each relation, (source, target) of the edges that a batch of pairs of a relation must not have."""
    barred: dict = {relation: set(pairs)} if exclude != "none" else {}
    for name, is_reversed in same_edges(graph, relation) if exclude == "reverse" else ():
        barred[name] = barred.get(name, set()) | {pair[:: -1 if is_reversed else 1] for pair in pairs}
    return barred


@lru_cache(maxsize=4)
def lists_of(graph, relation) -> list[list[int]]:
    """In-neighbours of each node."""
    edges = graph.edge_types[relation]
    return [part.tolist() for part in np.split(edges.indices, edges.indptr[1:-1])]


def expect_pairs(graph, batch, relation, pairs, how: dict, fanouts: dict, key: tuple[int, int, int], **more) -> None:
    """The batch has the neighbourhoods of these pairs of a relation, (source, target), and of their negatives.

    Args:
        how: as with_negatives() takes it, and exclude.
        more: arguments of sample().
    """
    num_sources = graph.node_types[relation[0]].num_nodes
    ends = with_negatives(lists_of(graph, relation), pairs, how, random_64(*key), num_sources)
    seeds: dict = {}
    for name, nodes in zip(relation[::2], ends, strict=True):
        seeds[name] = list(dict.fromkeys(seeds.get(name, []) + nodes))
    barred = barred_edges(graph, relation, pairs, how["exclude"])
    expect_batch(graph, batch, fanouts, seeds, key, barred=barred, **more)
    for name in graph.edge_types:
        assert not edges_of(batch, name) & barred.get(name, set())
    source, of_pairs, target = (batch.store_of(name) for name in (relation[0], relation, relation[2]))
    assert "batch_size" not in source and "batch_size" not in of_pairs
    local = [[seeds[name].index(node) for node in of_end] for name, of_end in zip(relation[::2], ends, strict=True)]
    if how["mode"] not in ("triplet", "in_batch"):
        assert of_pairs.edge_label_index.tolist() == local
        return
    assert source.src_index.tolist() == local[0]
    assert target.dst_pos_index.tolist() + target.dst_neg_index.flatten().tolist() == local[1]


def edges_of(batch, name: tuple[str, str, str]) -> set[tuple[int, int]]:
    """(source, target) ids."""
    return set(map(tuple, ids_of(batch, name, batch.store_of(name).edge_index).T.tolist()))


def ids_of(batch, relation: tuple[str, str, str], positions: torch.Tensor) -> torch.Tensor:
    """int64 [2, any], ids in place of the positions of sources and targets."""
    ends = zip(relation[::2], positions, strict=True)
    return torch.stack([batch.store_of(name).n_id[local] for name, local in ends])
