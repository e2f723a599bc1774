#!/usr/bin/env bash
# PyG's LSTM, GRU and LCM aggregations, as in SAGEConv(aggr="lstm"), fill all lists of neighbours with zeros up to the
# longest of the batch and go on over the zeros: a node's output depends on the largest degree among the others, and
# so on the batch that it comes in, also in evaluation. Mean, max and set transformers do not.
#
# Needs: python3, PyPI; torch-geometric==2.8.1 torch==2.15.0 in a temporary venv (5 GB). Seen: those. Guess before the
# run: a node's output depends on its own neighbours.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check torch-geometric==2.8.1 torch==2.15.0
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import torch
import torch_geometric
from torch_geometric.nn import SAGEConv
from torch_geometric.nn.aggr import GRUAggregation, LCMAggregation

print("torch_geometric", torch_geometric.__version__, "torch", torch.__version__)
torch.manual_seed(0)
x = torch.randn(8, 4)
one = torch.tensor([[1, 2], [0, 0]])  # node 0 has two neighbours
two = torch.tensor([[1, 2, 3, 4, 5, 6, 7], [0, 0, 1, 1, 1, 1, 1]])  # node 1 has five beside
for aggr in ("lstm", GRUAggregation(4, 4), LCMAggregation(4, 4), "mean", "max"):
    layer = SAGEConv(4, 4, aggr=aggr).eval()
    alone, beside = layer(x, one)[0], layer(x, two)[0]
    print(aggr, "alone", alone.tolist(), "beside a node of degree 5", beside.tolist())
    assert torch.allclose(alone, beside) == (aggr in ("mean", "max"))
PYTHON
