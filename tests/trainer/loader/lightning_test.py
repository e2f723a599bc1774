"""What a trainer of PyTorch Lightning asks of a loader."""

import pytest
import torch

from cohort_gnn import NeighborLoader

pytestmark = pytest.mark.usefixtures("shm")


def seeds_seen(loader, **options) -> list[list[int]]:
    """The seeds of each epoch."""
    lightning = pytest.importorskip("lightning")

    class Looks(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.weight, self.seen = torch.nn.Parameter(torch.zeros(1)), []

        def on_train_epoch_start(self) -> None:
            self.seen.append([])

        def training_step(self, batch, _index: int) -> torch.Tensor:
            self.seen[-1] += batch.n_id[: batch.batch_size].tolist()
            return self.weight.sum()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    module = Looks()
    lightning.Trainer(max_epochs=2, accelerator="cpu", devices=1, **quiet, **options).fit(module, loader)
    return module.seen


@pytest.mark.filterwarnings("ignore")
def test_overfit_batches_repeats_the_first_batches(cora):
    with NeighborLoader(cora, [2], torch.arange(200), batch_size=20, shuffle=True, device="cpu") as loader:
        with pytest.warns(UserWarning, match="overfit_batches: shuffle is off"):
            first, second = seeds_seen(loader, overfit_batches=2)
        assert first == second == list(range(40))
        first, second = seeds_seen(loader, limit_train_batches=2)
        assert len(first) == 40 and set(first) != set(second), "without it each epoch has an order of its own"
        assert loader.shuffle
