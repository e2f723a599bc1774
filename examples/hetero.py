"""A model of PyG on a graph of several node types, made by to_hetero(): python examples/hetero.py DATA [EPOCHS]

DATA must have features of all node types: cohort dataset generate DATA --kind typed --all-features ...
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.nn import SAGEConv, to_hetero

import cohort_gnn as cohort


class Sage(nn.Module):
    def __init__(self, hidden: int, num_classes: int):
        super().__init__()
        self.conv1 = SAGEConv((-1, -1), hidden)
        self.conv2 = SAGEConv((-1, -1), num_classes)

    def forward(self, x, edge_index):
        return self.conv2(self.conv1(x, edge_index).relu(), edge_index)


def run(model: nn.Module, loader, target: str, optimizer=None) -> tuple[float, float]:
    """Mean loss and accuracy of a pass; trains where there is an optimizer."""
    model.train(optimizer is not None)
    loss_sum = correct = count = 0
    for batch in loader:
        num_seeds = batch[target].batch_size
        y = batch[target].y[:num_seeds]
        out = model(batch.x_dict, batch.edge_index_dict)[target][:num_seeds]
        loss = F.cross_entropy(out, y)
        if optimizer:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        loss_sum += loss.item() * num_seeds
        correct += int((out.argmax(1) == y).sum())
        count += num_seeds
    return loss_sum / count, correct / count


def main(folder: str, epochs: int = 5) -> None:
    torch.manual_seed(0)
    data = cohort.dataset.open(folder)
    train = cohort.NeighborLoader(
        data, [10, 10], (data.target, data.train_ids), batch_size=256, shuffle=True, device="cpu"
    )
    test = train.with_nodes((data.target, data.test_ids))
    model = to_hetero(Sage(64, data.num_classes), data.metadata())
    with torch.no_grad():  # has lazy layers take their widths
        batch = next(iter(test))
        model(batch.x_dict, batch.edge_index_dict)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(epochs):
        loss, accuracy = run(model, train, data.target, optimizer)
        print(f"epoch {epoch}: loss {loss:.4f}, accuracy {accuracy:.3f}")
    with torch.no_grad():
        print(f"test: accuracy {run(model, test, data.target)[1]:.3f}")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
