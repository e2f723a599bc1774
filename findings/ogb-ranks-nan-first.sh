#!/usr/bin/env bash
# OGB's evaluators of the mean reciprocal rank count the negatives that score higher, and no comparison with NaN is true:
# a model that gives NaN has a perfect MRR and perfect hits, and so does each single pair of NaN, such as the cosine of a
# zero vector. Equal numbers rank in the middle; hits@K of the other evaluators is 0 for NaN.
#
# Needs: python3, PyPI; ogb==1.3.6 torch==2.15.0 in a temporary venv (5 GB). Seen: those. Guess before the run: NaN, or 0.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check ogb==1.3.6 torch==2.15.0
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import ogb
import torch
from ogb.linkproppred import Evaluator

print("ogb", ogb.__version__, "torch", torch.__version__)
means = {}
for name in ("ogbl-citation2", "ogbl-wikikg2", "ogbl-biokg"):
    evaluator = Evaluator(name)
    for what, positive, negative in (
        ("all NaN", torch.full((10,), torch.nan), torch.full((10, 100), torch.nan)),
        ("one of ten NaN, the others last", torch.tensor([torch.nan] + [0.0] * 9), torch.ones(10, 100)),
        ("all equal", torch.zeros(10), torch.zeros(10, 100)),
    ):
        values = evaluator.eval({"y_pred_pos": positive, "y_pred_neg": negative})
        means[name, what] = round(values["mrr_list"].mean().item(), 3)
print("MRR", means)
assert {means[name, "all NaN"] for name, _ in means} == {1}
assert {means[name, "one of ten NaN, the others last"] for name, _ in means} == {0.109}
assert {means[name, "all equal"] for name, _ in means} == {0.02}
scores = torch.full((200,), torch.nan)
hits = Evaluator("ogbl-collab").eval({"y_pred_pos": scores, "y_pred_neg": scores})
print("collab, all NaN", hits)
assert hits == {"hits@50": 0}
PYTHON
