#!/usr/bin/env bash
# numpy.memmap(mode="r+") of more rows than a file has makes the file longer, and the new rows are zeros: a wrong number
# of nodes changes the raw file of the features for all who take the number from its size. torch.from_file(shared=True)
# does the same. Modes "r" and "c", and shared=False, refuse; numpy.fromfile leaves out what is no whole number, and gives
# fewer numbers than count.
#
# Needs: python3, PyPI; numpy==2.4.6 torch==2.15.0 in a temporary venv (5 GB). Seen: those. Guess before the run: an error,
# as in mode "r"; only "w+" makes files.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check numpy==2.4.6 torch==2.15.0
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import os

import numpy as np
import torch

print("numpy", np.__version__, "torch", torch.__version__)
ways = {
    "memmap r": lambda: np.memmap("rows", np.float32, "r", shape=(5, 2)),
    "memmap c": lambda: np.memmap("rows", np.float32, "c", shape=(5, 2)),
    "memmap r+": lambda: np.memmap("rows", np.float32, "r+", shape=(5, 2)),
    "from_file": lambda: torch.from_file("rows", size=10),
    "from_file shared": lambda: torch.from_file("rows", shared=True, size=10),
}
sizes = {}
for name, open_rows in ways.items():
    np.ones((3, 2), np.float32).tofile("rows")
    try:
        last = open_rows().reshape(5, 2)[4].tolist()
    except (ValueError, RuntimeError):
        last = "refused"
    sizes[name] = last, os.path.getsize("rows")
print("5 rows of a file of 3 rows (24 bytes): the last row, and the size afterwards", sizes)
refused, grown = ("refused", 24), ([0, 0], 40)
assert list(sizes.values()) == [refused, refused, grown, refused, grown]
with open("rows", "ab") as file:
    file.write(b"ab")
assert len(np.fromfile("rows", np.float32)) == 10 and len(np.fromfile("rows", np.float32, count=20)) == 10
PYTHON
