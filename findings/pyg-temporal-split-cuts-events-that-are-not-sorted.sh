#!/usr/bin/env bash
# TemporalData.train_val_test_split counts how many events are earlier than the quantiles of the times, and then takes
# that many from the front, whether the events are sorted or not: of events in another order, training has the latest
# ones. Nothing is said. The documentation says that it splits "according to time". size() is one too small in both
# directions.
#
# Needs: python3, PyPI; torch-geometric==2.8.1 torch==2.15.0 in a temporary venv (5 GB). Seen: those. Guess before the
# run: the earliest events are for training, whatever their order, or an error.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check torch-geometric==2.8.1 torch==2.15.0
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import torch
import torch_geometric
from torch_geometric.data import TemporalData

print("torch_geometric", torch_geometric.__version__, "torch", torch.__version__)
times = torch.tensor([40, 30, 20, 10])
events = TemporalData(src=torch.arange(4), dst=torch.full((4,), 4), t=times)
train, val, test = (part.t.tolist() for part in events.train_val_test_split(val_ratio=0.25, test_ratio=0.25))
print("times of training, validation, test:", train, val, test)
assert (train, val, test) == ([40, 30], [20], [10])
sorted_events = events[times.argsort()]
train, val, test = (part.t.tolist() for part in sorted_events.train_val_test_split(val_ratio=0.25, test_ratio=0.25))
print("of sorted events:", train, val, test)
assert (train, val, test) == ([10, 20], [30], [40])
print("size of 5 nodes:", events.size(), "num_nodes", events.num_nodes)
assert events.size() == (3, 4) and events.num_nodes == 5
PYTHON
