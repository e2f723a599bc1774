"""PyTorch Lightning over Cohort's batches: python examples/lightning_sage.py DATA [RANKS]"""

import sys

import lightning
import torch
import torch.nn.functional as F
from torch_geometric.nn import GraphSAGE

import cohort_gnn as cohort


class Batches(lightning.LightningDataModule):
    """Lightning calls setup() when torch.distributed is initialised: loaders made there get their rank's share."""

    def __init__(self, folder: str):
        super().__init__()
        self.data = cohort.dataset.open(folder)
        self.train = self.val = None

    def setup(self, stage: str) -> None:
        if self.train is None:
            self.train = cohort.NeighborLoader(self.data, [10, 5], self.data.train_ids, batch_size=64, shuffle=True)
            self.val = self.train.with_nodes(self.data.val_ids)

    def train_dataloader(self):
        return self.train

    def val_dataloader(self):
        return self.val


class Sage(lightning.LightningModule):
    def __init__(self, num_features: int, num_classes: int):
        super().__init__()
        self.model = GraphSAGE(num_features, 32, num_layers=2, out_channels=num_classes)
        self.train_seeds = 0

    def sum_of_ranks(self, values: torch.Tensor) -> torch.Tensor:
        return self.trainer.strategy.reduce(values, reduce_op="sum")

    def forward(self, batch) -> torch.Tensor:
        return self.model(batch.x, batch.edge_index)[: batch.batch_size]

    def training_step(self, batch, _index: int) -> torch.Tensor:
        """The mean over the seeds of all ranks; the last batch of a rank may have none."""
        seeds = self.sum_of_ranks(torch.tensor(float(batch.batch_size), device=self.device))
        self.train_seeds += int(seeds)
        loss = F.cross_entropy(self(batch), batch.y[: batch.batch_size], reduction="sum")
        return loss * self.trainer.world_size / seeds

    def on_validation_epoch_start(self) -> None:
        self.counts = torch.zeros(2, device=self.device)  # correct, all

    def validation_step(self, batch, _index: int) -> None:
        self.counts[0] += (self(batch).argmax(1) == batch.y[: batch.batch_size]).sum()
        self.counts[1] += batch.batch_size

    def on_validation_epoch_end(self) -> None:
        correct, nodes = self.sum_of_ranks(self.counts)
        self.log_dict({"accuracy": correct / nodes, "nodes": nodes})

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


def main(folder: str, ranks: int = 1) -> None:
    lightning.seed_everything(0, verbose=False)
    batches = Batches(folder)
    model = Sage(batches.data.num_features, batches.data.num_classes)
    trainer = lightning.Trainer(
        devices=ranks,
        strategy="ddp" if ranks > 1 else "auto",
        max_epochs=3,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.fit(model, batches)
    (result,) = trainer.validate(model, batches, verbose=False)
    if trainer.is_global_zero:
        print(f"{model.train_seeds} seeds; validation {result['accuracy']:.3f} of {result['nodes']:.0f} nodes")
    batches.train.close()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
