"""Small data sets of one type and of several, as they are on disk."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from hypothesis import strategies as st
from torch_geometric.data import HeteroData

from cohort_gnn import from_pyg
from cohort_gnn.spec.graph import EDGE_TYPE, NODE_TYPE


def write(
    folder: Path,
    counts: dict[str, int],
    dims: dict[str, int],
    lists: dict[tuple, list[list[int]]],
    reverse_of: dict[tuple, tuple] | None = None,
    times: dict[tuple, list[list[int]]] | None = None,
) -> Path:
    """A data set of format version 3, from the in-neighbours of each node by relation; row i of a table holds i. Of
    version 1 if EDGE_TYPE is the only relation.

    The last type has the labels; relations are sorted by source type. ``reverse_of`` names the reverse of some,
    ``times`` has the times of the edges of some, ascending in each list.
    """
    folder.mkdir(parents=True)
    if list(lists) == [EDGE_TYPE]:
        return _write_one_type(folder, dims[NODE_TYPE], lists[EDGE_TYPE], (times or {}).get(EDGE_TYPE))
    order = list(counts)
    meta: dict = {"format": "cohort-dataset", "version": 3, "name": "typed", "nodes": [], "edges": []}
    for name, count in counts.items():
        meta["nodes"].append({"type": name, "count": count})
        if dims[name]:
            rows = np.repeat(np.arange(count, dtype=np.float32)[:, None], dims[name], axis=1)
            np.save(folder / f"{name}.features.npy", rows)
            meta["nodes"][-1]["features"] = {"file": f"{name}.features.npy", "dim": dims[name], "dtype": "float32"}
    relations = sorted(lists, key=lambda each: order.index(each[0]))
    for relation in relations:
        neighbours, file = lists[relation], ".".join(relation)
        np.save(folder / f"{file}.indptr.npy", np.cumsum([0, *map(len, neighbours)]))
        np.save(folder / f"{file}.indices.npy", np.array([i for each in neighbours for i in each], dtype=np.int32))
        edges = {"type": list(relation), "count": sum(map(len, neighbours))}
        if reverse_of and relation in reverse_of:
            edges["reverse_of"] = relations.index(reverse_of[relation])
        if times and relation in times:
            edges["edge_times"] = f"{file}.edge_times.npy"
            np.save(folder / edges["edge_times"], np.array([i for each in times[relation] for i in each], np.int64))
        meta["edges"].append(edges | {"indptr": f"{file}.indptr.npy", "indices": f"{file}.indices.npy"})
    target = order[-1]
    files = {"labels": np.arange(counts[target]) % 3, "train_ids": np.arange(counts[target])}
    files |= {"val_ids": np.zeros(0, np.int64), "test_ids": np.zeros(0, np.int64)}
    meta["target"] = {"type": target, "task": "classification", "label_dtype": "int64", "num_classes": 3}
    for name, array in files.items():
        np.save(folder / f"{target}.{name}.npy", array.astype(np.int64))
        meta["target"][name] = f"{target}.{name}.npy"
    (folder / "meta.json").write_text(json.dumps(meta))
    return folder


def times_for(lists: dict, seed: int) -> dict:
    """Times of the edges of every relation but each third, ascending in each list."""
    random = np.random.default_rng(seed)
    timed = [relation for number, relation in enumerate(lists) if number % 3 != 2]
    return {
        relation: [np.sort(random.integers(-5, 20, len(each))).tolist() for each in lists[relation]]
        for relation in timed
    }


def _write_one_type(folder: Path, dim: int, lists: list[list[int]], times: list[list[int]] | None) -> Path:
    count = len(lists)
    arrays = {
        "indptr": np.cumsum([0, *map(len, lists)]),
        "indices": np.array([i for each in lists for i in each], np.int32),
        "features": np.repeat(np.arange(count, dtype=np.float32)[:, None], dim, axis=1),
        "labels": np.arange(count) % 3,
        "train_ids": np.arange(count),
        "val_ids": np.zeros(0, np.int64),
        "test_ids": np.zeros(0, np.int64),
    }
    if times:
        arrays["edge_times"] = np.array([i for each in times for i in each], np.int64)
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    meta = {"format": "cohort-dataset", "version": 1, "name": "plain", "num_nodes": count, "feature_dim": dim}
    meta |= {"num_edges": len(arrays["indices"]), "feature_dtype": "float32", "num_classes": 3}
    (folder / "meta.json").write_text(json.dumps(meta | {"files": {name: f"{name}.npy" for name in arrays}}))
    return folder


def write_papers(folder: Path, add: Callable) -> Path:
    """60 authors and 90 papers with 800 random edges of each relation; ``add(name, store, random)`` gives them more."""
    random, data = np.random.default_rng(8), HeteroData()
    for name, count in (("author", 60), ("paper", 90)):
        data[name].x = torch.zeros(count, 2)
    data["paper"].y = torch.zeros(90, dtype=torch.long)
    for source, name, target in (("author", "writes", "paper"), ("paper", "of", "author"), ("paper", "cites", "paper")):
        store, ends = data[source, name, target], (data[source].num_nodes, data[target].num_nodes)
        store.edge_index = torch.from_numpy(np.stack([random.integers(end, size=800) for end in ends]))
        add(name, store, random)
    return from_pyg(data, folder)


@st.composite
def schemas(draw):
    """(counts, dims, lists, fanouts) of a random graph: of one type without a name, or of 1 to 4 types and 1 to 6
    relations. Lists have parallel edges and self loops, in ascending or any order."""
    names = [f"t{number}" for number in range(draw(st.integers(0, 4)))]
    relations, dims = [EDGE_TYPE], {NODE_TYPE: draw(st.sampled_from([1, 5, 16]))}
    if names:
        pairs = st.tuples(st.sampled_from(names), st.sampled_from("ab"), st.sampled_from(names))
        relations = draw(st.lists(pairs, min_size=1, max_size=6, unique=True))
        dims = {name: draw(st.sampled_from([0, 1, 5, 16])) for name in names}
    counts = {name: draw(st.integers(1, 40)) for name in dims}
    random, ordered = np.random.default_rng(draw(st.integers(0, 2**32))), sorted if draw(st.booleans()) else list

    def lists_of(source: str, target: str) -> list[list[int]]:
        drawn = (random.integers(counts[source], size=random.integers(12)) for _ in range(counts[target]))
        return [ordered(each.tolist()) for each in drawn]

    lists = {relation: lists_of(relation[0], relation[2]) for relation in relations}
    hops = draw(st.integers(1, 3))
    fanouts = {relation: draw(st.lists(st.integers(-1, 6), min_size=hops, max_size=hops)) for relation in relations}
    return counts, dims, lists, fanouts
