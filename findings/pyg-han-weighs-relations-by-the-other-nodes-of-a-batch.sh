#!/usr/bin/env bash
# PyG's HANConv weighs the relations of a node type by the mean over all its nodes that are in the call: in a batch,
# the output of a node depends on the other nodes, also in evaluation. A relation that has no edge in the batch counts
# with rows of zeros: one that is empty and one that is left out give different outputs.
#
# Needs: python3, PyPI; torch-geometric==2.8.1 torch==2.15.0 in a temporary venv (5 GB). Seen: those. Guess before the
# run: an output depends on the node's own edges, and a relation without edges adds nothing.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check torch-geometric==2.8.1 torch==2.15.0
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import torch
import torch_geometric
from torch_geometric.nn import HANConv

print("torch_geometric", torch_geometric.__version__, "torch", torch.__version__)
torch.manual_seed(0)
to, of = ("a", "to", "b"), ("a", "of", "b")
layer = HANConv(4, 4, (["a", "b"], [to, of])).eval()
a, b = torch.randn(6, 4), torch.randn(3, 4)
one = {to: torch.tensor([[0], [0]]), of: torch.tensor([[2], [0]])}
three = {to: torch.tensor([[0, 1, 3], [0, 1, 2]]), of: torch.tensor([[2, 4], [0, 1]])}
alone, beside = layer({"a": a, "b": b[:1]}, one)["b"][0], layer({"a": a, "b": b}, three)["b"][0]
print("node 0 of b alone", alone.tolist(), "beside two others", beside.tolist())
assert (alone - beside).abs().max() > 1e-4
empty = layer({"a": a, "b": b[:1]}, {to: one[to], of: torch.zeros(2, 0, dtype=torch.long)})["b"][0]
left_out = layer({"a": a, "b": b[:1]}, {to: one[to]})["b"][0]
print("with an empty relation", empty.tolist(), "without it", left_out.tolist())
assert (empty - left_out).abs().max() > 0.01
PYTHON
