#!/usr/bin/env bash
# On CPUs, jax.device_put takes over the memory of a NumPy array whose address is a multiple of 64, and copies others: of
# buffers that are filled again for other batches, such as the slots of a ring, some batches change after they were made,
# by the address of the buffer alone, with may_alias=False too. jnp.asarray and jnp.array copy.
#
# Needs: python3, PyPI; jax==0.10.2 numpy==2.4.6 in a temporary venv. Seen: those. Guess before the run: a copy, as a
# jax.Array cannot change.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check jax==0.10.2 numpy==2.4.6
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import jax
import jax.numpy as jnp
import numpy as np

print("jax", jax.__version__, "numpy", np.__version__)


def changed(make, offset):
    """Whether an array of JAX changes when the NumPy array does that it was made of."""
    memory = np.zeros(1 << 20, np.uint8)
    first = -memory.ctypes.data % 64 + offset
    batch = memory[first : first + (1 << 19)].view(np.float32)
    made = make(batch)
    made.block_until_ready()
    batch[:] = 1
    return bool(made[0] == 1)


ways = {"device_put": jax.device_put, "asarray": jnp.asarray, "array": jnp.array}
ways["may_alias=False"] = lambda batch: jax.device_put(batch, may_alias=False)
seen = {name: [changed(make, offset) for offset in (0, 16)] for name, make in ways.items()}
print("changes with the array, at an address that is a multiple of 64 and at another:", seen)
assert seen["device_put"] == seen["may_alias=False"] == [True, False]
assert seen["asarray"] == seen["array"] == [False, False]
PYTHON
