#!/usr/bin/env bash
# jax.dlpack.from_dlpack of int64 gives int32 with the lower bits, though it is to share memory: node 2**32 + 5 becomes
# node 5, and is gathered as such, without a warning. So do indices of NumPy in x[ids]; jnp.array of a Python integer
# raises an OverflowError. https://docs.jax.dev/en/latest/default_dtypes.html says that 64 bits need jax_enable_x64.
#
# Needs: python3, PyPI; jax==0.10.2 numpy==2.4.6 in a temporary venv. Seen: those. Guess before the run: an error, as of
# Python integers, or a warning.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check jax==0.10.2 numpy==2.4.6
cd "$work"
venv/bin/python -W error::UserWarning - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import jax
import jax.numpy as jnp
import numpy as np

print("jax", jax.__version__, "numpy", np.__version__)
ids = np.array([5, 2**32 + 5, 2**40])
taken = jax.dlpack.from_dlpack(ids)
gathered = jnp.arange(10)[ids]
print("ids", ids.tolist(), "from_dlpack", taken.dtype, taken.tolist(), "rows", gathered.tolist())
assert taken.dtype == jnp.int32 and taken.tolist() == [5, 5, 0] and gathered.tolist() == [5, 5, 0]
try:
    jnp.array(2**32 + 5)
except OverflowError as error:
    print("jnp.array(2**32 + 5):", error)
else:
    raise AssertionError("no error")
PYTHON
