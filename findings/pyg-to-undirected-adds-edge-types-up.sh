#!/usr/bin/env bash
# T.ToUndirected adds the edge types of an edge and its reverse up, as it does with weights: types 3 and 4 become 7, which
# no edge has, in each place where both directions are there. A graph that is undirected already gets all its weights and
# types twice, and loops do in every graph.
#
# Needs: python3, PyPI; torch-geometric==2.8.1 torch==2.15.0 in a temporary venv (5 GB). Seen: those. Guess before the
# run: an undirected graph stays as it is, and edges of two types stay two edges.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check torch-geometric==2.8.1 torch==2.15.0
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import torch
import torch_geometric
import torch_geometric.transforms as T
from torch_geometric.data import Data

print("torch_geometric", torch_geometric.__version__, "torch", torch.__version__)
data = Data(
    edge_index=torch.tensor([[0, 1, 1, 2, 3], [1, 0, 2, 1, 3]]),
    edge_type=torch.tensor([3, 4, 5, 5, 6]),
    edge_weight=torch.tensor([0.5, 0.5, 1.0, 1.0, 2.0]),
    num_nodes=4,
)
once, twice = T.ToUndirected()(data.clone()), T.ToUndirected()(T.ToUndirected()(data.clone()))
print("is undirected", data.is_undirected(), "edge types", data.edge_type.tolist(), "after", once.edge_type.tolist())
print("weights", data.edge_weight.tolist(), once.edge_weight.tolist(), twice.edge_weight.tolist())
assert once.edge_index.tolist() == data.edge_index.tolist() and once.edge_type.tolist() == [7, 7, 10, 10, 12]
assert once.edge_weight.tolist() == [1, 1, 2, 2, 4] and twice.edge_weight.tolist() == [2, 2, 4, 4, 8]
PYTHON
