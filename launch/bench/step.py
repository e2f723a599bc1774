"""``cohort bench step``: a training step on a batch that lies ready, with PyG's layers, torch.sparse and Cohort's.

Forward, loss, backward and Adam; the sampler has nothing to do meanwhile. With ``--sms 132,116,100`` the same on so
many SMs of the GPU, by MPS: what a trainer has that leaves the others to the sampler.
"""

import argparse
import contextlib
import json
import os
import tempfile
import time
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from cohort.base.errors import CohortError
from cohort.base.units import format_bytes
from cohort.launch.bench.parts import appending
from cohort.launch.options.arguments import positive, probability
from cohort.launch.options.groups import add_data_options, add_precision_option
from cohort.launch.run.programs import run_programs
from cohort.launch.run.train import open_dataset, sampler_options

MODELS, LAYERS = ("sage", "gcn", "gat"), ("pyg", "csr", "cohort")
AMP = {"off": [False], "on": [True], "both": [False, True]}
SM_SHARE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"


def register(benches) -> None:
    """Adds the command to those of ``cohort bench``."""
    parser = benches.add_parser("step", help="the training step alone, with each kind of layers", description=__doc__)
    add_data_options(parser)
    parser.add_argument(
        "--models",
        type=_some_of(MODELS),
        default=list(MODELS),
        metavar="sage,gcn,gat",
        help="models to time (default: all)",
    )
    layers = {"metavar": "pyg,csr,cohort", "help": "implementations to time (csr: torch.sparse's; default: all)"}
    parser.add_argument("--layers", type=_some_of(LAYERS), default=list(LAYERS), **layers)
    parser.add_argument("--amp", choices=AMP, default="both", help="autocast to bfloat16 (default both)")
    add_precision_option(parser)
    parser.add_argument("--hidden", type=positive, default=256, help="features of hidden layers (default 256)")
    parser.add_argument("--dropout", type=probability, default=0.5, help="dropout of hidden features (default 0.5)")
    parser.add_argument(
        "--steps", type=positive, default=30, help="steps that are timed (default 30); the median counts"
    )
    parser.add_argument(
        "--sms", type=_numbers, help="GPU, with MPS: numbers of SMs of the trainer, the first being all there are"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("bench.jsonl"), help="file to which lines are appended (default bench.jsonl)"
    )
    next(action for action in parser._actions if action.dest == "batch_size").help = "seeds a batch (default 8192)"
    parser.set_defaults(func=step, batch_size=8192)


def _some_of(known: tuple[str, ...]):
    def parse(text: str) -> list[str]:
        if set(text.split(",")) <= set(known):
            return text.split(",")
        raise argparse.ArgumentTypeError(f"expected some of {','.join(known)}, found {text}")

    return parse


def _numbers(text: str) -> list[int]:
    return [positive(part) for part in text.split(",")]


def step(args: argparse.Namespace) -> int:
    """Runs the command: 0 when every number of SMs was measured."""
    meta, dataset = open_dataset(args.dataset)
    run = {"mps": not args.no_mps, "sampler": sampler_options(args, dataset), "trainer": _trainer(args, meta)}
    on_gpu = run["sampler"]["device"] == "cuda"
    if args.sms and not (on_gpu and run["mps"]):
        raise CohortError("--sms", "a GPU shared by MPS", "none", "leave --sms out")
    if run["sampler"]["num_ranks"] > 1:
        hint = "a step is timed on one device: leave --ranks out, and name one of --gpus"
        raise CohortError("--ranks, --gpus", "one trainer", str(run["sampler"]["num_ranks"]), hint)
    lines = []
    with appending(args.out) as append:
        for sms in args.sms or [None]:
            with _share_of_gpu(sms, args.sms), tempfile.TemporaryDirectory(prefix="cohort-step-") as out:
                code = run_programs(Path(out), json.loads(json.dumps(run)), show_output=True, is_kept=False)
                if code:
                    return code
                found = (Path(out) / "steps.jsonl").read_text().splitlines()
            common = {"bench": "step", "dataset": dataset.name, "time": time.strftime("%Y-%m-%dT%H:%M:%S")}
            lines += [common | json.loads(line) for line in found]
            append(lines[-len(found) :])
    _print(args, lines)
    return 0


def _trainer(args: argparse.Namespace, meta: dict) -> dict:
    """The member "trainer" of run.json."""
    return {
        "task": "step",
        "models": args.models,
        "layers": args.layers,
        "amp": AMP[args.amp],
        "matmul_precision": args.matmul_precision,
        "fanout": args.fanout,
        "batch_size": args.batch_size,
        "hidden": args.hidden,
        "dropout": args.dropout,
        "steps": args.steps,
        "seed": args.seed,
        "num_classes": meta["num_classes"],
        "targets": meta.get("task", "classification"),
        "feature_dim": meta["feature_dim"],
    }


@contextlib.contextmanager
def _share_of_gpu(sms: int | None, all_sms: list[int] | None):
    """Processes that are started inside get so many of the GPU's SMs, the first number being all there are."""
    if sms is None or sms == all_sms[0]:
        yield
        return
    before = os.environ.get(SM_SHARE)
    os.environ[SM_SHARE] = str(-(-100 * sms // all_sms[0]))
    try:
        yield
    finally:
        os.environ.pop(SM_SHARE) if before is None else os.environ.update({SM_SHARE: before})


def _print(args: argparse.Namespace, lines: list[dict]) -> None:
    first = lines[0]
    title = f"{first['device']}: a step on {first['seeds']:,} seeds, {first['nodes']:,} nodes, {first['edges']:,} edges"
    table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("model", "layers", "amp", "SMs", "ms", "least ms", "host ms", "peak", "speed", "memory"):
        table.add_column(name, justify="right", no_wrap=True)
    pyg = {(line["model"], line["amp"], line["sms"]): line for line in lines if line["layers"] == "pyg"}
    for line in lines:
        base = pyg.get((line["model"], line["amp"], line["sms"]))
        peak = format_bytes(line["peak_bytes"]) if line["peak_bytes"] is not None else "-"
        share = f"{line['peak_bytes'] / base['peak_bytes']:.2f}" if base and line["peak_bytes"] is not None else "-"
        times = [f"{line[name]:.3f}" for name in ("ms", "least_ms", "host_ms")]
        speed = f"{base['ms'] / line['ms']:.2f}" if base else "-"
        amp = "bf16" if line["amp"] else "-"
        table.add_row(line["model"], line["layers"], amp, str(line["sms"] or "-"), *times, peak, speed, share)
    console = Console(highlight=False, width=120)
    console.print(table)
    told = "host ms: what the host needs to start a step; peak: memory beside batch, model and optimizer"
    console.print(f"{told}; speed, memory: against PyG; appended to {args.out}", markup=False)
