#!/usr/bin/env bash
# HGTConv gives other results if the dict of edges has its edge types in another order than the metadata of the layer: it
# multiplies keys and values by weights of other edge types, since it tells its linear layers that rows are sorted by
# type. Nothing is said, and the shapes are right. HeteroConv gives the same in any order.
#
# Needs: python3, PyPI; torch-geometric==2.8.1 torch==2.15.0 in a temporary venv (5 GB). Seen: those. Guess before the
# run: a dict has no order that counts; the same but for rounding.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check torch-geometric==2.8.1 torch==2.15.0
cd "$work"
TMPDIR=$work venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import torch
import torch_geometric
from torch_geometric.nn import HeteroConv, HGTConv, SAGEConv

print("torch_geometric", torch_geometric.__version__, "torch", torch.__version__)
torch.manual_seed(0)
writes, cites = ("author", "writes", "paper"), ("paper", "cites", "paper")
x = {"author": torch.randn(5, 8), "paper": torch.randn(7, 8)}
edges = {writes: torch.randint(5, (2, 9)), cites: torch.randint(7, (2, 9))}
layers = {
    "HGTConv": HGTConv(8, 8, (["author", "paper"], [writes, cites]), heads=2),
    "HeteroConv": HeteroConv({name: SAGEConv(8, 8) for name in edges}),
}
differ = {}
for name, layer in layers.items():
    first, second = (layer(x, {edge: edges[edge] for edge in order})["paper"] for order in (edges, reversed(edges)))
    differ[name] = (first - second).abs().max().item()
    print(f"{name}: results to {first.abs().max().item():.2f} differ by up to {differ[name]:.2g}")
assert differ["HGTConv"] > 0.01 and differ["HeteroConv"] < 1e-5
PYTHON
