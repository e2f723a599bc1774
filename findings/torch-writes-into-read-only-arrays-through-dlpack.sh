#!/usr/bin/env bash
# torch.from_dlpack of a read-only NumPy array, of an Arrow array and of a JAX array gives a tensor that is their memory
# and may be written: x -= x.mean() changes the table that was read, and the array that cannot change. torch.from_numpy
# warns of read-only arrays, and numpy.from_dlpack keeps them read-only; here nothing is said.
#
# Needs: python3, PyPI; torch==2.15.0 numpy==2.4.6 pyarrow==26.0.1 jax==0.10.2 in a temporary venv (5 GB). Seen: those.
# Guess before the run: an error or a copy, as the DLPack standard has a flag for read-only memory.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check torch==2.15.0 numpy==2.4.6 pyarrow==26.0.1 jax==0.10.2
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import torch

print("torch", torch.__version__, "numpy", np.__version__, "pyarrow", pa.__version__)
read_only = np.array([1.0, 2, 3], np.float32)
read_only.setflags(write=False)
sources = {"NumPy": read_only, "Arrow": pa.array([1.0, 2, 3], pa.float32()), "JAX": jnp.array([1.0, 2, 3])}
for name, source in sources.items():
    x = torch.from_dlpack(source)
    x -= x.mean()
    print(name, "after x -= x.mean() of the tensor:", source.tolist())
    assert source.tolist() == [-1, 0, 1]
assert not np.from_dlpack(sources["Arrow"]).flags.writeable and not np.from_dlpack(sources["JAX"]).flags.writeable
PYTHON
