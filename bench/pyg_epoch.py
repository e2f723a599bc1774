"""An epoch of PyG alone on a typed graph, beside `cohort train`: its NeighborLoader, its layers, one GPU or the CPU.

    python bench/pyg_epoch.py DIR [--model rsage] [--fanout 15,10,5] [--batch-size 1024] [--hidden 128] [--workers 16]

The loader's workers sample (torch-sparse or pyg-lib must be installed) and gather the rows; batches are copied to the
GPU from page-locked memory. Prints the seconds of an epoch: measured over --batches batches after --warm-up others,
times the batches of an epoch.
"""

import argparse
import time
from itertools import islice

import torch
from torch_geometric.loader import NeighborLoader

import cohort.dataset
from cohort.trainer.loop.step import Scores, TrainStep, adam
from cohort.trainer.models.typed import TypedGNN


class Slot:
    """A batch of PyG's as a training step takes it.

    Args:
        batch: a HeteroData on the device.
        types: of the graph.
    """

    def __init__(self, batch, types):
        self.num_seeds = batch[types.target].batch_size
        self.y = batch[types.target].y
        rows = {name: batch[name].x for name in types.counts}
        edges = {name: batch[name].edge_index for name in types.edge_types}
        self.inputs = rows, edges, batch.num_sampled_nodes_dict, batch.num_sampled_edges_dict


class PygScores(Scores):
    """Scores of such a batch."""

    def inputs_of(self, slot) -> tuple:
        return slot.inputs


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", help="folder of a data set with several node types, all of them with features")
    parser.add_argument("--model", default="rsage", choices=["rsage", "rgcn", "rgat", "hgt"])
    parser.add_argument("--fanout", default="15,10,5", type=lambda text: [int(each) for each in text.split(",")])
    for name, value in (("batch-size", 1024), ("hidden", 128), ("workers", 16), ("warm-up", 20), ("batches", 60)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    return parser.parse_args()


def main() -> None:
    args = parse()
    dataset, device = cohort.dataset.open(args.dataset), torch.device(args.device)
    types, data = dataset.types, dataset.to_pyg()
    loader = NeighborLoader(
        data,
        num_neighbors=args.fanout,
        input_nodes=(types.target, torch.from_numpy(dataset.train_ids.copy())),
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=args.workers,
        pin_memory=device.type == "cuda",
    )
    model = TypedGNN(args.model, types, args.hidden, dataset.num_classes, len(args.fanout), 0.5, layers="pyg").to(
        device
    )
    step = TrainStep(PygScores(model, types=types), adam(model, device, 0.003), device)

    def finished() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    start, taken = finished(), 0
    for number, batch in enumerate(islice(loader, args.warm_up + args.batches)):
        step(Slot(batch.to(device, non_blocking=True), types))
        if number + 1 == args.warm_up:
            start = finished()
        taken = max(0, number + 1 - args.warm_up)
    seconds = (finished() - start) / taken
    print(
        f"{seconds * 1e3:.1f} ms a batch over {taken}; an epoch of {len(loader)} batches: {seconds * len(loader):.3f} s"
    )


if __name__ == "__main__":
    main()
