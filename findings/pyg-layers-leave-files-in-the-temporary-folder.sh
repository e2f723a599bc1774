#!/usr/bin/env bash
# The first object of each of PyG's layer classes writes a module of Python into the temporary folder and imports it. The
# file stays when the process ends, and the next process writes another: on a node that runs many jobs /tmp fills up.
#
# Needs: python3, PyPI; torch-geometric==2.8.1 torch==2.15.0 in a temporary venv (5 GB). Seen: those. Guess before the
# run: no file, or one that goes with the process.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check torch-geometric==2.8.1 torch==2.15.0
cd "$work"
mkdir temporary
for process in 1 2 3; do
  TMPDIR="$work/temporary" venv/bin/python -W ignore - <<'PYTHON'
import torch
import torch_geometric
from torch_geometric.nn import GATConv, SAGEConv

layers = SAGEConv(4, 4), SAGEConv(4, 4), GATConv(4, 4)
print("torch_geometric", torch_geometric.__version__, "torch", torch.__version__, layers)
PYTHON
done
(cd temporary && ls -- *.py)
count=$(find temporary -name "torch_geometric.nn.conv.*.py" | wc -l)
echo "$count files of three processes, of which two classes had objects"
[ "$count" = 9 ] || { echo "the behaviour has changed"; exit 1; }
