"""torch.compile of a model over Cohort's batches: python examples/compiled.py DATA [BACKEND]"""

import sys

import torch
import torch.nn.functional as F
from torch_geometric.nn import GraphSAGE

import cohort_gnn as cohort

torch.manual_seed(0)
data = cohort.dataset.open(sys.argv[1])
backend = sys.argv[2] if len(sys.argv) > 2 else "inductor"

with cohort.NeighborLoader(data, [10, 5], data.train_ids, batch_size=64, shuffle=True) as train:
    model = GraphSAGE(data.num_features, 32, num_layers=2, out_channels=data.num_classes).to(train.device)
    cohort.nn.accelerate(model)  # before it is compiled: PyG's layers become Cohort's, of which one graph is made
    compiled = torch.compile(model, backend=backend, dynamic=True, fullgraph=True)  # each batch has other sizes
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(3):
        total = torch.zeros((), device=train.device)
        for batch in train:
            out = compiled(batch.x, batch.edge_index)[: batch.batch_size]
            loss = F.cross_entropy(out, batch.y[: batch.batch_size])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        print(f"epoch {epoch}: loss {total / len(train):.3f}")
