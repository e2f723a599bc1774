#!/usr/bin/env bash
# torchmetrics applies a sigmoid to the scores of an update() if one of them is outside [0, 1]. So a batch whose logits
# are all between 0 and 1 is taken as probabilities, another one is not, and the metric of an epoch compares the two:
# logits that are in perfect order have an AUROC below 1, and an accuracy that depends on the batches. The documentation
# (https://lightning.ai/docs/torchmetrics/stable/classification/auroc) speaks of preds, not of batches.
#
# Needs: python3, PyPI; torchmetrics==1.9.0 torch==2.15.0 in a temporary venv (5 GB). Seen: those. Guess before the run:
# the same number, however the scores are split into batches.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check torchmetrics==1.9.0 torch==2.15.0
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import torch
import torchmetrics
from torchmetrics.classification import BinaryAccuracy, BinaryAUROC, BinaryAveragePrecision

print("torchmetrics", torchmetrics.__version__, "torch", torch.__version__)
logits = torch.tensor([0.1, 0.3, 0.8, 0.9, -3.0, -1.0, 1.0, 2.0])
labels = (logits > 0.95).long()
values = {}
for kind in (BinaryAUROC, BinaryAveragePrecision, BinaryAccuracy):
    whole, batches = kind(), kind()
    whole.update(logits, labels)
    for batch in (slice(0, 4), slice(4, 8)):
        batches.update(logits[batch], labels[batch])
    values[kind.__name__] = round(whole.compute().item(), 3), round(batches.compute().item(), 3)
print("of all scores at once, and in two batches:", values)
assert values["BinaryAUROC"][0] == values["BinaryAveragePrecision"][0] == 1
assert all(whole != batches for whole, batches in values.values()) and values["BinaryAUROC"][1] < 0.9
PYTHON
