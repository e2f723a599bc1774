#!/usr/bin/env bash
# all_reduce, broadcast and all_to_all_single of torch.distributed with gloo read and write a view with gaps, such as the
# columns x[:, :2], as if its values lay one after the other: some are not reduced, values between them are, nothing is
# said. The output of all_to_all_single may be Fortran-ordered and gets the values in other places; its input may not.
# all_gather is right, recv and NCCL refuse such tensors. https://github.com/pytorch/pytorch/issues/192920 has broadcast.
#
# Needs: python3, PyPI; torch==2.15.0 in a temporary venv (5 GB). Seen: that. Guess before the run: right, or refused.
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
    table = torch.full((3, 4), rank + 1.0)
    dist.all_reduce(table[:, :2])
    sums = table.tolist()
    row = torch.arange(6.0) * (1 - rank)
    dist.broadcast(row[::2], 0)
    sent = row.tolist()
    received = torch.empty(2, 4).t()
    dist.all_to_all_single(received, torch.arange(8.0).view(4, 2) + 10 * rank)
    parts = [torch.empty(3), torch.empty(3)]
    dist.all_gather(parts, torch.full((3, 4), rank + 1.0)[:, 1])
    if rank == 1:
        print("all_reduce of the first two of four columns of 1 and 2:", sums, flush=True)
        print("broadcast of 0, 2, 4 in row[::2], of row:", sent, "all_to_all_single:", received.tolist(), flush=True)
        assert sums == [[3, 3, 3, 3], [3, 3, 2, 2], [2, 2, 2, 2]]
        assert sent == [0, 1, 2, 0, 0, 0]
        assert received.tolist() == [[4, 14], [5, 15], [6, 16], [7, 17]]
        assert [part.tolist() for part in parts] == [[1, 1, 1], [2, 2, 2]]
    dist.destroy_process_group()


if __name__ == "__main__":
    print("torch", torch.__version__, flush=True)
    mp.spawn(main, nprocs=2)
PYTHON
venv/bin/python -W ignore ranks.py || { echo "the behaviour has changed"; exit 1; }
