#!/usr/bin/env bash
# RelBench's MAP@k counts an offered item that is right as often as it is offered: one right item that fills a list of
# three has a MAP of 3, and a list that is padded with its best item beats one with all right items. Of right items that
# a table has several times each counts, too, so that a perfect list has less than 1.
#
# Needs: python3, PyPI; relbench==3.0.2 numpy==2.4.6 in a temporary venv (5 GB, with torch). Seen: those. Guess before the
# run: at most 1, as lists and right items are sets, or an error.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check relbench==3.0.2 numpy==2.4.6
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
from importlib.metadata import version
from types import SimpleNamespace

import numpy as np
import pandas as pd
from relbench.base import RecommendationTask, Table
from relbench.metrics import map as mean_average_precision

print("relbench", version("relbench"), "numpy", np.__version__)


def score(right, offered):
    task = SimpleNamespace(eval_k=3, dst_entity_col="items", metrics=[mean_average_precision])
    table = Table(pd.DataFrame({"items": [right]}), {})
    return float(RecommendationTask.evaluate(task, np.array([offered]), table)["map"])


scores = {
    "right 7, offered 7 8 9": score([7], [7, 8, 9]),
    "right 7, offered 7 7 7": score([7], [7, 7, 7]),
    "right 7 8, offered 7 8 9": score([7, 8], [7, 8, 9]),
    "right 7 8 8, offered 7 8 9": score([7, 8, 8], [7, 8, 9]),
}
print("MAP@3:", scores)
assert list(scores.values()) == [1, 3, 1, 2 / 3]
PYTHON
