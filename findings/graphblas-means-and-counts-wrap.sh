#!/usr/bin/env bash
# python-graphblas computes means in the type of the values: the mean of 200 and 100 in uint8 is 22, and of 200 values
# of 100 in int8 0.16. The result is FP64, and agg.count_nonzero has the type of the values, too: 200 values are -56.
# agg.stdp subtracts squares: of times in seconds since 1970 it is 0.
#
# Needs: python3, PyPI; python-graphblas==2025.2.0 suitesparse-graphblas==9.4.5.0 numpy==1.26.4 in a temporary venv.
# Seen: those. Guess before the run: means and counts as NumPy has them, which adds integers up in 64 bits.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check \
  "python-graphblas[default]==2025.2.0" suitesparse-graphblas==9.4.5.0 numpy==1.26.4
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import graphblas as gb
import numpy as np
from graphblas import Matrix, Vector, agg

print("python-graphblas", gb.__version__, "numpy", np.__version__)
weights = Matrix.from_coo([0, 0], [0, 1], np.array([200, 100], np.uint8))
mean = weights.reduce_rowwise(agg.mean).new()
print("mean of 200 and 100:", mean[0].new().value, mean.dtype)
long = Vector.from_dense(np.full(200, 100, np.int8))
found = {name: long.reduce(getattr(agg, name)).new().value for name in ("mean", "count", "count_nonzero")}
print("200 values of 100:", found)
times = np.array([1.7e9, 1.7e9 + 1, 1.7e9 + 2])
deviation = Vector.from_dense(times).reduce(agg.stdp).new().value
print("standard deviation of three times:", deviation, "by NumPy", times.std())
assert mean[0].new().value == 22 and mean.dtype == gb.dtypes.FP64
assert found == {"mean": 0.16, "count": 200, "count_nonzero": -56} and deviation == 0
PYTHON
