#!/usr/bin/env bash
# scipy.io.mmread takes the part of a value that it understands and leaves out the rest, without an error: Fortran's
# 2.0D+02, which is 200, becomes 2, and 2.75 in a file of integers becomes 2.
#
# Needs: python3, PyPI; scipy==1.17.1 in a temporary venv. Seen: scipy 1.17.1. Guess before the run: 200 or an error,
# and an error.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check scipy==1.17.1
cd "$work"
venv/bin/python - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import io

import scipy

print("scipy", scipy.__version__)
for field, written in (("real", "2.0D+02"), ("integer", "2.75")):
    text = f"%%MatrixMarket matrix coordinate {field} general\n3 3 1\n1 2 {written}\n"
    read = scipy.io.mmread(io.BytesIO(text.encode())).data.tolist()
    print(f"{field}: written {written}, read {read}")
    assert read == [2]
PYTHON
