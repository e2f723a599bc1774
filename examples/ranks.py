"""One rank of a run on several GPUs or CPUs: torchrun --nproc-per-node 2 examples/ranks.py DATA

`cohort run --ranks 2`, spawn.py and srun.sh start the same ranks in other ways.
"""

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch_geometric.nn import GraphSAGE

import cohort_gnn as cohort


def train(folder: str, epochs: int = 2) -> None:
    """Trains as one rank of torch.distributed, which must be initialised: the loader takes its place from there."""
    data = cohort.dataset.open(folder)
    with cohort.NeighborLoader(data, [10, 5], data.train_ids, batch_size=64, shuffle=True) as loader:
        device = loader.device
        torch.manual_seed(0)
        model = GraphSAGE(data.num_features, 32, num_layers=2, out_channels=data.num_classes).to(device)
        model = DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for epoch in range(epochs):
            seen: list[int] = []
            total = torch.zeros((), device=device)
            for batch in loader:
                seeds = torch.tensor(float(batch.batch_size), device=device)  # the last batch of a rank may have none
                dist.all_reduce(seeds)
                out = model(batch.x, batch.edge_index)[: batch.batch_size]
                loss = F.cross_entropy(out, batch.y[: batch.batch_size], reduction="sum")
                optimizer.zero_grad()
                (loss * dist.get_world_size() / seeds).backward()  # DistributedDataParallel divides by the ranks
                optimizer.step()
                total += loss.detach()
                seen += batch.n_id[: batch.batch_size].tolist()
            report(epoch, total, seen)


def report(epoch: int, total: torch.Tensor, seen: list[int]) -> None:
    """Prints what all ranks did: together they train on each node once."""
    dist.all_reduce(total)
    of_ranks: list = [None] * dist.get_world_size()
    dist.all_gather_object(of_ranks, seen)
    if dist.get_rank() == 0:
        nodes = sum(of_ranks, [])
        shares = " + ".join(str(len(share)) for share in of_ranks)
        print(f"epoch {epoch}: loss {total / len(nodes):.3f}, {shares} seeds, {len(set(nodes))} different")


if __name__ == "__main__":
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    train(sys.argv[1])
    dist.destroy_process_group()
