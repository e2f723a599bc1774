#!/usr/bin/env bash
# NumPy adds bfloat16 of ml_dtypes up in bfloat16: a sum of ones stops at 256, so the mean of 1,000 ones is 0.256, of
# float8_e4m3fn with 16 of 100 it is 0.16. NumPy's own float16 is added up in float32, and its mean is 1. A dtype in the
# call gives the right mean: mean(0, dtype=np.float32).
#
# Needs: python3, PyPI; numpy==2.4.6 ml_dtypes==0.6.0 in a temporary venv. Seen: those. Guess before the run: 1, as of
# float16.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check numpy==2.4.6 ml_dtypes==0.6.0
cd "$work"
venv/bin/python - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import ml_dtypes
import numpy as np

print("numpy", np.__version__, "ml_dtypes", ml_dtypes.__version__)
means = {}
for dtype in (np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn):
    rows = np.ones((100 if dtype is ml_dtypes.float8_e4m3fn else 1000, 2), dtype)
    means[np.dtype(dtype).name] = float(rows.mean(0)[0]), float(rows.std(0)[0]), float(rows.mean(0, dtype=np.float32)[0])
print("of ones: mean, standard deviation, mean with dtype=float32", means)
assert means["float16"] == (1, 0, 1)
assert means["bfloat16"] == (0.255859375, 0.50390625, 1)
assert means["float8_e4m3fn"][0] == 0.15625 and means["float8_e4m3fn"][2] == 1
PYTHON
