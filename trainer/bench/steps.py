"""The training step alone, on a batch that lies ready: the trainer's part of ``cohort bench step``."""

import functools
import itertools
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch_geometric.nn as pyg
from torch import Tensor

from cohort.dataset import open as open_dataset
from cohort.nn.block import block_of
from cohort.trainer.loop.step import Scores, TrainStep, adam
from cohort.trainer.models.sampled import SampledGNN
from cohort.trainer.models.targets import targets_of
from cohort.trainer.source import BatchSource
from cohort.trainer.step_clock import mark, seconds_between

WARM_UP_STEPS = 10


class CsrSAGEConv(pyg.SAGEConv):
    """PyG's layer with torch.sparse's product of a CSR matrix, for comparison."""

    def forward(self, x: tuple[Tensor, Tensor], edge_index: Tensor, size=None) -> Tensor:
        block = block_of(edge_index, x[0].shape[0], x[1].shape[0])
        indptr = block.indptr[: block.num_targets + 1]
        degree = indptr.diff()
        weight = (1.0 / degree.clamp(min=1)).to(x[0].dtype).repeat_interleave(degree, output_size=block.source.numel())
        matrix = torch.sparse_csr_tensor(indptr, block.source, weight, (block.num_targets, block.num_sources))
        return self.lin_l(matrix @ x[0]) + self.lin_r(x[1])


def measure_steps(source: BatchSource, run: dict, out: Path) -> None:
    """Times steps of every model with every kind of layers on the first batch; a JSON line of each goes to ``out``.

    Args:
        run: run.json; its member "trainer" has "models", "layers" ("pyg", "csr" for sage, "cohort"), "amp" (both: false
            and true), "matmul_precision", "fanout", "batch_size", "hidden", "num_classes", "targets", "feature_dim",
            "steps", "seed".
    """
    options = run["trainer"]
    torch.set_float32_matmul_precision(options["matmul_precision"])
    train_ids = open_dataset(run["sampler"]["dataset"]).train_ids
    asked = source.request(source.add_seeds(train_ids), options["fanout"], options["batch_size"], shuffle=True)
    for slot in source.slots(asked, 1):
        ready = slot
    with open(out / "steps.jsonl", "w") as file:
        for kind in options["models"]:
            for layers in options["layers"]:
                for amp in options["amp"]:
                    if layers == "csr" and (kind != "sage" or amp):
                        continue
                    line = _measure(ready, options, kind, layers, amp, source.device)
                    file.write(json.dumps(line) + "\n")
                    file.flush()


def _measure(slot, options: dict, kind: str, layers: str, amp: bool, device: torch.device) -> dict:
    """One line: times in milliseconds, memory in bytes. Cohort's steps are CUDA graphs, as in ``cohort train``."""
    on_gpu = device.type == "cuda"
    peak_bytes = _peak_bytes(_step_of(slot, options, kind, layers, amp, device), slot, device) if on_gpu else None
    step = _step_of(slot, options, kind, layers, amp, device, graphs=on_gpu and layers == "cohort")
    for _ in range(WARM_UP_STEPS):
        step(slot)
    step.reset()
    if on_gpu:
        torch.cuda.synchronize(device)
    times, host_times = _times(functools.partial(step, slot), options["steps"], on_gpu)
    return {
        "model": kind,
        "layers": layers,
        "amp": amp,
        "ms": statistics.median(times),
        "least_ms": min(times),
        "host_ms": statistics.median(host_times),
        "peak_bytes": peak_bytes,
        "matmul_precision": options["matmul_precision"],
        "loss": (step.loss_sum / step.num_labelled).item(),
        "nodes": sum(slot.num_sampled_nodes),
        "edges": sum(slot.num_sampled_edges),
        "seeds": slot.num_seeds,
        "sms": torch.cuda.get_device_properties(device).multi_processor_count if on_gpu else None,
        "device": torch.cuda.get_device_name(device) if on_gpu else "cpu",
        "torch": torch.__version__,
    }


def _step_of(
    slot, options: dict, kind: str, layers: str, amp: bool, device: torch.device, graphs: bool = False
) -> TrainStep:
    """Training steps of a new model."""
    torch.manual_seed(options["seed"])
    library = "pyg" if layers == "csr" else layers
    sizes = (options["feature_dim"], options["hidden"], options["num_classes"], len(options["fanout"]))
    model = SampledGNN(kind, *sizes, options["dropout"], library).to(device)
    if layers == "csr":
        for layer in model.convs:
            layer.__class__ = CsrSAGEConv
    scores = Scores(model, amp, keep_half=layers == "cohort")
    return TrainStep(
        scores,
        adam(model, device, 0.003),
        device,
        graphs_of=slot.num_seeds if graphs else None,
        targets=targets_of(options["targets"]),
    )


def _peak_bytes(step: TrainStep, slot, device: torch.device) -> int:
    """Memory of a step beside batch, model and optimizer, whose state the first step makes."""
    step(slot)
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    step(slot)
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before


def _times(step: Callable[[], None], count: int, on_gpu: bool) -> tuple[list[float], list[float]]:
    """Milliseconds of each step, and those that the host needed to put it on the stream."""
    marks, host_times = [mark(on_gpu)], []
    for _ in range(count):
        begin = time.perf_counter()
        step()
        host_times.append(1e3 * (time.perf_counter() - begin))
        marks.append(mark(on_gpu))
    if on_gpu:
        torch.cuda.synchronize()
    return [1e3 * seconds_between(*pair) for pair in itertools.pairwise(marks)], host_times
