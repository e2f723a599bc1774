"""Batches of pairs of nodes in plain Python: what sampler/pairs.h and sampler/draw.h say, one edge after the other."""

import math
from fractions import Fraction
from itertools import accumulate

import torch
from hypothesis import strategies as st
from torch_geometric.sampler import NegativeSampling
from typed_oracle import drawn_positions, random_64
from weighted_oracle import weighted_positions


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


def with_negatives(
    lists,
    pairs,
    how: dict,
    batch_key: int,
    num_sources: int | None = None,
) -> tuple[list, list]:
    """(sources, targets), negatives last.

    Args:
        lists: in-neighbours of each node.
        pairs: (source, target) of the batch.
        how: mode, amount, redraws; src_weight and dst_weight, if negatives are drawn by weight.
        num_sources: nodes that a source may be; None: as many as there are lists.
    """
    sources, targets = [list(map(int, ends)) for ends in zip(*pairs, strict=True)]
    mode, amount, redraws = how["mode"], how["amount"], how["redraws"]
    of_sources, of_targets = num_sources or len(lists), len(lists)
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


def forbidden_edges(pairs, exclude: str) -> set[tuple[int, int]]:
    """(source, target) of edges that the batch must not have."""
    forward = {(int(source), int(target)) for source, target in pairs if exclude != "none"}
    return forward | ({(target, source) for source, target in forward} if exclude == "reverse" else set())


def neighbourhoods(
    lists, starts, seeds, fanout: list[int], batch_key: int, forbidden=frozenset(), weights=None, replace: bool = False
) -> dict:
    """What is drawn for the seeds: n_id, edge_index (two lists), e_id, nodes, edges (by hop).

    Args:
        starts: of each list, its first edge.
        forbidden: (source, target) of edges that are not drawn in hop 0.
        weights: of the edges of each list; None: draws are uniform.
        replace: uniform draws are with replacement.
    """
    n_id = list(seeds)
    nodes, edges, source, target, e_id = [len(n_id)], [], [], [], []
    begin = 0
    for hop, width in enumerate(fanout):
        end, before = len(n_id), len(source)
        for local in range(begin, end):
            node = n_id[local]
            barred = {each for each in forbidden if each[1] == node} if hop == 0 else set()
            allowed = [place for place, neighbour in enumerate(lists[node]) if (neighbour, node) not in barred]
            if weights is None:
                drawn = drawn_positions(batch_key, node, hop, 0, len(allowed), width, replace)
            else:
                drawn = weighted_positions(batch_key, node, hop, weights[node], allowed, width)
            for position in drawn:
                neighbour = lists[node][allowed[position]]
                if neighbour not in n_id:
                    n_id.append(neighbour)
                source.append(n_id.index(neighbour))
                target.append(local)
                e_id.append(starts[node] + allowed[position])
        begin = end
        nodes.append(len(n_id) - end)
        edges.append(len(source) - before)
    return {"n_id": n_id, "edge_index": [source, target], "e_id": e_id, "nodes": nodes, "edges": edges}


def sample(lists, starts, pairs, how: dict, fanout: list[int], key: tuple[int, int, int], weights=None) -> dict:
    """One batch: its neighbourhoods, and endpoints.

    Args:
        how: as with_negatives() takes it, and exclude.
        key: seed of the loader, epoch, step.
    """
    batch_key = random_64(*key)
    endpoints = sum(with_negatives(lists, pairs, how, batch_key), [])
    forbidden = forbidden_edges(pairs, how["exclude"])  # in hop 0 alone, where every endpoint is expanded
    batch = neighbourhoods(lists, starts, dict.fromkeys(endpoints), fanout, batch_key, forbidden, weights)
    return batch | {"endpoints": [batch["n_id"].index(node) for node in endpoints]}
