#!/usr/bin/env bash
# T.NormalizeFeatures leaves rows whose sum is below 1 as they are: [0.25, 0.25] stays, [2, 2] becomes [0.5, 0.5].
# Before that it subtracts the smallest value of the whole table: one negative value anywhere makes all zeros of
# sparse rows positive, and the rows of a graph depend on the others in its table. The documentation says that rows
# sum up to one.
#
# Needs: python3, PyPI; torch-geometric==2.8.1 torch==2.15.0 in a temporary venv (5 GB). Seen: those. Guess before the
# run: each row sums up to one, and zeros stay zeros.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check torch-geometric==2.8.1 torch==2.15.0
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import torch
import torch_geometric
import torch_geometric.transforms as T
from torch_geometric.data import Data

print("torch_geometric", torch_geometric.__version__, "torch", torch.__version__)
small = T.NormalizeFeatures()(Data(x=torch.tensor([[0.25, 0.25, 0], [2, 2, 0]]))).x.tolist()
negative = T.NormalizeFeatures()(Data(x=torch.tensor([[1.0, 1, 0, 0], [0, 0, 0, -2]]))).x.tolist()
print("[0.25, 0.25, 0] and [2, 2, 0]:", small)
print("[1, 1, 0, 0] and [0, 0, 0, -2]:", negative)
assert small == [[0.25, 0.25, 0], [0.5, 0.5, 0]]
assert torch.allclose(torch.tensor(negative), torch.tensor([[0.3, 0.3, 0.2, 0.2], [1 / 3, 1 / 3, 1 / 3, 0]]))
PYTHON
