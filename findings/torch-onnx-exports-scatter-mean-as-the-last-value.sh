#!/usr/bin/env bash
# torch.onnx.export(dynamo=True) exports scatter_reduce "mean" as ScatterElements without a reduction: of the values of a
# group the last one stays, and nothing warns. "sum", "amax", "amin" and "prod" are right, with and without include_self.
#
# Needs: python3, PyPI; torch==2.15.0 onnx==1.23.2 onnxscript==0.7.2 onnxruntime==1.31.1 in a temporary venv (5 GB). Seen:
# those. Guess before the run: the mean, or an error of the export, as of index_reduce.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check \
  torch==2.15.0 onnx==1.23.2 onnxscript==0.7.2 onnxruntime==1.31.1
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import onnxruntime
import onnxscript
import torch

print("torch", torch.__version__, "onnxscript", onnxscript.__version__, "onnxruntime", onnxruntime.__version__)
x, index = torch.tensor([1.0, 3.0, 8.0, 5.0]), torch.tensor([0, 0, 0, 2])


class Reduce(torch.nn.Module):
    def __init__(self, kind, include_self):
        super().__init__()
        self.kind, self.include_self = kind, include_self

    def forward(self, x, index):
        return x.new_zeros(3).scatter_reduce(0, index, x, self.kind, include_self=self.include_self)


for kind in ("sum", "amax", "amin", "prod", "mean"):
    for include_self in (False, True):
        model = Reduce(kind, include_self)
        torch.onnx.export(model, (x, index), "model.onnx", dynamo=True, verbose=False)
        session = onnxruntime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
        inputs = dict(zip((given.name for given in session.get_inputs()), (x.numpy(), index.numpy()), strict=True))
        exported, right = session.run(None, inputs)[0].tolist(), model(x, index).tolist()
        print(kind, "include_self" if include_self else "", "torch", right, "ONNX", exported)
        assert (exported == right) == (kind != "mean")
assert exported == [8, 0, 5]
PYTHON
