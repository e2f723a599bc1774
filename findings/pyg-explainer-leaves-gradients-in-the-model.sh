#!/usr/bin/env bash
# PyG's GNNExplainer leaves gradients in the parameters of the model that it explains: where a loop calls zero_grad()
# after each step, as many do, the first step after an explanation adds them.
#
# Needs: python3, PyPI; torch-geometric==2.8.1 torch==2.15.0 in a temporary venv (5 GB). Seen: those. Guess before the
# run: the model is as it was.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check torch-geometric==2.8.1 torch==2.15.0
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import torch
import torch_geometric
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.nn import GCNConv

print("torch_geometric", torch_geometric.__version__, "torch", torch.__version__)
torch.manual_seed(0)
x, edge_index = torch.randn(6, 4), torch.tensor([[0, 1, 2, 3, 4, 5, 0], [1, 2, 3, 4, 5, 0, 3]])
model = GCNConv(4, 3)
config = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}
options = {"explanation_type": "model", "model_config": config, "edge_mask_type": "object"}
assert model.lin.weight.grad is None
Explainer(model, GNNExplainer(epochs=3), **options)(x, edge_index)
print("gradients after an explanation:", {name: weight.grad.norm().item() for name, weight in model.named_parameters()})
assert all(weight.grad.norm() > 1e-3 for weight in model.parameters())
PYTHON
