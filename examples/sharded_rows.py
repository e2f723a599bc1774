"""Feature rows shared out over ranks: torchrun --nproc-per-node 2 examples/sharded_rows.py FILE.npy

Every rank keeps a part of the rows in its memory, encoded; each fetches rows of all ranks, one batch ahead.
"""

import sys

import numpy as np
import torch
import torch.distributed as dist

from cohort_gnn import ShardedRows, ibp


def main(file: str) -> None:
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    whole = np.load(file, mmap_mode="r")
    part = np.ascontiguousarray(whole[len(whole) * rank // size : len(whole) * (rank + 1) // size])
    rows = ShardedRows(ibp.encode(part, ibp.fit(part)))
    draw = torch.Generator().manual_seed(rank)
    batches = [torch.randperm(len(whole), generator=draw)[:100] for _ in range(5)]
    pending = rows.start(batches[0])
    for ids, following in zip(batches, [*batches[1:], None], strict=True):
        x = pending.wait()
        if following is not None:
            pending = rows.start(following)  # travels while this batch is used
        assert np.array_equal(x.numpy(), whole[ids.numpy()])
    stats = rows.stats()
    decoded = stats.remote_rows * x.shape[1] * x.element_size()
    print(f"rank {rank}: {stats.remote_rows} rows of other ranks, {stats.received_bytes / decoded:.2f} of their bytes")
    rows.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
