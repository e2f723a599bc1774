#!/usr/bin/env bash
# TopKPooling, SAGPooling and ASAPooling with ratio=1.0 keep one node of each graph, not all: the value decides, and
# 1.0 is taken for a number of nodes. The documentation says that the type decides, and that a float is the share of
# the nodes. 0.99 keeps five of five.
#
# Needs: python3, PyPI; torch-geometric==2.8.1 torch==2.15.0 in a temporary venv (5 GB). Seen: those. Guess before the
# run: all nodes, as ceil(1.0 * 5) is 5.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check torch-geometric==2.8.1 torch==2.15.0
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import torch
import torch_geometric
from torch_geometric.nn import ASAPooling, SAGPooling, TopKPooling

print("torch_geometric", torch_geometric.__version__, "torch", torch.__version__)
torch.manual_seed(0)
x, edge_index = torch.randn(5, 4), torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 0]])
for pooling in (TopKPooling, SAGPooling, ASAPooling):
    kept = [pooling(4, ratio=ratio)(x, edge_index)[0].size(0) for ratio in (1.0, 0.99, 0.5)]
    print(pooling.__name__, "of 5 nodes with ratio 1.0, 0.99, 0.5:", kept)
    assert kept == [1, 5, 3]
PYTHON
