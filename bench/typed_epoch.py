"""An epoch of another loader on a typed graph with PyG's layers, beside `cohort train`: one GPU, or PyG's on the CPU.

    python bench/typed_epoch.py DIR [--loader pyg|wholegraph] [--model rsage] [--fanout 15,10,5] [--batch-size 1024]
        [--hidden 128] [--workers 16]

pyg: the workers of torch_geometric's NeighborLoader sample (torch-sparse or pyg-lib must be installed) and gather the
rows; batches are copied to the GPU from page-locked memory. wholegraph: its kernels sample a relation at a time from
lists in GPU memory, and gather the rows of each type from host memory. Prints the seconds of an epoch: measured over
--batches batches after --warm-up others, times the batches of an epoch; then the same without training.
"""

import argparse
import os
import time
from collections.abc import Iterator
from itertools import islice

import torch
from torch_geometric.loader import NeighborLoader

import cohort_gnn as cohort
from cohort_gnn.trainer.loop.step import Scores, TrainStep, adam
from cohort_gnn.trainer.models.typed import TypedGNN


class Slot:
    """A batch as a training step takes it.

    Args:
        y: labels of the seeds, int64 [seeds].
        inputs: rows by type, edges by relation, and how many nodes of a type, and edges of a relation, each hop adds.
    """

    def __init__(self, y: torch.Tensor, inputs: tuple):
        self.num_seeds, self.y, self.inputs = len(y), y, inputs


class PygScores(Scores):
    """Scores of such a batch."""

    def inputs_of(self, slot) -> tuple:
        return slot.inputs


class PygBatches:
    """Batches of PyG's NeighborLoader."""

    def __init__(self, dataset, args: argparse.Namespace, device: torch.device):
        self.types, self.device = dataset.types, device
        self.loader = NeighborLoader(
            dataset.to_pyg(),
            num_neighbors=args.fanout,
            input_nodes=(self.types.target, torch.from_numpy(dataset.train_ids.copy())),
            batch_size=args.batch_size,
            shuffle=True,
            num_workers=args.workers,
            pin_memory=device.type == "cuda",
        )

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Slot]:
        for batch in self.loader:
            batch = batch.to(self.device, non_blocking=True)
            target = batch[self.types.target]
            rows = {name: batch[name].x for name in self.types.counts}
            edges = {name: batch[name].edge_index for name in self.types.edge_types}
            of_hops = ()  # torch-sparse does not say, so that each layer computes all rows
            if "num_sampled_nodes" in target:
                of_hops = batch.num_sampled_nodes_dict, batch.num_sampled_edges_dict
            yield Slot(target.y[: target.batch_size], (rows, edges, *of_hops))


class WholeGraphBatches:
    """Batches by WholeGraph's kernels: a relation at a time, lists in GPU memory, rows in host memory."""

    def __init__(self, dataset, args: argparse.Namespace, device: torch.device):
        import pylibwholegraph.torch as wgth

        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        os.environ.setdefault("MASTER_PORT", "29517")
        comm, _ = wgth.init_torch_env_and_create_wm_comm(0, 1, 0, 1, wm_log_level="warn")

        def table(array: torch.Tensor, place: str):
            strides = [array.shape[1], 1] if array.dim() == 2 else [1]
            out = wgth.create_wholememory_tensor(comm, "continuous", place, list(array.shape), array.dtype, strides)
            out.get_local_tensor(host_view=place == "cpu")[0].copy_(array)
            return out

        self.types, self.args, self.device = dataset.types, args, device
        self.append_unique = wgth.graph_ops.append_unique
        self.graphs = {}
        for relation, edges in dataset.edge_types.items():
            self.graphs[relation] = wgth.GraphStructure()
            arrays = torch.from_numpy(edges.indptr.copy()), torch.from_numpy(edges.indices.copy())
            self.graphs[relation].set_csr_graph(*(table(array, "cuda") for array in arrays))
        self.rows = {
            name: table(torch.from_numpy(nodes.x_float32()), "cpu") for name, nodes in dataset.node_types.items()
        }
        self.y = torch.from_numpy(dataset.y.copy()).to(device)
        self.train_ids = torch.from_numpy(dataset.train_ids.copy()).to(device, torch.int32)

    def __len__(self) -> int:
        return -(-len(self.train_ids) // self.args.batch_size)

    def __iter__(self) -> Iterator[Slot]:
        order = self.train_ids[torch.randperm(len(self.train_ids), device=self.device)]
        for seeds in order.split(self.args.batch_size):
            nodes, *sampled = self.sample(seeds)
            rows = {name: self.rows[name].gather(ids) for name, ids in nodes.items()}
            yield Slot(self.y[seeds.long()], (rows, *sampled))

    def sample(self, seeds: torch.Tensor) -> tuple[dict, dict, dict, dict]:
        """The nodes of each type, the edges of each relation, and the numbers of both by hop."""
        empty = seeds.new_empty(0)
        nodes = {name: seeds if name == self.types.target else empty for name in self.types.counts}
        num_nodes = {name: [len(ids)] for name, ids in nodes.items()}
        edges = {relation: [] for relation in self.graphs}
        num_edges = {relation: [] for relation in self.graphs}
        for fanout in self.args.fanout:
            first = {name: len(ids) - num_nodes[name][-1] for name, ids in nodes.items()}  # of the frontier
            found = {name: [] for name in nodes}
            for relation, graph in self.graphs.items():
                source, _, target = relation
                frontier = nodes[target][first[target] :]
                if not len(frontier):
                    num_edges[relation].append(0)
                    continue
                _, ids, center = graph.unweighted_sample_without_replacement_one_hop(
                    frontier, fanout, need_center_local_output=True
                )
                found[source].append((relation, ids, center + first[target]))
                num_edges[relation].append(len(ids))
            for name, lists in found.items():
                before = len(nodes[name])
                drawn = torch.cat([empty, *(ids for _, ids, _ in lists)])
                if len(drawn):
                    if before:
                        nodes[name], place = self.append_unique(nodes[name], drawn, need_neighbor_raw_to_unique=True)
                    else:  # which append_unique refuses
                        nodes[name], place = drawn.unique(return_inverse=True)
                    places = place.split([len(ids) for _, ids, _ in lists])
                    for (relation, _, center), own in zip(lists, places, strict=True):
                        edges[relation].append(torch.stack([own, center]))
                num_nodes[name].append(len(nodes[name]) - before)
        none = torch.empty((2, 0), dtype=torch.int64, device=self.device)
        joined = {relation: torch.cat(parts, 1).long() if parts else none for relation, parts in edges.items()}
        return nodes, joined, num_nodes, num_edges


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", help="folder of a data set with several node types, all of them with features")
    parser.add_argument("--loader", default="pyg", choices=["pyg", "wholegraph"])
    parser.add_argument("--model", default="rsage", choices=["rsage", "rgcn", "rgat", "hgt"])
    parser.add_argument("--fanout", default="15,10,5", type=lambda text: [int(each) for each in text.split(",")])
    for name, value in (("batch-size", 1024), ("hidden", 128), ("workers", 16), ("warm-up", 20), ("batches", 60)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    return parser.parse_args()


def main() -> None:
    args = parse()
    dataset, device = cohort.dataset.open(args.dataset), torch.device(args.device)
    types = dataset.types
    batches = {"pyg": PygBatches, "wholegraph": WholeGraphBatches}[args.loader](dataset, args, device)
    model = TypedGNN(args.model, types, args.hidden, dataset.num_classes, len(args.fanout), 0.5, layers="pyg").to(
        device
    )
    step = TrainStep(PygScores(model, types=types), adam(model, device, 0.003), device)

    def finished() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def measure(what: str, use) -> None:
        start, taken = finished(), 0
        for number, slot in enumerate(islice(batches, args.warm_up + args.batches)):
            use(slot)
            if number + 1 == args.warm_up:
                start = finished()
            taken = max(0, number + 1 - args.warm_up)
        seconds = (finished() - start) / taken
        epoch = f"an epoch of {len(batches)} batches: {seconds * len(batches):.3f} s"
        print(f"{args.loader}, {what}: {seconds * 1e3:.1f} ms a batch over {taken}; {epoch}", flush=True)

    measure("trained", step)
    measure("loaded alone", lambda slot: None)


if __name__ == "__main__":
    main()
