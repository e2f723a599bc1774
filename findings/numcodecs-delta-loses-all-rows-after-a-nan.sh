#!/usr/bin/env bash
# numcodecs.Delta takes floats, and decodes each value as the sum of all differences before it: after one NaN or infinity
# everything is NaN to the end of the chunk, and finite values come back rounded, worse with each row, without a warning.
# Its documentation (https://numcodecs.readthedocs.io/en/stable/filter/delta.html) does not say that floats are lossy.
#
# Needs: python3, PyPI; numcodecs==0.16.6 numpy==2.4.6 in a temporary venv. Seen: those. Guess before the run: lossless,
# or an error for floats.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check numcodecs==0.16.6 numpy==2.4.6
cd "$work"
venv/bin/python - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import numcodecs
import numpy as np

print("numcodecs", numcodecs.__version__, "numpy", np.__version__)
codec = numcodecs.Delta(dtype="f4")
values = np.random.default_rng(0).standard_normal(1_000_000).astype(np.float32)
error = np.abs(codec.decode(codec.encode(values)) - values)
print("largest error of 1,000,000 normal numbers:", error.max(), "of the first 1,000:", error[:1000].max())
assert error.max() > 1e-5 and 0 < error[:1000].max() < 1e-5
values[10] = np.nan
back = codec.decode(codec.encode(values))
print("numbers that are NaN after a NaN in row 10:", int(np.isnan(back).sum()))
assert np.isnan(back[10:]).all() and not np.isnan(back[:10]).any()
PYTHON
