#!/usr/bin/env bash
# fpzip.compress, lossless by default, gives a transposed table back with its values in other places, in the right shape
# and without an error, unless order="F" is given to both calls; zfpy's lossless mode gives the same table back as it was.
#
# Needs: python3, PyPI; fpzip==1.2.5 zfpy==1.0.1.post0 numpy==2.4.6 in a temporary venv. Seen: those. Guess before the
# run: both give all values back, whatever the strides.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check fpzip==1.2.5 zfpy==1.0.1.post0 numpy==2.4.6
cd "$work"
venv/bin/python - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
from importlib.metadata import version

import fpzip
import numpy as np
import zfpy

print("fpzip", version("fpzip"), "zfpy", version("zfpy"))
table = np.arange(6, dtype=np.float32).reshape(2, 3).T
by_fpzip = fpzip.decompress(fpzip.compress(table)).squeeze()
with_order = fpzip.decompress(fpzip.compress(table, order="F"), order="F").squeeze()
by_zfpy = zfpy.decompress_numpy(zfpy.compress_numpy(table))
print("table", table.tolist(), "fpzip", by_fpzip.tolist(), "with order", with_order.tolist(), "zfpy", by_zfpy.tolist())
assert by_fpzip.shape == table.shape and by_fpzip.tolist() == [[0, 1], [2, 3], [4, 5]]
assert np.array_equal(with_order, table) and np.array_equal(by_zfpy, table)
PYTHON
