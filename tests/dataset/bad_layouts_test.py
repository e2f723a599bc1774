"""Damaged folders of other libraries, of one node type and of several: each is refused, and nothing is written."""

from __future__ import annotations

import json

import layout_writers as of_one
import numpy as np
import pytest
import torch
import typed_layout_writers as of_several
from import_helpers import cut, pickled, refusal
from layout_writers import write_csv_gz

AUTHORS = "raw/relations/author___writes___paper/edge.csv.gz"
TYPES = "raw/triplet-type-list.csv.gz"
WRITES = "processed/author___writes___paper/edge_index.npy"
AFFILIATED = "processed/author__affiliated_with__institution/edge_index.npy"
BOLT = "metadata.yaml"
CHUNKS, WRITTEN = "metadata.json", ("edges", "author:writes:paper")
ALL = ("author", "institution", "paper")


def drop(name):
    return lambda root: (root / name).unlink()


def save(name, array):
    return lambda root: np.save(root / name, array)


def raw(name, array):
    return lambda root: array.tofile(root / name)


def edit(file, *path, **values):
    """Changes members of a part of a JSON file; None removes one."""

    def change(root):
        found = part = json.loads((root / file).read_text())
        for key in path:
            part = part[key]
        for key, value in values.items():
            part[key] = value
            if value is None:
                del part[key]
        (root / file).write_text(json.dumps(found))

    return change


def replaced(old, new):
    def change(root):
        text = (root / "metadata.yaml").read_text()
        assert old in text
        (root / "metadata.yaml").write_text(text.replace(old, new))

    return change


VAL_SET = "{name: of_no_use, format: numpy, path: sets/val"


def with_pickled_labels(root):
    replaced("format: numpy, path: sets/val-labels.npy", "format: torch, path: p.pt")(root)
    pickled(root / "p.pt")


OGB = {
    "labels": (drop("raw/node-label.csv.gz"), "a file of OGB's raw layout", "no such file"),
    "nodes": (drop("raw/num-node-list.csv.gz"), "a file of OGB's raw layout", "no such file"),
    "split": (drop("split/time/valid.csv.gz"), "a file of OGB's raw layout", "no such file"),
    "two_splits": (lambda root: (root / "split" / "random").mkdir(), "one folder", "random, time"),
    "graphs": (lambda root: write_csv_gz(root / "raw/num-node-list.csv.gz", np.array([9, 9])), "one graph", "2"),
    "count": (lambda root: write_csv_gz(root / "raw/num-node-list.csv.gz", np.array([61])), "61 rows", "60"),
    "float": (
        lambda root: write_csv_gz(root / "raw/node-label.csv.gz", np.full(60, 0.5)),
        "the number of a class",
        "0.5",
    ),
    "multi": (lambda root: write_csv_gz(root / "raw/node-label.csv.gz", np.ones((60, 3))), "one class", "3 targets"),
    "gzip": (lambda root: (root / "raw/edge.csv.gz").write_bytes(b"0,1\n"), "a whole text file", "no gzip"),
    "one_end": (lambda root: write_csv_gz(root / "raw/edge.csv.gz", np.zeros(9, int)), "at least 2 fields", "1"),
    "cut": (lambda root: cut(root / "raw/node-feat.csv.gz"), "a whole text file", "end early"),
    "pickle": (lambda root: pickled(root / "split/time/split_dict.pt"), "only tensors", ""),
}
IGB = {
    "labels": (drop("processed/paper/node_label_19.npy"), "node_label_19.npy or", "neither"),
    "rows": (lambda root: (root / "processed/paper/node_feat.npy").write_bytes(b"12345"), "rows of 1024", "5 bytes"),
    "edges": (
        lambda root: np.save(root / "processed/paper__cites__paper/edge_index.npy", np.ones((5, 3), int)),
        "[2, E]",
        "[5, 3]",
    ),
    "many": (lambda root: np.save(root / "processed/paper/node_label_19.npy", np.ones(99)), "at most 60 labels", "99"),
}
LEGION = {
    "edge_src": (raw("edge_src", np.arange(3, dtype=np.int64)), "values that ascend from 0 to 400", "0 .. 2"),
    "edge_dst": (raw("edge_dst", np.full(400, 60, np.int32)), "a node in [0, 60)", "60"),
    "features": (raw("features", np.zeros(7, np.float32)), "a multiple of 240 bytes", "28 bytes"),
    "labels": (raw("labels", np.zeros(7, np.int32)), "shape [60]", "[7]"),
    "trainingset": (raw("trainingset", np.array([77], np.int32)), "a node in [0, 60)", "77"),
    "testingset": (raw("testingset", np.zeros(3, np.int16)), "rows of 1 x int32", "6 bytes"),
}
GRAPHBOLT = {
    "yaml": (replaced("graph:", "graph: ["), "YAML", ""),
    "object": (replaced("small", "!!python/object/apply:os.system [exit]"), "YAML", "the tag !!python/object"),
    "no_graph": (replaced("graph:", "graphs:"), "the key graph", "none"),
    "types": (replaced("- num: 60", "- {num: 60, type: paper}"), "one of the node types paper", "node"),
    "num": (replaced("- num: 60", "- num: many"), "an integer", "a text"),
    "edge_format": (replaced("format: csv", "format: parquet"), "format csv or numpy", "parquet"),
    "feature_format": (
        replaced("name: feat, format: numpy", "name: feat, format: csv"),
        "format numpy or torch",
        "csv",
    ),
    "no_path": (replaced("path: data/feat.npy", "file: data/feat.npy"), "the key path", "none"),
    "outside": (replaced("path: data/feat.npy", "path: ../feat.npy"), "a file in the folder", "../feat.npy"),
    "absolute": (replaced("path: data/feat.npy", "path: /etc/passwd"), "a file in the folder", "/etc/passwd"),
    "no_file": (replaced("path: data/feat.npy", "path: data/no.npy"), "a readable file", "No such file"),
    "no_seeds": (replaced("{name: seeds, format: numpy, path: sets/val", VAL_SET), "seeds in val", "labels"),
    "pickle": (with_pickled_labels, "only tensors", ""),
}
OGB_TYPES = {
    "edges": (drop(AUTHORS), "writes", "a file of OGB's raw layout", "no such file"),
    "counts": (drop("raw/num-node-dict.csv.gz"), "num-node-dict", "a file of OGB's raw layout", "no such file"),
    "labels": (drop("raw/node-label/paper/node-label.csv.gz"), "raw", "labels of one node type", "none"),
    "split": (drop("split/time/paper/test.csv.gz"), "test.csv.gz", "a file of OGB's raw layout", "no such file"),
    "range": (
        lambda root: write_csv_gz(root / AUTHORS, np.array([[30, 0]])),
        "edge.csv.gz: source of edge 0",
        "a node of type author in [0, 30)",
        "30",
    ),
    "rows": (
        lambda root: write_csv_gz(root / "raw/node-feat/paper/node-feat.csv.gz", np.ones((51, 4))),
        "node-feat.csv.gz",
        "50 rows, one per node",
        "51",
    ),
    "types": (
        lambda root: write_csv_gz(root / "raw/triplet-type-list.csv.gz", np.ones(3)),
        "triplet",
        "a column 1",
        "",
    ),
    "type": (
        lambda root: write_csv_gz(root / TYPES, np.ones((1, 3))),
        "1.0___1.0___1.0",
        "a file of OGB's raw layout",
        "no such file",
    ),
    "number": (
        lambda root: write_csv_gz(root / "raw/num-node-dict.csv.gz", np.ones(2)),
        "num-node",
        "an integer",
        "1.0",
    ),
    "cut": (lambda root: cut(root / AUTHORS), "edge.csv.gz", "a whole text file", "end early"),
}
MAG240M = {
    "edges": (drop(WRITES), "edge_index.npy", "a readable file", "No such file"),
    "label": (drop("processed/paper/node_label.npy"), "node_label.npy", "a readable file", "No such file"),
    "split": (drop("split_dict.pt"), "split_dict.pt", "only tensors", "No such file"),
    "dtype": (save(WRITES, np.ones((2, 3))), "edge_index.npy", "integers", "float64"),
    "shape": (save(WRITES, np.ones((3, 4), int)), "edge_index.npy", "[2, E] or [E, 2]", "[3, 4]"),
    "range": (save(WRITES, np.array([[0], [50]])), "destination of edge 0", "a node of type paper in [0, 50)", "50"),
    "rows": (save("processed/paper/node_feat.npy", np.ones((9, 2))), "node_feat.npy", "50 rows", "9"),
    "flat": (save("processed/paper/node_feat.npy", np.ones(50)), "node_feat.npy", "shape [any, any]", "[50]"),
    "labels": (save("processed/paper/node_label.npy", np.ones(51)), "node_label.npy", "shape [50]", "[51]"),
    "meta": (
        lambda root: torch.save({"paper": 50}, root / "meta.pt"),
        "author",
        "one of the node types paper",
        "author",
    ),
    "keys": (
        lambda root: torch.save({"train": 1}, root / "split_dict.pt"),
        "split_dict.pt: train",
        "shape [any]",
        "[]",
    ),
    "list": (lambda root: torch.save([1], root / "split_dict.pt"), "split_dict.pt", "a dict of arrays", "list"),
    "pickle": (lambda root: pickled(root / "meta.pt"), "meta.pt", "only tensors", ""),
    "cut": (lambda root: cut(root / "split_dict.pt"), "split_dict.pt", "only tensors", ""),
}
IGBH = {
    "rows": (drop("processed/author/node_feat.npy"), "author/node_feat.npy", "a readable file", "No such file"),
    "labels": (drop("processed/paper/node_label_19.npy"), "paper", "node_label_19.npy or", "neither"),
    "edges": (drop(AFFILIATED), "edge_index.npy", "a readable file", "No such file"),
    "range": (save(AFFILIATED, np.array([[0, 5]] * 3)), "destination of edge 0", "type institution in [0, 5)", "5"),
    "bare": (
        lambda root: (root / "processed/author/node_feat.npy").write_bytes(b"123"),
        "author",
        "rows of 1024",
        "3 b",
    ),
    "name": (lambda root: (root / "processed/a__b__c__d").mkdir(), "a__b__c__d", "a relation source__name", "a__b"),
}
GRAPHBOLT_TYPES = {
    "type": (
        edit(BOLT, "graph", "edges", 0, type="author:writes"),
        "type of edges",
        "a relation source:name:target",
        "",
    ),
    "unknown": (
        edit(BOLT, "graph", "edges", 0, type="a:writes:paper"),
        "a, writes, paper",
        "one of the node types",
        "a",
    ),
    "again": (edit(BOLT, "graph", "nodes", 0, type="paper"), BOLT, "each node type once", "3 entries"),
    "target": (edit(BOLT, "tasks", 0, "test_set", 0, type="author"), BOLT, "a task of one node type", "author, paper"),
    "venue": (
        lambda root: [
            edit(BOLT, "tasks", 0, f"{s}_set", 0, type="venue")(root) for s in ("train", "validation", "test")
        ],
        "the type that has labels",
        "one of the node types",
        "venue",
    ),
    "num": (edit(BOLT, "graph", "nodes", 0, num="many"), "graph.nodes[0].num", "an integer", "a text"),
    "none": (edit(BOLT, "graph", "nodes", 0, num=0), BOLT, "num, the number of nodes", "0"),
    "file": (drop("edges-1.npy"), "edges-1.npy", "a readable file", "No such file"),
    "range": (
        save("edges-1.npy", np.array([[30], [0]])),
        "edges-1.npy: source of edge 0",
        "type author in [0, 30)",
        "30",
    ),
}
DGL = {
    "json": (lambda root: (root / CHUNKS).write_text("{"), CHUNKS, "JSON", '"{"'),
    "member": (edit(CHUNKS, edges=None), CHUNKS, "the key edges", "none"),
    "counts": (
        edit(CHUNKS, num_nodes_per_chunk=[[3]]),
        "num_nodes_per_chunk",
        "one entry for each node type",
        "1 for author",
    ),
    "again": (edit(CHUNKS, node_type=["a", "b", "a"]), "num_nodes_per_chunk", "each node type, of", "3 for a, b, a"),
    "relation": (
        edit(CHUNKS, "edges", **{"author:writes:paper": None}),
        "edges",
        "the relation author:writes:p",
        "cites",
    ),
    "type": (edit(CHUNKS, edge_type=["author:paper"]), CHUNKS, "a relation source:name:target", "author:paper"),
    "format": (edit(CHUNKS, *WRITTEN, format={"name": "orc"}), CHUNKS, "format numpy, parquet or csv", "orc"),
    "file": (edit(CHUNKS, *WRITTEN, data=["no.npy"]), "no.npy", "a readable file", "No such file"),
    "outside": (edit(CHUNKS, *WRITTEN, data=["../e.npy"]), CHUNKS, "a file in the folder", "../e.npy"),
    "label": (edit(CHUNKS, "node_data", "paper", label=None), CHUNKS, "labels of one node type", "none"),
    "count": (edit(CHUNKS, num_nodes_per_chunk=[[30], [5], [51]]), "feat of paper", "51 rows", "50"),
    "range": (save("edges-1-1.npy", np.array([[0, 50], [0, 0]])), "edge 118", "a node of type paper in [0, 50)", "50"),
    "width": (save("feat-paper-1.npy", np.ones((2, 3), np.float32)), "feat-paper-1.npy", "shape [any, 4]", "[2, 3]"),
    "dtypes": (
        save("feat-paper-1.npy", np.ones((2, 4), np.float16)),
        "feat of paper",
        "files of one type",
        "float16, f",
    ),
    "mask": (save("val_mask-1.npy", np.array([0, 7])), "val_mask", "True or False", "dtype int64"),
}

# Format -> what writes a good folder, and by name: what damages it, words of the error's place (of graphs of several
# types), expected and found.
BAD = {
    "ogb": (lambda root: of_one.write_ogb(root, of_one.sample()), OGB),
    "igb": (lambda root: of_one.write_igb(root, of_one.sample(dim=1024)), IGB),
    "legion": (lambda root: of_one.write_legion(root, of_one.sample()), LEGION),
    "graphbolt": (lambda root: of_one.write_graphbolt(root, of_one.sample()), GRAPHBOLT),
    "ogb_types": (lambda root: of_several.write_ogb(root, of_several.sample()), OGB_TYPES),
    "mag240m": (lambda root: of_several.write_mag240m(root, of_several.sample()), MAG240M),
    "igbh": (lambda root: of_several.write_igbh(root, of_several.sample(ALL, dim=1024)), IGBH),
    "graphbolt_types": (lambda root: of_several.write_graphbolt(root, of_several.sample()), GRAPHBOLT_TYPES),
    "dgl": (lambda root: of_several.write_chunked(root, of_several.sample()), DGL),
}


@pytest.mark.parametrize(("form", "name"), [(form, name) for form, (_, cases) in BAD.items() for name in cases])
def test_bad_folders_are_refused(tmp_path, form, name):
    if form.startswith("graphbolt"):
        pytest.importorskip("yaml")
    write, cases = BAD[form]
    change, *place, expected, found = cases[name]
    root = write(tmp_path / "source")
    change(root)
    error = refusal(root, tmp_path / "out")
    assert expected in error.expected and found in error.found, error
    assert all(words in error.place for words in place), error
