#!/usr/bin/env bash
# MRR, MAP, recall and precision of torchmetrics' retrieval metrics take a right answer whose score is 0 or less for a
# wrong one. Scores of link predictors are dot products, of both signs: a model that puts every right answer first has an
# MRR and a recall of one half, and of 1 if 100 is added to all scores. Hit rate, nDCG and R-precision of the same scores
# are 1. The documentation, https://lightning.ai/docs/torchmetrics/stable/retrieval/mrr.html, says "float predictions from
# a model output".
#
# Needs: python3, PyPI; torchmetrics==1.9.0 torch==2.15.0 in a temporary venv (5 GB). Seen: those. Guess before the run:
# ranks depend on the order of the scores alone, and all these metrics are 1.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check torchmetrics==1.9.0 torch==2.15.0
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import torch
import torchmetrics
from torchmetrics import retrieval

print("torchmetrics", torchmetrics.__version__, "torch", torch.__version__)
scores = torch.randn(1000, 20, generator=torch.Generator().manual_seed(0))
right = torch.zeros(1000, 20, dtype=torch.int64)
right[:, 0] = 1
scores[:, 0] = torch.linspace(-3, 3, 1000)
scores[:, 1:] = scores[:, :1] - scores[:, 1:].abs() - 0.01  # all others are lower than the right answer
index = torch.arange(1000).repeat_interleave(20)
found = {}
for name in ("MRR", "MAP", "Recall", "HitRate", "NormalizedDCG", "RPrecision"):
    options = {"top_k": 10} if name in ("Recall", "HitRate", "NormalizedDCG") else {}
    metric = getattr(retrieval, f"Retrieval{name}")(**options)
    found[name] = [round(metric(scores.flatten() + more, right.flatten(), indexes=index).item(), 3) for more in (0, 100)]
print("of the scores, and of the scores + 100:", found)
assert all(found[name] == [0.5, 1] for name in ("MRR", "MAP", "Recall")), "half of the right answers count"
assert all(found[name] == [1, 1] for name in ("HitRate", "NormalizedDCG", "RPrecision"))
PYTHON
