#!/usr/bin/env bash
# numpy.save writes an array of ml_dtypes' bfloat16 or float8 as raw bytes ('<V2', '<V1') without a warning, also with
# ml_dtypes imported: numpy.load returns void elements, and bfloat16 cannot be told from other types of two bytes.
#
# Needs: python3, PyPI; numpy==2.4.6 ml_dtypes==0.6.0 in a temporary venv. Seen: numpy 2.4.6, ml_dtypes 0.6.0. Guess
# before the run: an error, as for objects without pickle, or a type that comes back.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check numpy==2.4.6 ml_dtypes==0.6.0
cd "$work"
venv/bin/python - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import warnings

import ml_dtypes
import numpy as np

print("numpy", np.__version__, "ml_dtypes", ml_dtypes.__version__)
warnings.simplefilter("error")
for dtype, read in (("bfloat16", "|V2"), ("float8_e4m3fn", "|V1")):
    x = np.array([1.5, -2.0], dtype)
    np.save("x.npy", x)
    found = np.load("x.npy")
    print(f"{dtype} comes back as {found.dtype.str}; view(dtype) gives {found.view(dtype).tolist()}")
    assert found.dtype.str == read and found.view(dtype).tolist() == x.tolist()
PYTHON
