#!/usr/bin/env bash
# ir-measures takes each measure from another package, and these rank tied scores in opposite ways: with "a" right
# among "a", "b" and "c" of one score, the reciprocal rank within the first place is 1 while the precision there is 0,
# and that without a bound, which cannot be smaller, is a third. Scores of Python that differ by less than a float32
# count as ties in the one and not in the other. Baselines by popularity and models in 16 bits have many ties.
#
# Needs: python3, PyPI; ir-measures==0.4.3 pandas==2.3.3 numpy==1.26.4 in a temporary venv. Seen: those. Guess before
# the run: one order for all measures of a run.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check ir-measures==0.4.3 pandas==2.3.3 numpy==1.26.4
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
from importlib.metadata import version

import ir_measures
import pandas as pd
from ir_measures import AP, RR, P, R, nDCG

print("ir-measures", version("ir-measures"), "pandas", pd.__version__)
right = pd.DataFrame({"query_id": ["1"], "doc_id": ["a"], "relevance": [1]})
measures = (RR @ 1, RR @ 10, P(judged_only=True) @ 1, RR, P @ 1, R @ 1, nDCG @ 1, AP @ 10)
seen = {}
for name, scores in {"ties": [1.0, 1.0, 1.0], "falling": [1 + 2e-9, 1 + 1e-9, 1.0], "apart": [3.0, 2.0, 1.0]}.items():
    run = pd.DataFrame({"query_id": "1", "doc_id": ["a", "b", "c"], "score": scores})
    seen[name] = {str(key): round(value, 3) for key, value in ir_measures.calc_aggregate(measures, right, run).items()}
    print(name, seen[name])
assert all(value == 1 for value in seen["apart"].values())
for name in ("ties", "falling"):
    values = seen[name]
    assert values["RR@1"] == values["RR@10"] == 1 and values["RR"] == values["AP@10"] == 0.333
    assert values["P@1"] == values["R@1"] == values["nDCG@1"] == 0
PYTHON
