#!/usr/bin/env bash
# pandas.read_csv(file, names=['src', 'dst']) of a file of three columns takes the first column as the index, and src
# and dst are the second and the third. DGL's GraphBolt (2.1.0, graphbolt/internal/utils.py) reads edges by this call:
# a column of weights after the edges makes edges of destinations and weights.
#
# Needs: python3, PyPI; pandas==3.1.1 in a temporary venv. Seen: pandas 3.1.1; also pandas 3.0.6 under DGL 2.1.0.
# Guess before the run: an error for lines of three fields, or the third column left out.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check pandas==3.1.1
cd "$work"
venv/bin/python - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import io

import pandas as pd

print("pandas", pd.__version__)
found = pd.read_csv(io.StringIO("0,1,9\n2,3,8\n"), names=["src", "dst"])
print("edges 0 -> 1 and 2 -> 3 with weights 9 and 8 are read as", list(zip(found["src"], found["dst"])))
assert found["src"].tolist() == [1, 3] and found["dst"].tolist() == [9, 8]
PYTHON
