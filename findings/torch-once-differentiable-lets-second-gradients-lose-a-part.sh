#!/usr/bin/env bash
# torch's once_differentiable says that an error follows where a function's gradient is differentiated again. It follows
# in backward(), but not in torch.autograd.grad(): what goes through the function is left out there. With a second path
# to the same input, as in f(x) + x ** 3 of a layer with a skip, the second gradient is a wrong number without a word.
#
# Needs: python3, PyPI; torch==2.15.0 in a temporary venv (5 GB). Seen: that. Guess before the run: the same error in
# both.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check torch==2.15.0
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import torch
from torch.autograd.function import once_differentiable


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * x * grad


def gradient(square, x):
    return torch.autograd.grad(square(x).sin() + x**3, x, create_graph=True)[0]


print("torch", torch.__version__)
x = torch.tensor(3.0, requires_grad=True)
right = torch.autograd.grad(gradient(torch.square, x), x)[0].item()
found = torch.autograd.grad(gradient(Square.apply, x), x)[0].item()
try:
    gradient(Square.apply, x).backward()
    error = "none"
except RuntimeError as raised:
    error = str(raised)
print("second gradient", right, "torch.autograd.grad of once_differentiable", found, "backward:", error)
assert abs(right - 1.3415) < 1e-3 and found == 18 and "differentiate twice" in error
PYTHON
