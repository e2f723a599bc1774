#!/usr/bin/env bash
# Where no more can be written, torch.save raises a RuntimeError ("unexpected pos 576 vs 534"), and numpy.save an OSError
# without an errno ("100000 requested and 24984 written"): code that catches OSError to go on without a checkpoint, or
# looks for ENOSPC, meets neither. numpy.savez and open().write() raise OSError with the errno. A limit of file sizes
# stands for the full disk, on which the same was seen.
#
# Needs: python3, PyPI; torch==2.15.0 numpy==2.4.6 in a temporary venv (5 GB). Seen: those. Guess before the run: OSError
# with an errno, "No space left on device".
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check torch==2.15.0 numpy==2.4.6
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import errno
import pickle
import resource

import numpy as np
import torch

print("torch", torch.__version__, "numpy", np.__version__)
array = np.zeros(100_000)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
calls = {
    "torch.save": lambda: torch.save(torch.from_numpy(array), "x.pt"),
    "numpy.save": lambda: np.save("x.npy", array),
    "numpy.savez": lambda: np.savez("x.npz", array=array),
    "open": lambda: open("x", "wb").write(array.tobytes()),
}
seen = {}
for name, call in calls.items():
    try:
        call()
    except Exception as error:
        seen[name] = type(error), getattr(error, "errno", None)
        print(f"{name}: {type(error).__name__}, errno {seen[name][1]}: {str(error).splitlines()[0]}")
assert seen["torch.save"] == (RuntimeError, None) and seen["numpy.save"] == (OSError, None)
assert seen["numpy.savez"] == seen["open"] == (OSError, errno.EFBIG)
PYTHON
