"""What a batch says, whatever the order of its nodes and edges: for comparisons with batches of PyG's loaders."""

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.storage import EdgeStorage, NodeStorage

OF_POSITIONS = ("edge_label_index", "src_index", "dst_pos_index", "dst_neg_index")
WHOLE = ("input_id", "seed_time", "edge_label", "edge_label_time", "batch_size", "num_nodes")
WHOLE += ("num_sampled_nodes", "num_sampled_edges")
PAGE = Path(__file__).parents[4] / "docs/how-to/pyg.md"
# Differences that comparisons allow, and the first cell of the row of each on the page.
ROWS = {
    "indptr": "`indptr`, more than PyG has",
    "seed_time": "`seed_time`, where `input_time` is not given",
    "one of several edges": "`e_id` and arrays of edges in `bidirectional` batches of one node type",
    "another reverse": "edges in `bidirectional` batches of several node types",
    "masks of a data set": "other arrays of nodes",
    "pairs among edges": "pairs of a `LinkNeighborLoader` that are also edges of the graph",
    "no node exists yet": "a negative when no node exists yet at the time of the pair",
}
Graph = Data | HeteroData
Pairs = tuple[str | None, str | None] | None  # of a batch of pairs, the types of their ends; None: a batch of nodes


def allowed(*names: str) -> tuple[str, ...]:
    """These names of ROWS, after a look at the page, which must have the row of each."""
    rows = re.findall(r"^\| (.+?) \|", PAGE.read_text(), re.MULTILINE)
    missing = [name for name in names if ROWS[name] not in rows]
    assert not missing, f"{PAGE.name} has no row of {missing}"
    return names


ONLY_OURS = allowed("indptr", "seed_time")


def differences(batch: Graph, expected: Graph, data: Graph, pairs: Pairs = None, of_edges: bool = True) -> dict:
    """What ``expected``, a batch of PyG's loader, has otherwise: by store and attribute, of both batches. None is none.

    Args:
        data: the graph.
        of_edges: also what edges have besides their ends.
    """
    found, wanted = (_meaning_of(each, data, pairs, of_edges) for each in (batch, expected))
    names = [name for name in wanted | found if name in wanted or name[1] not in ONLY_OURS]
    return {name: (found.get(name), wanted.get(name)) for name in names if found.get(name) != wanted.get(name)}


def _meaning_of(batch: Graph, data: Graph, pairs: Pairs, of_edges: bool) -> dict[tuple, Any]:
    """By the name of a store and of an attribute, what is equal where two batches are. An attribute None is absent."""
    keys, found = _nodes_of(batch, data, pairs), {}
    for name, store, source in stores_of(batch, data):
        given = {attribute: value for attribute, value in store.items() if value is not None}
        ends = name[::2] if isinstance(name, tuple) else (name, name)
        edges = _edges_of(given, *(keys[end] for end in ends), of_edges) if "edge_index" in given else []
        if "n_id" in given:
            given["num_nodes"] = store.num_nodes
        for attribute, value in given.items():
            about = source if attribute in source else store
            if not isinstance(store, NodeStorage | EdgeStorage) or attribute in WHOLE:
                found[name, attribute] = _rows_of(value) if isinstance(value, Tensor) else value
            elif attribute in OF_POSITIONS:
                found[name, attribute] = _roots_of(attribute, value, keys, pairs)
            elif attribute == "edge_index":
                found[name, attribute] = str(value.dtype), sorted(edges)
            elif attribute == "e_id" or (attribute not in ("n_id", "batch") and about.is_edge_attr(attribute)):
                found |= {(name, attribute): _by_key(edges, value)} if of_edges else {}
            elif attribute in ("n_id", "batch") or about.is_node_attr(attribute):
                found[name, attribute] = _by_key(keys[name], value)
            else:
                found[name, attribute] = _rows_of(value) if isinstance(value, Tensor) else value
    return found


def stores_of(batch: Graph, data: Graph) -> list[tuple]:
    """(name, of the batch, of the graph) of each node type and edge type, and of what belongs to none."""
    if isinstance(data, Data):
        return [(None, batch._store, data._store)]
    names = [*data.node_types, *data.edge_types]
    return [("", batch._global_store, data._global_store), *((name, batch[name], data[name]) for name in names)]


def unlike_its_edges(batch: Data, data: Data) -> list[str]:
    """Attributes of edges that are not those of the edges of e_id, which are between the same nodes."""
    ends, there = batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id]
    is_edge = (ends == there).all(0) | (ends == there.flip(0)).all(0)
    names = [name for name in data.edge_attrs() if name != "edge_index"]
    wrong = [name for name in names if _rows_of(batch[name]) != _rows_of(data[name][batch.e_id])]
    return wrong + ([] if is_edge.all() else ["e_id"])


def _edges_of(given: dict, sources: list, targets: list, of_edges: bool) -> list[tuple]:
    """(source, target, e_id) of each edge, of which the last may be unknown."""
    edge_index = given["edge_index"].T.tolist()
    ids = given["e_id"].tolist() if of_edges and "e_id" in given else [-1] * len(edge_index)
    return [(sources[row], targets[col], e_id) for (row, col), e_id in zip(edge_index, ids, strict=True)]


def _rows_of(value: Tensor) -> tuple:
    """dtype, shape of a row, each row as bytes."""
    value = value.detach().cpu().clone(memory_format=torch.contiguous_format)
    value = value if value.dim() else value[None]
    rows = value.view(len(value), -1).view(torch.uint8).numpy() if value.numel() else [b""] * len(value)
    return str(value.dtype), tuple(value.shape[1:]), [bytes(row) for row in rows]


def _by_key(keys: Iterable, value: Any) -> tuple:
    """Rows by what they belong to; of parallel edges without e_id, in any order."""
    if not isinstance(value, Tensor):
        return type(value).__name__, sorted(zip(keys, map(str, value), strict=True))
    dtype, shape, rows = _rows_of(value)
    return dtype, shape, sorted(zip(keys, rows, strict=True))


def _roots_of(attribute: str, value: Tensor, keys: dict, pairs) -> tuple:
    """Nodes in place of positions."""
    source, target = pairs
    if attribute == "edge_label_index":
        return [[keys[end][at] for at in row] for end, row in zip(pairs, value.tolist(), strict=True)], str(value.dtype)
    nodes = keys[source if attribute == "src_index" else target]
    return [nodes[at] for at in value.flatten().tolist()], tuple(value.shape), str(value.dtype)


def _nodes_of(batch: Graph, data: Graph, pairs: Pairs) -> dict[str | None, list[tuple]]:
    """Of each node type, (tree, id) of each node, or (how often before, id) where all are in one."""
    stores = {name: store for name, store, _ in stores_of(batch, data) if "n_id" in store}
    ids = {name: store.n_id.tolist() for name, store in stores.items()}
    trees: dict = {}
    if any(store.get("batch") is not None for store in stores.values()):
        trees = {name: store.batch.tolist() for name, store in stores.items()}
        return {
            name: list(zip(of_type, ids[name], strict=True))
            for name, of_type in (trees if pairs is None else _trees_of_pairs(batch, data, pairs)).items()
        }
    for name, nodes in ids.items():
        before: Counter = Counter()
        trees[name] = []
        for node in nodes:
            trees[name].append((before[node], node))
            before[node] += 1
    return trees


def _trees_of_pairs(batch: Graph, data: Graph, pairs, unknown: tuple = ("",)) -> dict:
    """Of each node, what the root of its tree is in the batch: an end of a pair, which has no other tree."""
    stores = {name: store for name, store, _ in stores_of(batch, data)}
    trees = {name: [unknown] * len(store.n_id) for name, store in stores.items() if "n_id" in store}
    for store in stores.values():
        for attribute in OF_POSITIONS:
            if (value := store.get(attribute)) is None:
                continue
            end = pairs[attribute != "src_index"]
            rows = zip(pairs, value, strict=True) if attribute == "edge_label_index" else [(end, value.flatten())]
            for number, (type_, positions) in enumerate(rows):
                for pair, position in enumerate(positions.tolist()):
                    trees[type_][position] = (attribute, number, pair)
    edges = {
        name if name else (None, "", None): store.edge_index for name, store in stores.items() if "edge_index" in store
    }
    before: dict = {}
    while trees != before:
        before = {name: list(of_type) for name, of_type in trees.items()}
        for (source, _, target), edge_index in edges.items():
            for row, col in edge_index.T.tolist():
                trees[source][row] = max(trees[source][row], trees[target][col])
    assert all(unknown not in of_type for of_type in trees.values()), "a node in no tree"
    return trees
