"""cohort.from_pyg: what of a Data is kept, what is left out, and what is refused with a way out."""

import warnings

import numpy as np
import pytest
import scipy.sparse
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.transforms import ToSparseTensor
from torch_geometric.utils import to_edge_index

import cohort_gnn as cohort
from cohort_gnn import CohortError, from_pyg, from_tensors
from cohort_gnn.dataset import import_graph
from cohort_gnn.dataset import open as open_dataset

pytestmark = pytest.mark.filterwarnings("error::UserWarning")

NUM_NODES = 9


def data_of(**members) -> Data:
    torch.manual_seed(0)
    edge_index = torch.randint(NUM_NODES, (2, 30)).unique(dim=1)
    members = {"x": torch.rand(NUM_NODES, 4), "edge_index": edge_index, "y": torch.arange(NUM_NODES) % 3} | members
    return Data(**{name: value for name, value in members.items() if value is not None})


def hetero_of(**members) -> HeteroData:
    """The same with the names of types."""
    hetero = HeteroData()
    for name, value in data_of(**members).to_dict().items():
        hetero[("node", "to", "node") if name == "edge_index" else "node"][name] = value
    return hetero


both = pytest.mark.parametrize("make", [data_of, hetero_of])


def refusal(data, out, **options) -> CohortError:
    with pytest.raises(CohortError) as error:
        from_pyg(data, out, **options)
    assert len(str(error.value)) < 300
    return error.value


def test_without_y_no_node_has_a_label(tmp_path):
    graph = open_dataset(from_pyg(data_of(y=None, train_mask=torch.ones(NUM_NODES, dtype=torch.bool)), tmp_path / "g"))
    assert (graph.y == -1).all() and graph.num_classes == 0 and len(graph.train_ids) == 0
    assert refusal(data_of(y=None), tmp_path / "h", task="regression").expected == "labels"


@both
def test_masks_of_numbers_are_masks(tmp_path, make):
    """As files of the first releases of PyG have them."""
    mask = (torch.arange(NUM_NODES) % 2).to(torch.uint8)
    graph = open_dataset(from_pyg(make(train_mask=mask, val_mask=1 - mask.long()), tmp_path / "g"))
    assert graph.train_ids.tolist() == [1, 3, 5, 7] and graph.val_ids.tolist() == [0, 2, 4, 6, 8]


@both
def test_y_of_one_column_becomes_a_row(tmp_path, make):
    graph = open_dataset(from_pyg(make(y=torch.arange(NUM_NODES)[:, None]), tmp_path / "g"))
    assert graph.y.tolist() == list(range(NUM_NODES))


@both
@pytest.mark.parametrize(
    "y",
    [torch.rand(NUM_NODES).index_fill(0, torch.tensor(1), torch.nan), torch.ones(NUM_NODES, 5, dtype=torch.long)],
    ids=["float", "wide"],
)
def test_y_of_another_task_is_refused_by_its_name(tmp_path, y, make):
    error = refusal(make(y=y), tmp_path / "g")
    assert error.place == "y" and 'task="regression"' in error.hint and 'task="multilabel"' in error.hint
    task = "regression" if y.ndim == 1 else "multilabel"
    graph = open_dataset(from_pyg(make(y=y), tmp_path / "g", task=task))
    assert graph.task == task and np.array_equal(graph.y, y.numpy(), equal_nan=True)


def test_what_is_left_out_is_said_in_one_warning(tmp_path):
    more = {"degree": torch.rand(30, 3), "year": torch.arange(NUM_NODES), "source": "web", "num_nodes": NUM_NODES}
    with pytest.warns(UserWarning) as said:
        from_pyg(data_of(**more), tmp_path / "g")
    assert [str(each.message) for each in said] == [
        "Data.degree [30, 3]; Data.year [9]; Data.source (str) are left out: "
        "a data set keeps x, y, time, edge_index, edge_weight, edge_time, edge_attr and the three masks"
    ]
    assert said[0].filename == __file__


def test_what_would_be_kept_under_another_name_says_so(tmp_path):
    """As networkx, DGL and others call it; only where the number of rows fits."""
    data = data_of()
    more = {"weight": torch.rand(data.num_edges), "timestamp": torch.rand(3), "edge_type": torch.zeros(data.num_edges)}
    with pytest.warns(UserWarning, match="data.edge_weight = data.weight keeps it; data.to_heterogeneous") as said:
        from_pyg(data_of(**more), tmp_path / "g")
    assert "timestamp keeps" not in str(said[0].message)
    notes = []
    torch.save(data_of(**more).to_dict(), tmp_path / "d.pt")
    import_graph(tmp_path / "d.pt", tmp_path / "out", note=notes.append)
    assert any("not used: weight" in note and "data.edge_weight = data.weight keeps it" in note for note in notes)
    data.feat = data.x
    del data.x
    assert refusal(data, tmp_path / "h").hint.startswith("data.x = data.feat keeps it; or give each node a row")


@pytest.mark.parametrize("shape", [(), (1,)])
def test_one_number_of_an_edge_is_a_feature_and_no_weight(tmp_path, shape):
    data = data_of()
    data.edge_attr = torch.rand(data.num_edges, *shape)
    data.edge_weight = torch.rand(data.num_edges)
    for weight in (data.edge_weight, None):
        data.edge_weight = weight
        written = open_dataset(from_pyg(data, tmp_path / "g", overwrite=True))
        assert written.edge_attr.shape == (data.num_edges, 1)
        assert sorted(written.edge_attr[:, 0].tolist()) == sorted(data.edge_attr.flatten().tolist())
        assert (written.edge_weights is None) == (weight is None)


def test_numbers_that_become_float32_are_said(tmp_path):
    data = data_of()
    data.x, data.edge_attr = data.x.double(), torch.ones(data.num_edges, dtype=torch.int64)
    with pytest.warns(UserWarning) as said:
        written = open_dataset(from_pyg(data, tmp_path / "g"))
    assert [str(each.message).partition(":")[0] for each in said] == [
        "Data.x float64 is stored as float32",
        "Data.edge_attr int64 is stored as float32",
    ]
    assert said[0].filename == __file__ and written.x.dtype == np.float32


def test_a_sparse_adjacency_has_a_way_out(tmp_path):
    with warnings.catch_warnings(action="ignore"):  # torch's, of sparse tensors
        data = ToSparseTensor()(data_of(num_nodes=NUM_NODES))
    error = refusal(data, tmp_path / "g")
    assert error.expected == "a Data with edge_index" and "adj_t" in error.found
    exec(error.hint.replace("torch_geometric.utils.", ""), {"data": data, "to_edge_index": to_edge_index})
    back = open_dataset(from_pyg(data, tmp_path / "g")).to_pyg().edge_index
    assert sorted(back.T.tolist()) == sorted(data_of().edge_index.T.tolist())


@pytest.mark.filterwarnings("ignore:Sparse")  # torch's, of CSR
@pytest.mark.parametrize("kind", ["COO", "CSR", "SciPy"])
def test_a_sparse_matrix_in_place_of_edges_has_a_way_out(tmp_path, kind):
    edges = data_of().edge_index
    matrix = torch.sparse_coo_tensor(edges, torch.ones(edges.shape[1]), (NUM_NODES, NUM_NODES))
    if kind == "CSR":
        matrix = matrix.to_sparse_csr()
    elif kind == "SciPy":
        matrix = scipy.sparse.csr_array((np.ones(edges.shape[1]), edges.numpy()))
    error = refusal(data_of(edge_index=matrix), tmp_path / "g")
    assert error.expected == "pairs of nodes, integers [2, any]" and "a sparse matrix" in error.found
    names = {"edge_index": matrix}
    exec(error.hint.replace("torch_geometric.utils.", ""), {"to_edge_index": to_edge_index, "numpy": np}, names)
    back = open_dataset(from_pyg(data_of(edge_index=names["edge_index"]), tmp_path / "g")).to_pyg().edge_index
    assert sorted(back.T.tolist()) == sorted(edges.T.tolist())


def test_rows_of_scipy_have_a_way_out(tmp_path):
    with pytest.raises(CohortError, match=r"found a dia_array of SciPy\n.*pass x\.toarray\(\)"):
        from_tensors(tmp_path / "g", x=scipy.sparse.eye_array(NUM_NODES), edge_index=data_of().edge_index)


@pytest.mark.parametrize(
    ("data", "expected", "found", "hint"),
    [
        (data_of(num_nodes=NUM_NODES + 2), f"num_nodes = {NUM_NODES + 2} rows", str(NUM_NODES), "leave num_nodes out"),
        (data_of(x=None), "a Data with x", "a Data without", "torch.ones(data.num_nodes, 1)"),
        ([data_of()], "a Data with edge_index", "a list without", "dataset[0]"),
        (data_of(edge_index=torch.zeros(30, 2, dtype=torch.long)), "shape [2, any]", "shape [30, 2]", "edge_index.T"),
        (
            data_of(val_mask=torch.ones(NUM_NODES, 10, dtype=torch.bool)),
            "a mask [V]",
            "shape [9, 10]",
            "data.val_mask = data.val_mask[:, 0]",
        ),
        (
            data_of(train_mask=torch.tensor([3, 1])),
            "a mask: True or False for each node",
            "dtype int64, [3 1]",
            "data.train_mask = index_to_mask(ids, size=data.num_nodes)",
        ),
    ],
    ids=["num_nodes", "x", "list", "edge_index", "mask", "ids"],
)
def test_other_forms_have_a_way_out(tmp_path, data, expected, found, hint):
    error = refusal(data, tmp_path / "g")
    assert (error.expected, error.found) == (expected, found) and hint in error.hint
    assert not (tmp_path / "g").exists()


@both
def test_an_existing_folder_is_kept_unless_told(tmp_path, make):
    from_pyg(make(), tmp_path / "g")
    error = refusal(make(), tmp_path / "g")
    assert error.found == "an existing one" and "overwrite=True" in error.hint
    from_pyg(make(x=torch.ones(NUM_NODES, 7)), tmp_path / "g", overwrite=True)
    assert open_dataset(tmp_path / "g").to_pyg().num_node_features in (7, {"node": 7})
    with pytest.raises(CohortError, match="a data set .* to overwrite"):
        from_tensors(tmp_path, x=np.ones((2, 1)), edge_index=[[0], [1]], overwrite=True)


def test_a_folder_at_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert from_pyg(data_of(), "~/g") == tmp_path / "g"
    assert open_dataset("~/g").num_nodes == NUM_NODES
    with cohort.NeighborLoader("~/g", [2], batch_size=4, device="cpu") as loader:
        assert sum(batch.batch_size for batch in loader) > 0
    assert [path.name for path in tmp_path.iterdir()] == ["g"]


def test_integers_that_float32_rounds_are_no_features(tmp_path):
    exact = torch.tensor([[2**24, -(2**24)], [2**40, 2**24 + 2]])  # of these float32 holds all
    edges = torch.tensor([[0], [1]])
    kept = open_dataset(from_tensors(tmp_path / "exact", x=exact, edge_index=edges, edge_attr=exact[:1]))
    assert kept.x.tolist() == exact.tolist()
    ids = torch.tensor([[1, 2], [3, 2**24 + 1]])
    for name, members in {"x": {"x": ids}, "edge_attr": {"x": exact, "edge_attr": ids[1:]}}.items():
        with pytest.raises(CohortError) as error:
            from_tensors(tmp_path / "rounded", edge_index=edges, **members)
        assert error.value.place == f"{name}[{'1, 1' if name == 'x' else '0, 1'}]"
        assert error.value.found == "16777217, rounded to 16777216" and "float32" in error.value.hint
    largest = np.array([[2**64 - 1], [0]], dtype=np.uint64)  # float32 rounds it to 2^64
    with pytest.raises(CohortError, match="found 18446744073709551615, rounded to 18446744073709551616"):
        from_tensors(tmp_path / "rounded", x=largest, edge_index=edges)
    assert [path.name for path in tmp_path.iterdir()] == ["exact"]


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("name", ["x", "y", "time", "edge_time", "edge_weight", "edge_attr", "train_mask"])
@pytest.mark.parametrize("number", [5.0, torch.tensor(5.0)])
def test_a_single_number_in_place_of_an_array_is_refused(tmp_path, name, number, typed):
    """What belongs to the whole graph may have any name."""
    data = Data(x=torch.ones(6, 2), edge_index=torch.tensor([[0, 1], [1, 2]]))
    if typed:
        typed_data = HeteroData()
        typed_data["a"].x, typed_data["a"].y = data.x, torch.arange(6)
        typed_data["a", "to", "a"].edge_index = data.edge_index
        typed_data["a", "to", "a"].update({name: number}) if "edge" in name else typed_data["a"].update({name: number})
        data = typed_data
    else:
        data[name] = number
    with pytest.raises(CohortError, match=r"found (shape \[\]|float(32|64) \[\]|dtype float|a single number)"):
        from_pyg(data, tmp_path / "out")
