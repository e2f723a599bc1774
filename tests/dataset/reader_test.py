"""An open data set as an object: equality, hash, copies for other processes."""

import multiprocessing
import pickle

import numpy as np
import pytest
import torch

from cohort_gnn.dataset import StoredGraph, from_tensors, generate_typed
from cohort_gnn.dataset import open as open_dataset


@pytest.fixture(params=["one type", "several"])
def folder(request, cora, tmp_path):
    if request.param == "one type":
        return cora
    generate_typed(tmp_path / "typed", nodes=240, edges=1001, dim=3, classes=2, seed=5)
    return tmp_path / "typed"


def arrays_of(data: StoredGraph) -> list[np.ndarray]:
    tables = [table.x for table in data.node_types.values() if table.x is not None]
    return [data.y, *tables, *(array for each in data.edge_types.values() for array in (each.indptr, each.indices))]


def test_only_the_same_object_is_equal(folder):
    data, again = open_dataset(folder), open_dataset(folder)
    assert data == data and data != again
    assert len({data, again, data}) == 2


def test_a_pickle_holds_the_path_alone(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    text = pickle.dumps(open_dataset(folder.name))
    assert len(text) < 300
    monkeypatch.chdir("/")
    data, again = pickle.loads(text), open_dataset(folder)
    assert data.path == folder and type(data) is type(again)
    assert [each.filename for each in arrays_of(data)] == [each.filename for each in arrays_of(again)]


def test_a_data_set_without_names_has_its_arrays_twice(cora):
    data = open_dataset(cora)
    (nodes, edges), whole = (data.node_types["node"], data.edge_types["node", "to", "node"]), data.to_pyg()
    assert data.metadata() == (["node"], [("node", "to", "node")]) and data.first_node == {"node": 0}
    assert nodes.x is data.x and edges.indptr is data.indptr and edges.indices is data.indices
    assert (nodes.num_nodes, edges.num_edges) == (data.num_nodes, data.num_edges) == (2708, 10556)
    assert torch.equal(torch.from_numpy(edges.edge_index()), whole.edge_index)
    assert data.same_edges(("node", "to", "node")) == [(("node", "to", "node"), False), (("node", "to", "node"), True)]


def _rows_read(data, answers) -> None:
    answers.put((float(data.x.sum()), data.x.filename))


def test_a_spawned_process_maps_the_same_files(tmp_path):
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    data = open_dataset(from_tensors(tmp_path / "data", x=x, y=np.zeros(3, np.int64), edge_index=[[0, 1], [1, 2]]))
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    process = context.Process(target=_rows_read, args=(data, answers))
    process.start()
    assert answers.get(timeout=60) == (15.0, data.x.filename)
    process.join()
    assert process.exitcode == 0
