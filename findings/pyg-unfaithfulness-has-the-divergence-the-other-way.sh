#!/usr/bin/env bash
# torch_geometric.explain.metric.unfaithfulness is documented as 1 - exp(-KL(y || y_hat)), y of the whole graph and
# y_hat of the explanation; it computes KL(y_hat || y). The two differ, and orders of explanations with them.
#
# Needs: python3, PyPI; torch-geometric==2.8.1 torch==2.15.0 in a temporary venv (5 GB). Seen: those. Guess before the
# run: the documented direction.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check torch-geometric==2.8.1 torch==2.15.0
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import torch
import torch_geometric
from torch_geometric.explain import DummyExplainer, Explainer
from torch_geometric.explain.metric import unfaithfulness
from torch_geometric.nn import GCNConv

print("torch_geometric", torch_geometric.__version__, "torch", torch.__version__)
torch.manual_seed(0)
x, edge_index = torch.randn(6, 4) * 3, torch.tensor([[0, 1, 2, 3, 4, 5, 0], [1, 2, 3, 4, 5, 0, 3]])
config = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}
masks = {"node_mask_type": "attributes", "edge_mask_type": "object"}
explainer = Explainer(GCNConv(4, 3), DummyExplainer(), explanation_type="model", model_config=config, **masks)
explanation = explainer(x, edge_index)
y = explainer.get_prediction(x, edge_index).softmax(-1)
y_hat = explainer.get_masked_prediction(x, edge_index, explanation.node_mask, explanation.edge_mask).softmax(-1)


def one_minus_exp(p, q):
    return 1 - torch.exp(-(p * (p / q).log()).sum(-1).mean()).item()


measured, documented, turned = unfaithfulness(explainer, explanation), one_minus_exp(y, y_hat), one_minus_exp(y_hat, y)
print("unfaithfulness", measured, "of KL(y || y_hat)", documented, "of KL(y_hat || y)", turned)
assert abs(measured - turned) < 1e-5 and abs(measured - documented) > 1e-3
PYTHON
