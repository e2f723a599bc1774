#!/usr/bin/env bash
# PyG's HeteroBatchNorm takes means and variances without gradients: with one type its output is BatchNorm1d's, its
# gradients are not, and a sum of the output, which is constant, has a gradient. Its running variances are the biased
# ones, so that small batches have other predictions in evaluation.
#
# Needs: python3, PyPI; torch-geometric==2.8.1 torch==2.15.0 in a temporary venv (5 GB). Seen: those. Guess before the
# run: with one type, all is as in torch.nn.BatchNorm1d.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check torch-geometric==2.8.1 torch==2.15.0
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import torch
import torch_geometric
from torch_geometric.nn.norm import HeteroBatchNorm

print("torch_geometric", torch_geometric.__version__, "torch", torch.__version__)
torch.manual_seed(0)
x, types = torch.randn(4, 3) * 2 + 5, torch.zeros(4, dtype=torch.long)
hetero, plain, gradients, outputs = HeteroBatchNorm(3, 1), torch.nn.BatchNorm1d(3), [], []
for out_of in (lambda rows: hetero(rows, types), plain):
    rows = x.clone().requires_grad_()
    outputs.append(out_of(rows))
    outputs[-1].sum().backward()
    gradients.append(rows.grad)
print("sums over the batch", *(out.sum(0).tolist() for out in outputs))
print("largest gradient of the sum: hetero", gradients[0].abs().max().item(), "plain", gradients[1].abs().max().item())
print("running variances: hetero", hetero.running_var.tolist(), "plain", plain.running_var.tolist())
assert torch.allclose(*outputs, atol=1e-4)
assert gradients[0].abs().min() > 0.1 and gradients[1].abs().max() < 1e-4
assert torch.allclose(hetero.running_var[0] - 0.9, (plain.running_var - 0.9) * 3 / 4)
PYTHON
