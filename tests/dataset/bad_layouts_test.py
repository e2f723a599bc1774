"""Damaged folders of other libraries, of one node type and of several: each is refused, and nothing is written."""

from __future__ import annotations

import layout_writers as of_one
import numpy as np
import pytest
import typed_layout_writers as of_several
from damages import cut, members, remove, replaced, save, save_tensors, several, write
from import_helpers import PICKLE, refusal
from layout_writers import write_csv_gz

AUTHORS = "raw/relations/author___writes___paper/edge.csv.gz"
TYPES = "raw/triplet-type-list.csv.gz"
WRITES = "processed/author___writes___paper/edge_index.npy"
AFFILIATED = "processed/author__affiliated_with__institution/edge_index.npy"
BOLT = "metadata.yaml"
CHUNKS, WRITTEN = "metadata.json", ("edges", "author:writes:paper")
ALL = ("author", "institution", "paper")


def raw(name, array):
    return write(name, array.tobytes())


def rows(name, array):
    return lambda root: write_csv_gz(root / name, array)


def bolt(old, new):
    return replaced(BOLT, old, new)


VAL_SET = "{name: of_no_use, format: numpy, path: sets/val"
OGB = {
    "labels": (remove("raw/node-label.csv.gz"), "a file of OGB's raw layout", "no such file"),
    "nodes": (remove("raw/num-node-list.csv.gz"), "a file of OGB's raw layout", "no such file"),
    "split": (remove("split/time/valid.csv.gz"), "a file of OGB's raw layout", "no such file"),
    "two_splits": (lambda root: (root / "split" / "random").mkdir(), "one folder", "random, time"),
    "graphs": (rows("raw/num-node-list.csv.gz", np.array([9, 9])), "one graph", "2"),
    "count": (rows("raw/num-node-list.csv.gz", np.array([61])), "61 rows", "60"),
    "float": (rows("raw/node-label.csv.gz", np.full(60, 0.5)), "the number of a class", "0.5"),
    "multi": (rows("raw/node-label.csv.gz", np.ones((60, 3))), "one class", "3 targets"),
    "gzip": (write("raw/edge.csv.gz", b"0,1\n"), "a whole text file", "no gzip"),
    "one_end": (rows("raw/edge.csv.gz", np.zeros(9, int)), "at least 2 fields", "1"),
    "cut": (cut("raw/node-feat.csv.gz"), "a whole text file", "end early"),
    "pickle": (write("split/time/split_dict.pt", PICKLE), "only tensors", ""),
}
IGB = {
    "labels": (remove("processed/paper/node_label_19.npy"), "node_label_19.npy or", "neither"),
    "rows": (write("processed/paper/node_feat.npy", b"12345"), "rows of 1024", "5 bytes"),
    "edges": (save("processed/paper__cites__paper/edge_index.npy", np.ones((5, 3), int)), "[2, E]", "[5, 3]"),
    "many": (save("processed/paper/node_label_19.npy", np.ones(99)), "at most 60 labels", "99"),
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
    "yaml": (bolt("graph:", "graph: ["), "YAML", ""),
    "object": (bolt("small", "!!python/object/apply:os.system [exit]"), "YAML", "the tag !!python/object"),
    "no_graph": (bolt("graph:", "graphs:"), "the key graph", "none"),
    "types": (bolt("- num: 60", "- {num: 60, type: paper}"), "one of the node types paper", "node"),
    "num": (bolt("- num: 60", "- num: many"), "an integer", "a text"),
    "edge_format": (bolt("format: csv", "format: parquet"), "format csv or numpy", "parquet"),
    "feature_format": (bolt("name: feat, format: numpy", "name: feat, format: csv"), "format numpy or torch", "csv"),
    "no_path": (bolt("path: data/feat.npy", "file: data/feat.npy"), "the key path", "none"),
    "outside": (bolt("path: data/feat.npy", "path: ../feat.npy"), "a file in the folder", "../feat.npy"),
    "absolute": (bolt("path: data/feat.npy", "path: /etc/passwd"), "a file in the folder", "/etc/passwd"),
    "no_file": (bolt("path: data/feat.npy", "path: data/no.npy"), "a readable file", "No such file"),
    "no_seeds": (bolt("{name: seeds, format: numpy, path: sets/val", VAL_SET), "seeds in val", "labels"),
    "pickle": (
        several(bolt("format: numpy, path: sets/val-labels.npy", "format: torch, path: p.pt"), write("p.pt", PICKLE)),
        "only tensors",
        "",
    ),
}
OGB_TYPES = {
    "edges": (remove(AUTHORS), "writes", "a file of OGB's raw layout", "no such file"),
    "counts": (remove("raw/num-node-dict.csv.gz"), "num-node-dict", "a file of OGB's raw layout", "no such file"),
    "labels": (remove("raw/node-label/paper/node-label.csv.gz"), "raw", "labels of one node type", "none"),
    "split": (remove("split/time/paper/test.csv.gz"), "test.csv.gz", "a file of OGB's raw layout", "no such file"),
    "range": (
        rows(AUTHORS, np.array([[30, 0]])),
        "edge.csv.gz: source of edge 0",
        "a node of type author in [0, 30)",
        "30",
    ),
    "rows": (
        rows("raw/node-feat/paper/node-feat.csv.gz", np.ones((51, 4))),
        "node-feat.csv.gz",
        "50 rows, one per node",
        "51",
    ),
    "types": (rows(TYPES, np.ones(3)), "triplet", "a column 1", ""),
    "type": (rows(TYPES, np.ones((1, 3))), "1.0___1.0___1.0", "a file of OGB's raw layout", "no such file"),
    "number": (rows("raw/num-node-dict.csv.gz", np.ones(2)), "num-node", "an integer", "1.0"),
    "cut": (cut(AUTHORS), "edge.csv.gz", "a whole text file", "end early"),
}
MAG240M = {
    "edges": (remove(WRITES), "edge_index.npy", "a readable file", "No such file"),
    "label": (remove("processed/paper/node_label.npy"), "node_label.npy", "a readable file", "No such file"),
    "split": (remove("split_dict.pt"), "split_dict.pt", "only tensors", "No such file"),
    "dtype": (save(WRITES, np.ones((2, 3))), "edge_index.npy", "integers", "float64"),
    "shape": (save(WRITES, np.ones((3, 4), int)), "edge_index.npy", "[2, E] or [E, 2]", "[3, 4]"),
    "range": (save(WRITES, np.array([[0], [50]])), "destination of edge 0", "a node of type paper in [0, 50)", "50"),
    "rows": (save("processed/paper/node_feat.npy", np.ones((9, 2))), "node_feat.npy", "50 rows", "9"),
    "flat": (save("processed/paper/node_feat.npy", np.ones(50)), "node_feat.npy", "shape [any, any]", "[50]"),
    "labels": (save("processed/paper/node_label.npy", np.ones(51)), "node_label.npy", "shape [50]", "[51]"),
    "meta": (save_tensors("meta.pt", {"paper": 50}), "author", "one of the node types paper", "author"),
    "keys": (save_tensors("split_dict.pt", {"train": 1}), "split_dict.pt: train", "shape [any]", "[]"),
    "list": (save_tensors("split_dict.pt", [1]), "split_dict.pt", "a dict of arrays", "list"),
    "pickle": (write("meta.pt", PICKLE), "meta.pt", "only tensors", ""),
    "cut": (cut("split_dict.pt"), "split_dict.pt", "only tensors", ""),
}
IGBH = {
    "rows": (remove("processed/author/node_feat.npy"), "author/node_feat.npy", "a readable file", "No such file"),
    "labels": (remove("processed/paper/node_label_19.npy"), "paper", "node_label_19.npy or", "neither"),
    "edges": (remove(AFFILIATED), "edge_index.npy", "a readable file", "No such file"),
    "range": (save(AFFILIATED, np.array([[0, 5]] * 3)), "destination of edge 0", "type institution in [0, 5)", "5"),
    "bare": (write("processed/author/node_feat.npy", b"123"), "author", "rows of 1024", "3 b"),
    "name": (lambda root: (root / "processed/a__b__c__d").mkdir(), "a__b__c__d", "a relation source__name", "a__b"),
}
GRAPHBOLT_TYPES = {
    "type": (
        members(BOLT, "graph", "edges", 0, type="author:writes"),
        "type of edges",
        "a relation source:name:target",
        "",
    ),
    "unknown": (
        members(BOLT, "graph", "edges", 0, type="a:writes:paper"),
        "a, writes, paper",
        "one of the node types",
        "a",
    ),
    "again": (members(BOLT, "graph", "nodes", 0, type="paper"), BOLT, "each node type once", "3 entries"),
    "target": (
        members(BOLT, "tasks", 0, "test_set", 0, type="author"),
        BOLT,
        "a task of one node type",
        "author, paper",
    ),
    "venue": (
        several(*(members(BOLT, "tasks", 0, f"{s}_set", 0, type="venue") for s in ("train", "validation", "test"))),
        "the type that has labels",
        "one of the node types",
        "venue",
    ),
    "num": (members(BOLT, "graph", "nodes", 0, num="many"), "graph.nodes[0].num", "an integer", "a text"),
    "none": (members(BOLT, "graph", "nodes", 0, num=0), BOLT, "num, the number of nodes", "0"),
    "file": (remove("edges-1.npy"), "edges-1.npy", "a readable file", "No such file"),
    "range": (
        save("edges-1.npy", np.array([[30], [0]])),
        "edges-1.npy: source of edge 0",
        "type author in [0, 30)",
        "30",
    ),
}
DGL = {
    "json": (write(CHUNKS, "{"), CHUNKS, "JSON", '"{"'),
    "member": (members(CHUNKS, edges=None), CHUNKS, "the key edges", "none"),
    "counts": (
        members(CHUNKS, num_nodes_per_chunk=[[3]]),
        "num_nodes_per_chunk",
        "one entry for each node type",
        "1 for author",
    ),
    "again": (members(CHUNKS, node_type=["a", "b", "a"]), "num_nodes_per_chunk", "each node type, of", "3 for a, b, a"),
    "relation": (
        members(CHUNKS, "edges", **{"author:writes:paper": None}),
        "edges",
        "the relation author:writes:p",
        "cites",
    ),
    "type": (members(CHUNKS, edge_type=["author:paper"]), CHUNKS, "a relation source:name:target", "author:paper"),
    "format": (members(CHUNKS, *WRITTEN, format={"name": "orc"}), CHUNKS, "format numpy, parquet or csv", "orc"),
    "file": (members(CHUNKS, *WRITTEN, data=["no.npy"]), "no.npy", "a readable file", "No such file"),
    "outside": (members(CHUNKS, *WRITTEN, data=["../e.npy"]), CHUNKS, "a file in the folder", "../e.npy"),
    "label": (members(CHUNKS, "node_data", "paper", label=None), CHUNKS, "labels of one node type", "none"),
    "count": (members(CHUNKS, num_nodes_per_chunk=[[30], [5], [51]]), "feat of paper", "51 rows", "50"),
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
    write, cases = BAD[form]
    change, *place, expected, found = cases[name]
    root = write(tmp_path / "source")
    change(root)
    error = refusal(root, tmp_path / "out")
    assert expected in error.expected and found in error.found, error
    assert all(words in error.place for words in place), error
