#!/usr/bin/env bash
# imagecodecs.lerc_encode, lossless by default, gives NaN back as 0 if lerc_decode is not asked for masks: missing values
# become values. All other values come back as they were.
#
# Needs: python3, PyPI; imagecodecs==2026.3.6 numpy==2.4.6 in a temporary venv. Seen: those. Guess before the run: NaN, or
# an error.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check imagecodecs==2026.3.6 numpy==2.4.6
cd "$work"
venv/bin/python - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import imagecodecs
import numpy as np

print("imagecodecs", imagecodecs.__version__, "numpy", np.__version__)
rows = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)
whole = imagecodecs.lerc_decode(imagecodecs.lerc_encode(rows))
assert np.array_equal(whole, rows)
rows[3, 5] = np.nan
back = imagecodecs.lerc_decode(imagecodecs.lerc_encode(rows))
others = np.ones(rows.shape, bool)
others[3, 5] = False
print("NaN comes back as", back[3, 5], "others as they were:", np.array_equal(back[others], rows[others]))
assert back[3, 5] == 0 and np.array_equal(back[others], rows[others])
PYTHON
