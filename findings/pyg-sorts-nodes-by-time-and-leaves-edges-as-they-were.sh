#!/usr/bin/env bash
# PyG's Data.sort_by_time() and snapshot() of a graph whose nodes have times put the arrays of nodes in another order, or
# leave nodes out, and leave edge_index as it was: edges join other nodes than before, or nodes that are not there. Of
# times of edges they are right. The documentation says that data is sorted, and that a snapshot holds what happened then.
#
# Needs: python3, PyPI; torch-geometric==2.8.1 torch==2.15.0 in a temporary venv (5 GB). Seen: those. Guess before the
# run: edges keep their nodes, as in Data.subgraph(), or times of nodes are refused.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check torch-geometric==2.8.1 torch==2.15.0
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import torch
import torch_geometric
from torch_geometric.data import Data

print("torch_geometric", torch_geometric.__version__, "torch", torch.__version__)


def named(data):
    """The edges by the names of their nodes, which are in x."""
    return [tuple(data.x[ends].tolist()) for ends in data.edge_index.t()]


data = Data(x=torch.tensor([10, 11, 12]), time=torch.tensor([3, 1, 2]), edge_index=torch.tensor([[0, 1], [1, 2]]))
ordered, early = data.sort_by_time(), data.snapshot(1, 2)
print("edges", named(data), "sorted by time", named(ordered))
print("snapshot: nodes", early.x.tolist(), "edge_index", early.edge_index.tolist())
assert named(data) == [(10, 11), (11, 12)] and named(ordered) == [(11, 12), (12, 10)]
assert early.x.tolist() == [11, 12] and torch.equal(early.edge_index, data.edge_index)
PYTHON
