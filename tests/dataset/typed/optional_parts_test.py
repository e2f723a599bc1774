"""What a format may leave out, an import does not demand, and an option that a hint names helps."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
import typed_layout_writers as typed
from damages import members, replaced
from import_helpers import edge_pairs, imported, refusal, write_tables
from layout_writers import sample, write_graphbolt, write_igb, write_legion, write_ogb
from torch_geometric.data import Data

from cohort_gnn.dataset import HeteroDataset, held_out

GRAPH = sample()
PAIRS = [tuple(pair) for pair in GRAPH.edge_index.T.tolist()]


def files(folder, *names: str) -> dict:
    """Features or labels of the sample in a file, by the names of options."""
    arrays = {"features": GRAPH.x, "labels": GRAPH.y}
    for name in names:
        np.save(folder / f"{name}.npy", arrays[name])
    return {name: folder / f"{name}.npy" for name in names}


def holds(data, x: bool = True, y: bool = True) -> None:
    assert sorted(edge_pairs(data)) == sorted(PAIRS) and data.num_nodes == GRAPH.num_nodes
    np.testing.assert_array_equal(data.x, GRAPH.x if x else np.ones((GRAPH.num_nodes, 1)))
    np.testing.assert_array_equal(data.y, GRAPH.y if y else np.full(GRAPH.num_nodes, -1))


# --- .npz and .pt -----------------------------------------------------------------------------------------------------

SRC, DST = GRAPH.edge_index
WITHOUT_X = {
    "plain": {"src": SRC, "dst": DST, "labels": GRAPH.y},
    "pyg": {"edge_index": GRAPH.edge_index, "y": GRAPH.y},
    "mixed": {"src": SRC, "dst": DST, "y": GRAPH.y},
}


@pytest.mark.parametrize("form", WITHOUT_X)
def test_an_npz_without_x_takes_features(tmp_path, form):
    np.savez(tmp_path / "g.npz", **WITHOUT_X[form])
    error = refusal(tmp_path / "g.npz")
    assert error.expected == "an array x" and "--features FILE" in error.hint
    holds(imported(tmp_path / "g.npz", **files(tmp_path, "features")))
    holds(imported(tmp_path / "g.npz", features="ones"), x=False)


def test_a_csr_matrix_needs_neither_attributes_nor_labels(tmp_path):
    indptr = np.array([0, 2, 2, 3])
    adjacency = {"adj_data": np.ones(3), "adj_indices": [1, 2, 0], "adj_indptr": indptr, "adj_shape": [3, 3]}
    np.savez(tmp_path / "g.npz", **adjacency)
    assert "--features FILE" in refusal(tmp_path / "g.npz").hint
    data = imported(tmp_path / "g.npz", features="ones")
    assert edge_pairs(data) == [(2, 0), (0, 1), (0, 2)] and data.num_nodes == 3
    np.savez(tmp_path / "dense.npz", attr_matrix=np.eye(3, 2), **adjacency)
    np.testing.assert_array_equal(imported(tmp_path / "dense.npz").x, np.eye(3, 2))


def test_arrays_of_an_npz_that_are_not_read_are_told(tmp_path):
    notes: list[str] = []
    np.savez(tmp_path / "g.npz", x=GRAPH.x, src=SRC, dst=DST, label=GRAPH.y, edge_time=SRC)
    imported(tmp_path / "g.npz", note=notes.append)
    assert notes[0] == "g.npz: not used: edge_time, label"


@pytest.mark.parametrize("with_labels", [False, True])
def test_a_pt_file_without_x_takes_features(tmp_path, with_labels):
    data = Data(edge_index=torch.from_numpy(GRAPH.edge_index), num_nodes=GRAPH.num_nodes)
    if with_labels:
        del data.num_nodes
        data.y = torch.from_numpy(GRAPH.y)
    torch.save(data, tmp_path / "g.pt")
    error = refusal(tmp_path / "g.pt")
    assert error.expected == "a tensor x" and "--features FILE" in error.hint
    holds(imported(tmp_path / "g.pt", **files(tmp_path, "features")), y=with_labels)
    holds(imported(tmp_path / "g.pt", features="ones"), x=False, y=with_labels)


def test_a_pt_file_with_adj_t_is_told_what_makes_edge_index_of_it(tmp_path):
    torch.save({"x": torch.ones(2, 1), "adj_t": torch.eye(2)}, tmp_path / "g.pt")
    error = refusal(tmp_path / "g.pt")
    assert error.expected == "a tensor edge_index" and "to_edge_index(data.adj_t)" in error.hint


# --- IGB, Legion, OGB -------------------------------------------------------------------------------------------------


def test_igb_without_labels_takes_some(tmp_path):
    graph = sample(dim=1024)
    root = write_igb(tmp_path / "tiny", graph)
    (root / "processed/paper/node_label_19.npy").unlink()
    assert "--labels FILE" in refusal(root).hint
    np.testing.assert_array_equal(imported(root, **files(tmp_path, "labels")).y, graph.y)


def test_legion_with_one_set_leaves_the_others_empty(tmp_path):
    root = write_legion(tmp_path / "legion", GRAPH)
    (root / "validationset").unlink()
    (root / "testingset").unlink()
    data = imported(root)
    np.testing.assert_array_equal(data.train_ids, GRAPH.splits[0])
    assert len(data.val_ids) == len(data.test_ids) == 0


@pytest.mark.parametrize("binary", [False, True])
def test_ogb_without_labels_or_splits_takes_some(tmp_path, binary):
    root = write_ogb(tmp_path / "ogb", GRAPH, binary)
    (root / "raw" / ("node-label.npz" if binary else "node-label.csv.gz")).unlink()
    assert "--labels FILE" in refusal(root).hint
    labels = files(tmp_path, "labels")
    holds(imported(root, **labels))
    (root / "split" / "random").mkdir()
    assert "--splits TRAIN VAL TEST" in refusal(root, **labels).hint
    splits = write_tables(tmp_path, GRAPH)["splits"]
    np.testing.assert_array_equal(imported(root, **labels, splits=splits).val_ids, GRAPH.splits[1])


def write_by_saver(root, split, **raw):
    """What OGB's DatasetSaver 1.3.6 leaves in a folder; it saves with torch.save and numpy.savez_compressed."""
    (root / "split" / "time").mkdir(parents=True)
    (root / "raw").mkdir()
    for name, arrays in raw.items():
        np.savez_compressed(root / "raw" / f"{name.replace('label', '-label')}.npz", **arrays)
    torch.save(split, root / "split" / "time" / "split_dict.pt")
    return root


def test_links_of_ogbs_saver_are_held_out(tmp_path):
    rng, notes = np.random.default_rng(0), []
    links = {
        name: {"edge": rng.integers(60, size=(count, 2))} for name, count in (("train", 9), ("valid", 5), ("test", 7))
    }
    for name in ("valid", "test"):
        links[name]["edge_neg"] = rng.integers(60, size=(20, 2))
    graph = {
        "edge_index": GRAPH.edge_index,
        "node_feat": GRAPH.x,
        "edge_year": SRC[:, None],
        "num_nodes_list": np.array([60]),
        "num_edges_list": np.array([400]),
    }
    root = write_by_saver(tmp_path / "mine", links, data=graph)
    data = imported(root, note=notes.append)
    holds(data, y=False)
    held = held_out(data.path)
    for split, name in (("val", "valid"), ("test", "test")):
        assert held[split].shared and held[split].pairs.tolist() == links[name]["edge"].tolist()
        assert held[split].negatives.tolist() == links[name]["edge_neg"].tolist()
    assert "mine: not used: edge_year" in notes


def test_several_types_of_ogbs_saver_come_back(tmp_path):
    data = typed.sample()
    masks = zip(("train", "valid", "test"), typed.ids_of(data), strict=True)
    edges = {"___".join(relation): typed.edges_of(data, relation) for relation in data.edge_types}
    root = write_by_saver(
        tmp_path / "mine",
        {name: {"paper": ids} for name, ids in masks},
        num_nodes_dict={type_: np.array([data[type_].num_nodes]) for type_ in data.node_types},
        edge_index_dict=edges,
        num_edges_dict={name: np.array([array.shape[1]]) for name, array in edges.items()},
        node_feat_dict={"paper": data["paper"].x.numpy()},
        nodelabel={"paper": data["paper"].y.numpy()[:, None]},
    )
    assert (root / "raw" / "node-label.npz").exists()
    typed.assert_holds(imported(root), data)


# --- DGL's chunks -----------------------------------------------------------------------------------------------------


def test_chunks_without_labels_take_those_of_a_target(tmp_path):
    data = typed.sample()
    root = typed.write_chunked(tmp_path / "chunks", data)
    members("metadata.json", "node_data", "paper", label=None)(root)
    np.save(tmp_path / "y.npy", data["paper"].y.numpy())
    assert "--target author" in refusal(root, labels=tmp_path / "y.npy").hint
    found = imported(root, labels=tmp_path / "y.npy", target="paper")
    assert found.target == "paper"
    np.testing.assert_array_equal(found.y, data["paper"].y)


def test_of_several_types_with_labels_a_target_is_chosen(tmp_path):
    data = typed.sample()
    root = typed.write_chunked(tmp_path / "chunks", data)
    np.save(root / "of-authors.npy", np.arange(30) % 3)
    entry = {"format": {"name": "numpy"}, "data": ["of-authors.npy"]}
    members("metadata.json", "node_data", "author", label=entry)(root)
    error = refusal(root)
    assert error.found == "author, paper" and "--target author" in error.hint
    for target, y in (("author", np.arange(30) % 3), ("paper", data["paper"].y.numpy())):
        found = imported(root, target=target)
        assert isinstance(found, HeteroDataset) and found.target == target
        np.testing.assert_array_equal(found.y, y)
    np.testing.assert_array_equal(found.val_ids, typed.ids_of(data)[1])  # the masks of papers
    assert "one of the node types" in refusal(root, target="venue").expected


def test_chunks_may_count_the_nodes_of_a_type_at_once(tmp_path):
    data = typed.sample()
    root = typed.write_chunked(tmp_path / "chunks", data)
    counts = [data[type_].num_nodes for type_ in data.node_types]
    members("metadata.json", num_nodes_per_chunk=None, num_nodes_per_type=counts)(root)
    typed.assert_holds(imported(root), data)


def test_a_graph_of_one_node_type_has_no_target(tmp_path):
    np.savez(tmp_path / "g.npz", x=GRAPH.x, src=SRC, dst=DST)
    assert refusal(tmp_path / "g.npz", target="a").place == "--target"


# --- GraphBolt --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("edge_format", ["csv", "numpy"])
def test_graphbolt_takes_a_format_that_is_missing_from_the_name(tmp_path, edge_format):
    root = write_graphbolt(tmp_path / "set", GRAPH, edge_format)
    replaced("metadata.yaml", f"- format: {edge_format}\n      path", "- path")(root)
    replaced("metadata.yaml", "format: numpy, ", "")(root)
    assert sorted(edge_pairs(imported(root))) == sorted(PAIRS)


def test_graphbolts_csv_has_two_columns(tmp_path):
    root = write_graphbolt(tmp_path / "set", GRAPH)
    np.savetxt(root / "edges/edges.csv", np.ones((3, 3), int), fmt="%d", delimiter=",")
    error = refusal(root)
    assert error.expected.startswith("two columns") and error.found == "3 columns"


def test_graphbolts_sets_without_labels_are_left_empty(tmp_path):
    root, notes = write_graphbolt(tmp_path / "set", GRAPH), []
    replaced("metadata.yaml", ", {name: labels, format: numpy, path: sets/test-labels.npy}", "")(root)
    data = imported(root, note=notes.append)
    np.testing.assert_array_equal(data.train_ids, GRAPH.splits[0])
    assert len(data.test_ids) == 0 and notes[0] == "test_set has no labels, and is left empty"


LINK_TASK = """
dataset_name: small
graph: {{nodes: [{{num: 60}}], edges: [{{format: numpy, path: edges.npy}}]}}
feature_data: [{{domain: node, name: feat, format: numpy, path: feat.npy}}]
tasks:
  - name: link_prediction
    train_set: [{{data: [{{name: {pairs}, format: numpy, path: train.npy}}]}}]
    validation_set: [{{data: {val}}}]
    test_set: [{{data: {test}}}]
"""


def write_link_task(root, pairs: str, form: str):
    """A GraphBolt data set whose only task is links, in the form of its older or of its newer versions."""
    pytest.importorskip("yaml")
    root.mkdir()
    rng, links = np.random.default_rng(4), {}
    np.save(root / "edges.npy", GRAPH.edge_index)
    np.save(root / "feat.npy", GRAPH.x)
    np.save(root / "train.npy", GRAPH.edge_index.T)
    for name, count in (("val", 5), ("test", 7)):
        held, others = rng.integers(60, size=(count, 2)), rng.integers(60, size=(count, 3))
        arrays = {pairs: held, "negative_dsts": others} if form == "beside" else {pairs: held}
        if form == "in one list":
            negatives = np.stack([np.repeat(held[:, 0], 3), others.reshape(-1)], axis=1)
            seeds, of = (
                np.concatenate([held, negatives]),
                np.concatenate([np.arange(count), np.repeat(np.arange(count), 3)]),
            )
            arrays = {pairs: seeds, "labels": np.arange(len(seeds)) < count, "indexes": of}
        for key, array in arrays.items():
            np.save(root / f"{name}-{key}.npy", array)
        links[name] = held, others, [{"name": key, "format": "numpy", "path": f"{name}-{key}.npy"} for key in arrays]
    sets = {name: json.dumps(entries) for name, (_, _, entries) in links.items()}
    (root / "metadata.yaml").write_text(LINK_TASK.format(pairs=pairs, **sets))
    return links


@pytest.mark.parametrize(("pairs", "form"), [("node_pairs", "beside"), ("seeds", "in one list"), ("seeds", "none")])
def test_graphbolts_links_are_held_out(tmp_path, pairs, form):
    links, notes = write_link_task(tmp_path / "set", pairs, form), []
    data = imported(tmp_path / "set", note=notes.append)
    holds(data, y=False)
    held = held_out(data.path)
    if form == "none":
        assert held == {} and "links without negatives" in notes[0] and "split-links" in notes[0]
        return
    for split, (wanted, others, _) in links.items():
        assert not held[split].shared
        assert held[split].pairs.tolist() == wanted.tolist() and held[split].negatives.tolist() == others.tolist()


def test_graphbolts_links_with_negatives_of_other_sources_are_refused(tmp_path):
    write_link_task(tmp_path / "set", "seeds", "in one list")
    seeds = np.load(tmp_path / "set" / "val-seeds.npy")
    seeds[-1, 0] = (seeds[-1, 0] + 1) % 60
    np.save(tmp_path / "set" / "val-seeds.npy", seeds)
    error = refusal(tmp_path / "set")
    assert "as many negatives" in error.expected and "cohort.dataset.write_links" in error.hint
