"""A small random HeteroData, and writers of other libraries' layouts of several types as those document them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from layout_writers import with_nan, write_csv_gz
from torch_geometric.data import HeteroData

from cohort_gnn.dataset import check
from cohort_gnn.dataset import open as open_dataset

COUNTS = {"author": 30, "institution": 5, "paper": 50}
RELATIONS = {
    ("author", "affiliated_with", "institution"): 40,
    ("author", "writes", "paper"): 120,
    ("paper", "cites", "paper"): 90,
}
MASKS = {"train_mask": (0, 20), "val_mask": (20, 30), "test_mask": (30, 37)}
SPLITS = ("train", "val", "test")


def sample(features: tuple[str, ...] = ("paper",), dim: int = 4, dtype: torch.dtype = torch.float32) -> HeteroData:
    """Papers 37 to 49 have no label; papers are the target."""
    generator = torch.Generator().manual_seed(1)
    data = HeteroData()
    for type_, count in COUNTS.items():
        data[type_].num_nodes = count
        if type_ in features:
            data[type_].x = torch.randn(count, dim, generator=generator).to(dtype)
    for relation, count in RELATIONS.items():
        ends = [torch.randint(COUNTS[relation[end]], (count,), generator=generator) for end in (0, 2)]
        data[relation].edge_index = torch.stack(ends)
    data["paper"].y = torch.randint(3, (50,), generator=generator)
    data["paper"].y[37:] = -1
    for name, (first, last) in MASKS.items():
        data["paper"][name] = torch.zeros(50, dtype=torch.bool)
        data["paper"][name][first:last] = True
    return data


def ids_of(data: HeteroData) -> list[np.ndarray]:
    """Train, val and test ids."""
    return [np.flatnonzero(data["paper"][name].numpy()) for name in MASKS]


def edges_of(data: HeteroData, relation) -> np.ndarray:
    return data[relation].edge_index.numpy()


def assert_holds(found, data: HeteroData, reverses: bool = False) -> None:
    """The data set, or that of a folder, has the types, rows, edges, labels and splits of the graph, and no problem."""
    found = open_dataset(found) if isinstance(found, Path) else found
    assert check(found.path) == []
    back = found.to_pyg()
    assert set(back.node_types) == set(data.node_types)
    for type_ in data.node_types:
        assert back[type_].num_nodes == data[type_].num_nodes
        x = data[type_].get("x")
        assert (found.node_types[type_].x is None) == (x is None)
        if x is not None:
            np.testing.assert_array_equal(found.node_types[type_].x, x.numpy())
            assert found.node_types[type_].x.dtype == x.numpy().dtype
    added = {(target, f"rev_{name}", source): (source, name, target) for source, name, target in data.edge_types}
    assert set(back.edge_types) == set(data.edge_types) | (set(added) if reverses else set())
    for relation in back.edge_types:
        wanted = data[relation].edge_index if relation in data.edge_types else data[added[relation]].edge_index.flip(0)
        assert sorted(back[relation].edge_index.T.tolist()) == sorted(wanted.T.tolist())
        assert found.edge_types[relation].reverse_of == (None if relation in data.edge_types else added[relation])
    assert found.target == "paper"
    np.testing.assert_array_equal(found.y, data["paper"].y)
    for split, ids in zip(SPLITS, ids_of(data), strict=True):
        np.testing.assert_array_equal(getattr(found, f"{split}_ids"), ids)


def write_ogb(root: Path, data: HeteroData) -> Path:
    """raw/ and split/ of ogbn_mag."""
    raw = root / "raw"
    counts = np.array([[data[type_].num_nodes for type_ in data.node_types]])
    _with_header(raw / "num-node-dict.csv.gz", data.node_types, counts)
    _with_header(raw / "nodetype-has-feat.csv.gz", data.node_types, counts > 0)
    _texts(raw / "triplet-type-list.csv.gz", data.edge_types)
    for type_ in data.node_types:
        if "x" in data[type_]:
            write_csv_gz(raw / "node-feat" / type_ / "node-feat.csv.gz", data[type_].x.double().numpy())
    for relation in data.edge_types:
        write_csv_gz(raw / "relations" / "___".join(relation) / "edge.csv.gz", edges_of(data, relation).T)
    write_csv_gz(raw / "node-label" / "paper" / "node-label.csv.gz", with_nan(data["paper"].y.numpy()))
    for name, ids in zip(("train", "valid", "test"), ids_of(data), strict=True):
        write_csv_gz(root / "split" / "time" / "paper" / f"{name}.csv.gz", ids)
    return root


def _with_header(path: Path, names: list[str], rows: np.ndarray) -> None:
    _texts(path, [names, *rows.tolist()])


def _texts(path: Path, rows: list) -> None:
    import gzip

    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("".join(",".join(map(str, row)) + "\n" for row in rows).encode()))


def write_mag240m(root: Path, data: HeteroData, tensors: bool = False) -> Path:
    """mag240m_kddcup2021/; its .pt files hold NumPy arrays."""
    keep: Callable = torch.from_numpy if tensors else np.asarray
    for type_ in data.node_types:
        (root / "processed" / type_).mkdir(parents=True)
        if "x" in data[type_]:
            np.save(root / "processed" / type_ / "node_feat.npy", data[type_].x.numpy())
    np.save(root / "processed" / "paper" / "node_label.npy", with_nan(data["paper"].y.numpy())[:, 0])
    for relation in data.edge_types:
        (root / "processed" / "___".join(relation)).mkdir()
        np.save(root / "processed" / "___".join(relation) / "edge_index.npy", edges_of(data, relation))
    torch.save({type_: data[type_].num_nodes for type_ in data.node_types} | {"num_classes": 3}, root / "meta.pt")
    train, val, test = ids_of(data)
    hidden = np.arange(40, 45)  # without a label
    splits = {"train": train, "valid": val, "test-dev": np.concatenate([test, hidden]), "test-challenge": hidden}
    torch.save({key: keep(ids) for key, ids in splits.items()}, root / "split_dict.pt")
    return root


def write_igbh(root: Path, data: HeteroData, bare: bool = False) -> Path:
    """processed/ of a heterogeneous IGB data set; the largest sizes have bare numbers for arrays."""
    processed = root / "processed"
    for type_ in data.node_types:
        (processed / type_).mkdir(parents=True)
        _save(processed / type_ / "node_feat.npy", data[type_].x.numpy(), bare)
    labels = with_nan(data["paper"].y.numpy())[:, 0]
    _save(processed / "paper" / "node_label_19.npy", labels, bare)
    for relation in data.edge_types:
        (processed / "__".join(relation)).mkdir()
        np.save(processed / "__".join(relation) / "edge_index.npy", edges_of(data, relation).T)
    return root


def _save(path: Path, array: np.ndarray, bare: bool) -> None:
    if bare:
        path.write_bytes(array.tobytes())
    else:
        np.save(path, array)


def write_graphbolt(root: Path, data: HeteroData) -> Path:
    """metadata.yaml and the files that it names; skips a test where nothing reads YAML."""
    pytest.importorskip("yaml")
    root.mkdir()
    edges, features, sets = [], [], []
    for number, relation in enumerate(data.edge_types):
        np.save(root / f"edges-{number}.npy", edges_of(data, relation))
        edges.append({"type": ":".join(relation), "format": "numpy", "path": f"edges-{number}.npy"})
    for type_ in data.node_types:
        if "x" in data[type_]:
            np.save(root / f"x-{type_}.npy", data[type_].x.numpy())
            file = {"format": "numpy", "path": f"x-{type_}.npy"}
            features.append({"domain": "node", "type": type_, "name": "feat", **file})
    for split, ids in zip(SPLITS, ids_of(data), strict=True):
        np.save(root / f"{split}.npy", ids)
        np.save(root / f"{split}-y.npy", data["paper"].y.numpy()[ids])
        parts = (("seeds", f"{split}.npy"), ("labels", f"{split}-y.npy"))
        sets.append([{"type": "paper", "data": [{"name": n, "format": "numpy", "path": p} for n, p in parts]}])
    nodes = [{"type": type_, "num": data[type_].num_nodes} for type_ in data.node_types]
    names = ("train_set", "validation_set", "test_set")
    task = {"name": "papers", "num_classes": 3} | dict(zip(names, sets, strict=True))
    graph = {"nodes": nodes, "edges": edges}
    found = {"dataset_name": "bolt", "graph": graph, "feature_data": features, "tasks": [task]}
    (root / "metadata.yaml").write_text(json.dumps(found))  # JSON is YAML, too
    return root


def write_chunked(root: Path, data: HeteroData, form: str = "numpy") -> Path:
    """metadata.json and two chunks of each array, as DGL's chunk_graph writes them."""
    root.mkdir()
    node_data: dict[str, dict] = {type_: {} for type_ in data.node_types}
    for type_ in data.node_types:
        if "x" in data[type_]:
            node_data[type_]["feat"] = _chunks(root, f"feat-{type_}", data[type_].x.numpy(), "numpy")
    node_data["paper"]["label"] = _chunks(root, "label", data["paper"].y.numpy(), "numpy")
    for name in MASKS:
        node_data["paper"][name] = _chunks(root, name, data["paper"][name].numpy().astype(np.int8), "numpy")
    edges = {}
    for number, relation in enumerate(data.edge_types):
        edges[":".join(relation)] = _chunks(root, f"edges-{number}", edges_of(data, relation).T, form)
    found = {
        "graph_name": "chunks",
        "node_type": data.node_types,
        "num_nodes_per_chunk": [[data[type_].num_nodes - 3, 3] for type_ in data.node_types],
        "edge_type": list(edges),
        "num_edges_per_chunk": [[data[relation].edge_index.shape[1] - 2, 2] for relation in data.edge_types],
        "edges": edges,
        "node_data": node_data,
        "edge_data": {},
    }
    (root / "metadata.json").write_text(json.dumps(found))
    return root


def _chunks(root: Path, name: str, array: np.ndarray, form: str) -> dict:
    """The last two rows are a chunk of their own."""
    files = []
    for number, part in enumerate((array[:-2], array[-2:])):
        file = f"{name}-{number}.{form}"
        if form == "numpy":
            file = f"{name}-{number}.npy"
            np.save(root / file, part)
        elif form == "csv":
            np.savetxt(root / file, part, fmt="%d", delimiter=" ")
        else:
            import pyarrow as pa
            import pyarrow.parquet as pq

            pq.write_table(pa.table({"src": part[:, 0], "dst": part[:, 1]}), root / file)
        files.append(file)
    described = {"name": form, "delimiter": " "} if form == "csv" else {"name": form}
    return {"format": described, "data": files}


def write_described(root: Path, data: HeteroData, form: str = "parquet", ids: str = "none") -> Path:
    """graph.yaml with a table of each type and relation; ids: none, numbers or texts. Skips without PyYAML."""
    pytest.importorskip("yaml")
    root.mkdir()
    nodes: dict[str, dict] = {}
    names = {type_: _names(type_, data[type_].num_nodes, ids) for type_ in data.node_types}
    for type_ in data.node_types:
        table: dict = {} if names[type_] is None else {"id": names[type_]}
        described = {} if names[type_] is None else {"id": "id"}
        if "x" in data[type_]:
            x = data[type_].x.numpy()
            table |= {f"f{i}": x[:, i] for i in range(x.shape[1])}
            described["features"] = [f"f0:f{x.shape[1] - 1}"]
        if type_ == "paper":
            split = np.full(50, "", object)
            for name, ids_in in zip(SPLITS, ids_of(data), strict=True):
                split[ids_in] = name
            table |= {"class": data["paper"].y.numpy(), "part": split}
            described |= {"label": "class", "split": "part"}
        if table:
            described["file"] = _write_table(root / f"{type_}.{form}", table)
        else:
            described["count"] = data[type_].num_nodes
        nodes[type_] = described
    edges = []
    for number, relation in enumerate(data.edge_types):
        ends = [
            end if names[type_] is None else names[type_][end]
            for type_, end in zip((relation[0], relation[2]), edges_of(data, relation), strict=True)
        ]
        file = _write_table(root / f"edges-{number}.{form}", {"weight": ends[0], "from_": ends[0], "to_": ends[1]})
        edges.append({"type": list(relation), "file": file, "source": "from_", "target": "to_"})
    (root / "graph.yaml").write_text(json.dumps({"nodes": nodes, "edges": edges}))
    return root


def _names(type_: str, count: int, ids: str) -> np.ndarray | None:
    """Ids in no order; institutions have none."""
    if ids == "none" or type_ == "institution":
        return None
    numbers = np.random.default_rng(count).permutation(10 * count)[:count] - 7
    return numbers if ids == "numbers" else np.array([f"{type_[0]}/{number}" for number in numbers], object)


def _write_table(path: Path, columns: dict) -> str:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet as pq

    table = pa.table(columns)
    if path.suffix == ".csv":
        pa.csv.write_csv(table, path)
    else:
        pq.write_table(table, path, row_group_size=17)
    return path.name
