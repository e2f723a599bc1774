#!/usr/bin/env bash
# PyG's MedianAggregation and QuantileAggregation compute where a quantile is among the sorted values of all lists in
# float32: beyond 2^24 edges that is a place nearby, often in another list. Quantiles that are interpolated lose their
# digits before: of a million edges, a quantile of 0.8 is anything between 0.75 and 0.81.
#
# Needs: python3, PyPI; torch-geometric==2.8.1 torch==2.15.0 in a temporary venv (5 GB). Seen: those. Guess before the
# run: the median of each list.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check torch-geometric==2.8.1 torch==2.15.0
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import torch
import torch_geometric
from torch_geometric.nn.aggr import MedianAggregation, QuantileAggregation

print("torch_geometric", torch_geometric.__version__, "torch", torch.__version__)
num_lists = 7_000_000
of_list = torch.arange(3 * num_lists) // 3
x = (10 * of_list + torch.arange(3 * num_lists) % 3).double().view(-1, 1)  # list 5 has 50, 51, 52
medians = MedianAggregation()(x, of_list, dim_size=num_lists).view(-1)
expected = 10 * torch.arange(num_lists).double() + 1
wrong = (medians != expected).nonzero().view(-1)
differences = (medians - expected).unique().tolist()
print("wrong medians of 7,000,000 lists of 3:", len(wrong), "from list", wrong[0].item(), "on; off by", differences)
assert wrong[0] == 2**24 // 3 + 1 and len(wrong) > (num_lists - wrong[0]) / 2 and min(differences) == -9
few = 1_500_000
quantiles = QuantileAggregation(0.4)((x % 10)[:few].float(), of_list[:few], dim_size=few // 3)
print("quantiles 0.4 of lists 0, 1, 2 among 1,500,000 edges:", quantiles.min().item(), "to", quantiles.max().item())
assert quantiles.min() == 0.75 and quantiles.max() == 0.8125
PYTHON
