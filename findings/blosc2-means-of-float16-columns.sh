#!/usr/bin/env bash
# The mean of the columns of a blosc2 array of float16 adds up in float16, also between chunks: of 5,000 ones it is 0.41,
# and of 100,000 rows 0; a warning of an overflow is all. NumPy's mean of the same rows is 1.
#
# Needs: python3, PyPI; blosc2==4.14.1 numpy==2.4.6 in a temporary venv. Seen: those. Guess before the run: 1, as of NumPy.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check blosc2==4.14.1 numpy==2.4.6
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import blosc2
import numpy as np

print("blosc2", blosc2.__version__, "numpy", np.__version__)
means = {}
for count in (5000, 100_000):
    rows = np.ones((count, 2), np.float16)
    means[count] = float(rows.mean(0)[0]), float(blosc2.asarray(rows).mean(axis=0)[0])
print("means of ones by the number of rows, of NumPy and blosc2:", means)
assert all(of_numpy == 1 and of_blosc2 < 0.5 for of_numpy, of_blosc2 in means.values())
PYTHON
