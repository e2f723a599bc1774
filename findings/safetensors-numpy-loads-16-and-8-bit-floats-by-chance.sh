#!/usr/bin/env bash
# safetensors.numpy writes bfloat16 and float8 arrays of ml_dtypes, but reads them back only in part: load_file knows
# bfloat16 and raises a bare AttributeError for float8_e4m3fn; load, for the same bytes, raises KeyError for bfloat16.
#
# Needs: python3, PyPI; safetensors==0.8.0 numpy==2.4.6 ml_dtypes==0.6.0 in a temporary venv. Seen: safetensors 0.8.0,
# numpy 2.4.6, ml_dtypes 0.6.0. Guess before the run: what save_file writes, load_file and load read alike.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check safetensors==0.8.0 numpy==2.4.6 ml_dtypes==0.6.0
cd "$work"
venv/bin/python - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import ml_dtypes
import numpy as np
import safetensors
from safetensors.numpy import load, load_file, save_file

print("safetensors", safetensors.__version__, "ml_dtypes", ml_dtypes.__version__)


def outcome(read, *args):
    try:
        return str(read(*args)["x"].dtype)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


found = {}
for dtype in ("bfloat16", "float8_e4m3fn"):
    save_file({"x": np.ones(2, dtype)}, "x.safetensors")
    with open("x.safetensors", "rb") as file:
        found[dtype] = outcome(load_file, "x.safetensors"), outcome(load, file.read())
    print(dtype, "load_file:", found[dtype][0], "| load:", found[dtype][1])
assert found["bfloat16"] == ("bfloat16", "KeyError: 'BF16'")
assert found["float8_e4m3fn"][0].startswith("AttributeError")
PYTHON
