#!/usr/bin/env bash
# A data set of h5py with scaleoffset=3 (three decimals) gives NaN back as a number, the smallest of its chunk but one
# step. If NaN is the first value of a chunk, the chunk is written and can never be read again ("filter returned
# failure during read"). Infinite values come back. The documentation says that the filter is lossy for floats, not
# that values are lost.
#
# Needs: python3, PyPI; h5py==3.16.0 numpy==2.4.6 in a temporary venv. Seen: those. Guess before the run: NaN stays
# NaN, or is refused when it is written.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check h5py==3.16.0 numpy==2.4.6
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import h5py
import numpy as np

print("h5py", h5py.__version__, "HDF5", h5py.version.hdf5_version, "numpy", np.__version__)
rows = np.random.default_rng(0).normal(size=(200, 16)).astype(np.float32)
for row, column in ((7, 3), (0, 0)):
    x = rows.copy()
    x[row, column] = np.nan
    with h5py.File("x.h5", "w") as file:
        file.create_dataset("x", data=x, scaleoffset=3, chunks=(200, 16))
    with h5py.File("x.h5") as file:
        try:
            value, all_others = file["x"][row, column], np.nanmin(np.delete(file["x"][:], row * 16 + column))
        except OSError as error:
            value, all_others = None, error
    print("NaN at", (row, column), "is", value, "smallest of the others:", all_others)
    if row:
        assert np.isfinite(value)
    else:
        assert value is None and "filter returned failure during read" in str(all_others)
PYTHON
