#!/usr/bin/env bash
# An operator of torch.library.custom_op that has a gradient, and no formula for forward mode, does not refuse forward
# mode: torch.func.jvp and jacfwd give zeros, without a word. A torch.autograd.Function without jvp() raises there.
#
# Needs: python3, PyPI; torch==2.15.0 in a temporary venv (5 GB). Seen: that. Guess before the run: an error, as of a
# Function.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check torch==2.15.0
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import torch
from torch import Tensor


@torch.library.custom_op("finding::square", mutates_args=())
def square(x: Tensor) -> Tensor:
    return x * x


square.register_autograd(
    lambda ctx, grad: 2 * ctx.saved_tensors[0] * grad,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
)

print("torch", torch.__version__)
x = torch.tensor([3.0, 4.0])
reverse, forward = torch.autograd.functional.jacobian(square, x), torch.func.jacfwd(square)(x)
_, tangent = torch.func.jvp(square, (x,), (torch.ones(2),))
print("jacobian in reverse mode", reverse.tolist(), "jacfwd", forward.tolist(), "jvp", tangent.tolist())
assert reverse.tolist() == [[6, 0], [0, 8]] and not forward.any() and not tangent.any()
PYTHON
