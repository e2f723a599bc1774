#!/usr/bin/env bash
# PyG's SAGEConv and SimpleConv("mean") of a torch.sparse COO matrix add up parallel edges but count each pair of nodes
# once: the mean of neighbours with the values 1, 1 and 4 is 3 (6 / 2), and of 1 and 1 it is 2. SimpleConv("max") of
# them has 2 x 1. The same edges as edge_index, as an EdgeIndex or as CSR give 2 and 1.
#
# Needs: python3, PyPI; torch-geometric==2.8.1 torch==2.15.0 in a temporary venv (5 GB). Seen: those. Guess before the
# run: 2 and 1 in all forms.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check torch-geometric==2.8.1 torch==2.15.0
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import torch
import torch_geometric
from torch_geometric.nn import SAGEConv, SimpleConv

print("torch_geometric", torch_geometric.__version__, "torch", torch.__version__)
x = torch.tensor([[1.0], [4.0], [0.0], [0.0]])
edges = torch.tensor([[0, 0, 1, 0, 0], [2, 2, 2, 3, 3]])  # two parallel ones into 2, and two into 3
coo = torch.sparse_coo_tensor(edges.flip(0), torch.ones(5), (4, 4))
csr = torch.sparse_csr_tensor(torch.tensor([0, 0, 0, 3, 5]), edges[0], torch.ones(5), (4, 4))
forms = {"edge_index": edges, "EdgeIndex": torch_geometric.EdgeIndex(edges, sparse_size=(4, 4)), "CSR": csr, "COO": coo}
sage = SAGEConv(1, 1, root_weight=False, bias=False)
torch.nn.init.ones_(sage.lin_l.weight)
found = {}
for name, form in forms.items():
    with torch.no_grad():
        found[name] = [layer(x, form)[2:, 0].tolist() for layer in (SimpleConv("mean"), sage, SimpleConv("max"))]
    print(name, "mean", found[name][0], "SAGEConv", found[name][1], "max", found[name][2])
assert found["edge_index"] == found["EdgeIndex"] == found["CSR"] == [[2, 1], [2, 1], [4, 1]]
assert found["COO"] == [[3, 2], [3, 2], [4, 2]]
PYTHON
