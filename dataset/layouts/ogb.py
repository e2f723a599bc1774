"""OGB's node property prediction: raw/ with *.csv.gz or the binary .npz, and split/NAME/ with three lists of ids.

Of link property prediction, raw/ has the edges to train on, and split/NAME/ links with negatives in three .pt files.

Of several node types, such as in ogbn_mag, raw/ has a folder for each type and relation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import arrays
from cohort_gnn.dataset.array_file import NamedArrays
from cohort_gnn.dataset.hetero import RelationType
from cohort_gnn.dataset.layouts import tables
from cohort_gnn.dataset.layouts.graph import Edges, Graph, Labels, Rows
from cohort_gnn.dataset.layouts.node_ids import MIN_BLOCK, text_columns
from cohort_gnn.dataset.layouts.text_file import TextFile, TextOptions
from cohort_gnn.dataset.layouts.torch_files import load_arrays
from cohort_gnn.dataset.layouts.typed import Nodes, TypedGraph, by_relation
from cohort_gnn.dataset.links import HeldOut

PLAIN = TextOptions(separator=",", header="no")
DOWNLOAD = "download the data set again"
TYPES = "triplet-type-list.csv.gz"
SPLIT_NAMES = ("train", "valid", "test")
LINK_FILES = {"val": "valid", "test": "test"}
# OGB adds the reverse of each edge of these when it loads them: its list of data sets says add_inverse_edge.
WITH_REVERSE = ("ogbn_products", "ogbn_proteins", "ogbl_ppa", "ogbl_collab", "ogbl_ddi")


def is_ogb(source: Path) -> bool:
    raw = source / "raw"
    return any((raw / name).exists() for name in ("edge.csv.gz", "data.npz", TYPES))


def read_ogb(source: Path) -> Graph | TypedGraph:
    """The graph of a folder ogbn_NAME with raw/ and split/."""
    raw, name = source / "raw", source.resolve().name
    links = [path.parent for path in sorted((source / "split").glob("*/valid.pt"))]
    if (raw / TYPES).exists():
        if links:
            hint = "cohort.dataset.write_links writes held-out links of one relation beside a data set"
            raise CohortError(str(source), "links between nodes of one type", "several node types", hint)
        return _read_types(source, name)
    graph = (_read_binary if (raw / "data.npz").exists() else _read_text)(raw, name, not links)
    graph.any_task = True
    if links:
        graph.links = lambda: {split: _links_of(links[0] / f"{part}.pt") for split, part in LINK_FILES.items()}
        graph.notes.append(f"{name}: val and test links and their negatives are those of {links[0].name}/")
    else:
        graph.splits = _splits(source / "split")
    graph.reverse = name.removesuffix("_pyg").removesuffix("_dgl") in WITH_REVERSE
    if graph.reverse:
        graph.notes.append(f"{name}: the reverse of each edge is added, as OGB does; --no-reverse-edges leaves it out")
    return graph


def _read_text(raw: Path, name: str, has_labels: bool) -> Graph:
    edges, features, label = (raw / f"{part}.csv.gz" for part in ("edge", "node-feat", "node-label"))
    for path in (edges, label) if has_labels else (edges,):
        _demand_file(path)
    counts = TextFile(_demand_file(raw / "num-node-list.csv.gz"), PLAIN).read(dtype=np.int64)
    return Graph(
        name=name,
        edges=replace(Edges.of_table(TextFile(edges, PLAIN), (0, 1)), features=_rows_in(raw / "edge-feat.csv.gz")),
        features=_rows_in(features),
        labels=Labels(str(label), TextFile(label, PLAIN).read) if has_labels else None,
        num_nodes=_one_count(str(raw / "num-node-list.csv.gz"), counts),
    )


def _read_types(source: Path, name: str) -> TypedGraph:
    """A graph of several node types, such as ogbn_mag."""
    raw = source / "raw"
    table = TextFile(_demand_file(raw / "num-node-dict.csv.gz"), TextOptions(",", "yes"))
    counts = table.read(dtype=np.int64).reshape(-1)
    arrays.demand_shape(str(table.path), counts, (len(table.names),))
    nodes = dict(zip(table.names, counts.tolist(), strict=True))
    labelled = [type_ for type_ in nodes if (raw / "node-label" / type_ / "node-label.csv.gz").exists()]
    if len(labelled) != 1:
        raise CohortError(str(raw / "node-label"), "one node type with labels", ", ".join(labelled) or "none", DOWNLOAD)
    label = raw / "node-label" / labelled[0] / "node-label.csv.gz"
    types = TextFile(raw / TYPES, PLAIN)
    columns = text_columns(types, types.choose(["0", "1", "2"]), MIN_BLOCK)
    relations = [relation for ends, _ in columns for relation in zip(*(end.to_pylist() for end in ends), strict=True)]
    return TypedGraph(
        name=name,
        place=str(raw),
        nodes={
            type_: Nodes(count, _rows_in(raw / "node-feat" / type_ / "node-feat.csv.gz"))
            for type_, count in nodes.items()
        },
        edges=by_relation(str(raw / TYPES), ((relation, _edges_of(raw, relation)) for relation in relations)),
        target=labelled[0],
        labels=Labels(str(label), TextFile(label, PLAIN).read),
        splits=_splits(source / "split", labelled[0]),
        any_task=True,
    )


def _rows_in(path: Path) -> Rows | None:
    return Rows.of_table(TextFile(path, PLAIN)) if path.exists() else None


def _edges_of(raw: Path, relation: RelationType) -> Edges:
    return Edges.of_table(
        TextFile(_demand_file(raw / "relations" / "___".join(relation) / "edge.csv.gz"), PLAIN), (0, 1)
    )


def _read_binary(raw: Path, name: str, has_labels: bool) -> Graph:
    data = NamedArrays(raw / "data.npz", DOWNLOAD)
    counts = data["num_nodes_list"]
    label = raw / "node-label.npz"
    features, of_edges = (Rows.of_file(data[key]) if key in data else None for key in ("node_feat", "edge_feat"))
    return Graph(
        name=name,
        edges=replace(Edges.of_pairs(data["edge_index"]), features=of_edges),
        features=features,
        labels=NamedArrays(_demand_file(label), DOWNLOAD)["node_label"] if has_labels else None,
        num_nodes=_one_count(counts.place, counts.read()),
    )


def _one_count(place: str, counts: np.ndarray) -> int:
    if counts.size != 1:
        hint = "node property data sets have one graph; import only this graph"
        raise CohortError(place, "one graph", f"{counts.size}", hint)
    return int(counts.reshape(-1)[0])


def _splits(folder: Path, type_: str = ""):
    """The three lists of the one folder in split/, where there are several node types those of one."""
    found = sorted(path for path in folder.glob("*") if path.is_dir()) if folder.is_dir() else []
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        hint = "keep the one that you want, or pass --splits TRAIN VAL TEST"
        raise CohortError(str(folder), "one folder, named by the kind of split", names, hint)
    lists = found[0] / type_
    together = lists / "split_dict.pt"
    if together.exists():
        return lambda: _split_dict(together)
    return tables.splits_of([_demand_file(lists / f"{name}.csv.gz") for name in SPLIT_NAMES])


def _split_dict(path: Path) -> list[np.ndarray]:
    parts = load_arrays(path, "save the three lists as train.csv.gz, valid.csv.gz and test.csv.gz beside it")
    if not set(SPLIT_NAMES) <= set(parts):
        raise CohortError(str(path), "the keys train, valid and test", ", ".join(parts) or "none")
    return [np.asarray(parts[name]) for name in SPLIT_NAMES]


def _links_of(path: Path) -> tuple[str, HeldOut]:
    """The links of a split: pairs that all compete with the same pairs, or a list of targets for each source."""
    parts = load_arrays(_demand_file(path), DOWNLOAD)
    if {"edge", "edge_neg"} <= parts.keys():
        return str(path), HeldOut(np.asarray(parts["edge"]), np.asarray(parts["edge_neg"]), True)
    if {"source_node", "target_node", "target_node_neg"} <= parts.keys():
        ends = [np.asarray(parts[name]).reshape(-1) for name in ("source_node", "target_node")]
        if len(ends[0]) != len(ends[1]):
            expected = f"as many targets as sources: {len(ends[0])}"
            raise CohortError(f"{path}: target_node", expected, str(len(ends[1])), DOWNLOAD)
        return str(path), HeldOut(np.stack(ends, axis=1), np.asarray(parts["target_node_neg"]))
    expected = "edge and edge_neg, or source_node, target_node and target_node_neg"
    hint = "links of several relations, as in knowledge graphs, are not supported"
    raise CohortError(str(path), expected, ", ".join(parts) or "none", hint)


def _demand_file(path: Path) -> Path:
    if not path.exists():
        raise CohortError(str(path), "a file of OGB's raw layout", "no such file", DOWNLOAD)
    return path
