#!/usr/bin/env bash
# A tensor of torch.from_numpy(numpy.memmap) that is sent to another process (a queue, mp.spawn, a DataLoader with
# spawned workers; here ForkingPickler, which all of them use) is moved into shared memory where it is: afterwards the
# sender's own writes to the tensor no longer reach the file, and its whole table is in RAM. torch.load(mmap=True) too.
# The documentation (https://docs.pytorch.org/docs/stable/multiprocessing.html) says that the data is moved to shared
# memory.
#
# Needs: python3, PyPI; torch==2.15.0 numpy==2.4.6 in a temporary venv (5 GB). Seen: those. Guess before the run: the
# receiver gets a copy, or the file; the sender's tensor stays what it is.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check torch==2.15.0 numpy==2.4.6
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
from multiprocessing.reduction import ForkingPickler

import numpy as np
import torch
import torch.multiprocessing  # gives ForkingPickler its ways to send tensors

print("torch", torch.__version__, "numpy", np.__version__)
table = np.lib.format.open_memmap("rows.npy", mode="w+", dtype=np.float32, shape=(4,))
rows = torch.from_numpy(table)
rows[0] = 1
before = rows.data_ptr()
ForkingPickler.dumps(rows)
rows[1] = 2
table.flush()
print("tensor", rows.tolist(), "file", np.load("rows.npy").tolist(), "is in shared memory:", rows.is_shared())
assert rows.tolist() == [1, 2, 0, 0] and np.load("rows.npy").tolist() == [1, 0, 0, 0]
assert rows.is_shared() and rows.data_ptr() != before
PYTHON
