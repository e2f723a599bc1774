"""OGB's node property prediction: raw/ with *.csv.gz or the binary .npz, and split/NAME/ with three lists of ids."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cohort.base.errors import CohortError
from cohort.dataset.array_file import NamedArrays
from cohort.dataset.layouts import tables
from cohort.dataset.layouts.graph import Graph, Labels, edges_of_pairs, edges_of_table, rows_of_file, rows_of_table
from cohort.dataset.layouts.text_file import TextFile, TextOptions
from cohort.dataset.layouts.torch_files import load_tensors

PLAIN = TextOptions(separator=",", header="no")
DOWNLOAD = "download the data set again"
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
    counts = TextFile(_demand_file(raw / "num-node-list.csv.gz"), PLAIN).read(dtype=np.int64)
    return Graph(
        name=name,
        edges=edges_of_table(TextFile(edges, PLAIN), (0, 1)),
        features=rows_of_table(TextFile(features, PLAIN)) if features.exists() else None,
        labels=Labels(str(label), TextFile(label, PLAIN).read),
        num_nodes=_one_count(str(raw / "num-node-list.csv.gz"), counts),
    )


def _read_binary(raw: Path, name: str) -> Graph:
    data = NamedArrays(raw / "data.npz", DOWNLOAD)
    counts = data["num_nodes_list"]
    return Graph(
        name=name,
        edges=edges_of_pairs(data["edge_index"]),
        features=rows_of_file(data["node_feat"]) if "node_feat" in data else None,
        labels=NamedArrays(_demand_file(raw / "node-label.npz"), DOWNLOAD)["node_label"],
        num_nodes=_one_count(counts.place, counts.read()),
    )


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
        raise CohortError(str(path), "a file of OGB's raw layout", "no such file", DOWNLOAD)
    return path
