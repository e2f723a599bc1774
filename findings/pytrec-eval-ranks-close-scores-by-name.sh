#!/usr/bin/env bash
# pytrec_eval keeps scores as float32: those that differ only as float64 are ties, and of ties the name that sorts last
# comes first. Probabilities of a link predictor near 1, or times as scores, are ranked by the names of the documents.
# ranx, of the same dictionaries, ranks by the float64 scores.
#
# Needs: python3, PyPI; pytrec_eval-terrier==0.5.11 ranx==0.3.21 in a temporary venv. Seen: those. Guess before the run:
# Python floats are ranked as such, and both have an MRR of 1.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check pytrec_eval-terrier==0.5.11 ranx==0.3.21
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
from importlib.metadata import version

import pytrec_eval
import ranx

print("pytrec_eval-terrier", version("pytrec_eval-terrier"), "ranx", version("ranx"))
right = {"user": {"item1": 1}}
runs = {
    "probabilities": {"user": {f"item{item}": 1 - 1e-9 * item for item in range(1, 10)}},
    "times": {"user": {f"item{item}": 1_700_000_010.0 - item for item in range(1, 10)}},
    "small scores": {"user": {f"item{item}": 1 - 0.1 * item for item in range(1, 10)}},
}
evaluator = pytrec_eval.RelevanceEvaluator(right, {"recip_rank"})
found = {
    name: (
        round(evaluator.evaluate(run)["user"]["recip_rank"], 3),
        float(ranx.evaluate(ranx.Qrels(right), ranx.Run(run), "mrr")),
    )
    for name, run in runs.items()
}
print("reciprocal rank of the item with the highest score, by pytrec_eval and by ranx:", found)
assert found == {"probabilities": (0.111, 1), "times": (0.111, 1), "small scores": (1, 1)}
PYTHON
