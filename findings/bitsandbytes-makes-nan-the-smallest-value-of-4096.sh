#!/usr/bin/env bash
# bitsandbytes.functional.quantize_blockwise gives NaN back as the smallest value of its block of 4,096, which is a
# number like the others, and one infinite value makes its whole block infinite: of rows of 64 columns, the rows of 63
# other nodes. With quantize_4bit a NaN makes its block of 64 NaN. Nothing warns.
#
# Needs: python3, PyPI; bitsandbytes==0.50.2 torch==2.15.0 in a temporary venv (5 GB). Seen: those. Guess before the
# run: NaN stays NaN, and other rows are not touched.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check bitsandbytes==0.50.2 torch==2.15.0 numpy==2.4.6
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
from importlib.metadata import version

import torch
from bitsandbytes.functional import dequantize_blockwise, quantize_blockwise

print("bitsandbytes", version("bitsandbytes"), "torch", torch.__version__)
x = torch.randn(300, 64, generator=torch.Generator().manual_seed(0))
missing, infinite = x.clone(), x.clone()
missing[0, 0], infinite[0, 0] = float("nan"), float("inf")
back = dequantize_blockwise(*quantize_blockwise(missing))
print("NaN is", back[0, 0].item(), "smallest of its block", back[:64].min().item(), "NaN", back.isnan().sum().item())
assert back[0, 0] == back[:64].min() < -4 and not back.isnan().any()
back = dequantize_blockwise(*quantize_blockwise(infinite))
print("rows with infinite values, of one value:", back.isinf().any(1).sum().item())
assert back[:64].isinf().all() and back[64:].isfinite().all()
PYTHON
