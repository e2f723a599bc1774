#!/usr/bin/env bash
# In bfloat16 and float16, PyG's GATConv gives a hub attention weights that sum to far more than one if the edges are a
# sorted EdgeIndex: 11.75 for 3,000 equal neighbours in bfloat16, 1.46 in float16. With the same edges as a tensor they
# sum to 1.0. Offsets of a sorted EdgeIndex lead softmax to torch.segment_reduce, which adds in the dtype itself: a
# bfloat16 sum of ones stops at 256. The tensor leads it to scatter_add_, which adds more exactly on a CPU. (On a GPU,
# torch 2.11, it was the other way round: scatter_add_ stopped at 256, segment_reduce did not, and softmax by index over
# 3,000 float16 neighbours summed to 1.46.)
#
# Needs: python3, PyPI; torch-geometric==2.8.1 torch==2.15.0 in a temporary venv (5 GB). Seen: those, on a CPU, without
# pyg-lib. Guess before the run: about 1 in all cases, as the form of the edges is a matter of speed.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check torch-geometric==2.8.1 torch==2.15.0
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import torch
import torch_geometric
from torch_geometric.nn import GATConv

print("torch_geometric", torch_geometric.__version__, "torch", torch.__version__)
count = 3000
edges = torch.stack([torch.arange(1, count + 1), torch.zeros(count, dtype=torch.long)])
as_sorted = torch_geometric.EdgeIndex(edges, sparse_size=(count + 1, count + 1)).sort_by("col").values
found = {}
for dtype in (torch.float32, torch.bfloat16, torch.float16):
    conv = GATConv(1, 1, add_self_loops=False, bias=False).to(dtype)
    torch.nn.init.ones_(conv.lin.weight)
    x = torch.ones(count + 1, 1, dtype=dtype)
    with torch.no_grad():  # as all rows are one, the output is the sum of the weights
        found[dtype] = [round(conv(x, some)[0, 0].item(), 2) for some in (edges, as_sorted)]
    print(dtype, "a tensor:", found[dtype][0], "a sorted EdgeIndex:", found[dtype][1])
ones = torch.ones(600, dtype=torch.bfloat16)
sums = [
    torch.zeros(1, dtype=torch.bfloat16).scatter_add_(0, torch.zeros(600, dtype=torch.long), ones).item(),
    torch.segment_reduce(ones, "sum", lengths=torch.tensor([600])).item(),
    torch.zeros(1, dtype=torch.bfloat16).index_add_(0, torch.zeros(600, dtype=torch.long), ones).item(),
]
print("600 ones in bfloat16: scatter_add_", sums[0], "segment_reduce", sums[1], "index_add_", sums[2])
assert found[torch.float32] == [1.0, 1.0] and sums == [600, 256, 256]
assert found[torch.bfloat16] == [1.0, 11.75] and found[torch.float16] == [1.0, 1.46]
PYTHON
