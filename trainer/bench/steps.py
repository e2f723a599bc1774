"""The training step alone, on batches that are there already: the trainer's part of ``cohort bench step``."""

import itertools
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
import torch_geometric.nn as pyg
from torch import Tensor

from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.nn.block import block_of
from cohort_gnn.spec import files
from cohort_gnn.spec.run import TrainerSpec, from_json
from cohort_gnn.trainer.loader.source import AllRows, BatchSource
from cohort_gnn.trainer.loader.step_clock import mark, seconds_between
from cohort_gnn.trainer.loop.passes import Passes, seeds_of_run
from cohort_gnn.trainer.loop.step import TrainStep, adam, step_of
from cohort_gnn.trainer.models.own import model_of

WARM_UP_ROUNDS = 4  # over all batches: each has its CUDA graph after the third


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
    """Times steps of every model with every kind of layers on the same batches; a JSON line of each goes to ``out``.

    Args:
        run: run.json; its member "trainer" has "options", those of a run; "cases", [model, layers, amp] of each
            measurement, where layers are "pyg", "csr" or "cohort"; "steps", how many are timed; "batches", how many the
            steps take in turn, at most one a slot.
    """
    members = run["trainer"]
    options = from_json(members["options"], TrainerSpec, str(out / files.RUN))
    torch.set_float32_matmul_precision(options.matmul_precision)
    data = open_dataset(run["sampler"]["dataset"])
    _, seeds, _ = seeds_of_run(data, options)
    passes = Passes(options, source, {"train": seeds["train"]}, data)
    asked = passes.ask("train", options.fanout, shuffle=True)
    num_full = max(1, passes.sizes["train"] // options.batch_size)
    all_rows = source.all_rows(data.path)
    slots = list(passes.slots(asked, "train", min(members["batches"], num_full)))
    if options.targets != "link":
        options = replace(options, batch_size=slots[0].num_seeds)  # that has CUDA graphs
    with open(out / "steps.jsonl", "w") as file:
        for kind, layers, amp in members["cases"]:
            library = "pyg" if layers == "csr" else layers
            tried = replace(options, model=kind, layers=library, amp=amp)
            line = {"model": kind, "layers": layers, "amp": amp}
            line |= _measure(slots, tried, members["steps"], layers == "csr", source.device, all_rows)
            file.write(json.dumps(line) + "\n")
            file.flush()


def _measure(
    slots: Sequence, options: TrainerSpec, count: int, is_csr: bool, device: torch.device, all_rows: AllRows
) -> dict:
    """One line: times in milliseconds, memory in bytes. Steps are CUDA graphs where ``cohort train`` has them."""
    on_gpu = device.type == "cuda"
    without_graphs = replace(options, cuda_graphs=False)
    peak_bytes = _peak_bytes(_new_step(without_graphs, is_csr, device, all_rows), slots, device) if on_gpu else None
    step = _new_step(options, is_csr, device, all_rows)
    for slot in itertools.chain(*[slots] * WARM_UP_ROUNDS):
        step(slot)
    step.reset()
    if on_gpu:
        torch.cuda.synchronize(device)
    times, host_times = _times(step, slots, count, device)
    return {
        "ms": statistics.median(times),
        "least_ms": min(times),
        "host_ms": statistics.median(host_times),
        "peak_bytes": peak_bytes,
        "matmul_precision": options.matmul_precision,
        "loss": (step.loss_sum / step.num_labelled).item(),
        "batches": len(slots),
        "nodes": round(statistics.fmean(sum(slot.num_sampled_nodes) for slot in slots)),
        "edges": round(statistics.fmean(sum(slot.num_sampled_edges) for slot in slots)),
        "seeds": slots[0].num_seeds,
        "sms": torch.cuda.get_device_properties(device).multi_processor_count if on_gpu else None,
        "device": torch.cuda.get_device_name(device) if on_gpu else "cpu",
        "torch": torch.__version__,
    }


def _new_step(options: TrainerSpec, is_csr: bool, device: torch.device, all_rows: AllRows) -> TrainStep:
    """Training steps of a new model."""
    torch.manual_seed(options.seed)
    model = model_of(options).to(device)
    if is_csr:
        for layer in model.convs:
            layer.__class__ = CsrSAGEConv
    return step_of(options, model, adam(model, device, options.lr), device, all_rows)


def _peak_bytes(step: TrainStep, slots: Sequence, device: torch.device) -> int:
    """Memory of a step beside batches, model and optimizer, whose state the first step makes."""
    step(slots[0])
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    for slot in slots:
        step(slot)
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before


def _times(step: TrainStep, slots: Sequence, count: int, device: torch.device) -> tuple[list[float], list[float]]:
    """Milliseconds of each step, and those that the host needed to put it on the stream."""
    marks, host_times = [mark(device)], []
    for slot in itertools.islice(itertools.cycle(slots), count):
        begin = time.perf_counter()
        step(slot)
        host_times.append(1e3 * (time.perf_counter() - begin))
        marks.append(mark(device))
    if device.type == "cuda":
        torch.cuda.synchronize()
    return [1e3 * seconds_between(*pair) for pair in itertools.pairwise(marks)], host_times
