#!/usr/bin/env bash
# hdf5plugin.Zfp() without options is a lossy mode: of an array of integers below 1,000 most come back as other
# integers, and NaN as a number, where floats are off by a bit in the last place. Zfp(reversible=True) gives all back,
# also NaN, and so do Blosc2(), Zstd() and LZ4() without options.
#
# Needs: python3, PyPI; hdf5plugin==7.1.0 h5py==3.16.0 numpy==2.4.6 in a temporary venv. Seen: those. Guess before the
# run: lossless unless an accuracy is asked for, or integers are refused.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check hdf5plugin==7.1.0 h5py==3.16.0 numpy==2.4.6
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import h5py
import hdf5plugin
import numpy as np

print("hdf5plugin", hdf5plugin.version, "h5py", h5py.__version__, "numpy", np.__version__)
random = np.random.default_rng(0)
ids, rows = random.integers(-1000, 1000, (200, 16)), random.normal(size=(200, 16)).astype(np.float32)
rows[7, 3] = np.nan


def read_back(array, options):
    with h5py.File("x.h5", "w") as file:
        file.create_dataset("x", data=array, chunks=(200, 16), **options)
    with h5py.File("x.h5") as file:
        return file["x"][:]


lost, found = read_back(ids, hdf5plugin.Zfp()), read_back(rows, hdf5plugin.Zfp())
print("ids that differ with Zfp():", (lost != ids).sum(), "of", ids.size, "NaN is", found[7, 3])
assert (lost != ids).sum() > 2000 and np.isfinite(found[7, 3]) and np.nanmax(np.abs(found - rows)) < 1e-6
for options in (hdf5plugin.Zfp(reversible=True), hdf5plugin.Blosc2(), hdf5plugin.Zstd(), hdf5plugin.LZ4()):
    assert read_back(ids, options).tobytes() == ids.tobytes() and read_back(rows, options).tobytes() == rows.tobytes()
PYTHON
