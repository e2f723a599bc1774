"""Ranks of torch.multiprocessing.spawn, a GPU each, or two on the CPU: python examples/spawn.py DATA"""

import sys
import tempfile

import torch
import torch.distributed as dist
from ranks import train


def main(rank: int, size: int, store: str, folder: str) -> None:
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, init_method=f"file://{store}/store", rank=rank, world_size=size)
    train(folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    size = torch.cuda.device_count() or 2
    with tempfile.TemporaryDirectory() as store:
        torch.multiprocessing.spawn(main, (size, store, sys.argv[1]), nprocs=size)
