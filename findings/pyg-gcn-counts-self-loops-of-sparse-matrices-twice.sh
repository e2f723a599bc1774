#!/usr/bin/env bash
# PyG's GCNConv leaves a self loop of edge_index as it is, and adds one only to nodes without. Of a torch.sparse matrix
# it adds one to every node: a node with a loop has it with weight 2. So do SGConv, SSGConv, APPNP and MixHopConv, which
# share its normalization.
#
# Needs: python3, PyPI; torch-geometric==2.8.1 torch==2.15.0 in a temporary venv (5 GB). Seen: those. Guess before the
# run: the same output from both forms.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check torch-geometric==2.8.1 torch==2.15.0
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import torch
import torch_geometric
from torch_geometric.nn import APPNP, GCNConv, SGConv, SSGConv

print("torch_geometric", torch_geometric.__version__, "torch", torch.__version__)
edges = torch.tensor([[0, 1, 1], [1, 0, 1]])  # node 1 has a loop, and node 0 has none
x = torch.tensor([[1.0], [0.0]])
sizes = torch.ones(3), (2, 2)
forms = {"edge_index": edges, "COO": torch.sparse_coo_tensor(edges.flip(0), *sizes)}
forms["CSR"] = forms["COO"].to_sparse_csr()
layers = [GCNConv(1, 1, bias=False), SGConv(1, 1, bias=False), SSGConv(1, 1, 0.5, bias=False), APPNP(1, 0.5)]
found = {}
for name, form in forms.items():
    with torch.no_grad():
        for layer in layers:
            for weight in layer.parameters():
                torch.nn.init.ones_(weight)
        found[name] = [round(layer(x, form)[1].item(), 4) for layer in layers]
    print(name, dict(zip((type(layer).__name__ for layer in layers), found[name], strict=True)))
# Of GCN: 1 / sqrt(2 x 2), and where the loop counts twice 1 / sqrt(2 x 3).
assert found["edge_index"][0] == 0.5 and found["COO"][0] == found["CSR"][0] == 0.4082
assert all(one != other for one, other in zip(found["edge_index"], found["COO"], strict=True))
PYTHON
