#!/usr/bin/env bash
# PyG's scatter and coalesce with reduce="mean" add integers in their own dtype before they divide: the mean of 200 and
# 100 in uint8 is 22, as float32 and without a word. NumPy's and torch_geometric's means of float32 are 150.
#
# Needs: python3, PyPI; torch-geometric==2.8.1 torch==2.15.0 in a temporary venv (5 GB). Seen: those. Guess before the
# run: 150, as the result is float32.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check torch-geometric==2.8.1 torch==2.15.0
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import torch
import torch_geometric
from torch_geometric.utils import coalesce, scatter

print("torch_geometric", torch_geometric.__version__, "torch", torch.__version__)
edges, values = torch.tensor([[0, 0, 1], [1, 1, 0]]), torch.tensor([200, 100, 7], dtype=torch.uint8)
merged = coalesce(edges, values, reduce="mean")[1]
summed = scatter(values, torch.tensor([0, 0, 1]), reduce="mean")
right = coalesce(edges, values.float(), reduce="mean")[1]
print("coalesce", merged.dtype, merged.tolist(), "scatter", summed.tolist(), "of float32", right.tolist())
assert merged.dtype == torch.float32 and merged.tolist() == summed.tolist() == [22, 7] and right.tolist() == [150, 7]
PYTHON
