"""Training in one process, to compare ``cohort train`` with.

    python bench/one_process.py DIR --fanout 25,10 --batch-size 8192 --hidden 256 --epochs 5

One process samples and fetches on a stream each, with as many SMs for the fetch as --fetch-sms says (8), and trains on
a third: the best that frameworks without a sampler of its own do. The kernels are Cohort's, the step is a CUDA graph
too. While batch b is fetched, the host draws batch b + 1; then it starts to fetch that one and to train on batch b.
Sampling and training share all SMs, and no row of the batches before is found again. The mean is that of the epochs but
the first; a line of JSON is appended to --out.
"""

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch

import cohort_gnn as cohort
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.launch.options.parser import add_dataset, add_options, kind, spec_of
from cohort_gnn.launch.run.job import sampler_members
from cohort_gnn.spec.options import options_of
from cohort_gnn.spec.run import RunSpec, SamplerSpec
from cohort_gnn.spec.types import Positive
from cohort_gnn.trainer.loop.step import Scores, TrainStep, adam
from cohort_gnn.trainer.models.sampled import SampledGNN

sys.path.insert(0, str(Path(cohort.__file__).parents[2] / "bench"))  # of the build

from one_process_native import OneProcess  # noqa: E402

SLOTS = 3  # one is trained on, one is fetched into, and the step before may not have ended


@dataclass
class Epoch:
    """Seconds of an epoch, those in which the host waited for sampling or fetching, and those of the fetches."""

    seconds: float = 0.0
    host_sample_seconds: float = 0.0
    host_fetch_seconds: float = 0.0
    fetch_seconds: float = 0.0
    edges: int = 0
    nodes: int = 0
    loss: float = 0.0


class Loop:
    """Epochs over the training seeds.

    Args:
        sampler: with SLOTS slots.
        step: takes a slot.
        seeds: int64 [n].
    """

    def __init__(self, sampler: OneProcess, step: TrainStep, seeds: np.ndarray, args: RunSpec):
        self._sampler, self._step, self._seeds, self._args = sampler, step, seeds, args
        self._trained: list[torch.cuda.Event | None] = [None] * SLOTS  # the last step on each slot

    def epoch(self, number: int) -> Epoch:
        """Trains on every seed once."""
        order = np.random.default_rng([self._args.seed, number]).permutation(len(self._seeds))
        batches = [
            order[first : first + self._args.batch_size] for first in range(0, len(order), self._args.batch_size)
        ]
        epoch = Epoch()
        self._step.reset()
        begin = time.perf_counter()
        sizes = self._sample(batches, number, 0, epoch)
        self._fetch(batches, 0)
        for batch in range(len(batches)):
            after = self._sample(batches, number, batch + 1, epoch) if batch + 1 < len(batches) else None
            slot = self._taken(batch, sizes, epoch)
            if after:
                self._fetch(batches, batch + 1)
            self._step(slot)
            self._remember(batch)
            sizes = after
        epoch.loss = (self._step.loss_sum / self._step.num_labelled).item()
        epoch.seconds = time.perf_counter() - begin
        return epoch

    def _sample(self, batches: list[np.ndarray], number: int, batch: int, epoch: Epoch) -> tuple[list[int], list[int]]:
        begin = time.perf_counter()
        sizes = self._sampler.sample(self._seeds[batches[batch]], self._args.fanout, number, batch)
        epoch.host_sample_seconds += time.perf_counter() - begin
        return sizes

    def _fetch(self, batches: list[np.ndarray], batch: int) -> None:
        trained = self._trained[batch % SLOTS]
        self._sampler.fetch(batch % SLOTS, batches[batch], trained.cuda_event if trained else 0)

    def _taken(self, batch: int, sizes: tuple[list[int], list[int]], epoch: Epoch) -> SimpleNamespace:
        """The slot of a batch, once it is filled."""
        begin = time.perf_counter()
        while not self._sampler.finished():
            pass
        epoch.host_fetch_seconds += time.perf_counter() - begin
        epoch.fetch_seconds += self._sampler.fetch_seconds()
        nodes, edges = sizes
        epoch.nodes += sum(nodes)
        epoch.edges += sum(edges)
        arrays = self._sampler.arrays(batch % SLOTS)
        by_type = {"table": "x", "row_index_of": "row_index", "edges": "edge_index", "offsets": "indptr"}
        return SimpleNamespace(
            num_seeds=nodes[0],
            nodes_of_types=[nodes],
            edges_of_relations=[edges],
            last_hop_global=False,
            **{name: partial(_array_of_type, arrays, member) for name, member in by_type.items()},
            **arrays,
        )

    def _remember(self, batch: int) -> None:
        if self._args.device == "cuda":
            event = torch.cuda.Event()
            event.record()
            self._trained[batch % SLOTS] = event


def _array_of_type(arrays: dict[str, torch.Tensor], member: str, number: int) -> torch.Tensor:
    return arrays[member]


def main() -> None:
    """Prints a line an epoch, and the mean."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_dataset(parser)
    names = {each.name for each in options_of(SamplerSpec) if not each.for_draws} | {"hidden"}  # draws are uniform
    add_options(parser, RunSpec, names, use_edge_weights=None, partition=None)
    text = "the first is not counted (default 10)"
    parser.add_argument("--epochs", dest="num_epochs", type=kind(Positive), default=10, help=text)
    parser.add_argument("--out", type=Path, default=Path("bench.jsonl"), help="a line is appended to it")
    args = parser.parse_args()
    data = open_dataset(args.dataset)
    spec = spec_of(args, RunSpec, fetch_sms=8)
    options = sampler_members(spec, args.dataset.absolute()) | {"reuse": False}
    spec.device = options["device"]
    with tempfile.TemporaryDirectory(prefix="cohort-bench-") as folder:
        run_json = Path(folder) / "run.json"
        run_json.write_text(json.dumps({"sampler": options | {"channel": folder}}))
        sampler = OneProcess(str(run_json), SLOTS)
    loop = Loop(sampler, _step_of(spec, data, sampler.rows()), np.array(data.train_ids), spec)
    epochs = []
    for number in range(args.num_epochs):
        epochs.append(loop.epoch(number))
        print(f"epoch {number + 1}: " + ", ".join(f"{name} {value:.4g}" for name, value in asdict(epochs[-1]).items()))
    counted = epochs[1:] or epochs
    mean = {name: sum(getattr(epoch, name) for epoch in counted) / len(counted) for name in asdict(epochs[0])}
    print(f"mean of {len(counted)}: {mean['seconds']:.4f} s an epoch")
    told = {name: getattr(spec, name) for name in ("batch_size", "fanout", "fetch_sms", "compress", "cache_ratio")}
    with open(args.out, "a") as out:
        out.write(json.dumps({"bench": "one_process", "dataset": str(args.dataset)} | told | mean) + "\n")


def _step_of(spec: RunSpec, data, rows: torch.Tensor | None) -> TrainStep:
    """Steps as those of ``cohort train``."""
    device = torch.device(spec.device)
    torch.manual_seed(spec.seed)
    sizes = (data.feature_dim, spec.hidden, data.num_classes, len(spec.fanout))
    model = SampledGNN("sage", *sizes, 0.5).to(device)
    graphs_of = spec.batch_size if spec.device == "cuda" else None
    scores = Scores(model, all_rows=None if rows is None else [rows])
    return TrainStep(scores, adam(model, device, 0.003), device, graphs_of)


if __name__ == "__main__":
    main()
