#!/usr/bin/env bash
# GraphSAGE(norm="layer_norm") and PyG's other models and MLP have PyG's LayerNorm, whose default mode is "graph":
# without a batch vector it divides by the deviation of all rows together. The output of a node depends on the other
# nodes of the batch, also in evaluation, and a batch of neighbours gives other scores than the whole graph.
# norm_kwargs=dict(mode="node") is torch.nn.LayerNorm.
#
# Needs: python3, PyPI; torch-geometric==2.8.1 torch==2.15.0 in a temporary venv (5 GB). Seen: those. Guess before the
# run: each row is normalised by itself, as by torch.nn.LayerNorm.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check torch-geometric==2.8.1 torch==2.15.0
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import torch
import torch_geometric
from torch_geometric.nn import MLP, GraphSAGE

print("torch_geometric", torch_geometric.__version__, "torch", torch.__version__)
torch.manual_seed(0)
x, edge_index = torch.randn(6, 4), torch.tensor([[0, 1], [1, 0]])  # nodes 2 to 5 have no edges
for options, depends in (({}, True), ({"norm_kwargs": {"mode": "node"}}, False)):
    model = GraphSAGE(4, 8, 2, 3, norm="layer_norm", **options).eval()
    mlp = MLP([4, 8, 3], norm="layer_norm", **options).eval()
    of_model = (model(x, edge_index)[:2] - model(x[:2], edge_index)).abs().max().item()
    of_mlp = (mlp(x)[:2] - mlp(x[:2])).abs().max().item()
    print(options, "change of two nodes by four others without edges: GraphSAGE", of_model, "MLP", of_mlp)
    assert (of_model > 0.01) == depends and (of_mlp > 0.01) == depends
PYTHON
