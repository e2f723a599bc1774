#!/usr/bin/env bash
# PyG's SortAggregation (DGCNN) marks padding with the smallest value minus 1, and sets all that equals it to 0. Where
# 1 is less than a step of the type, that is the smallest value itself: -300 in bfloat16, -4,096 in float16 and -2^24
# in float32 become 0, without padding too.
#
# Needs: python3, PyPI; torch-geometric==2.8.1 torch==2.15.0 in a temporary venv (5 GB). Seen: those. Guess before the
# run: the values of the rows, in their order.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check torch-geometric==2.8.1 torch==2.15.0
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import torch
import torch_geometric
from torch_geometric.nn.aggr import SortAggregation

print("torch_geometric", torch_geometric.__version__, "torch", torch.__version__)
for dtype, smallest in zip([torch.bfloat16, torch.float16] + [torch.float32] * 2, (-300, -4096, -(2**24), -300)):
    x = torch.tensor([[float(smallest), 1], [5, 2], [-100, 3]], dtype=dtype)
    out = SortAggregation(3)(x, torch.zeros(3, dtype=torch.long)).tolist()[0]
    print(dtype, "rows with", smallest, "are", out)
    lost = (dtype, smallest) != (torch.float32, -300)
    assert out == [-100, 3, 5, 2, 0 if lost else -300, 1]
PYTHON
