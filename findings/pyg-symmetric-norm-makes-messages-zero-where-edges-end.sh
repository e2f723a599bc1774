#!/usr/bin/env bash
# PyG's gcn_norm takes the in-degree for the degree of both ends: a source without in-edges has 1 / sqrt(0), which is
# made 0, and its messages are lost. LGConv (LightGCN), LabelPropagation and GCNConv(add_self_loops=False) give zeros
# where edges go one way, as from users to items, and in a batch of neighbours the rows of the last hop count for
# nothing: with one layer, all.
#
# Needs: python3, PyPI; torch-geometric==2.8.1 torch==2.15.0 in a temporary venv (5 GB). Seen: those. Guess before the
# run: the sum of the neighbours with some positive weight.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check torch-geometric==2.8.1 torch==2.15.0
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import torch
import torch_geometric
from torch_geometric.nn import GCNConv, LabelPropagation, LGConv

print("torch_geometric", torch_geometric.__version__, "torch", torch.__version__)
x = torch.tensor([[1.0], [2.0], [3.0]])
batch = torch.tensor([[1, 2], [0, 0]])  # the neighbours of node 0, as a loader gives them
layer = GCNConv(1, 1, add_self_loops=False, bias=False)
torch.nn.init.ones_(layer.lin.weight)
seen = {
    "GCNConv": layer(x, batch)[0].item(),
    "LGConv": LGConv()(x, batch)[0].item(),
    "LabelPropagation": LabelPropagation(num_layers=1, alpha=0.5)(torch.tensor([[0.0], [1], [1]]), batch)[0].item(),
}
print("node 0 with neighbours 2 and 3:", seen)
assert list(seen.values()) == [0, 0, 0]
both = torch.cat([batch, batch.flip(0)], dim=1)
print("with edges both ways:", layer(x, both)[0].item(), LGConv()(x, both)[0].item())
assert abs(layer(x, both)[0].item() - 5 / 2**0.5) < 1e-5 and abs(LGConv()(x, both)[0].item() - 5 / 2**0.5) < 1e-5
PYTHON
