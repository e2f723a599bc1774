#!/usr/bin/env bash
# PyG's DynamicBatchSampler with skip_too_big=True does not count the samples that it skips: the batches after a
# skipped graph begin again with graphs that were in the batch before, and at the end come empty batches, or none of
# it, by the order alone. Without skip_too_big each graph is in one batch.
#
# Needs: python3, PyPI; torch-geometric==2.8.1 torch==2.15.0 in a temporary venv (5 GB). Seen: those. Guess before the
# run: each graph that fits is in one batch, and no batch is empty.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check torch-geometric==2.8.1 torch==2.15.0
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import torch
import torch_geometric
from torch_geometric.data import Data
from torch_geometric.loader import DynamicBatchSampler

print("torch_geometric", torch_geometric.__version__, "torch", torch.__version__)


def batches_of(sizes, **options):
    return [list(ids) for ids in iter(DynamicBatchSampler([Data(num_nodes=size) for size in sizes], **options))]


first = batches_of([9, 1, 1, 1, 1, 1], max_num=2, skip_too_big=True)
middle = batches_of([1, 1, 9, 1, 1, 1, 1], max_num=2, skip_too_big=True)
last = batches_of([1, 1, 1, 9], max_num=3, skip_too_big=True)
print("graph 0 is skipped:", first)
print("graph 2 is skipped:", middle)
print("graph 3 is skipped:", last)
print("not skipped:", batches_of([9, 1, 1, 1, 1, 1], max_num=2))
assert first == [[1, 2], [2, 3], [4, 5]] and middle == [[0, 1], [3, 4], [4, 5], [6]]
assert last == [[0, 1, 2], [], [], []] and batches_of([9, 1, 1, 1], max_num=2) == [[0], [1, 2], [3]]
PYTHON
