#!/usr/bin/env bash
# PyG's TGNMemory updates the memory of every node when eval() follows train(), also of nodes without an event since
# the last time, and sets their last_update to 0: each pass through validation moves all memories, and relative times,
# which are input, are counted from 0 then. In training mode a node that had no event has the memory GRU(0, 0), in
# evaluation 0. The code means to apply what is left of the messages there.
#
# Needs: python3, PyPI; torch-geometric==2.8.1 torch==2.15.0 in a temporary venv (5 GB). Seen: those. Guess before the
# run: without events, memory and times stay as they are.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check torch-geometric==2.8.1 torch==2.15.0
cd "$work"
venv/bin/python -W ignore - <<'PYTHON' || { echo "the behaviour has changed"; exit 1; }
import torch
import torch_geometric
from torch_geometric.nn.models.tgn import IdentityMessage, LastAggregator, TGNMemory

print("torch_geometric", torch_geometric.__version__, "torch", torch.__version__)
torch.manual_seed(0)
memory, seen = TGNMemory(3, 1, 2, 2, IdentityMessage(1, 2, 2), LastAggregator()), []
with torch.no_grad():
    memory.train()
    memory.update_state(torch.tensor([0]), torch.tensor([1]), torch.tensor([7]), torch.ones(1, 1))
    for _ in range(3):
        memory.eval()
        seen.append((memory.memory[:, 0].tolist(), memory.last_update.tolist()))
        print("memory of nodes 0, 1 and 2, which has no event", seen[-1][0], "last_update", seen[-1][1])
        memory.train()
    fresh = TGNMemory(3, 1, 2, 2, IdentityMessage(1, 2, 2), LastAggregator())
    fresh.training = True
    in_training = fresh(torch.tensor([2]))[0].tolist()
    fresh.training = False
    print("a node without events in training", in_training, "in evaluation", fresh(torch.tensor([2]))[0].tolist())
    assert in_training != [[0, 0]] and fresh(torch.tensor([2]))[0].tolist() == [[0, 0]]
assert [times for _, times in seen] == [[7, 7, 0], [0, 0, 0], [0, 0, 0]]
assert len({memory[0] for memory, _ in seen}) == 3 and len({memory[2] for memory, _ in seen}) == 3
PYTHON
