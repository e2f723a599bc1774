#!/usr/bin/env bash
# mpi4py takes a Fortran-ordered array for its memory: Bcast from such an array gives the other ranks a table of the
# same shape with the values in other places, and so does the output of Allreduce and Allgather. Views with gaps are
# refused. MPI.MAX of MPICH loses the NaN of one rank or the other, by the place and the length, where the sum keeps
# it.
#
# Needs: python3, PyPI; mpi4py==4.1.2 mpich==5.0.2 numpy==2.4.6 in a temporary venv. Seen: those. Guess before the
# run: the same table on all ranks, or an error; NaN on all ranks.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check mpi4py==4.1.2 mpich==5.0.2 numpy==2.4.6
cd "$work"
venv/bin/python - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import subprocess
import sys
from pathlib import Path

Path("ranks.py").write_text('''
from importlib.metadata import version

import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
table = np.arange(6.0).reshape(2, 3)
received = np.asfortranarray(table) if world.rank == 0 else np.zeros((2, 3))
world.Bcast(received)
total = np.zeros((2, 3))
world.Allreduce(np.asfortranarray(table), total)
try:
    world.Allreduce(table[:, :2], np.zeros((2, 2)))
    raise SystemExit("a view is taken")
except BufferError as error:
    refused = str(error)
greatest = []
for length in (2, 3):
    rows = np.ones(length)
    rows[world.rank] = np.nan  # of rank 0 the first value, of rank 1 the second
    greatest.append(np.zeros(length))
    world.Allreduce(rows, greatest[-1], op=MPI.MAX)
if world.rank == 1:
    print("mpi4py", version("mpi4py"), MPI.Get_library_version().split("\\n")[0], "numpy", np.__version__)
    print("rank 1 gets", received.tolist(), "sums", total.tolist(), "a view:", refused, "maxima", greatest)
    assert received.tolist() == [[0, 3, 1], [4, 2, 5]] and total.tolist() == [[0, 6, 2], [8, 4, 10]]
    assert greatest[0].tolist() == [1, 1] and np.isnan(greatest[1]).tolist() == [False, True, False]
''')
mpiexec = Path(sys.executable).with_name("mpiexec")
raise SystemExit(subprocess.run([mpiexec, "-n", "2", sys.executable, "ranks.py"]).returncode)
PYTHON
