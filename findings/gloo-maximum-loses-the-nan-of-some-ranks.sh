#!/usr/bin/env bash
# all_reduce of torch.distributed with gloo and ReduceOp.MAX or MIN keeps a NaN of one rank and drops that of the other:
# which one depends on the place in the tensor and on its length. A loss that has become NaN on one rank is so seen
# by all or by none. SUM and torch.maximum keep NaN.
#
# Needs: python3, PyPI; torch==2.15.0 in a temporary venv (5 GB). Seen: that. Guess before the run: NaN on every rank,
# whichever rank has it, as of torch.maximum.
set -euo pipefail
work=$(mktemp -d /tmp/finding.XXXXXX)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check torch==2.15.0
cd "$work"
cat > ranks.py <<'PYTHON'
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def main(rank):
    dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/store", rank=rank, world_size=2)
    seen = {}
    for length in (1, 4):
        for with_nan in (0, 1):
            for operation in ("MAX", "MIN", "SUM"):
                values = torch.full((length,), torch.nan if rank == with_nan else 3.0)
                dist.all_reduce(values, getattr(dist.ReduceOp, operation))
                seen[operation, length, with_nan] = values.isnan().int().tolist()
    print(f"rank {rank}: operation, length, rank of the NaN: where the result is NaN", seen, flush=True)
    for operation in ("MAX", "MIN"):
        assert seen[operation, 1, 0] == [1] and seen[operation, 1, 1] == [0]
        assert seen[operation, 4, 0] != seen[operation, 4, 1] and 0 in seen[operation, 4, 0]
    assert all(0 not in places for (operation, _, _), places in seen.items() if operation == "SUM")
    dist.destroy_process_group()


if __name__ == "__main__":
    print("torch", torch.__version__, flush=True)
    mp.spawn(main, nprocs=2)
PYTHON
venv/bin/python -W ignore ranks.py || { echo "the behaviour has changed"; exit 1; }
