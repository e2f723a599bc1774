#!/usr/bin/env bash
# torchao's quantize_ changes torch.nn.Linear alone. PyG's layers have a Linear of their own, so that quantize_ of a
# GraphSAGE, GAT or MLP of PyG changes nothing, without a word, and the model is as large and as slow as before.
# torch's quantize_dynamic(model, {torch.nn.Linear}) is the same.
#
# Needs: python3, PyPI; torchao==0.18.0 torch-geometric==2.8.1 torch==2.15.0 in a temporary venv (5 GB). Seen: those.
# Guess before the run: their weights are int8, or a warning says that none is.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check \
  torchao==0.18.0 torch-geometric==2.8.1 torch==2.15.0
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
from importlib.metadata import version

import torch
import torch_geometric
from torch_geometric.nn import GAT, MLP, GraphSAGE
from torchao.quantization import Int8WeightOnlyConfig, quantize_

print("torchao", version("torchao"), "torch_geometric", torch_geometric.__version__, "torch", torch.__version__)
plain = torch.nn.Sequential(torch.nn.Linear(64, 64))
models = {"torch": plain, "GraphSAGE": GraphSAGE(64, 64, 2), "GAT": GAT(64, 64, 2), "MLP": MLP([64, 64, 64])}
for name, model in models.items():
    quantize_(model, Int8WeightOnlyConfig())
    kinds = {type(weight).__name__ for weight in model.parameters() if weight.shape == (64, 64)}
    print(name, "has weights of", kinds)
    assert kinds == ({"Int8Tensor"} if name == "torch" else {"Parameter"})
PYTHON
