"""OGB's node property prediction: raw/ with *.csv.gz or the binary .npz, and split/NAME/ with three lists of ids.

Of link property prediction, raw/ has the edges to train on, and split/NAME/ links with negatives in three .pt files, or
in the split_dict.pt of OGB's DatasetSaver.

Of several node types, such as in ogbn_mag, raw/ has a folder for each type and relation, or .npz files that have an
array for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import arrays
from cohort_gnn.dataset.array_file import NamedArrays
from cohort_gnn.dataset.layouts import tables
from cohort_gnn.dataset.layouts.graph import Graph, Nodes, Target, by_relation, relation_of
from cohort_gnn.dataset.layouts.node_ids import MIN_BLOCK
from cohort_gnn.dataset.layouts.streams import EdgeChunk, Edges, Labels, Rows
from cohort_gnn.dataset.layouts.torch_files import load_arrays
from cohort_gnn.dataset.links import HeldOut
from cohort_gnn.dataset.tables.text_file import TextFile
from cohort_gnn.dataset.tables.text_options import TextOptions

PLAIN = TextOptions(separator=",", header="no")
DOWNLOAD = "download the data set again"
TYPES, TYPES_BINARY = "triplet-type-list.csv.gz", "edge_index_dict.npz"
TOGETHER = "split_dict.pt"
TEXT_FILES = [
    f"{part}.csv.gz" for part in ("edge", "node-feat", "node-label", "edge-feat", "num-node-list", "num-edge-list")
]
SPLIT_NAMES = ("train", "valid", "test")
LINK_KEYS = {"edge", "source_node", "head"}
LINK_FILES = {"val": "valid", "test": "test"}
# OGB adds the reverse of each edge of these when it loads them: its list of data sets says add_inverse_edge.
WITH_REVERSE = ("ogbn_products", "ogbn_proteins", "ogbl_ppa", "ogbl_collab", "ogbl_ddi")


def is_ogb(source: Path) -> bool:
    raw = source / "raw"
    return any((raw / name).exists() for name in ("edge.csv.gz", "data.npz", TYPES, TYPES_BINARY))


def read_ogb(source: Path) -> Graph:
    """The graph of a folder ogbn_NAME with raw/ and split/."""
    raw, name = source / "raw", source.resolve().name
    links = _link_files(source / "split")
    if (raw / TYPES).exists() or (raw / TYPES_BINARY).exists():
        if links is not None:
            hint = "cohort.dataset.write_links writes held-out links of one relation beside a data set"
            raise CohortError(str(source), "links between nodes of one type", "several node types", hint)
        return (_read_types if (raw / TYPES).exists() else _read_binary_types)(source, name)
    graph = (_read_binary if (raw / "data.npz").exists() else _read_text)(raw, name, links is None)
    graph.any_task = True
    if links is not None:
        graph.links = lambda: {split: _links_of(links, part) for split, part in LINK_FILES.items()}
        graph.notes.append(f"{name}: val and test links and their negatives are those of {links.name}")
    else:
        _take_splits(graph, source / "split")
    graph.reverse = name.removesuffix("_pyg").removesuffix("_dgl") in WITH_REVERSE
    if graph.reverse:
        graph.notes.append(f"{name}: the reverse of each edge is added, as OGB does; --no-reverse-edges leaves it out")
    return graph


def _read_text(raw: Path, name: str, has_labels: bool) -> Graph:
    edges, features, label = (raw / f"{part}.csv.gz" for part in ("edge", "node-feat", "node-label"))
    counts = TextFile(_demand_file(raw / "num-node-list.csv.gz"), PLAIN).read(dtype=np.int64)
    return Graph.homogeneous(
        name=name,
        edges=_edges_in(raw),
        features=_rows_in(features),
        labels=Labels(str(label), TextFile(label, PLAIN).read) if has_labels and label.exists() else None,
        missing=_missing(label) if has_labels else {},
        num_nodes=_one_count(str(raw / "num-node-list.csv.gz"), counts),
        notes=_unused(name, (path.name for path in raw.glob("*.csv.gz")), TEXT_FILES),
    )


def _edges_in(folder: Path) -> Edges:
    """Edges of a folder, with their features where there are some."""
    edges = Edges.from_table(TextFile(_demand_file(folder / "edge.csv.gz"), PLAIN), (0, 1))
    if (counts := folder / "num-edge-list.csv.gz").exists():
        edges = _counted(edges, str(counts), TextFile(counts, PLAIN).read(dtype=np.int64))
    return replace(edges, features=_rows_in(folder / "edge-feat.csv.gz"))


def _counted(edges: Edges, place: str, counts: np.ndarray) -> Edges:
    """The same edges, which have to be as many as the source says."""
    expected = _one_count(place, counts)

    def chunks(block_bytes: int) -> Iterator[EdgeChunk]:
        done = 0
        for src, dst, fraction in edges.chunks(block_bytes):
            done += len(src)
            yield src, dst, fraction
        if done != expected:
            raise CohortError(edges.place, f"{expected} edges, as {place} says", str(done), DOWNLOAD)

    return replace(edges, chunks=chunks)


def _unused(name: str, names: Iterable[str], known: Sequence[str]) -> list[str]:
    """A note about what else lies beside the graph."""
    others = sorted(set(names) - set(known))
    return [f"{name}: not used: {', '.join(others)}"] if others else []


def _missing(label: Path) -> dict[str, CohortError]:
    """The errors for missing labels unless --labels is given."""
    if label.exists():
        return {}
    hint = f"{DOWNLOAD}, or pass --labels FILE"
    return {"labels": CohortError(str(label), "a file of OGB's raw layout", "no such file", hint)}


def _read_types(source: Path, name: str) -> Graph:
    """A graph of several node types, such as ogbn_mag."""
    raw = source / "raw"
    table = TextFile(_demand_file(raw / "num-node-dict.csv.gz"), TextOptions(",", "yes"))
    counts = table.read(dtype=np.int64).reshape(-1)
    arrays.demand_shape(str(table.path), counts, (len(table.names),))
    nodes = dict(zip(table.names, counts.tolist(), strict=True))
    paths = {type_: raw / "node-label" / type_ / "node-label.csv.gz" for type_ in nodes}
    labels = {type_: Labels(str(path), TextFile(path, PLAIN).read) for type_, path in paths.items() if path.exists()}
    types = TextFile(raw / TYPES, PLAIN)
    columns = types.texts(types.choose(["0", "1", "2"]), MIN_BLOCK)
    relations = [relation for batch, _ in columns for relation in zip(*(end.to_pylist() for end in batch), strict=True)]
    return Graph(
        name=name,
        place=str(raw),
        nodes={
            type_: Nodes(count, _rows_in(raw / "node-feat" / type_ / "node-feat.csv.gz"))
            for type_, count in nodes.items()
        },
        edges=by_relation(
            str(raw / TYPES),
            ((relation, _edges_in(raw / "relations" / "___".join(relation))) for relation in relations),
        ),
        any_task=True,
        targets=_targets(source, labels),
    )


def _targets(source: Path, labels: dict[str, Labels]) -> dict[str, Target]:
    def read(type_: str) -> list[np.ndarray]:
        return _splits(source / "split", type_)()

    return {type_: Target(type_labels, partial(read, type_)) for type_, type_labels in labels.items()}


def _read_binary_types(source: Path, name: str) -> Graph:
    """A graph of several node types as OGB's DatasetSaver writes it."""
    raw = source / "raw"
    edges, counts = (NamedArrays(raw / f"{part}.npz", DOWNLOAD) for part in ("edge_index_dict", "num_nodes_dict"))
    rows_of = {}
    for part in ("node_feat_dict", "edge_feat_dict"):
        archive = NamedArrays(raw / f"{part}.npz", DOWNLOAD) if (raw / f"{part}.npz").exists() else None
        rows_of[part] = {key: Rows.from_file(archive[key]) for key in archive.names} if archive else {}
    label = raw / "node-label.npz"
    archive = NamedArrays(label, DOWNLOAD) if label.exists() else None
    labels = {type_: Labels(archive.place(type_), archive[type_].read) for type_ in archive.names} if archive else {}
    relations = (
        (
            relation_of(edges.place(key), key, "___"),
            replace(Edges.from_pairs(edges[key]), features=rows_of["edge_feat_dict"].get(key)),
        )
        for key in edges.names
    )
    return Graph(
        name=name,
        place=str(raw),
        nodes={
            type_: Nodes(_one_count(counts.place(type_), counts[type_].read()), rows_of["node_feat_dict"].get(type_))
            for type_ in counts.names
        },
        edges=by_relation(str(raw), relations),
        any_task=True,
        targets=_targets(source, labels),
    )


def _rows_in(path: Path) -> Rows | None:
    return Rows.from_table(TextFile(path, PLAIN)) if path.exists() else None


def _read_binary(raw: Path, name: str, has_labels: bool) -> Graph:
    data = NamedArrays(raw / "data.npz", DOWNLOAD)
    counts, label = data["num_nodes_list"], raw / "node-label.npz"
    features, edge_features = (Rows.from_file(data[key]) if key in data else None for key in ("node_feat", "edge_feat"))
    edges = Edges.from_pairs(data["edge_index"])
    if "num_edges_list" in data:
        edges = _counted(edges, data["num_edges_list"].place, data["num_edges_list"].read())
    return Graph.homogeneous(
        name=name,
        edges=replace(edges, features=edge_features),
        features=features,
        labels=NamedArrays(label, DOWNLOAD)["node_label"] if has_labels and label.exists() else None,
        missing=_missing(label) if has_labels else {},
        num_nodes=_one_count(counts.place, counts.read()),
        notes=_unused(name, data.unread(), ["num_edges_list"]),
    )


def _one_count(place: str, counts: np.ndarray) -> int:
    if counts.size != 1:
        hint = "node property data sets have one graph; import only this graph"
        raise CohortError(place, "one graph", f"{counts.size}", hint)
    return int(counts.reshape(-1)[0])


def _splits(folder: Path, type_: str = "") -> Callable[[], list[np.ndarray]]:
    """The three lists in the only folder in split/; with several node types, those of one type."""
    folders = sorted(path for path in folder.glob("*") if path.is_dir()) if folder.is_dir() else []
    if len(folders) != 1:
        names = ", ".join(path.name for path in folders) or "none"
        hint = "keep the one that you want, or pass --splits TRAIN VAL TEST"
        raise CohortError(str(folder), "one folder, named by the kind of split", names, hint)
    lists = folders[0] / type_
    for together in (lists / TOGETHER, folders[0] / TOGETHER):
        if together.exists():
            return lambda: _split_dict(together, type_)
    return tables.read_splits([_demand_file(lists / f"{name}.csv.gz") for name in SPLIT_NAMES], PLAIN)


def _take_splits(graph: Graph, folder: Path) -> None:
    try:
        graph.splits = _splits(folder)
    except CohortError as error:
        graph.missing["splits"] = error


def _parts_of(path: Path) -> dict:
    """What a split_dict.pt has of the three splits."""
    parts = load_arrays(path, "save the three lists as train.csv.gz, valid.csv.gz and test.csv.gz beside it")
    if not set(SPLIT_NAMES) <= set(parts):
        raise CohortError(str(path), "the keys train, valid and test", ", ".join(parts) or "none")
    return parts


def _split_dict(path: Path, type_: str) -> list[np.ndarray]:
    """The three lists; where each has those of several node types, of one type."""
    out = []
    for name in SPLIT_NAMES:
        part = _parts_of(path)[name]
        if isinstance(part, dict) and type_ not in part:
            raise CohortError(f"{path}: {name}", f"ids of {type_ or 'nodes'}", ", ".join(map(str, part)) or "none")
        out.append(np.asarray(part[type_] if isinstance(part, dict) else part))
    return out


def _link_files(folder: Path) -> Path | None:
    """What has links that are held out: the folder of three files, or a split_dict.pt."""
    for path in sorted(folder.glob("*/valid.pt")):
        return path.parent
    for path in sorted(folder.glob(f"*/{TOGETHER}")):
        parts = load_arrays(path, DOWNLOAD)
        if isinstance(parts.get("valid"), dict) and LINK_KEYS & parts["valid"].keys():
            return path
    return None


def _links_of(folder: Path, name: str) -> tuple[str, HeldOut]:
    """The links of a split: pairs that all compete with the same pairs, or a list of targets for each source."""
    if folder.name == TOGETHER:
        place, parts = f"{folder}: {name}", _parts_of(folder)[name]
    else:
        path = _demand_file(folder / f"{name}.pt")
        place, parts = str(path), load_arrays(path, DOWNLOAD)
    if {"edge", "edge_neg"} <= parts.keys():
        return place, HeldOut(np.asarray(parts["edge"]), np.asarray(parts["edge_neg"]), True)
    if {"source_node", "target_node", "target_node_neg"} <= parts.keys():
        endpoints = [np.asarray(parts[name]).reshape(-1) for name in ("source_node", "target_node")]
        if len(endpoints[0]) != len(endpoints[1]):
            expected = f"as many targets as sources: {len(endpoints[0])}"
            raise CohortError(f"{place}: target_node", expected, str(len(endpoints[1])), DOWNLOAD)
        return place, HeldOut(np.stack(endpoints, axis=1), np.asarray(parts["target_node_neg"]))
    expected = "edge and edge_neg, or source_node, target_node and target_node_neg"
    hint = "links of several relations, as in knowledge graphs, are not supported"
    raise CohortError(place, expected, ", ".join(parts) or "none", hint)


def _demand_file(path: Path) -> Path:
    if not path.exists():
        raise CohortError(str(path), "a file of OGB's raw layout", "no such file", DOWNLOAD)
    return path
