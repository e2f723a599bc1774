#!/usr/bin/env bash
# safetensors.numpy.save_file writes the memory of an array that is a view, such as x.T or x[:, ::2], under the shape
# of the view: load_file returns other numbers, without an error or a warning.
#
# Needs: python3, PyPI; safetensors==0.8.0 numpy==2.4.6 in a temporary venv. Seen: safetensors 0.8.0, numpy 2.4.6.
# Guess before the run: the values of the view, or an error that asks for ascontiguousarray.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check safetensors==0.8.0 numpy==2.4.6
cd "$work"
venv/bin/python - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import numpy as np
import safetensors
from safetensors.numpy import load_file, save_file

print("safetensors", safetensors.__version__, "numpy", np.__version__)
x = np.arange(6, dtype=np.float32).reshape(2, 3)
for name, view in (("x.T", x.T), ("x[:, ::2]", x[:, ::2])):
    save_file({"x": view}, "x.safetensors")
    found = load_file("x.safetensors")["x"]
    print(f"{name} is {view.tolist()}, comes back as {found.tolist()}")
    assert found.shape == view.shape and found.tolist() == x.reshape(-1)[: view.size].reshape(view.shape).tolist()
    assert not np.array_equal(found, view)
PYTHON
