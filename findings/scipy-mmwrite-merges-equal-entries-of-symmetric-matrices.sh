#!/usr/bin/env bash
# scipy.io.mmwrite writes equal entries of a COO matrix one by one, but adds them up where the matrix happens to be
# symmetric: parallel edges of undirected graphs are gone, and with field="pattern" so is their number.
#
# Needs: python3, PyPI; scipy==1.17.1 in a temporary venv. Seen: scipy 1.17.1. Guess before the run: all entries are
# written.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check scipy==1.17.1
cd "$work"
venv/bin/python - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import io

import scipy
import scipy.sparse

print("scipy", scipy.__version__)
ends, lines = ([0, 0, 1, 1], [1, 1, 0, 0]), {}
for symmetry in (None, "general"):
    file = io.BytesIO()
    scipy.io.mmwrite(file, scipy.sparse.coo_array(([1.0] * 4, ends), (2, 2)), field="pattern", symmetry=symmetry)
    lines[symmetry] = file.getvalue().decode().splitlines()[2:]
    print(f"symmetry={symmetry}: 4 entries are written as {lines[symmetry]}")
assert lines[None] == ["2 2 1", "2 1"] and lines["general"] == ["2 2 4", "1 2", "1 2", "2 1", "2 1"]
PYTHON
