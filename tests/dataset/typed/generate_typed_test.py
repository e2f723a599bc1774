"""cohort dataset generate --kind typed: the same files again, and classes that need two relations and their types."""

import filecmp
import os
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
import torch

from cohort_gnn import CohortError
from cohort_gnn.dataset import check, generate_typed
from cohort_gnn.dataset import open as open_dataset

WRITE = """
import sys
from cohort_gnn.dataset import generate_typed
generate_typed(sys.argv[1], nodes=600, edges=4000, dim=8, classes=3, seed=7, all_features=True)
"""


def same_files(first, second) -> bool:
    names = sorted(path.name for path in first.iterdir())
    assert names == sorted(path.name for path in second.iterdir())
    arrays = [name for name in names if name != "meta.json"]  # which has the folder's name
    return filecmp.cmpfiles(first, second, arrays, shallow=False)[1:] == ([], [])


def test_the_same_seed_gives_the_same_files_for_any_number_of_threads(tmp_path):
    for threads in ("1", "3"):
        environment = os.environ | {"OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
        subprocess.run([sys.executable, "-c", WRITE, tmp_path / threads], check=True, env=environment)
    assert same_files(tmp_path / "1", tmp_path / "3")
    generate_typed(tmp_path / "8", nodes=600, edges=4000, dim=8, classes=3, seed=8, all_features=True)
    assert not same_files(tmp_path / "1", tmp_path / "8")


def test_sizes_are_those_asked_for(tmp_path):
    generate_typed(tmp_path / "out", nodes=601, edges=1501, dim=5, classes=3, split=(0.5, 0.3, 0.1))
    data = open_dataset(tmp_path / "out")
    assert check(data.path) == []
    assert data.num_nodes == 601 and data.num_edges == 2 * 1501
    papers = data.node_types["paper"].num_nodes
    assert {name: table.num_nodes for name, table in data.node_types.items()} == {
        "paper": papers,
        "author": 50,
        "field": 50,
    }
    assert [len(data.train_ids), len(data.val_ids), len(data.test_ids)] == [250, 151, 50]
    assert data.node_types["paper"].x.shape == (papers, 5) and data.node_types["author"].x is None
    for relation in [("author", "writes", "paper"), ("field", "rev_has", "paper")]:
        assert (np.diff(data.edge_types[relation].indptr) >= 1).all(), "each paper has an author and a field"
    assert data.edge_types["paper", "rev_writes", "author"].reverse_of == ("author", "writes", "paper")
    assert data.edge_types["field", "rev_has", "paper"].reverse_of == ("paper", "has", "field")
    assert max(Counter(data.y.tolist()).values()) < papers / 3 * 1.2


def means_of(data, relation) -> np.ndarray:
    """float32 [papers, D]: the mean of the features of each paper's sources."""
    sources, targets = data.edge_types[relation].edge_index()
    x = data.node_types[relation[0]].x_float32()
    sums = np.zeros((data.node_types["paper"].num_nodes, x.shape[1]), np.float32)
    np.add.at(sums, targets, x[sources])
    return sums / np.diff(data.edge_types[relation].indptr).astype(np.float32)[:, None]


def accuracy_of(data, inputs: np.ndarray) -> float:
    """Of a network of one hidden layer, trained on the training papers, on all others."""
    torch.manual_seed(0)
    x = torch.from_numpy((inputs - inputs.mean(0)) / inputs.std(0))
    y, train = torch.from_numpy(np.array(data.y)), torch.from_numpy(np.array(data.train_ids))
    model = torch.nn.Sequential(torch.nn.Linear(x.shape[1], 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=1e-3)
    for _ in range(200):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x[train]), y[train]).backward()
        optimizer.step()
    right = model(x).argmax(1) == y
    others = torch.ones(len(y), dtype=torch.bool)
    others[train] = False
    return right[others].float().mean().item()


def test_classes_need_both_relations_and_their_types(tmp_path):
    """Two classes: half of the papers are right by chance."""
    generate_typed(tmp_path / "out", nodes=3600, edges=30_000, dim=16, classes=2, seed=1, all_features=True)
    data = open_dataset(tmp_path / "out")
    authors, fields = means_of(data, ("author", "writes", "paper")), means_of(data, ("field", "rev_has", "paper"))
    own = data.node_types["paper"].x_float32()
    assert accuracy_of(data, np.hstack([authors, fields])) > 0.9
    for less in (authors, fields, authors + fields, np.hstack([own, authors + fields])):
        assert accuracy_of(data, less) < 0.6


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"nodes": 59}, r"--nodes: expected an integer in \[60, 2\^31\) for 2 classes of --kind typed, found 59"),
        ({"edges": 999}, "--edges: expected at least 1000, an author and a field for each of 500 papers, found 999"),
        ({"classes": 1}, "--classes: expected at least 2 for --kind typed, found 1"),
        ({"dim": 0}, "--dim: expected at least 1, found 0"),
        ({"dtype": "uint8"}, "--dtype: expected float32 or float16 for --kind typed, found uint8"),
        ({"split": (0.5, 0.5)}, "--split-ratio: expected three parts"),
        ({"seed": -1}, "--seed: expected an integer"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(tmp_path, options, words):
    with pytest.raises(CohortError, match=words):
        generate_typed(tmp_path / "out", **{"nodes": 600, "edges": 4000, **options})
    assert not (tmp_path / "out").exists()
