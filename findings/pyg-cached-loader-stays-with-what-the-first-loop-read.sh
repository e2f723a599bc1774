#!/usr/bin/env bash
# PyG's CachedLoader gives, from the second loop on, what the first loop read, and if that ended early, by break or as
# a trainer's check of two validation batches does, all later loops end there, too: each validation is of two batches,
# and len() still says how many the loader has. clear() begins again.
#
# Needs: python3, PyPI; torch-geometric==2.8.1 torch==2.15.0 in a temporary venv (5 GB). Seen: those. Guess before the
# run: the next loop has all batches.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check torch-geometric==2.8.1 torch==2.15.0
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import torch
import torch_geometric
from torch_geometric.data import Data
from torch_geometric.loader import CachedLoader, DataLoader

print("torch_geometric", torch_geometric.__version__, "torch", torch.__version__)
loader = CachedLoader(DataLoader([Data(x=torch.full((1, 1), float(i))) for i in range(8)], batch_size=2))
for step, _ in enumerate(loader):
    if step == 1:  # two batches are enough for a check
        break
epochs = [[value for batch in loader for value in batch.x.flatten().tolist()] for _ in range(2)]
print("len", len(loader), "rows of the next two epochs", epochs)
assert len(loader) == 4 and epochs == [[0, 1, 2, 3]] * 2
loader.clear()
assert len(list(loader)) == len(list(loader)) == 4
PYTHON
