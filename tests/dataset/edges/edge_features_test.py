"""Features of edges through importers, sorting, renumbering, splitting and generating; checked; refused where they do
not fit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from import_helpers import imported, refusal, write_npz
from layout_writers import sample
from torch_geometric.data import HeteroData

from cohort_gnn import CohortError
from cohort_gnn.dataset import from_pyg, from_tensors, split_links
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.dataset.check import check
from cohort_gnn.dataset.importing.renumber import renumber

GRAPH = sample()
OF_NODES = {"features": "ones", "nodes": GRAPH.num_nodes}
SRC, DST = GRAPH.edge_index
RANDOM = np.random.default_rng(9)
ROWS = RANDOM.integers(-99, 99, (len(SRC), 3)).astype(np.float32)
ROWS[:, 0] = np.arange(len(SRC))  # tells edges with equal ends apart


def edges_read_by_hand(folder: Path) -> list[tuple]:
    """(destination, source, features ...) in the order of the files, by json and NumPy alone, as FORMAT.md says."""
    assert check(folder) == []
    meta = json.loads((folder / "meta.json").read_text())
    indptr, indices = (np.load(folder / meta["files"][name]) for name in ("indptr", "indices"))
    told = meta["edge_features"]
    rows = np.load(folder / told["file"])
    assert rows.shape == (meta["num_edges"], told["dim"]) and rows.dtype.name == told["dtype"]
    target = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    return list(zip(target.tolist(), indices.tolist(), *rows.T.tolist(), strict=True))


def listed(src, dst, rows) -> list[tuple]:
    """What is expected: by destination and source; equal ends keep their order."""
    order = np.lexsort((np.arange(len(src)), src, dst))
    return list(zip(dst[order].tolist(), src[order].tolist(), *rows[order].T.tolist(), strict=True))


EXPECTED = listed(SRC, DST, ROWS)


def written(folder: Path, **more) -> Path:
    return from_tensors(folder, x=GRAPH.x, y=GRAPH.y, edge_index=GRAPH.edge_index, edge_attr=ROWS, **more)


def edge_list(folder: Path, kind: str) -> tuple[Path, dict]:
    """An edge list and what of SourceOptions names its features."""
    if kind == "npy":
        np.save(folder / "edges.npy", GRAPH.edge_index)
        np.save(folder / "rows.npy", ROWS)
        return folder / "edges.npy", {"edge_features": folder / "rows.npy"}
    if kind == "parquet":
        columns = {"src": SRC, "a": ROWS[:, 0], "dst": DST, "b": ROWS[:, 1], "c": ROWS[:, 2]}
        pq.write_table(pa.table(columns), folder / "edges.parquet")
        return folder / "edges.parquet", {"edge_feature_columns": ["a", "b:c"]}
    text = "\n".join(f"{s},{d},{','.join(map(str, row))}" for s, d, row in zip(SRC, DST, ROWS.tolist(), strict=True))
    (folder / "edges.csv").write_text(f"src,dst,a,b,c\n{text}\n")
    if kind == "csv":
        return folder / "edges.csv", {"edge_feature_columns": ["a:c"]}
    (folder / "rows.csv").write_text("a,b,c\n" + "\n".join(",".join(map(str, row)) for row in ROWS.tolist()))
    return folder / "edges.csv", {"edge_features": folder / "rows.csv"}


@pytest.mark.parametrize("kind", ["npy", "csv", "parquet", "csv and a file of rows"])
@pytest.mark.parametrize("memory", [16_000_000, 64_000_000])
def test_edge_lists_bring_features(tmp_path, kind, memory):
    source, given = edge_list(tmp_path, kind)
    notes: list[str] = []
    data = imported(source, **OF_NODES, **given, memory=memory, note=notes.append)
    assert edges_read_by_hand(data.path) == EXPECTED
    assert ("features a, b, c" in " ".join(notes)) == ("edge_feature_columns" in given)
    assert not list(data.path.glob("*number*")) and not list(data.path.glob("*unsorted*"))


def test_options_keep_each_row_with_its_edge(tmp_path):
    source, given = edge_list(tmp_path, "npy")

    def edges_with(**options) -> list:
        return edges_read_by_hand(imported(source, **OF_NODES, **given, **options).path)

    ends = np.stack([SRC, DST], axis=1).reshape(-1)
    others = np.stack([DST, SRC], axis=1).reshape(-1)
    assert edges_with(transpose=True) == listed(DST, SRC, ROWS)
    assert sorted(edges_with(reverse=True)) == sorted(listed(ends, others, ROWS.repeat(2, axis=0)))
    kept = SRC != DST
    assert edges_with(self_loops="remove") == listed(SRC[kept], DST[kept], ROWS[kept])


@pytest.mark.parametrize("dtype", ["float16", "uint8", "bfloat16", "float64"])
def test_types_are_kept(tmp_path, dtype):
    rows = torch.from_numpy(np.abs(ROWS)).to(getattr(torch, dtype))
    folder = from_tensors(tmp_path / "set", x=GRAPH.x, edge_index=GRAPH.edge_index, edge_attr=rows)
    data = open_dataset(folder)
    assert data.edge_table.feature_dtype == ("float32" if dtype == "float64" else dtype)
    order = np.lexsort((np.arange(len(SRC)), SRC, DST))
    np.testing.assert_array_equal(data.edge_table.x_float32(), rows.float().numpy()[order])
    np.testing.assert_array_equal(data.to_pyg().edge_attr.numpy(), rows.float().numpy()[order])


def test_weights_and_times_stay_with_their_edges(tmp_path):
    weights = RANDOM.random(len(SRC)).astype(np.float32)
    data = open_dataset(written(tmp_path / "weights", edge_weight=weights))
    np.testing.assert_array_equal(data.edge_weights, weights[data.edge_attr[:, 0].astype(int)])
    assert edges_read_by_hand(data.path) == EXPECTED
    times = RANDOM.integers(-5, 20, len(SRC))
    data = open_dataset(written(tmp_path / "times", edge_time=times))
    assert check(data.path) == []
    numbers = data.edge_attr[:, 0].astype(int)
    target = np.repeat(np.arange(data.num_nodes), np.diff(data.indptr))
    np.testing.assert_array_equal(
        np.stack([data.indices, target, data.edge_times]), np.stack([SRC, DST, times])[:, numbers]
    )
    np.testing.assert_array_equal(data.edge_attr, ROWS[numbers])
    assert numbers.tolist() == np.lexsort((np.arange(len(SRC)), times, DST)).tolist()


@pytest.mark.parametrize("kind", ["file", "folder", "pyg"])
def test_files_of_tensors_bring_features(tmp_path, kind):
    if kind == "pyg":
        tensors = {"x": GRAPH.x, "edge_index": GRAPH.edge_index, "edge_attr": ROWS}
        torch.save({name: torch.from_numpy(array) for name, array in tensors.items()}, tmp_path / "data.pt")
        data = imported(tmp_path / "data.pt")
    else:
        arrays = {"src": SRC, "dst": DST, "x": GRAPH.x, "labels": GRAPH.y, "edge_attr": ROWS}
        data = imported(write_npz(tmp_path / "in.npz", kind, arrays), format="npz")
    assert edges_read_by_hand(data.path) == EXPECTED


def test_a_data_set_written_by_hand_is_read(tmp_path):
    folder = written(tmp_path / "set")
    meta = json.loads((folder / "meta.json").read_text())
    rows = np.arange(2 * len(SRC), dtype=np.float16).reshape(-1, 2)
    np.save(folder / "mine.npy", rows)
    meta["edge_features"] = {"file": "mine.npy", "dim": 2, "dtype": "float16"}
    (folder / "meta.json").write_text(json.dumps(meta))
    data = open_dataset(folder)
    np.testing.assert_array_equal(data.edge_attr, rows)
    assert check(folder) == []


def test_what_is_damaged_is_found(tmp_path):
    folder = written(tmp_path / "set")
    rows = np.load(folder / "edge_features.npy")
    rows[5, 1] = np.nan
    np.save(folder / "edge_features.npy", rows)
    (problem,) = check(folder)
    assert problem.place.endswith("edge_features.npy[5, 1]") and problem.found == "NaN"
    np.save(folder / "edge_features.npy", rows[1:])
    with pytest.raises(CohortError, match=r"edge_features.npy.*\[400, 3\]"):
        open_dataset(folder)
    (folder / "edge_features.npy").unlink()
    with pytest.raises(CohortError, match="edge_features.npy"):
        open_dataset(folder)
    meta = json.loads((folder / "meta.json").read_text())
    for told, words in (
        ({"file": "../x.npy", "dim": 3, "dtype": "float32"}, "a file name without a folder"),
        ({"file": "x.npy", "dim": 0, "dtype": "float32"}, '"dim" in'),
        ({"file": "x.npy", "dim": 3, "dtype": "int64"}, "uint8, float16, bfloat16 or float32"),
        ([], "an object"),
    ):
        (folder / "meta.json").write_text(json.dumps(meta | {"edge_features": told}))
        with pytest.raises(CohortError, match=words):
            open_dataset(folder)


def test_what_does_not_fit_is_refused(tmp_path):
    source, given = edge_list(tmp_path, "npy")
    inputs = OF_NODES | given
    for options, words in (
        ({"dedupe": True}, "equal edges side by side"),
        ({"undirected": True}, "equal edges side by side"),
        ({"self_loops": "add"}, "self loops kept or removed"),
    ):
        error = refusal(source, **inputs, **options)
        assert words in error.expected and next(iter(options)).replace("_", "-") in error.found
    for rows in (ROWS[1:], np.concatenate([ROWS, ROWS[:1]])):
        np.save(given["edge_features"], rows)
        assert "400 rows" in refusal(source, **inputs).expected
    error = refusal(source, edge_feature_columns=["a"])
    assert "an edge list of text or Parquet" in error.expected
    np.savez(tmp_path / "in.npz", src=SRC, dst=DST, x=GRAPH.x, labels=GRAPH.y)
    error = refusal(tmp_path / "in.npz", edge_feature_columns=["2"])
    assert error.place == "--edge-feature-columns" and "format npz" in error.found
    with pytest.raises(CohortError, match="edge_attr: expected 400 rows"):
        from_tensors(tmp_path / "o", x=GRAPH.x, edge_index=GRAPH.edge_index, edge_attr=ROWS[:3])
    many = {"edge_index": torch.zeros(2, 600_000).long(), "edge_time": torch.zeros(600_000).long()}
    torch.save(many | {"x": torch.ones(1, 1), "edge_attr": torch.zeros(600_000, 2)}, tmp_path / "many.pt")
    assert "memory for the times of all edges" in refusal(tmp_path / "many.pt", memory=16_000_000).expected


def test_renumbering_takes_features_and_weights_along(tmp_path):
    folder = written(tmp_path / "data", edge_weight=ROWS[:, 0])
    (tmp_path / "new").mkdir()
    renumber(folder, tmp_path / "new")
    old = np.load(tmp_path / "new/old_of_new.npy")
    np.save(tmp_path / "new/features.npy", GRAPH.x[old])
    found = edges_read_by_hand(tmp_path / "new")
    assert sorted((int(old[d]), int(old[s]), *row) for d, s, *row in found) == sorted(EXPECTED)
    assert np.load(tmp_path / "new/edge_weights.npy").tolist() == [row[2] for row in found]


def test_info_tells_of_features(tmp_path, run, capsys):
    assert run("info", written(tmp_path / "data")) == 0
    assert "edge features     3 x float32" in capsys.readouterr().out


def test_generated_features_tell_whether_classes_are_equal(tmp_path, run, capsys):
    options = ["--nodes", 300, "--edges", 3000, "--seed", 4, "--dim", 2, "--classes", 3]
    assert run("generate", tmp_path / "a", *options, "--edge-dim", 5, "--undirected") == 0
    assert run("generate", tmp_path / "plain", *options, "--undirected") == 0
    data, plain = open_dataset(tmp_path / "a"), open_dataset(tmp_path / "plain")
    assert check(data.path) == [] and data.edge_attr.shape == (6000, 5) and plain.edge_table is None
    for name in ("indptr", "indices", "x", "y"):
        np.testing.assert_array_equal(getattr(data, name), getattr(plain, name))
    target = np.repeat(np.arange(300), np.diff(data.indptr))
    same = data.y[data.indices] == data.y[target]
    sums = data.edge_attr.sum(axis=1)
    assert 0.9 < np.mean((sums > 0) == same) < 1, "noise of standard deviation 1 around two points at distance 4"
    of_pair = {(s, t): row.tolist() for s, t, row in zip(data.indices, target, data.edge_attr, strict=True)}
    assert all(of_pair[t, s] == row for (s, t), row in of_pair.items()), "the reverse of an edge has the same row"
    assert run("generate", tmp_path / "t", "--kind", "typed", "--nodes", 24, "--edges", 99, "--edge-dim", 2) == 1
    assert "--edge-dim: expected --kind sbm, powerlaw or rmat" in capsys.readouterr().err


@pytest.fixture(scope="module")
def hetero() -> HeteroData:
    data = HeteroData()
    data["user"].x, data["item"].x = torch.rand(20, 2), torch.rand(30, 3)
    data["item"].y = torch.arange(30) % 3
    ends = np.stack([RANDOM.integers(20, size=200), RANDOM.integers(30, size=200)])
    data["user", "buys", "item"].edge_index = torch.from_numpy(ends)
    data["user", "buys", "item"].edge_attr = torch.from_numpy(RANDOM.random((200, 2)).astype(np.float32))
    data["user", "sees", "item"].edge_index = torch.from_numpy(ends[:, :50])
    return data


def test_several_types_have_features_by_relation(tmp_path, hetero, run, capsys):
    folder = from_pyg(hetero, tmp_path / "set", reverse_edges=True)
    data = open_dataset(folder)
    meta = json.loads((folder / "meta.json").read_text())
    told = {tuple(each["type"]): each.get("features") for each in meta["edges"]}
    assert told["user", "buys", "item"] == {"file": "user.buys.item.features.npy", "dim": 2, "dtype": "float32"}
    assert told["user", "sees", "item"] is None and check(folder) == []
    store = hetero["user", "buys", "item"]
    given = sorted(zip(*store.edge_index.tolist(), *store.edge_attr.T.tolist(), strict=True))
    forward, backward = data.edge_types["user", "buys", "item"], data.edge_types["item", "rev_buys", "user"]
    assert sorted(zip(*forward.edge_index().tolist(), *forward.edge_attr.T.tolist(), strict=True)) == given
    reverse = backward.edge_index()[::-1]
    assert sorted(zip(*reverse.tolist(), *backward.edge_attr.T.tolist(), strict=True)) == given
    assert data.edge_types["user", "sees", "item"].edge_attr is None
    assert torch.equal(data.to_pyg()["user", "buys", "item"].edge_attr, torch.from_numpy(np.array(forward.edge_attr)))
    assert run("info", folder) == 0 and "200, features 2 x float32" in capsys.readouterr().out
    split = open_dataset(split_links(folder, tmp_path / "split", relation="buys", negatives=2))
    kept = split.edge_types["user", "buys", "item"]
    found = list(zip(*kept.edge_index().tolist(), *kept.edge_attr.T.tolist(), strict=True))
    assert 0 < len(found) < 200 and set(found) < set(given)


def test_yaml_names_features_of_relations(tmp_path):
    rows = "\n".join(f"{s},{d},{a},{b},{c}" for s, d, (a, b, c) in zip(SRC, DST, ROWS.tolist(), strict=True))
    (tmp_path / "cites.csv").write_text(f"src,dst,a,b,c\n{rows}\n")
    np.save(tmp_path / "x.npy", GRAPH.x)
    np.save(tmp_path / "rows.npy", ROWS)
    np.save(tmp_path / "edges.npy", GRAPH.edge_index)
    text = f"""
nodes: {{paper: {{features: x.npy, count: {GRAPH.num_nodes}}}}}
target: paper
edges: [{{type: [paper, cites, paper], file: cites.csv, features: ["a:c"]}},
        {{type: [paper, reads, paper], file: edges.npy, features: rows.npy}}]
"""
    (tmp_path / "graph.yaml").write_text(text)
    for relation in imported(tmp_path / "graph.yaml").edge_types.values():
        found = zip(*relation.edge_index()[::-1].tolist(), *relation.edge_attr.T.tolist(), strict=True)
        assert list(found) == EXPECTED
    (tmp_path / "graph.yaml").write_text(text.replace("file: cites.csv", "file: edges.npy"))
    assert "a file, for edges without a table" in refusal(tmp_path / "graph.yaml").expected


@pytest.mark.parametrize("kind", ["csv", "declared", "npy", "pyg"])
def test_relations_without_edges_keep_their_columns(tmp_path, kind):
    none = np.empty((2, 0), np.int64)
    if kind == "pyg":
        data = HeteroData()
        data["paper"].x = torch.from_numpy(GRAPH.x)
        data["paper", "cites", "paper"].edge_index = torch.from_numpy(none)
        data["paper", "cites", "paper"].edge_attr = torch.empty(0, 3)
        data["paper", "reads", "paper"].edge_index = torch.from_numpy(GRAPH.edge_index)
        graph = open_dataset(from_pyg(data, tmp_path / "out", target="paper"))
    else:
        (tmp_path / "cites.csv").write_text("src,dst,a,b,c\n")
        np.save(tmp_path / "x.npy", GRAPH.x)
        np.save(tmp_path / "edges.npy", GRAPH.edge_index)
        np.save(tmp_path / "rows.npy", ROWS[:0])
        features = {"csv": "[a, b, c]", "declared": "[{column: a, nulls: zero}, b]", "npy": "rows.npy"}[kind]
        (tmp_path / "graph.yaml").write_text(f"""
nodes: {{paper: {{features: x.npy, count: {GRAPH.num_nodes}}}}}
target: paper
edges: [{{type: [paper, cites, paper], file: cites.csv, features: {features}}},
        {{type: [paper, reads, paper], file: edges.npy}}]
""")
        graph = imported(tmp_path / "graph.yaml")
    assert check(graph.path) == []
    assert graph.edge_types["paper", "cites", "paper"].edge_attr.shape == (0, 3)
