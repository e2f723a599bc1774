#!/usr/bin/env bash
# torch_geometric.nn.Sequential imports the script that makes one by its file's name, so the whole script runs a second
# time, to its end, before the first object is there: it trains twice, and files of the second run are overwritten by the
# first. With `if __name__ == "__main__":` around what it does, or a class in place of Sequential, it runs once.
#
# Needs: python3, PyPI; torch-geometric==2.8.1 torch==2.15.0 in a temporary venv (5 GB). Seen: those. Guess before the
# run: once, as with torch.nn.Sequential.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check torch-geometric==2.8.1 torch==2.15.0
cd "$work"
cat > train.py <<'PYTHON'
import torch
import torch_geometric
from torch_geometric.nn import GCNConv, Sequential

print("begins as", __name__, "with torch_geometric", torch_geometric.__version__, "torch", torch.__version__)
model = Sequential("x, edge_index", [(GCNConv(4, 2), "x, edge_index -> x"), torch.nn.ReLU()])
print("trains as", __name__)
PYTHON
{
  sed '/^model/,$d' train.py
  echo 'if __name__ == "__main__":'
  sed -n '/^model/,$s/^/    /p' train.py
} > guarded.py
TMPDIR=$work venv/bin/python -W ignore train.py | tee seen
TMPDIR=$work venv/bin/python -W ignore guarded.py | tee seen_guarded
[ "$(grep -o "^[a-z]* as [a-z_]*" seen | tr '\n' ',')" = \
  "begins as __main__,begins as train,trains as train,trains as __main__," ] || { echo "the behaviour has changed"; exit 1; }
[ "$(grep -c "^trains" seen_guarded)" = 1 ] || { echo "the behaviour has changed"; exit 1; }
