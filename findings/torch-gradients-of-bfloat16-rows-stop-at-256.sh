#!/usr/bin/env bash
# On CPUs, the gradient of a row that is read n times depends on how it is read: of x[index], torch.nn.Embedding and
# embedding_bag it is added up in the dtype and stops at 256 in bfloat16 and at 2,048 in float16; index_select, gather
# and repeat_interleave add up in float32. So do sums: index_add_ of [n, 1] is right, index_add_ of [n] stops.
#
# Needs: python3, PyPI; torch==2.15.0 in a temporary venv (5 GB). Seen: that. Guess before the run: 4,000 everywhere.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check torch==2.15.0
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import torch
import torch.nn.functional as F

print("torch", torch.__version__)
count = 4000
index = torch.zeros(count, dtype=torch.long)
reads = {
    "x[index]": lambda x: x[index],
    "embedding": lambda x: F.embedding(index, x),
    "embedding_bag": lambda x: F.embedding_bag(index, x, torch.tensor([0]), mode="sum"),
    "index_select": lambda x: x.index_select(0, index),
    "gather": lambda x: x.gather(0, index[:, None].expand(-1, 2)),
    "repeat_interleave": lambda x: x.repeat_interleave(count, 0),
}
for dtype, last in ((torch.bfloat16, 256), (torch.float16, 2048)):
    gradients = {}
    for name, read in reads.items():
        x = torch.ones(1, 2, dtype=dtype, requires_grad=True)
        read(x).sum().backward()
        gradients[name] = x.grad[0, 0].item()
    flat = torch.zeros(1, dtype=dtype).index_add_(0, index, torch.ones(count, dtype=dtype)).item()
    column = torch.zeros(1, 1, dtype=dtype).index_add_(0, index, torch.ones(count, 1, dtype=dtype)).item()
    print(dtype, "gradients of a row read 4,000 times", gradients, "index_add_ of [n]", flat, "of [n, 1]", column)
    assert [gradients[name] for name in ("x[index]", "embedding", "embedding_bag")] == [last] * 3
    assert [gradients[name] for name in ("index_select", "gather", "repeat_interleave")] == [count] * 3
    assert (flat, column) == (last, count)
PYTHON
