#!/usr/bin/env bash
# PyG's RandomLinkSplit changes edges that it does not split. With is_undirected=True each loop of the graph is twice in
# the graph of training: it is its own reverse. With rev_edge_types the reverse edges get the attributes of the edges,
# in the place of their own of the same name; its documentation says that they are given to prevent leakage.
#
# Needs: python3, PyPI; torch-geometric==2.8.1 torch==2.15.0 in a temporary venv (5 GB). Seen: those. Guess before the
# run: without edges of validation and test, the graph of training is the graph.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check torch-geometric==2.8.1 torch==2.15.0
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import torch
import torch_geometric
from torch_geometric.data import Data, HeteroData
from torch_geometric.transforms import RandomLinkSplit

print("torch_geometric", torch_geometric.__version__, "torch", torch.__version__)
options = {"num_val": 0, "num_test": 0, "add_negative_train_samples": False}
data = Data(edge_index=torch.tensor([[0, 1, 2], [1, 0, 2]]), num_nodes=3)
train, _, _ = RandomLinkSplit(is_undirected=True, **options)(data)
loops = int((train.edge_index[0] == train.edge_index[1]).sum())
print("edges", data.num_edges, "in training", train.num_edges, "loops", loops)
assert train.num_edges == 4 and loops == 2

to, back = ("user", "buys", "item"), ("item", "sold_to", "user")
data = HeteroData()
data["user"].num_nodes = data["item"].num_nodes = 2
data[to].edge_index, data[back].edge_index = torch.tensor([[0, 1], [0, 1]]), torch.tensor([[0, 1], [0, 1]])
data[to].edge_attr, data[back].edge_attr = torch.tensor([1.0, 2.0]), torch.tensor([-1.0, -2.0])
train, _, _ = RandomLinkSplit(edge_types=[to], rev_edge_types=[back], **options)(data)
print("edge_attr of the reverse: -1, -2, in training", train[back].edge_attr.tolist())
assert sorted(train[back].edge_attr.tolist()) == [1, 2]
PYTHON
