"""Evaluation under torch.inference_mode(): python examples/inference_mode.py DATA"""

import sys

import torch
import torch.nn.functional as F
from torch_geometric.nn import GraphSAGE

import cohort_gnn as cohort

torch.manual_seed(0)
data = cohort.dataset.open(sys.argv[1])


@torch.inference_mode()
def accuracy(model: torch.nn.Module, loader: cohort.NeighborLoader) -> float:
    model.eval()
    correct = nodes = 0
    for batch in loader:
        out = model(batch.x, batch.edge_index)[: batch.batch_size]
        correct += int((out.argmax(1) == batch.y[: batch.batch_size]).sum())
        nodes += batch.batch_size
    return correct / nodes


with cohort.NeighborLoader(data, [10, 5], data.train_ids, batch_size=64, shuffle=True) as train:
    val = train.with_nodes(data.val_ids)
    model = GraphSAGE(data.num_features, 32, num_layers=2, out_channels=data.num_classes).to(train.device)
    cohort.nn.accelerate(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(3):
        model.train()
        for batch in train:
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            optimizer.zero_grad()
            F.cross_entropy(out, batch.y[: batch.batch_size]).backward()
            optimizer.step()
        print(f"epoch {epoch}: validation {accuracy(model, val):.3f}")
