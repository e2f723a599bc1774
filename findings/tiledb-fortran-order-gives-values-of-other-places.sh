#!/usr/bin/env bash
# TileDB's query(order="F") and subarray(order="F") of a dense array give the right shape and a Fortran-ordered array, in
# which the values stand in other places: what was read by columns is taken for rows. order="C", the default, is right.
# The documentation of the argument: the layout of the result.
#
# Needs: python3, PyPI; tiledb==0.36.1 numpy==2.4.6 in a temporary venv. Seen: those. Guess before the run: the same
# array, with other strides.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check tiledb==0.36.1 numpy==2.4.6
cd "$work"
venv/bin/python - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import numpy as np
import tiledb

print("tiledb", tiledb.__version__, "numpy", np.__version__)
table = np.arange(12, dtype=np.float32).reshape(4, 3)
tiledb.from_numpy("table", table).close()
with tiledb.open("table") as array:
    rows, columns = array.query(order="C")[:], array.query(order="F")[:]
    part = array.subarray(np.s_[1:3, :], order="F")
print("table", table.tolist(), "order C", np.array_equal(rows, table), "order F", columns.tolist(), "rows 1, 2", part.tolist())
assert np.array_equal(rows, table) and columns.shape == table.shape and columns.flags.f_contiguous
assert columns.tolist() == table.T.reshape(4, 3).tolist() != table.tolist()
assert part.tolist() == table[1:3].T.reshape(2, 3).tolist() != table[1:3].tolist()
PYTHON
