"""Labels that change with time, learnt from an event stream: python examples/temporal.py [EPOCHS]

An event is an edge with a time; nodes have one of two kinds. A node's label at some time is the kind that most of its
three latest events came from. The loader draws a seed's latest events, none of them later than the seed's time.
"""

import sys
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch_geometric.nn import GraphSAGE

import cohort_gnn as cohort

NODES, EVENTS, END = 1000, 20_000, 1_000_000


def labels_at(source, target, time, kind, nodes, times) -> torch.Tensor:
    """The label of each of the nodes at its time; the events stand by time."""
    labels = []
    for node, now in zip(nodes.tolist(), times.tolist(), strict=True):
        latest = source[(target == node) & (time <= now)][-3:]
        labels.append(int(2 * kind[latest].sum() > len(latest)))
    return torch.tensor(labels)


def main(epochs: int = 3) -> None:
    torch.manual_seed(0)
    kind = torch.randint(2, (NODES,))
    source, target = torch.randint(NODES, (2, EVENTS))
    time = torch.randint(END, (EVENTS,)).sort().values
    x = F.one_hot(kind, 2) + 0.1 * torch.randn(NODES, 2)
    # A node may be asked about at several times.
    nodes, times = torch.randint(NODES, (4000,)), torch.randint(END // 5, END, (4000,))
    labels = labels_at(source, target, time, kind, nodes, times)
    with tempfile.TemporaryDirectory() as folder:
        data = cohort.from_tensors(
            Path(folder) / "events", x=x, edge_index=torch.stack([source, target]), edge_time=time
        )
        how = {"time_attr": "edge_time", "temporal_strategy": "last", "batch_size": 256, "device": "cpu"}
        early = times < END * 4 // 5  # train on the past, test on what came later
        with cohort.NeighborLoader(data, [3], nodes[early], input_time=times[early], shuffle=True, **how) as loader:
            later = loader.with_nodes(nodes[~early], input_time=times[~early])
            model = GraphSAGE(2, 32, num_layers=1, out_channels=2)
            optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
            for epoch in range(epochs):
                for batch in loader:
                    out = model(batch.x, batch.edge_index)[: batch.batch_size]
                    loss = F.cross_entropy(out, labels[early][batch.input_id])
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                print(f"epoch {epoch}: loss {loss.item():.3f}")
            right = 0
            with torch.no_grad():
                for batch in later:
                    out = model(batch.x, batch.edge_index)[: batch.batch_size]
                    right += int((out.argmax(1) == labels[~early][batch.input_id]).sum())
            print(f"later: accuracy {right / int((~early).sum()):.3f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
