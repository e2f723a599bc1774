"""Link prediction with a model of PyG, and its MRR: python examples/links.py DATA [EPOCHS]

A tenth of the links are for the test. DATA should have the reverse of each edge. `cohort train --task link` does the
same, without a script.
"""

import sys
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch_geometric.nn import GraphSAGE

import cohort_gnn as cohort


@torch.no_grad()
def evaluate(model, loader, test: cohort.dataset.HeldOut) -> tuple[float, float]:
    """MRR and Hits@10 of the test links, each among its negatives."""
    model.eval()
    rows = [model(batch.x, batch.edge_index)[: batch.batch_size] for batch in loader]
    h = torch.cat(rows)
    source, target = torch.from_numpy(test.pairs.copy()).T
    others = torch.from_numpy(test.negatives.copy())
    scores = torch.einsum("nd,nkd->nk", h[source], h[torch.cat([target[:, None], others], dim=1)])
    own, of_others = scores[:, :1], scores[:, 1:]
    rank = 1 + (of_others > own).sum(1) + (of_others == own).sum(1) / 2
    return (1 / rank).mean().item(), (rank <= 10).float().mean().item()


def main(source: str, epochs: int = 5) -> None:
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        train = cohort.dataset.split_links(source, Path(folder) / "train", shares=(0, 0.1))
        test = cohort.dataset.held_out(train)["test"]
        how = {"batch_size": 512, "shuffle": True, "neg_sampling": "binary", "device": "cpu"}
        with cohort.LinkNeighborLoader(train, [10, 5], **how) as loader:  # all edges
            model = GraphSAGE(cohort.dataset.open(train).num_features, 64, num_layers=2)
            nodes = loader.with_nodes(None, num_neighbors=[-1, -1])
            optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
            for epoch in range(epochs):
                model.train()
                for batch in loader:
                    h = model(batch.x, batch.edge_index)
                    ends = h[batch.edge_label_index]
                    loss = F.binary_cross_entropy_with_logits((ends[0] * ends[1]).sum(1), batch.edge_label)
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                mrr, hits = evaluate(model, nodes, test)
                print(f"epoch {epoch}: loss {loss.item():.3f}, MRR {mrr:.3f}, Hits@10 {hits:.3f}")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
