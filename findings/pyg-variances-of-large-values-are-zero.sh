#!/usr/bin/env bash
# PyG's VarAggregation and StdAggregation, and with them PNAConv and HeteroBatchNorm, compute mean(x^2) - mean(x)^2:
# of three days in seconds since 1970 the deviation is 0, which HeteroBatchNorm makes values of 27 million of, and of
# the years 2000 to 2002 the variance is 0.75. torch.var and BatchNorm1d subtract the mean first.
#
# Needs: python3, PyPI; torch-geometric==2.8.1 torch==2.15.0 in a temporary venv (5 GB). Seen: those. Guess before the
# run: as torch.var, to some digits.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check torch-geometric==2.8.1 torch==2.15.0
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import torch
import torch_geometric
from torch_geometric.nn.aggr import StdAggregation, VarAggregation
from torch_geometric.nn.norm import HeteroBatchNorm

print("torch_geometric", torch_geometric.__version__, "torch", torch.__version__)
same = torch.zeros(3, dtype=torch.long)
rows = {"years": [[2000.0], [2001], [2002]], "days": [[1.7e9], [1.7e9 + 86400], [1.7e9 + 172800]]}
seen = {}
for name, values in rows.items():
    x = torch.tensor(values)
    norms = [norm.flatten().tolist() for norm in (HeteroBatchNorm(1, 1)(x, same), torch.nn.BatchNorm1d(1)(x))]
    seen[name] = VarAggregation()(x, same).item(), StdAggregation()(x, same).item(), x.var(unbiased=False).item(), norms
    print(name, "variance, deviation, torch's variance:", *seen[name][:3], "HeteroBatchNorm, BatchNorm1d:", *norms)
assert seen["years"][0] == 0.75 and abs(seen["years"][2] - 2 / 3) < 1e-5
assert seen["days"][1] == 0 and seen["days"][2] > 4e9
assert seen["days"][3][0][2] > 2e7 and abs(seen["days"][3][1][2] - 1.2247) < 1e-2
PYTHON
