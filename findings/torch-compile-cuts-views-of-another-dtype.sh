#!/usr/bin/env bash
# A function of torch.compile that returns a slice of memory viewed as another dtype gives a quarter of the elements from
# the second size on: torch makes sizes variable then, and takes their number from the bytes. Nothing is said. A copy
# (.clone()) has all elements, and so has the first size.
#
# Needs: python3, PyPI; torch==2.15.0 in a temporary venv (5 GB). Seen: that. Guess before the run: the same shapes with
# and without torch.compile.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check torch==2.15.0 numpy
cd "$work"
TMPDIR=$work venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import torch

print("torch", torch.__version__)
memory = torch.zeros(4096, dtype=torch.uint8)


def view(memory, count):
    return memory.view(torch.float32)[:count]


def copy(memory, count):
    return memory.view(torch.float32)[:count].clone()


found = {}
for function in (view, copy):
    for backend in ("eager", "aot_eager"):
        torch._dynamo.reset()
        compiled = torch.compile(function, backend=backend)
        found[function.__name__, backend] = [len(compiled(memory, count)) for count in (512, 256, 128)]
        print(function.__name__, backend, "of 512, 256 and 128 numbers:", found[function.__name__, backend])
assert found.pop(("view", "aot_eager")) == [512, 64, 32]
assert all(lengths == [512, 256, 128] for lengths in found.values())
PYTHON
