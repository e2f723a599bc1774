#!/usr/bin/env bash
# sum(), mean(), max() and norm of all values of a torch.nested.narrow in the jagged layout take the values that were left
# out, too: a loss over lists of different lengths that is averaged so has the padding in it. Sums over a list are refused
# for such tensors, and unbind() has the right values. contiguous() makes a tensor without holes.
#
# Needs: python3, PyPI; torch==2.15.0 in a temporary venv (5 GB). Seen: that. Guess before the run: of the lists alone, or
# refused.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check torch==2.15.0
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import torch

print("torch", torch.__version__)
padded = torch.tensor([[1.0, 2, 1000, 1000], [3, 1000, 1000, 1000], [4, 5, 6, 1000]])
lists = torch.nested.narrow(padded, 1, torch.tensor([0, 0, 0]), torch.tensor([2, 1, 3]), layout=torch.jagged)
values = {}
for name, part in (("narrow", lists), ("contiguous", lists.contiguous())):
    values[name] = part.sum().item(), part.mean().item()
print("lists", [each.tolist() for each in lists.unbind()], "sum and mean of all:", values)
assert values == {"narrow": (6021, 6021 / 12), "contiguous": (21, 3.5)}
try:
    lists.sum(dim=1)
except RuntimeError as error:
    print("sum of each:", str(error)[:100])
else:
    raise AssertionError("sums of each list are given")
PYTHON
