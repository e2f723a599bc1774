"""Small data sets of several types, as they are on disk."""

import json
from pathlib import Path

import numpy as np
from hypothesis import strategies as st


def write(
    folder: Path,
    counts: dict[str, int],
    dims: dict[str, int],
    lists: dict[tuple, list[list[int]]],
    reverse_of: dict[tuple, tuple] | None = None,
    times: dict[tuple, list[list[int]]] | None = None,
) -> Path:
    """A data set of format version 3, from the in-neighbours of each node by relation; row i of a table holds i.

    The last type has the labels; relations are sorted by source type. ``reverse_of`` names the reverse of some,
    ``times`` has the times of the edges of some, ascending in each list.
    """
    folder.mkdir(parents=True)
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


@st.composite
def schemas(draw):
    """(counts, dims, lists, fanouts) of a random graph of 1 to 4 types and 1 to 6 relations."""
    names = [f"t{number}" for number in range(draw(st.integers(1, 4)))]
    counts = {name: draw(st.integers(1, 40)) for name in names}
    dims = {name: draw(st.sampled_from([0, 1, 5, 16])) for name in names}
    pairs = st.tuples(st.sampled_from(names), st.sampled_from("ab"), st.sampled_from(names))
    relations = draw(st.lists(pairs, min_size=1, max_size=6, unique=True))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))

    def lists_of(source: str, target: str) -> list[list[int]]:
        return [random.integers(counts[source], size=random.integers(12)).tolist() for _ in range(counts[target])]

    lists = {relation: lists_of(relation[0], relation[2]) for relation in relations}
    hops = draw(st.integers(1, 3))
    fanouts = {relation: draw(st.lists(st.integers(-1, 6), min_size=hops, max_size=hops)) for relation in relations}
    return counts, dims, lists, fanouts
