#!/usr/bin/env bash
# torch_geometric.utils.degree counts in float32 unless a dtype is given: the degree of a node with 20 million edges
# is 16,777,216. So do GCNConv's normalisation, and the counts and sums of mean aggregation: the mean of 20 million
# neighbours of 0.1 is 0.125. torch.bincount counts in int64.
#
# Needs: python3, PyPI; torch-geometric==2.8.1 torch==2.15.0 in a temporary venv (5 GB). Seen: those. Guess before the
# run: 20,000,000, as it counts integers.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check torch-geometric==2.8.1 torch==2.15.0
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import torch
import torch_geometric
from torch_geometric.nn import SimpleConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import degree

print("torch_geometric", torch_geometric.__version__, "torch", torch.__version__)
hub = torch.zeros(20_000_000, dtype=torch.long)
counted = degree(hub).item(), degree(hub, dtype=torch.long).item(), torch.bincount(hub).item()
print("degree", *counted)
assert counted == (16_777_216, 20_000_000, 20_000_000)
edge_index = torch.stack([torch.ones_like(hub), hub])
_, norm = gcn_norm(edge_index, num_nodes=2, add_self_loops=True)
print("1 / norm^2 of the hub's own loop in GCN", 1 / norm[-2].item())
assert abs(1 / norm[-2].item() - 16_777_216) < 10
mean = SimpleConv("mean")(torch.tensor([[0.0], [0.1]]), edge_index)[0].item()
print("mean of 20 million neighbours with 0.1:", mean)
assert mean == 0.125
PYTHON
