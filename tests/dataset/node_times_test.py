"""Times of nodes: written, read and checked; an edge exists from the later of its own time and its source's."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
import torch
from import_helpers import imported
from processes import cohort
from torch_geometric.data import Data, HeteroData

from cohort_gnn import CohortError
from cohort_gnn.dataset import from_pyg, from_tables, from_tensors
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.dataset.check import check
from cohort_gnn.dataset.importing.renumber import renumber
from cohort_gnn.spec.graph import NO_TIME

TIMES = [NO_TIME, 10, 20, 5]  # of nodes 0, 1, 2, 3
X = np.ones((4, 2), np.float32)
EDGES = np.array([[0, 1, 2, 3, 1], [1, 2, 3, 0, 2]])
OWN = np.array([7, 12, 1, NO_TIME, 3])


def later(own, source: int, times=TIMES) -> int:
    return max(NO_TIME if own is None else int(own), times[source])


def rows_of(relation) -> list[tuple[int, int, int]]:
    """(source, target, time), ascending."""
    return sorted(zip(*relation.edge_index().tolist(), relation.edge_times.tolist(), strict=True))


@pytest.mark.parametrize("with_features", [False, True])
@pytest.mark.parametrize("with_own", [False, True])
@pytest.mark.parametrize("directions", ["", "transpose", "reverse", "undirected"])
def test_an_edge_is_not_older_than_its_source(tmp_path, with_own, with_features, directions):
    data = Data(x=torch.from_numpy(X), edge_index=torch.from_numpy(EDGES), time=torch.tensor(TIMES))
    own = OWN if with_own else [None] * 5
    if with_own:
        data.edge_time = torch.from_numpy(OWN)
    if with_features:
        data.edge_attr = torch.arange(5.0)[:, None]
    torch.save(data.to_dict(), tmp_path / "data.pt")
    if with_features and directions == "undirected":
        directions = "reverse"
    pairs = list(zip(*EDGES.tolist(), own, range(5), strict=True))
    if directions in ("reverse", "undirected"):
        pairs += [(target, source, time, number) for source, target, time, number in pairs]
    elif directions:
        pairs = [(target, source, time, number) for source, target, time, number in pairs]
    expected = sorted((source, target, later(time, source), number) for source, target, time, number in pairs)
    found = imported(tmp_path / "data.pt", **({directions: True} if directions else {}))
    assert found.node_times.tolist() == TIMES and check(found.path) == []
    (relation,) = found.edge_types.values()
    plain = [row[:3] for row in expected]
    assert rows_of(relation) == (sorted(set(plain)) if directions == "undirected" else plain)
    if with_features:
        numbered = zip(
            *relation.edge_index().tolist(), relation.edge_times.tolist(), found.edge_attr[:, 0], strict=True
        )
        assert sorted(numbered) == expected


def test_a_data_object_and_tensors_have_times_of_nodes(tmp_path):
    data = Data(x=torch.from_numpy(X), edge_index=torch.from_numpy(EDGES), edge_time=torch.from_numpy(OWN))
    data.time = torch.tensor(TIMES)
    written = open_dataset(from_pyg(data, tmp_path / "pyg"))
    same = from_tensors(tmp_path / "tensors", x=X, edge_index=EDGES, edge_time=OWN, node_time=TIMES)
    expected = sorted((s, d, later(own, s)) for s, d, own in zip(*EDGES.tolist(), OWN, strict=True))
    for found in (written, open_dataset(same)):
        assert rows_of(*found.edge_types.values()) == expected
        assert found.node_times.tolist() == found.node_types["node"].node_times.tolist() == TIMES
    assert written.to_pyg().time.tolist() == TIMES
    assert open_dataset(from_pyg(written.to_pyg(), tmp_path / "again")).node_times.tolist() == TIMES
    (tmp_path / "new").mkdir()
    old_of_new = renumber(same, tmp_path / "new")
    (tmp_path / "new" / "features.npy").symlink_to(same / "features.npy")
    assert open_dataset(tmp_path / "new").node_times.tolist() == [TIMES[old] for old in old_of_new]


def test_times_that_fit_nodes_and_edges_are_warned_of(tmp_path):
    data = Data(x=torch.from_numpy(X), edge_index=torch.from_numpy(EDGES[:, :4]), time=torch.tensor(TIMES))
    with pytest.warns(UserWarning, match="^data.time: taken for times of nodes, of which there are as many as edges"):
        written = open_dataset(from_pyg(data, tmp_path / "nodes"))
    assert written.node_times.tolist() == TIMES
    data.edge_time = data.time
    del data.time
    assert open_dataset(from_pyg(data, tmp_path / "edges")).node_times is None


def test_types_have_times_of_their_own(tmp_path):
    data = HeteroData()
    data["a"].x, data["a"].time = torch.ones(4, 1), torch.tensor(TIMES)
    data["b"].num_nodes, data["b"].time = 4, torch.tensor([1, 2, 3, 40])
    data["c"].num_nodes, data["a"].y = 4, torch.zeros(4, dtype=torch.long)
    ends = torch.from_numpy(EDGES)
    for name, source, target, own in (
        ("x", "a", "b", OWN),
        ("y", "b", "c", None),
        ("z", "c", "a", OWN),
        ("u", "c", "b", None),
    ):
        data[source, name, target].edge_index = ends
        if own is not None:
            data[source, name, target].edge_time = torch.from_numpy(own)
    folder = from_pyg(data, tmp_path / "types", reverse_edges=True)
    found = open_dataset(folder)
    assert [table.node_times is None for table in found.node_types.values()] == [False, False, True]
    times = {"a": TIMES, "b": [1, 2, 3, 40], "c": [NO_TIME] * 4}
    for (source, name, _), relation in found.edge_types.items():
        own = OWN if name.endswith(("x", "z")) else [None] * 5
        pairs = list(zip(*(EDGES[::-1] if name.startswith("rev_") else EDGES).tolist(), own, strict=True))
        if source == "c" and own[0] is None:
            assert relation.edge_times is None
            continue
        assert rows_of(relation) == sorted((s, d, later(time, s, times[source])) for s, d, time in pairs), name
        assert relation.reverse_of is None or relation.reverse_of[1] == name.removeprefix("rev_")
    files = {
        nodes["type"]: nodes.get("node_times") for nodes in json.loads((folder / "meta.json").read_text())["nodes"]
    }
    assert files == {"a": "a.node_times.npy", "b": "b.node_times.npy", "c": None}
    assert "times 1 to 40" in cohort("dataset", "info", folder).stdout


DAYS = ["1969-12-31", None, "2024-02-01", "1970-01-01"]
NUMBERS = [-1, NO_TIME, 19754, 0]


@pytest.mark.parametrize("kind", ["date", "timestamp", "text", "integer"])
def test_a_column_of_a_table_has_the_times(tmp_path, kind):
    column = pa.array(DAYS, pa.string())
    if kind == "integer":
        column = pa.array([-1, None, 19754, 0], pa.int32())
    elif kind != "text":
        column = (
            column.cast(pa.date32())
            if kind == "date"
            else column.cast(pa.timestamp("s")).cast(pa.timestamp("s", "UTC"))
        )
    nodes = {
        "table": pa.table({"id": [4, 3, 2, 1], "since": column}),
        "id": "id",
        "time": "since",
        "null_time": "always",
    }
    nodes |= {} if kind == "integer" else {"time_unit": "days"} | ({"time_zone": "UTC"} if kind == "text" else {})
    edges = {("p", "to", "q"): {"table": pa.table({"src": [4, 2], "dst": [0, 1]})}}
    types = {"p": nodes, "q": {"count": 2}}
    found = open_dataset(from_tables(tmp_path / "out", nodes=types, edges=edges, target="p"))
    assert found.node_types["p"].node_times.tolist() == NUMBERS
    assert found.edge_types["p", "to", "q"].edge_times.tolist() == [-1, 19754]
    with pytest.raises(CohortError, match="(?s)found (none|1 null in since).*null_time: always"):
        types["p"] = {key: value for key, value in nodes.items() if key != "null_time"}
        from_tables(tmp_path / "refused", nodes=types, edges=edges, target="p")
    types["p"] = nodes | {"table": nodes["table"].set_column(1, "since", pa.nulls(4))}
    always = open_dataset(from_tables(tmp_path / "always", nodes=types, edges=edges, target="p"))
    assert (always.node_types["p"].node_times == np.iinfo(np.int64).min).all()


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"time_unit": "s"}, "expected times of the nodes"),
        ({"null_time": "always"}, "expected times of the nodes"),
        ({"time": "when"}, "expected a column when"),
        ({"time": "since", "time_unit": "weeks"}, "expected one of the units"),
        ({"time": "since", "null_time": "never"}, "expected a value that is known"),
    ],
)
def test_keys_that_do_not_fit_are_refused(tmp_path, keys, said):
    nodes = {"p": {"table": pa.table({"since": [1, 2]})} | keys, "q": {"count": 2}}
    edges = {("p", "to", "q"): {"table": pa.table({"src": [0, 1], "dst": [0, 1]})}}
    with pytest.raises(CohortError) as error:
        from_tables(tmp_path / "out", nodes=nodes, edges=edges, target="p")
    assert said in str(error.value)


def test_times_in_several_units_are_refused(tmp_path):
    day = pa.array([0, 1], pa.date32())
    nodes = {"p": {"table": pa.table({"since": day}), "time": "since", "time_unit": "days"}, "q": {"count": 2}}
    edges = {
        ("p", "to", "q"): {"table": pa.table({"src": [0, 1], "dst": [0, 1], "at": day}), "time": "at", "time_unit": "s"}
    }
    with pytest.raises(CohortError, match=r"one unit of all times, found days \(p\), s \(p, to, q\)"):
        from_tables(tmp_path / "out", nodes=nodes, edges=edges, target="p")


def test_weights_beside_times_of_nodes_are_refused(tmp_path):
    with pytest.raises(CohortError, match="expected weights or times of edges, found both"):
        from_tensors(tmp_path / "out", x=X, edge_index=EDGES, edge_weight=np.ones(5), node_time=TIMES)
    with pytest.raises(CohortError, match="node_time: expected 4 times, one per node, found 3"):
        from_tensors(tmp_path / "out", x=X, edge_index=EDGES, node_time=TIMES[:3])
    with pytest.raises(CohortError, match=r"expected a node in \[0, 4\)"):
        from_tensors(tmp_path / "out", x=X, edge_index=EDGES + 1, node_time=TIMES)


def test_damaged_times_are_refused(tmp_path):
    folder = from_tensors(tmp_path / "out", x=X, edge_index=EDGES, node_time=TIMES)
    np.save(folder / "node_times.npy", np.zeros(3, np.int64))
    with pytest.raises(CohortError, match=r"node_times.npy: expected shape \[4\]"):
        open_dataset(folder)
    (folder / "node_times.npy").unlink()
    assert any(problem.place.endswith("node_times.npy") for problem in check(folder))
