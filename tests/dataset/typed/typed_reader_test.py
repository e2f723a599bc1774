"""Data sets of several node types: what open() gives, against a reader that knows FORMAT.md alone."""

import numpy as np
import pytest
import torch
from torch_geometric.data import HeteroData
from typed_by_hand import META, read_by_hand, write_by_hand

from cohort_gnn import CohortError
from cohort_gnn.dataset import (
    Dataset,
    HeteroDataset,
    check,
    from_pyg,
    from_tensors,
    generate_typed,
    held_out,
    open_one_type,
    write_links,
)
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.spec.graph import EDGE_TYPE, NODE_TYPE


def assert_same(data: HeteroDataset, by_hand: dict) -> None:
    assert data.name == by_hand["name"]
    assert list(data.node_types) == list(by_hand["nodes"])
    for table, (count, x) in zip(data.node_types.values(), by_hand["nodes"].values(), strict=True):
        assert table.num_nodes == count
        np.testing.assert_array_equal(table.x, x)
    assert list(data.edge_types) == list(by_hand["relations"])
    for relation, (pairs, reverse_of) in zip(data.edge_types.values(), by_hand["relations"].values(), strict=True):
        assert [tuple(pair) for pair in relation.edge_index().T.tolist()] == pairs
        assert relation.reverse_of == (tuple(reverse_of) if reverse_of else None)
    target = by_hand["target"]
    assert (data.target, data.task, data.num_classes) == (target["type"], target["task"], target["num_classes"])
    np.testing.assert_array_equal(data.y, target["labels"])
    for split in ("train_ids", "val_ids", "test_ids"):
        np.testing.assert_array_equal(getattr(data, split), target[split])


@pytest.fixture
def small(tmp_path):
    return write_by_hand(tmp_path / "small")


def test_reads_a_folder_that_was_written_by_hand(small):
    data = open_dataset(small)
    assert isinstance(data, HeteroDataset)
    assert_same(data, read_by_hand(small))
    assert (data.num_nodes, data.num_edges) == (7, 13)
    assert data.first_node == {"author": 0, "paper": 3}
    assert data.metadata() == (["author", "paper"], [tuple(edge["type"]) for edge in META["edges"]])
    assert data.node_types["author"].x is None and data.node_types["author"].feature_dtype is None
    assert repr(data).endswith("7 nodes of 2 types, 13 edges of 3 relations, target 'paper')")
    assert check(small) == []


@pytest.mark.parametrize("all_features", [False, True])
def test_a_folder_that_was_written_by_the_library_reads_by_hand(tmp_path, all_features):
    out = tmp_path / "typed"
    generate_typed(out, nodes=240, edges=1001, dim=3, classes=2, seed=5, dtype="float16", all_features=all_features)
    assert_same(open_dataset(out), read_by_hand(out))


def test_one_type_alone_is_refused_by_its_callers(small, tmp_path):
    with pytest.raises(CohortError) as error:
        open_one_type(small)
    assert str(error.value) == (
        f"{small}: expected a data set of one node type, found 2 node types: author, paper\n"
        "  hint: several node types are not supported here yet"
    )
    one = from_tensors(tmp_path / "one", x=torch.ones(3, 2), edge_index=torch.tensor([[0], [1]]))
    assert open_one_type(one).num_nodes == 3


def test_types_may_be_called_as_those_of_a_data_set_without_names(tmp_path):
    data = HeteroData()
    data[NODE_TYPE].x, data[NODE_TYPE].y = torch.rand(4, 2), torch.tensor([0, 1, 0, 1])
    data[EDGE_TYPE].edge_index = torch.tensor([[0, 1, 2], [1, 2, 3]])
    graph = open_dataset(from_pyg(data, tmp_path / "named"))
    plain = open_dataset(from_pyg(data.to_homogeneous(add_node_type=False, add_edge_type=False), tmp_path / "plain"))
    assert isinstance(graph, HeteroDataset) and isinstance(graph.to_pyg(), HeteroData) and isinstance(plain, Dataset)
    assert graph.types == plain.types and graph.reverses == plain.reverses
    assert graph.key_of(EDGE_TYPE) == EDGE_TYPE and plain.key_of(EDGE_TYPE) == () and plain.key_of(NODE_TYPE) == ""
    pairs = dict.fromkeys(("val", "test"), (np.array([[0, 3]]), np.array([[2]])))
    for each, file in ((graph, "node.to.node.val_links.npy"), (plain, "val_links.npy")):
        write_links(each.path, relation="to", **pairs)
        assert (each.path / file).exists() and held_out(each.path)["val"].pairs.tolist() == [[0, 3]]
