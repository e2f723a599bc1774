"""``cohort bench step``: time of a training step on ready batches, with PyG's, torch.sparse's and Cohort's layers.

A step is forward, loss, backward and Adam; the sampler is idle meanwhile. The steps take a few different batches of the
data set in turn. With ``--sms 132,116,100`` the trainer is limited to these numbers of SMs by MPS, as in a run that
reserves the other SMs for the sampler.
"""

import argparse
import contextlib
import itertools
import json
import os
import time
from dataclasses import dataclass, make_dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.files import scratch_folder
from cohort_gnn.base.tables import TextTable, print_tables
from cohort_gnn.base.units import format_bytes
from cohort_gnn.dataset import StoredGraph
from cohort_gnn.launch.bench.parts import appending
from cohort_gnn.launch.options.effects import say_what_has_no_effect
from cohort_gnn.launch.options.parser import add_dataset, add_options, spec_of
from cohort_gnn.launch.run.job import open_to_train, sampler_members, trainer_spec, with_task
from cohort_gnn.launch.run.programs import run_programs
from cohort_gnn.launch.run.train import check_model, models_for
from cohort_gnn.spec.models import ONE_TYPE, SEVERAL_TYPES
from cohort_gnn.spec.options import option, options_of
from cohort_gnn.spec.run import BuiltIn, RunSpec, SamplerSpec, as_json
from cohort_gnn.spec.types import Positive

Layers = Literal["pyg", "csr", "cohort"]
LAYERS = get_args(Layers)
AMP = {"off": [False], "on": [True], "both": [False, True]}
SM_SHARE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"


@dataclass(kw_only=True)
class StepSpec:
    """Options of the command in place of those of RunSpec, or beside them."""

    batch_size: Positive = option(8192, "seeds per batch", group="Sampling")
    models: list[BuiltIn] | None = option(
        None,
        f"models to time (default {','.join(ONE_TYPE)}, or {','.join(SEVERAL_TYPES)} for several node types)",
        group="Model",
        metavar="MODEL[,...]",
    )
    layers: list[Layers] = option(
        list(LAYERS),
        "implementations to time; csr: torch.sparse's, for sage without autocast",
        group="Model",
        metavar="pyg,csr,cohort",
    )
    amp: Literal["off", "on", "both"] = option("both", "autocast to bfloat16", group="Model")
    steps: Positive = option(30, "steps to time; the result is their median", group="Training")
    sms: list[Positive] | None = option(
        None,
        "GPU, with MPS: numbers of SMs of the trainer to try; the first must be all SMs of the GPU",
        group="Devices",
        metavar="N[,N...]",
    )
    out: Path = option(Path("bench.jsonl"), "file to which lines are appended", group="Output")


OPTIONS = make_dataclass("StepOptions", [], bases=(StepSpec, RunSpec), kw_only=True)


def register(benches) -> None:
    """Adds the command to those of ``cohort bench``."""
    parser = benches.add_parser("step", help="time a training step, with several kinds of layers", description=__doc__)
    add_dataset(parser)
    names = {option.name for option in options_of(SamplerSpec)} - {"use_edge_weights", "use_edge_features", "partition"}
    names |= {"hidden", "dropout", "heads", "featureless", "matmul_precision", "task"}
    names |= {"models", "layers", "amp", "steps", "sms", "out"}
    slots = "number of batches that the shared buffer holds; the steps take them in turn"
    task = "what the steps learn, as of cohort train: in time where that is (default: labels of nodes, without times)"
    add_options(parser, OPTIONS, names, slots=slots, task=task)
    parser.set_defaults(func=step)


def step(args: argparse.Namespace) -> int:
    """Runs the command: 0 when every number of SMs was measured."""
    data = open_to_train(args.dataset)
    spec = spec_of(args, OPTIONS, use_edge_features=False)  # most of the models read none
    say_what_has_no_effect(spec)
    trainer = {"task": "step", "cases": _cases(spec, data), "steps": spec.steps, "batches": spec.slots}
    options = _options(spec, data)
    trainer["options"] = as_json(trainer_spec(options, data))
    run = {"mps": spec.mps, "sampler": sampler_members(options, data.path), "trainer": trainer}
    on_gpu = run["sampler"]["device"] == "cuda"
    if spec.sms and not (on_gpu and run["mps"]):
        raise CohortError("--sms", "a GPU shared by MPS", "none", "leave --sms out")
    if run["sampler"]["num_ranks"] > 1:
        hint = "a step is timed on one device: leave --ranks out, and name one of --gpus"
        raise CohortError("--ranks, --gpus", "one trainer", str(run["sampler"]["num_ranks"]), hint)
    lines, all_sms = [], spec.sms[0] if spec.sms else None
    with appending(spec.out) as append:
        for sms in spec.sms or [None]:
            with _share_of_gpu(sms, all_sms), scratch_folder("step") as out:
                code = run_programs(out, json.loads(json.dumps(run)), show_output=True, is_kept=False)
                if code:
                    return code
                step_lines = (out / "steps.jsonl").read_text().splitlines()
            common = {"bench": "step", "dataset": data.path.name, "time": time.strftime("%Y-%m-%dT%H:%M:%S")}
            lines += [common | json.loads(line) for line in step_lines]
            append(lines[-len(step_lines) :])
    _print(spec.out, lines)
    return 0


def _cases(spec: StepSpec, data: StoredGraph) -> list[tuple[str, Layers, bool]]:
    """(model, layers, autocast) of each measurement.

    Raises:
        CohortError: there is none.
    """
    models = spec.models or models_for(data)
    all_cases = itertools.product(models, spec.layers, AMP[spec.amp])
    cases = [(kind, layers, amp) for kind, layers, amp in all_cases if layers != "csr" or (kind == "sage" and not amp)]
    if not cases:
        actual = f"--models {','.join(models)} --amp {spec.amp}"
        raise CohortError("--layers csr", "sage among --models, and --amp off or both", actual)
    return cases


def _options(spec: Any, data: StoredGraph) -> RunSpec:
    """The options of a ``cohort train`` run, with the first of the models; without --task, one that ignores times.

    Raises:
        CohortError: some of the models cannot be trained with them on this data set.
    """
    names = {option.name for option in options_of(RunSpec)} - {"model", "layers", "amp", "out"}
    models, options = spec.models or models_for(data), {name: getattr(spec, name) for name in names}
    if spec.task is None:
        options |= {"task": "node", "time_attr": "none"}
    run = with_task(RunSpec(model=models[0], **options), data)
    for model in models:
        check_model(replace(run, model=model), data)
    return run


@contextlib.contextmanager
def _share_of_gpu(sms: int | None, all_sms: int | None):
    """Processes that are started inside get `sms` of the GPU's `all_sms` SMs; None: all."""
    if sms is None or all_sms is None or sms == all_sms:
        yield
        return
    before = os.environ.get(SM_SHARE)
    os.environ[SM_SHARE] = str(-(-100 * sms // all_sms))
    try:
        yield
    finally:
        os.environ.pop(SM_SHARE) if before is None else os.environ.update({SM_SHARE: before})


def _print(out: Path, lines: list[dict]) -> None:
    first = lines[0]
    sizes = f"{first['seeds']:,} seeds, {first['nodes']:,} nodes, {first['edges']:,} edges"
    title = f"{first['device']}: a step on {sizes} (mean of {first['batches']} batches)"
    note = "ms: the median; host ms: what the host needs to start a step; peak: memory beside batches, model, optimizer"
    columns = ["model", "layers", "amp", "SMs", "ms", "least ms", "host ms", "peak", "speed", "memory"]
    table = TextTable(title, columns, note=f"{note}; speed, memory: against PyG; appended to {out}")
    pyg = {(line["model"], line["amp"], line["sms"]): line for line in lines if line["layers"] == "pyg"}
    for line in lines:
        base = pyg.get((line["model"], line["amp"], line["sms"]))
        peak = format_bytes(line["peak_bytes"]) if line["peak_bytes"] is not None else "-"
        share = f"{line['peak_bytes'] / base['peak_bytes']:.2f}" if base and line["peak_bytes"] is not None else "-"
        times = [f"{line[name]:.3f}" for name in ("ms", "least_ms", "host_ms")]
        speed = f"{base['ms'] / line['ms']:.2f}" if base else "-"
        amp = "bf16" if line["amp"] else "-"
        table.rows.append([line["model"], line["layers"], amp, str(line["sms"] or "-"), *times, peak, speed, share])
    print_tables(table)
