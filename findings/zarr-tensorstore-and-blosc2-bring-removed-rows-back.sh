#!/usr/bin/env bash
# Where an array of zarr, tensorstore or blosc2 becomes shorter and then longer again, the rows that were removed are
# back as far as their chunk was kept: of ten rows in chunks of four, cut to seven, row 7 has its old value after the
# next resize, and rows 8 and 9 are zeros. h5py gives zeros for all three.
#
# Needs: python3, PyPI; zarr==3.1.6 tensorstore==0.1.86 blosc2==4.14.1 h5py==3.16.0 numpy==2.4.6 in a temporary venv.
# Seen: those. Guess before the run: the fill value for all new rows, as in h5py.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check \
  zarr==3.1.6 tensorstore==0.1.86 blosc2==4.14.1 h5py==3.16.0 numpy==2.4.6
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import blosc2
import h5py
import numpy as np
import tensorstore
import zarr

print("zarr", zarr.__version__, "blosc2", blosc2.__version__, "h5py", h5py.__version__, "numpy", np.__version__)
rows, seen = np.arange(1, 11), {}
array = zarr.create_array(store="x.zarr", shape=(10,), chunks=(4,), dtype="i8")
array[:] = rows
array.resize((7,))
array.resize((10,))
seen["zarr"] = array[:].tolist()
spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": "x.tensorstore"}}
layout = tensorstore.ChunkLayout(chunk_shape=[4])
array = tensorstore.open(spec, create=True, dtype=tensorstore.int64, shape=[10], chunk_layout=layout).result()
array[...] = rows
array = array.resize(exclusive_max=[7]).result().resize(exclusive_max=[10]).result()
seen["tensorstore"] = array.read().result().tolist()
array = blosc2.asarray(rows, chunks=(4,), blocks=(2,))
array.resize((7,))
array.resize((10,))
seen["blosc2"] = array[:].tolist()
with h5py.File("x.h5", "w") as file:
    array = file.create_dataset("x", data=rows, chunks=(4,), maxshape=(None,))
    array.resize((7,))
    array.resize((10,))
    seen["h5py"] = array[:].tolist()
for name, values in seen.items():
    print(name, "rows 1 to 10, cut to 7 and grown to 10:", values)
    assert values == [1, 2, 3, 4, 5, 6, 7, 0 if name == "h5py" else 8, 0, 0]
PYTHON
