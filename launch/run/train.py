"""``cohort train``: a sampler and its trainers on one data set, with the wait/train breakdown at the end."""

import argparse
import importlib.util
import json
import os
import sys
import time
from pathlib import Path

from cohort.base.errors import CohortError, not_a_run
from cohort.launch.options.arguments import group, note_given, positive
from cohort.launch.options.cache import cache_members, link_rates, wants_auto_cache
from cohort.launch.options.devices import resolve_device
from cohort.launch.options.groups import add_train_options
from cohort.launch.options.partition import clique_seeds, cliques_of_ranks, parts_file
from cohort.launch.report.results import read_run
from cohort.launch.report.tables import advice
from cohort.launch.run.calibrate import trainer_bytes
from cohort.launch.run.folder import new_folder, sole_use, writable_folder
from cohort.launch.run.programs import run_programs
from cohort.launch.run.resume import (
    CHECKPOINT,
    arguments_of,
    bring_back,
    demand_no_epochs,
    demand_results_of_a_run,
    make_at_home,
    remove_parts,
    resumed,
    set_aside,
)
from cohort.launch.run.same_data import demand_same_data, digests_of

GAT_HEADS = 4  # as trainer/models/sampled.py has them


def register(commands) -> None:
    """Adds the command."""
    usage = "%(prog)s DIR [options]\n       %(prog)s --resume RUN [options]"
    parser = commands.add_parser("train", help="train a model", description=__doc__, usage=usage)
    note_given(parser)
    add_train_options(parser)
    next(action for action in parser._actions if action.dest == "dataset").nargs = "?"  # --resume knows it
    output = group(parser, "Output")
    output.add_argument(
        "--resume",
        type=Path,
        metavar="RUN",
        help="go on where the run in this folder stopped, with its options; more --epochs prolong one that is done",
    )
    output.add_argument(
        "--overwrite", action="store_true", help="replace the run in the folder --out, its weights and checkpoint too"
    )
    output.add_argument(
        "--checkpoint-every",
        type=positive,
        metavar="N",
        help="write RUN/checkpoint.pt every N steps (default: at the end of each epoch)",
    )
    parser.set_defaults(func=train, config_parser=parser, configured=frozenset())


def train(args: argparse.Namespace) -> int:
    """Runs the command; see run_programs for the exit code."""
    args.given = (args.given | args.configured) - ({"dataset"} if args.dataset is None else set())
    if args.resume:
        return _go_on(args)
    if args.dataset is None:
        args.config_parser.error("the following arguments are required: DIR")
    _check_watching(args)
    meta, dataset = open_dataset(args.dataset)
    eval_fanout = args.eval_fanout or args.fanout
    if len(eval_fanout) != len(args.fanout):
        raise CohortError("--eval-fanout", f"{len(args.fanout)} hops, as --fanout has", str(len(eval_fanout)))
    _require_seeds(dataset, meta)
    if args.edge_weights:
        _require_weights(args, meta)
    if args.model == "gat" and args.hidden % GAT_HEADS:
        raise CohortError("--hidden", f"a multiple of {GAT_HEADS} for gat", str(args.hidden))
    if args.out:
        _check_out(args, dataset)
    arguments, trainer = arguments_of(args), _trainer_member(args, dataset, meta)
    if args.trainer_bytes is None:
        args.trainer_bytes = _measured_trainer_bytes(args, dataset, meta, trainer)
    run = {
        "mps": not args.no_mps,
        "sampler": sampler_options(args, dataset, plan_file=Path("plan.json")),
        "trainer": trainer,
        "arguments": arguments,
    }
    run["data"] = digests_of(run)
    if _takes_rows_in_place(args, meta):
        run["sampler"]["in_place"] = True
    shown = args.out or new_folder(Path("runs") / f"{args.dataset.resolve().name}-{time.strftime('%Y%m%d-%H%M%S')}")
    out = shown.absolute()
    make_at_home(run, out)
    with sole_use(writable_folder(out)) as inherited:
        bring_back(out)
        if not args.overwrite:
            demand_no_epochs(shown)
        with set_aside(out, is_said=not args.overwrite):
            return _run(args, out, run, shown, inherited)


def _check_out(args: argparse.Namespace, dataset: Path) -> None:
    """Raises CohortError where no new run is to begin."""
    if args.out.is_dir() and args.out.samefile(dataset):
        raise CohortError("--out", "another folder than the data set's", str(args.out), "choose another --out")
    demand_results_of_a_run(args.out)
    if not args.overwrite:
        demand_no_epochs(args.out)


def _run(args: argparse.Namespace, out: Path, run: dict, shown: Path, inherited: tuple[int, ...]) -> int:
    """Runs the programs; the last lines say what would make it faster, and where the results are."""
    code = run_programs(out, run, True, run["sampler"]["num_ranks"], inherited)
    if code == 0 and not args.quiet:
        if (out / "summary.json").is_file() and (told := advice(read_run(out))):  # a disk may be full
            print(told)
        print(f"results: {shown}  (cohort report {shown})")
    return code


def _trainer_member(args: argparse.Namespace, dataset: Path, meta: dict) -> dict:
    """The member "trainer" of run.json."""
    return {
        "task": "train",
        "model": args.model,
        "fanout": args.fanout,
        "eval_fanout": args.eval_fanout or args.fanout,
        "batch_size": args.batch_size,
        "hidden": args.hidden,
        "epochs": args.epochs,
        "lr": args.lr,
        "weight_decay": args.weight_decay,
        "dropout": args.dropout,
        "seed": args.seed,
        "num_classes": meta["num_classes"],
        "targets": meta.get("task", "classification"),
        "feature_dim": meta["feature_dim"],
        "layers": args.layers,
        "amp": args.amp,
        "matmul_precision": args.matmul_precision,
        "cuda_graphs": args.cuda_graphs == "on",
        "quiet": args.quiet,
        "profile": args.profile,
        "sampler_sms": sampler_sms_of(args),
        "tensorboard": args.tensorboard,
        "prometheus": args.prometheus and str(args.prometheus.absolute()),
        "partition": _partition(args, dataset),
        "checkpoint_every": args.checkpoint_every,
        "edge_weights": args.edge_weights,
    }


def _takes_rows_in_place(args: argparse.Namespace, meta: dict) -> bool:
    """Whether the model can read feature rows where they are; the sampler decides whether they stay there."""
    layers = args.layers == "cohort" and args.model in ("sage", "gcn") and not args.edge_weights
    return args.in_place == "on" and layers and meta["feature_dtype"] == "float32"


def _go_on(args: argparse.Namespace) -> int:
    """--resume."""
    out = args.resume.absolute()
    if args.overwrite:
        raise CohortError("--resume, --overwrite", "one of the two", "both")
    _check_watching(args)
    if not out.is_dir():
        raise not_a_run(args.resume)
    with sole_use(out) as inherited:
        bring_back(out)
        run = resumed(args)
        dataset = Path(run["sampler"]["dataset"])
        if not dataset.is_dir():
            hint = f"if it was moved: cohort train --resume {args.resume} DIR"
            raise CohortError(str(dataset), "the data set of the run", "no such folder", hint)
        open_dataset(dataset)
        demand_same_data(run)
        make_at_home(run, out)
        remove_parts(out)
        if not (out / CHECKPOINT).exists():
            print(f"cohort: no {CHECKPOINT} in {out}: the run begins at the beginning", file=sys.stderr)
        return _run(args, out, run, args.resume, inherited)


def _check_watching(args: argparse.Namespace) -> None:
    """Of --tensorboard and --prometheus, whose file is replaced all the time.

    Raises:
        CohortError: the package is not there; the file's folder is none, or cannot be written.
    """
    if args.tensorboard and importlib.util.find_spec("tensorboard") is None:
        raise CohortError("--tensorboard", "the package tensorboard", "none", "pip install tensorboard")
    file = args.prometheus and args.prometheus.absolute()
    if file and (file.is_dir() or not os.access(file.parent, os.W_OK)):
        found = "a folder" if file.is_dir() else f"no folder {file.parent} to write to"
        raise CohortError("--prometheus", f"a file such as {file.parent / 'cohort.prom'}", found, "make its folder")


def _partition(args: argparse.Namespace, dataset: Path) -> dict | None:
    """Which ranks train on the seeds of which part; None without --partition."""
    if not args.partition:
        return None
    cliques = _rank_cliques(args)
    return {"parts": str(parts_file(dataset, len(cliques))), "cliques": cliques}


def _rank_cliques(args: argparse.Namespace) -> list[list[int]]:
    device = resolve_device(args.device)
    num_ranks = count_ranks(args.gpus, args.ranks, device)
    on_gpu = device == "cuda"
    return cliques_of_ranks(args.cliques, gpus_of(args) if on_gpu else list(range(num_ranks)), on_gpu)


def sampler_sms_of(args: argparse.Namespace) -> int | str:
    """What --sampler-sms says; 0: all are shared."""
    if not args.sampler_sms:
        return 0
    if resolve_device(args.device) == "cpu":
        raise CohortError("--sampler-sms", "a GPU", "--device cpu", "leave the option out")
    if args.no_mps:
        raise CohortError("--sampler-sms", "MPS", "--no-mps: the GPU is time-sliced", "leave one of the two out")
    return args.sampler_sms


def _require_seeds(dataset: Path, meta: dict) -> None:
    """Raises CohortError for a data set that nothing can be trained on."""
    from cohort.dataset import open as open_folder

    if len(open_folder(dataset).train_ids) == 0:
        hint = "write the data set with another --split"
        if meta["num_classes"] == 0:
            hint = "no node has a label: cohort dataset import --labels FILE gives them some"
        raise CohortError(str(dataset / meta["files"]["train_ids"]), "at least one node to train on", "none", hint)


def _require_weights(args: argparse.Namespace, meta: dict) -> None:
    """Raises CohortError unless edges have weights and the model takes them."""
    if args.model != "gcn":
        raise CohortError("--edge-weights", "--model gcn, which takes weights", f"--model {args.model}")
    if "edge_weights" not in meta["files"]:
        hint = "cohort dataset import --edge-weights FILE, or --weight-column of an edge list, brings them in"
        raise CohortError("--edge-weights", f"weights in {args.dataset}", "none", hint)


def _measured_trainer_bytes(args: argparse.Namespace, dataset: Path, meta: dict, trainer: dict) -> int | None:
    """The trainer's peak for --cache-ratio auto on a GPU; None where nobody asks for it."""
    if not wants_auto_cache(args) or resolve_device(args.device) == "cpu":
        return None
    uncached = argparse.Namespace(**vars(args) | {"cache_ratio": None, "topology": topology_of(args, "cuda")})
    return trainer_bytes(
        dataset, meta, {"mps": not args.no_mps, "sampler": sampler_options(uncached, dataset), "trainer": trainer}
    )


def open_dataset(folder: Path) -> tuple[dict, Path]:
    """(meta.json, absolute folder) of a data set that passes the cheap checks."""
    from cohort.dataset import open as open_folder

    if (folder / "run.json").is_file() and not (folder / "meta.json").exists():
        hint = f"this is a run: cohort train --resume {folder} goes on with it"
        raise CohortError(str(folder), "the folder of a data set", "that of a run", hint)
    open_folder(folder)
    return json.loads((folder / "meta.json").read_text()), folder.absolute()


def sampler_options(args: argparse.Namespace, dataset: Path, plan_file: Path | None = None) -> dict:
    """The member "sampler" of run.json, less what the run itself adds.

    Args:
        plan_file: where the sampler is to write what it expects of the cache, if there is one.
    """
    device = resolve_device(args.device)
    num_ranks = count_ranks(args.gpus, args.ranks, device)
    own_seeds = None
    if getattr(args, "partition", False):
        cliques = _rank_cliques(args)
        own_seeds = list(zip(cliques, clique_seeds(dataset, cliques), strict=True))
    cache = cache_members(args, dataset, num_ranks, device == "cuda", own_seeds)
    topology = topology_of(args, device)
    if topology != args.topology and (kept := _beside_topology(args, dataset, cache["cache_bytes"])):
        topology, cache["cache_bytes"] = "gpu", kept
    options = {
        "dataset": str(dataset),
        "device": device,
        "num_ranks": num_ranks,
        "gpus": gpus_of(args) if device == "cuda" else None,
        "topology": topology,
        "compress": args.compress,
        "num_slots": args.slots,
        "fetch_sms": args.fetch_sms,
        "order": args.order,
        "reuse": args.reuse == "on" if device == "cuda" else None,
        "edge_weights": getattr(args, "edge_weights", False) or None,
        "plan_file": str(plan_file) if plan_file and "cache_bytes" in cache else None,
        "seed": args.seed,
        "poison_slots": args.debug_poison_slots,
        "slow_fetch_us": args.debug_slow_fetch_us,
        "illegal_access_batch": args.debug_illegal_access_batch,
    }
    if device == "cuda" and plan_file and "bytes_per_second" not in cache:  # what a run is held against
        options["bytes_per_second"] = link_rates(args)
    return {name: value for name, value in options.items() if value is not None} | cache


def _beside_topology(args: argparse.Namespace, dataset: Path, cache_bytes: list[int]) -> list[int] | None:
    """The caches of --cache-ratio auto, where each GPU has room for the topology and all rows; None elsewhere."""
    from cohort.cache.plan.budget import beside_topology
    from cohort.cache.plan.options import row_bytes_of
    from cohort.dataset import open as open_folder

    data = open_folder(dataset)
    meta = json.loads((dataset / "meta.json").read_text())
    topology_bytes = data.indptr.nbytes + data.indices.nbytes
    if getattr(args, "edge_weights", False):
        topology_bytes += data.edge_weights.nbytes
    return beside_topology(cache_bytes, topology_bytes, data.num_nodes, row_bytes_of(meta))


def topology_of(args: argparse.Namespace, device: str) -> str:
    """--topology, but where the cache takes all that is left, it alone decides about neighbour lists in GPU memory."""
    return "host" if device == "cuda" and args.topology == "auto" and wants_auto_cache(args) else args.topology


def gpus_of(args: argparse.Namespace) -> list[int]:
    """Those of --gpus: the first one unless told."""
    return args.gpus or [0]


def count_ranks(gpus: list[int] | None, ranks: int | None, device: str) -> int:
    """How many trainers: one for each of --gpus, or what --ranks says on the CPU."""
    if device == "cpu" and gpus:
        hint = "--gpus has the numbers of GPUs: leave it out; --ranks N starts N trainers on the CPU"
        raise CohortError("--gpus", "GPUs", "the CPU alone", hint)
    num_ranks = (ranks if device == "cpu" else len(gpus or [])) or 1
    if ranks not in (None, num_ranks):
        raise CohortError("--ranks", f"{num_ranks}, one for each of --gpus", str(ranks))
    return num_ranks
