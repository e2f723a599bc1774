"""What cannot be appended is refused with its place, what was expected and found, and the cure; nothing changes."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from processes import here, refused
from random_graphs import TypedCase, files_of

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import append, import_graph
from cohort_gnn.dataset.appending.append import EdgeTreatment
from cohort_gnn.dataset.importing.beside import SourceOptions

NODES = 6
ARRAYS = {
    "edges": np.array([[0, 1, 2], [1, 2, 3]]),
    "x": np.ones((NODES, 2), np.float32),
    "y": np.array([0, 1, 0, 1, -1, -1]),
    "weights": np.array([1, 2, 3], np.float32),
    "nan": np.array([1, np.nan, 3], np.float32),
    "ids": np.array([10, 11, 12, 13, 14, 15]),
    "id_edges": np.array([[10, 11, 12], [11, 12, 13]]),
    "far": np.array([[0], [9]]),
    "loop": np.array([[7], [7]]),
    "x2": np.ones((2, 2), np.float32),
    "x3": np.ones((2, 3), np.float32),
    "x16": np.ones((2, 2), np.float16),
    "x_nan": np.array([[1, 1], [1, np.inf]], np.float32),
    "y2": np.array([0, 1]),
    "y5": np.array([0, 5]),
    "again": np.array([11, 20]),
    "two": np.array([20, 21]),
    "none": np.empty(0, np.int64),
    "first": np.array([0]),
    "gone": np.array([[3], [0]]),
    "id_gone": np.array([[13], [10]]),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Arrays, and data sets: plain, turned, weighted (edges merge), ids, components, unknown (was none), typed."""
    folder = tmp_path_factory.mktemp("refused")
    for name, array in ARRAYS.items():
        np.save(folder / f"{name}.npy", array)
    inputs = SourceOptions(features=folder / "x.npy", labels=folder / "y.npy")
    edges = folder / "edges.npy"
    import_graph(edges, folder / "plain", inputs=inputs)
    import_graph(edges, folder / "turned", inputs=inputs, transpose=True)
    weighted = SourceOptions(features=folder / "x.npy", edge_weights=folder / "weights.npy")
    import_graph(edges, folder / "weighted", inputs=weighted, undirected=True)
    with_ids = SourceOptions(features=folder / "x.npy", node_ids=folder / "ids.npy")
    import_graph(folder / "id_edges.npy", folder / "ids", inputs=with_ids)
    import_graph(edges, folder / "components", inputs=inputs, pca=1)
    (folder / "components" / "components.npy").unlink()  # of an earlier version
    shutil.copytree(folder / "plain", folder / "unknown")
    (folder / "unknown" / "import.json").unlink()
    case = TypedCase(3)
    import_graph(case.write(folder / "tables", case.tables[0]), folder / "typed")
    table = pa.table({"user": ["u0", "nobody"], "item": [0, 0]})
    for name, text in {
        "strangers": "edges: [{type: [user, buys, item], file: more.parquet, source: user, target: item}]",
        "sells": "edges: [{type: [user, sells, item], file: more.parquet, source: user, target: item}]",
        "shop": "edges: []",
        "twice": "edges: []",
    }.items():
        (folder / name).mkdir()
        pq.write_table(table, folder / name / "more.parquet")
        nodes = {"shop": "{shop: {count: 3}}", "twice": "{user: {file: u.parquet, id: id}}"}.get(name, "{}")
        (folder / name / "graph.yaml").write_text(f"nodes: {nodes}\n{text}\n")
    pq.write_table(pa.table({"id": ["u0", "new"]}), folder / "twice" / "u.parquet")
    return folder


ROWS = {"features": "x2"}
CASES = {
    "no such node": (
        "plain",
        {"edges": "far"},
        "destination of edge 0: expected a node in [0, 6), found 9",
        "--nodes V",
    ),
    "columns": ("plain", {"features": "x3"}, "expected 2 columns, as the rows of", "the same features as before"),
    "dtype": ("plain", {"features": "x16"}, "expected float32, as the rows of", "write them as float32"),
    "infinity": ("plain", {"features": "x_nan"}, "x_nan.npy[1, 1]: expected a finite number", "numpy.nan_to_num"),
    "no split": ("plain", ROWS | {"labels": "y2"}, "expected the splits that new nodes with labels are in", "1,0,0"),
    "class": ("plain", ROWS | {"labels": "y5"}, "expected a class in [0, 2)", "without a label"),
    "split of old nodes": (
        "plain",
        ROWS | {"labels": "y2", "splits": ["first", "none", "none"]},
        "--splits: train_ids[0]: expected a new node, found 0, which is there",
        "stay as they are",
    ),
    "too few nodes": ("plain", {"nodes": 3}, "--nodes: expected at least the 6 nodes", "leave it out"),
    "no rows": ("plain", {"nodes": 8}, "expected rows of features for 2 new nodes, found none", "--features ones"),
    "ids of none": ("plain", ROWS | {"node_ids": "two"}, "--node-ids: expected ids in", "the next numbers"),
    "weights too many": (
        "plain",
        {"edges": "edges", "edge_weights": "weights"},
        "expected edges without weights",
        "out",
    ),
    "no edge to remove": (
        "plain",
        {"remove_edges": "gone"},
        "expected edges that the data set has, found edge 3 -> 0",
        "",
    ),
    "no edge to remove, turned": ("turned", {"remove_edges": "gone"}, "found edge 3 -> 0", "leave it out"),
    "no edge to remove, by ids": ("ids", {"remove_edges": "id_gone"}, "found edge 13 -> 10", "leave it out"),
    "weights missing": ("weighted", {"edges": "edges"}, "expected edges with weights", "--edge-weights FILE"),
    "not a number": ("weighted", {"edges": "edges", "edge_weights": "nan"}, "expected a finite number", "nan_to_num"),
    "rounded sum": (
        "weighted",
        {"edges": "edges", "edge_weights": "weights"},
        "the sum of their weights",
        "import all",
    ),
    "no ids": ("ids", ROWS, "expected 2 ids, one per new node, found 0", "--node-ids FILE"),
    "id again": (
        "ids",
        ROWS | {"node_ids": "again"},
        "--node-ids[0]: expected ids that no node of",
        "leave these rows out",
    ),
    "unknown id": ("ids", {"edges": "far"}, "expected an id that the list of node ids has, found 0", "--rename"),
    "components": (
        "components",
        ROWS,
        "components.npy: expected the components of the import",
        "import all data again",
    ),
    "no record": ("unknown", {"edges": "edges"}, "what the import did to the edges, found no such file", "--no-dedupe"),
    "typed": ("typed", {"edges": "edges"}, "expected a graph.yaml, since the data set has several types", "tables"),
    "stranger": ("typed", {"edges": "strangers/"}, "user of edge 1: expected an id of type user", "unknown_ids: skip"),
    "no relation": ("typed", {"edges": "sells/"}, "expected a relation of", ""),
    "no type": ("typed", {"edges": "shop/"}, "expected a node type of", "import all data again"),
    "named twice": ("typed", {"edges": "twice/"}, "expected an id named once, found u0, which is there", "leave"),
    "nothing": ("plain", {}, "expected new nodes or edges", "--edges SOURCE"),
    "weights alone": (
        "plain",
        ROWS | {"edge_weights": "weights"},
        "--edge-weights: expected edges that",
        "--edges FILE",
    ),
    "labels alone": ("plain", {"edges": "edges", "labels": "y2"}, "--labels: expected new nodes that it is of", "rows"),
    "nodes of types": ("typed", {"edges": "strangers/", "nodes": 9}, "--nodes: expected a graph of one node type", ""),
    "nothing there": ("plain", {"edges": "nowhere"}, "expected a file or folder of edges", "check the path"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_does_not_fit_is_refused(folder, name):
    data, options, text, cure = CASES[name]

    def path(value):
        if isinstance(value, list):
            return [path(each) for each in value]
        if not isinstance(value, str):
            return value
        return folder / value if value.endswith("/") else folder / f"{value}.npy"

    options = {option: path(value) for option, value in options.items()}
    sources = {option: options.pop(option) for option in ("edges", "remove_edges") if option in options}
    before, names = files_of(folder / data), set(folder.iterdir())
    with pytest.raises(CohortError) as error:
        append(folder / data, **sources, inputs=SourceOptions(**options))
    assert text in str(error.value) and cure in error.value.hint
    assert files_of(folder / data) == before and set(folder.iterdir()) == names


def test_options_that_the_data_set_has_settled_are_refused(folder):
    before = files_of(folder / "plain")
    for given, text in (
        ({"undirected": True}, "--undirected: expected False, found True"),
        ({"reverse": True}, "--reverse-edges: expected False, found True"),
        ({"self_loops": "add"}, "--self-loops: expected keep, found add"),
    ):
        with pytest.raises(CohortError, match=text):
            append(folder / "plain", edges=folder / "edges.npy", treatment=EdgeTreatment(**given))
    with pytest.raises(CohortError, match="--target: expected node, as .*plain has, found item"):
        append(folder / "plain", inputs=SourceOptions(features=folder / "x2.npy", target="item"))
    command = ["append", folder / "plain", "--edges", folder / "edges.npy", "--label-type", "regression"]
    refused(here("dataset", *command), 2, "unrecognized arguments: --label-type regression")
    assert files_of(folder / "plain") == before
