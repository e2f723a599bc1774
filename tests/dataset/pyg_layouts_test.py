"""PyG's layouts: raw files of Planetoid and saved Data come back, and run nothing."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from damages import cut, remove, write
from import_helpers import Harmful, imported, refusal
from layout_writers import assert_holds, planetoid_sample, sample, write_planetoid
from torch_geometric.data import Data, HeteroData
from torch_geometric.io import read_planetoid_data

# --- PyG ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_planetoid_comes_back(tmp_path, protocol):
    graph = planetoid_sample()
    write_planetoid(tmp_path / "Small" / "raw", graph, protocol)
    assert_holds(imported(tmp_path / "Small"), graph)


def test_a_graph_of_several_node_types_has_another_way(tmp_path):
    graph = HeteroData()
    graph["a"].x, graph["b"].x = torch.ones(3, 2), torch.ones(4, 2)
    graph["a", "to", "b"].edge_index = torch.zeros(2, 5, dtype=torch.int64)
    torch.save(graph.to_dict(), tmp_path / "hetero.pt")
    error = refusal(tmp_path / "hetero.pt")
    assert error.found == "a HeteroData" and "cohort.from_pyg(data, OUT)" in error.hint


def test_planetoid_is_what_pyg_reads(tmp_path):
    raw = write_planetoid(tmp_path / "raw", planetoid_sample(3))
    for part in ("x", "y", "tx", "ty", "allx", "ally", "graph", "test.index"):
        (raw / f"ind.citeseer.{part}").write_bytes((raw / f"ind.small.{part}").read_bytes())
        (raw / f"ind.small.{part}").unlink()
    ours = imported(raw).to_pyg()
    train = torch.arange(12)
    theirs = read_planetoid_data_without_its_500(raw)
    assert torch.equal(ours.x, theirs.x)
    has_label = ours.y >= 0
    assert torch.equal(ours.y[has_label], theirs.y[has_label])
    assert sorted(ours.edge_index.T.tolist()) == sorted(theirs.edge_index.T.tolist())
    assert torch.equal(ours.train_mask.nonzero().view(-1), train)
    assert torch.equal(ours.test_mask, theirs.test_mask)


def read_planetoid_data_without_its_500(raw):
    """PyG wants 500 validation nodes; a mask of fewer nodes is made long enough while it reads."""
    import torch_geometric.io.planetoid as planetoid

    with pytest.MonkeyPatch.context() as patch:
        made = planetoid.index_to_mask
        patch.setattr(planetoid, "index_to_mask", lambda index, size: made(index[index < size], size=size))
        return read_planetoid_data(str(raw), "citeseer")


def part(name, content):
    """Another content of a part; what is no bytes is pickled."""
    return write(f"ind.small.{name}", content if isinstance(content, bytes) else pickle.dumps(content))


PLANETOID_BAD = {
    "harmful": (part("allx", Harmful()), "a pickle of plain arrays", "exec"),
    "missing": (remove("ind.small.ty"), "a pickle of plain arrays", "No such file"),
    "cut": (cut("ind.small.graph"), "a pickle of plain arrays", ""),
    "objects": (part("ty", np.array([{}, 1], object)), "a pickle of plain arrays", "dtype"),
    "other_type": (part("tx", [1, 2]), "a SciPy CSR matrix", "list"),
    "rows": (part("ally", np.ones((3, 3))), "shape [40, any]", "[3, 3]"),
    "columns": (part("ty", np.ones((9, 4))), "6 and 3 columns", "6 and 4"),
    "lists": (part("graph", {0: ["a"]}), "lists of nodes", "other things"),
    "range": (part("graph", {0: [50]}), "a node in [0, 50)", "50"),
    "tests": (part("test.index", b"40\n41\n"), "9 distinct nodes from 40", "2"),
    "gap": (part("test.index", b"40\n41\n42\n43\n44\n45\n46\n47\n99999999\n"), "without large gaps", "99999999"),
    "two": (write("ind.other.graph", b""), "the files of one data set", "other, small"),
}


@pytest.mark.parametrize("name", PLANETOID_BAD)
def test_bad_planetoid_folders_are_refused(tmp_path, name):
    change, expected, found = PLANETOID_BAD[name]
    change(write_planetoid(tmp_path / "raw", planetoid_sample()))
    error = refusal(tmp_path / "raw")
    assert expected in error.expected and found in error.found


def pyg_data(graph):
    masks = {}
    for part, ids in zip(("train", "val", "test"), graph.splits, strict=True):
        masks[f"{part}_mask"] = torch.zeros(graph.num_nodes, dtype=torch.bool).index_fill(
            0, torch.from_numpy(ids), True
        )
    tensors = dict(x=graph.x, edge_index=graph.edge_index, y=graph.y)
    return Data(**{key: torch.from_numpy(array) for key, array in tensors.items()}, **masks)


PYG_FORMS = {
    "data": lambda data: data,
    "dict": lambda data: data.to_dict(),
    "processed": lambda data: (data.to_dict(), None, Data),
    "slices": lambda data: (data, {"x": torch.tensor([0, len(data.x)])}),
}


@pytest.mark.parametrize("form", PYG_FORMS)
def test_pyg_files_come_back(tmp_path, form):
    graph = sample()
    (tmp_path / "Set" / "processed").mkdir(parents=True)
    torch.save(PYG_FORMS[form](pyg_data(graph)), tmp_path / "Set" / "processed" / "data.pt")
    assert_holds(imported(tmp_path / "Set/processed/data.pt"), graph)
    data = imported(tmp_path / "Set")
    assert_holds(data, graph)
    assert data.name == "Set"


def test_bfloat16_keeps_its_bits_and_is_normalized_as_the_numbers_it_is(tmp_path):
    data = pyg_data(sample())
    data.x = data.x.bfloat16()
    torch.save(data, tmp_path / "g.pt")
    x = data.x.float().numpy()
    assert np.array_equal(imported(tmp_path / "g.pt").x_float32(), x)
    found = imported(tmp_path / "g.pt", row_normalize=True)
    np.testing.assert_allclose(found.x * abs(x).sum(axis=1, keepdims=True), x, rtol=1e-5)


def test_parameters_and_weights_of_16_bits_are_read(tmp_path):
    data = pyg_data(sample())
    data.x.requires_grad_()
    data.edge_weight = torch.arange(data.edge_index.shape[1]).bfloat16()
    torch.save(data, tmp_path / "g.pt")
    read = imported(tmp_path / "g.pt")
    assert np.array_equal(read.x, data.x.detach().numpy())
    assert sorted(read.edge_weights) == sorted(data.edge_weight.float().tolist())


def without(key):
    def change(data):
        del data[key]
        return data

    return change


def put(key, value):
    def change(data):
        data[key] = value
        return data

    return change


PYG_BAD = {
    "harmful": (lambda data: Harmful(), "only tensors", ""),
    "no_x": (without("x"), "a tensor x", "edge_index"),
    "list": (lambda data: [1, 2], "a Data object or a dict", "list"),
    "tensors": (lambda data: (data.x, data.y), "a Data object or a dict", "a tuple of 2"),
    "graphs": (lambda data: (data, {"x": torch.tensor([0, 4, 9])}), "one graph", "2 graphs"),
    "sparse": (put("x", torch.eye(60).to_sparse()), "a dense tensor", "Tensor"),
    "edge_rows": (put("edge_index", torch.zeros((3, 4), dtype=torch.long)), "shape [2, any]", "[3, 4]"),
    "edge_float": (put("edge_index", torch.zeros((2, 4))), "integers", "float32"),
    "edge_high": (put("edge_index", torch.tensor([[0, 60], [1, 1]])), "a node in [0, 60)", "60"),
    "masks": (put("train_mask", torch.zeros((60, 10), dtype=torch.bool)), "a mask [V]", "[60, 10]"),
    "ids": (put("val_mask", torch.arange(60)), "True or False for each node", "[0 1 2]"),
    "targets": (put("y", torch.rand(60)), "the number of a class", "0."),
    "multi": (put("y", torch.ones((60, 3))), "one class per node", "3 targets"),
}


@pytest.mark.parametrize("name", PYG_BAD)
def test_bad_pyg_files_are_refused(tmp_path, name):
    change, expected, found = PYG_BAD[name]
    torch.save(change(pyg_data(sample())), tmp_path / "g.pt")
    error = refusal(tmp_path / "g.pt")
    assert expected in error.expected and found in error.found


def test_what_is_no_torch_file_is_refused(tmp_path):
    (tmp_path / "g.pt").write_bytes(b"PK no zip")
    assert "only tensors" in refusal(tmp_path / "g.pt").expected
    (tmp_path / "empty").mkdir()
    assert "a Data file, or a folder" in refusal(tmp_path / "empty", format="pyg").expected
