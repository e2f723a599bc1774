"""OGB's node property prediction: raw/ with *.csv.gz or the binary .npz, and split/NAME/ with three lists of ids."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cohort.base.errors import CohortError
from cohort.dataset.array_file import ArrayFile, open_npz
from cohort.dataset.layouts import tables
from cohort.dataset.layouts.graph import Graph, edges_of_pairs, edges_of_text, rows_of_file, rows_of_text
from cohort.dataset.layouts.text_file import TextFile, TextOptions
from cohort.dataset.layouts.torch_files import load_tensors

PLAIN = TextOptions(separator=",", header="no")
SPLIT_NAMES = ("train", "valid", "test")
# OGB adds the reverse of each edge of these when it loads them: its list of data sets says add_inverse_edge.
WITH_REVERSE = ("ogbn_products", "ogbn_proteins")


def is_ogb(source: Path) -> bool:
    raw = source / "raw"
    return any((raw / name).exists() for name in ("edge.csv.gz", "data.npz", "triplet-type-list.csv.gz"))


def read_ogb(source: Path) -> Graph:
    """The graph of a folder ogbn_NAME with raw/ and split/."""
    raw, name = source / "raw", source.resolve().name
    if (raw / "triplet-type-list.csv.gz").exists():
        hint = "export the relation that you want as an edge list and import that"
        raise CohortError(str(raw), "a graph with one type of nodes", "several (triplet-type-list.csv.gz)", hint)
    graph = _read_binary(raw, name) if (raw / "data.npz").exists() else _read_text(raw, name)
    graph.splits, graph.any_task = _splits(source / "split"), True
    graph.reverse = name.removesuffix("_pyg").removesuffix("_dgl") in WITH_REVERSE
    if graph.reverse:
        graph.notes.append(f"{name}: the reverse of each edge is added, as OGB does; --no-reverse-edges leaves it out")
    return graph


def _read_text(raw: Path, name: str) -> Graph:
    edges, features, label = (raw / f"{part}.csv.gz" for part in ("edge", "node-feat", "node-label"))
    for path in (edges, label):
        _demand_file(path)
    counts = TextFile(_demand_file(raw / "num-node-list.csv.gz"), PLAIN).read(np.int64)
    return Graph(
        name=name,
        edges=edges_of_text(TextFile(edges, PLAIN), (0, 1)),
        features=rows_of_text(TextFile(features, PLAIN)) if features.exists() else None,
        labels=lambda: (str(label), TextFile(label, PLAIN).read(np.float64)),
        num_nodes=_one_count(str(raw / "num-node-list.csv.gz"), counts),
    )


def _read_binary(raw: Path, name: str) -> Graph:
    path, label_path = raw / "data.npz", raw / "node-label.npz"
    data = open_npz(path)
    labels = _member(label_path, open_npz(_demand_file(label_path)), "node_label")
    counts = _member(path, data, "num_nodes_list").read().reshape(-1)
    features = data.get("node_feat")
    return Graph(
        name=name,
        edges=edges_of_pairs(_member(path, data, "edge_index")),
        features=None if features is None else rows_of_file(features),
        labels=tables.labels_of_file(labels),
        num_nodes=_one_count(f"{path}: num_nodes_list", counts),
    )


def _member(path: Path, arrays: dict[str, ArrayFile], key: str) -> ArrayFile:
    if key not in arrays:
        raise CohortError(str(path), f"an array {key}", ", ".join(arrays) or "no arrays", "download it again")
    return arrays[key]


def _one_count(place: str, counts: np.ndarray) -> int:
    if counts.size != 1:
        hint = "node property data sets have one graph; import only this graph"
        raise CohortError(place, "one graph", f"{counts.size}", hint)
    return int(counts.reshape(-1)[0])


def _splits(folder: Path):
    """The three lists of the one folder in split/."""
    found = sorted(path for path in folder.glob("*") if path.is_dir()) if folder.is_dir() else []
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        hint = "keep the one that you want, or pass --splits TRAIN VAL TEST"
        raise CohortError(str(folder), "one folder, named by the kind of split", names, hint)
    together = found[0] / "split_dict.pt"
    if together.exists():
        return lambda: _split_dict(together)
    return tables.splits_of([_demand_file(found[0] / f"{name}.csv.gz") for name in SPLIT_NAMES])


def _split_dict(path: Path) -> list[np.ndarray]:
    parts = load_tensors(path, "save the three lists as train.csv.gz, valid.csv.gz and test.csv.gz beside it")
    if not isinstance(parts, dict) or not set(SPLIT_NAMES) <= set(parts):
        raise CohortError(str(path), "the keys train, valid and test", str(type(parts).__name__))
    return [np.asarray(parts[name]) for name in SPLIT_NAMES]


def _demand_file(path: Path) -> Path:
    if not path.exists():
        raise CohortError(str(path), "a file of OGB's raw layout", "no such file", "download the data set again")
    return path
