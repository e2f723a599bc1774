"""``cohort train``: trains a model on a data set, and prints how long the trainers waited and how long they trained."""

import argparse
import contextlib
import importlib.util
import logging
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from cohort_gnn.base.early import EarlyProgram
from cohort_gnn.base.errors import CohortError, not_a_run
from cohort_gnn.base.importing import demand_named
from cohort_gnn.base.log import RunLog, handled
from cohort_gnn.base.tables import print_tables
from cohort_gnn.base.units import format_bytes
from cohort_gnn.cache.budget import available_host_bytes
from cohort_gnn.cache.options import topology_of, wants_auto_cache
from cohort_gnn.dataset import HeteroDataset, StoredGraph
from cohort_gnn.dataset.links import held_out_of, link_edges
from cohort_gnn.dataset.reverses import opposites_text
from cohort_gnn.launch.options.devices import gpu_memory, resolve_device
from cohort_gnn.launch.options.effects import say_what_has_no_effect
from cohort_gnn.launch.options.own_code import demand_named_here
from cohort_gnn.launch.options.parser import add_dataset, add_options, given_in, group, spec_of
from cohort_gnn.launch.options.surroundings import sizes_of, started
from cohort_gnn.launch.report.results import read_run
from cohort_gnn.launch.report.tables import short_tables
from cohort_gnn.launch.run.calibrate import trainer_bytes
from cohort_gnn.launch.run.folder import made_writable, new_run_folder, sole_use
from cohort_gnn.launch.run.job import (
    demand_train_nodes,
    disk_rate,
    gpus_of,
    open_to_train,
    sampler_members,
    takes_edge_features,
    trainer_spec,
    types_of_run,
    with_task,
)
from cohort_gnn.launch.run.losses import check_loss, warn_of_majority
from cohort_gnn.launch.run.machines import (
    Machine,
    Meeting,
    folder_of_machine,
    join_machines,
    meeting_if_any,
    this_machine,
)
from cohort_gnn.launch.run.metrics import check_metrics, num_validated, say_which_hits_are_certain
from cohort_gnn.launch.run.programs import run_programs
from cohort_gnn.launch.run.resume import (
    bring_back,
    demand_new,
    demand_same_weights,
    demand_weights,
    remove_parts,
    resumed,
    set_aside,
)
from cohort_gnn.launch.run.row_owners import row_listener
from cohort_gnn.launch.run.same_data import demand_same_data, digests
from cohort_gnn.launch.run.source import add_arguments, dataset_of
from cohort_gnn.launch.run.times import check_times, learns_links, metric_of_task, say_whether_times_are_used, task_name
from cohort_gnn.spec import files
from cohort_gnn.spec.graph import GraphTypes
from cohort_gnn.spec.models import MODELS, ONE_TYPE, SEVERAL_TYPES, listed, models_with
from cohort_gnn.spec.options import flag_of
from cohort_gnn.spec.run import RunSpec, as_json
from cohort_gnn.spec.run_file import read_run_json

LOG = logging.getLogger(__name__)
OF_LINKS = ("relation", "decoder", "loss", "negatives", "negatives_from")  # options of --task link alone


def register(parser) -> None:
    """Adds the arguments of the command."""
    parser.description, parser.usage = __doc__, "%(prog)s DIR [options]\n       %(prog)s --resume RUN [options]"
    text = "folder of a data set, or of the tables of a database (see below)"
    add_dataset(parser, nargs="?", help=text)  # --resume knows it
    add_options(parser, RunSpec)
    output = group(parser, "Output")
    text = "TOML file of these options (batch-size = 1024); options on the command line take precedence"
    output.add_argument("--config", type=Path, help=text)
    output.add_argument(
        "--resume",
        type=Path,
        metavar="RUN",
        help="continue the run in this folder, with its options; a larger --epochs extends a finished run; options that"
        " affect neither batches nor losses may change",
    )
    output.add_argument(
        "--overwrite",
        action="store_true",
        help="replace the run in the folder --out, including its weights and checkpoint",
    )
    add_arguments(parser)
    parser.set_defaults(func=train_command, parser=parser)


def train_command(args: argparse.Namespace) -> int:
    """Runs the command; see run_programs for the exit code."""
    notes = RunLog()
    with handled(notes):
        return _train(args, notes)


def _train(args: argparse.Namespace, notes: RunLog) -> int:
    machine = this_machine(os.environ)
    if args.resume is None and machine and machine.agent and (out := spec_of(args, RunSpec).out):
        with contextlib.suppress(CohortError):  # not a run of several machines; errors are reported later
            if read_run_json(folder_of_machine(out, machine), "machines")["machines"].get("agent") == machine.agent:
                args.resume, args.overwrite = out, False  # an earlier attempt of this torchrun has begun the run
    if args.resume:
        return _go_on(args, machine, notes)
    if args.dataset is None:
        args.parser.error("the following arguments are required: DIR")
    spec = spec_of(args, RunSpec)
    demand_named_here(args, spec)
    if machine and spec.out is None:
        raise CohortError("--out", "a folder, from which a restart continues", "none", "name the same on every machine")
    if machine and spec.partition:
        raise CohortError("--partition", "one machine", f"{machine.size}", "leave it out: batches go to all machines")
    _demand_machines(spec, machine)
    args.dataset = dataset_of(args, machine, spec.quiet)
    with meeting_if_any(machine, spec.machine_seconds) as meeting:
        return _begin(args, spec, meeting, notes)


def _begin(args: argparse.Namespace, spec: RunSpec, meeting: Meeting | None, notes: RunLog) -> int:
    """Starts a new run."""
    if spec.out:
        spec = replace(spec, out=folder_of_machine(spec.out, meeting.machine if meeting else None))
    _demand_tensorboard(spec)
    inode = args.dataset.stat().st_ino if args.dataset.exists() else None  # before the first file is opened
    data = open_to_train(args.dataset)
    spec = with_task(spec, data)
    check_model(spec, data)
    _say_what_is_unused(spec, data)
    say_which_hits_are_certain(spec, data)
    say_what_has_no_effect(spec, meeting is not None)
    warn_of_majority(spec, data)
    if spec.out and spec.out.is_dir() and spec.out.samefile(data.path):
        raise CohortError("--out", "another folder than the data set's", str(spec.out), "choose another --out")
    if spec.init and (not meeting or meeting.machine.rank == 0):  # the first trainer gives them to all
        demand_weights(spec.init, spec.out)
    if spec.out:
        demand_new(spec.out, args.overwrite)
    run = _run_of(spec, data) | _about(args, data, spec) | {"dataset_inode": inode}
    run["data"] = digests(data.path, *(run["trainer"][name] for name in ("parts", "task_name", "seed_order")))
    shown = spec.out or new_run_folder(Path("runs") / f"{args.dataset.resolve().name}-{time.strftime('%Y%m%d-%H%M%S')}")
    out = shown.absolute()
    with sole_use(made_writable(out)) as inherited:
        bring_back(out)
        demand_new(shown, args.overwrite)
        with set_aside(out, is_said=not args.overwrite):
            return _run(out, run, shown, inherited, meeting, notes, args.early)


def _say_what_is_unused(spec: RunSpec, data: StoredGraph) -> None:
    """Names what the edges of the data set have and the run does not use."""
    lists = data.edge_types.values()
    say_whether_times_are_used(spec, data)
    if any(relation.edge_weights is not None for relation in lists) and not spec.use_edge_weights:
        used = "edge weights are used for draws alone" if spec.weight_attr else "edge weights are not used"
        cure = f"--model {spec.model} takes none ({models_with('takes_weights')} can, and models of your own may)"
        if spec.model_kind.takes_weights:
            cure = "--use-edge-weights passes them to the model"
        LOG.info(f"{used}: {cure}")
    if spec.use_edge_features and data.edge_tables and not takes_edge_features(spec, data):
        readers = models_with("takes_edge_features", "and")
        cure = f"--model {spec.model} takes none ({readers} can, and models of your own may)"
        LOG.info(f"edge features are not used: {cure}")


def _run_of(spec: RunSpec, data: StoredGraph) -> dict:
    """The content of run.json without the digests of the data set."""
    trainer = as_json(trainer_spec(replace(spec, out=None), data))
    if spec.trainer_bytes is None and wants_auto_cache(spec) and resolve_device(spec.device) == "cuda":
        uncached = replace(spec, cache_ratio=None, topology=topology_of(spec, "cuda"))
        short = {"mps": spec.mps, "sampler": sampler_members(uncached, data.path), "trainer": trainer}
        spec = replace(spec, trainer_bytes=trainer_bytes(data, short))
    sampler = sampler_members(spec, data.path, Path(files.PLAN), _reads_in_place(spec, data))
    return {"mps": spec.mps, "sampler": sampler, "trainer": trainer} | disk_rate(spec, data)


def _about(args: argparse.Namespace, data: StoredGraph, spec: RunSpec, before: Any = None) -> dict:
    """The members of run.json that say what was started, on what; `before`: the earlier starts of the run."""
    gpus = gpus_of(spec) if resolve_device(spec.device) == "cuda" else None
    before = before if isinstance(before, list) else []
    return {"starts": [*before, started(args.command_line, gpus)], "graph": sizes_of(data)}


def _reads_in_place(spec: RunSpec, data: StoredGraph) -> bool:
    """Whether the layers of a run on the CPU read rows where they lie in the data set's file."""
    reads = spec.layers == "cohort" and spec.model_kind.reads_in_place and not spec.use_edge_weights
    is_float = all(table.feature_dtype == "float32" for table in data.node_types.values())
    return reads and is_float and not spec.model_kind.several_types and resolve_device(spec.device) == "cpu"


def check_model(spec: RunSpec, data: StoredGraph) -> None:
    """Raises CohortError for options that do not fit each other or the data set."""
    kind = spec.model_kind
    if len(spec.hops_of_evaluation) != len(spec.fanout):
        expected = f"{len(spec.fanout)} hops, as --fanout has"
        raise CohortError("--eval-fanout", expected, str(len(spec.hops_of_evaluation)))
    if learns_links(spec, data):
        check_links(spec, data)
    elif task_name(spec) is None:
        demand_train_nodes(data)
    check_times(spec, data)
    flags = {
        "--patience": (spec.patience is not None, "leave it out, or set --epochs"),
        "--monitor": (spec.monitor not in (None, metric_of_task(spec, data)), "leave it out: the last epoch is kept"),
    }
    for flag, (is_given, hint) in flags.items():
        if is_given and num_validated(spec, data) == 0:
            what = "links" if learns_links(spec, data) else "nodes"
            raise CohortError(flag, f"validation {what} in {data.path}", "none", hint)
    check_metrics(spec, data)
    check_loss(spec, data)
    check_of_links(spec, data)
    _check_types(spec, data)
    if spec.use_edge_weights and not kind.takes_weights:
        expected = f"--model {models_with('takes_weights')}, which takes weights, or a model of your own"
        raise CohortError("--use-edge-weights", expected, f"--model {spec.model}")
    if spec.importance_sampling and not (kind.takes_shares and (spec.layers == "cohort" or spec.has_own_model)):
        expected = f"--model {models_with('takes_shares')} with --layers cohort, or a model of your own"
        raise CohortError("--importance-sampling", expected, f"--model {spec.model} --layers {spec.layers}")
    wanted = [name for name in ("use_edge_weights", "weight_attr") if getattr(spec, name)]
    if wanted and all(relation.edge_weights is None for relation in data.edge_types.values()):
        hint = "cohort dataset import --edge-weights FILE, or --weight-column of an edge list, brings them in"
        raise CohortError(flag_of(wanted[0]), f"weights in {data.path}", "none", hint)
    if kind.has_heads and spec.hidden % spec.heads:
        raise CohortError("--hidden", f"a multiple of {spec.heads}, the --heads of {spec.model}", str(spec.hidden))
    elif spec.heads != RunSpec.heads and not kind.has_heads and not spec.has_own_model:
        names = SEVERAL_TYPES if kind.several_types else ONE_TYPE
        expected = listed([name for name in names if MODELS[name].has_heads])
        raise CohortError("--heads", f"--model {expected}", f"--model {spec.model}", "leave it out")
    if spec.residual and len(spec.fanout) < 3:
        raise CohortError("--residual", "at least three hops in --fanout, one per layer", str(len(spec.fanout)))
    shape = [f"--{name}" for name in ("norm", "residual", "heads") if getattr(spec, name) != getattr(RunSpec, name)]
    if spec.has_own_model and shape:
        hint = f"give the parameter a default in the class, or use {listed(ONE_TYPE)}"
        raise CohortError(", ".join(shape), "a built-in model", f"--model {spec.model}", hint)
    if spec.has_own_model:
        demand_named("--model", spec.model)
    if ":" in spec.loss:
        demand_named("--loss", spec.loss)
    for name in spec.callbacks or ():
        demand_named("--callbacks", name)


def check_of_links(spec: RunSpec, data: StoredGraph) -> None:
    """Raises CohortError for options of links with another task, and for --relation with another than --task link."""
    link_flags = [flag_of(name) for name in OF_LINKS if getattr(spec, name) != getattr(RunSpec, name)]
    link_flags = [flag for flag in link_flags if flag != "--loss" or spec.loss in ("softmax", "margin")]
    if spec.task != "link" and learns_links(spec, data):
        link_flags = [flag for flag in link_flags if flag == "--relation"]
    if link_flags and spec.task != "link":
        hint = f"leave {'it' if len(link_flags) == 1 else 'them'} out, or learn links: --task link"
        raise CohortError(", ".join(link_flags), "--task link", f"--task {spec.task}", hint)


def check_links(spec: RunSpec, data: StoredGraph) -> None:
    """Raises CohortError for options, edges or held-out links that do not fit a run that learns links."""
    place = f"--task {spec.task}"
    if spec.task == "link":
        edges = link_edges(data, spec.relation)
        held_out_of(edges)
        if edges.lists.num_edges == 0:
            raise CohortError(place, "a graph with edges", f"none in {data.path}")
        if warning := opposites_text(data, edges.relation):
            LOG.warning("%s Until then, batches have all its edges.", warning)
    relation = types_of_run(spec, data).relation or ()
    reached = {name[2] for name in data.edge_types}
    if alone := [name for name in relation[::2] if name not in reached]:
        hint = "cohort dataset import --reverse-edges adds the reverse of each relation"
        expected = f"relations into both ends of {' '.join(relation)}"
        raise CohortError(place, expected, f"none into {alone[0]}", hint)
    if spec.partition:
        raise CohortError("--partition", "--task node", place, "leave it out")
    if spec.negatives > 10_000:
        raise CohortError("--negatives", "at most 10000", str(spec.negatives))


def models_for(data: StoredGraph) -> list[str]:
    """The built-in models that a data set can train."""
    return SEVERAL_TYPES if isinstance(data, HeteroDataset) else ONE_TYPE


def _check_types(spec: RunSpec, data: StoredGraph) -> None:
    """Raises CohortError for a model that does not fit the data set, and for options that do not fit the model."""
    kind, fit = spec.model_kind, models_for(data)
    if kind.several_types != MODELS[fit[0]].several_types:
        hint = "a script can use any model of PyG: docs/how-to/types.md"
        raise CohortError("--model", f"{listed(fit)}, for the types of {data.path}", spec.model, hint)
    if spec.featureless != "zero" and not kind.several_types:
        raise CohortError("--featureless", f"--model {listed(SEVERAL_TYPES)}", f"--model {spec.model}")
    if spec.norm == "batch" and not kind.several_types:
        raise CohortError("--norm", f"none or layer, for --model {spec.model}", spec.norm)
    if spec.featureless == "embed":
        _check_rows(spec, data.types)
    if spec.residual and not kind.takes_residual:
        hint = "its layers have skip connections of their own"
        raise CohortError("--residual", "another model", f"--model {spec.model}", hint)


def _check_rows(spec: RunSpec, types: GraphTypes) -> None:
    """Raises CohortError where learnable rows, each with two moments, take too much memory."""
    names = types.without_features(len(spec.fanout))
    num_rows = sum(types.counts[name] for name in names)
    needed = num_rows * spec.hidden * 12
    present = gpu_memory(spec) if resolve_device(spec.device) == "cuda" else available_host_bytes()
    if present is not None and needed > present // 10:
        expected = f"at most {format_bytes(present // 10)} of rows and moments, a tenth of the memory"
        actual = (
            f"{format_bytes(needed)}: {num_rows:,} nodes ({', '.join(names)}) x {spec.hidden} of --hidden x 12 bytes"
        )
        hint = "a smaller --hidden, --featureless zero, or features of these node types in the data set"
        raise CohortError("--featureless embed", expected, actual, hint)


def _run(
    out: Path,
    run: dict,
    shown: Path,
    inherited: tuple[int, ...],
    meeting: Meeting | None,
    notes: RunLog,
    early: EarlyProgram | None,
) -> int:
    """Runs the programs, then shows the tables of the run and where its results are."""
    if "plan_file" in run["sampler"]:
        run["sampler"]["plan_file"] = str(out / files.PLAN)
    is_first = not meeting or meeting.machine.rank == 0
    with contextlib.ExitStack() as opened:
        if meeting:
            join_machines(run, meeting, opened.enter_context(row_listener()))
        code = run_programs(out, run, is_first, inherited, meeting=meeting, notes=notes, early=early)
    if code == 0 and is_first and not run["trainer"]["quiet"]:
        if (out / files.SUMMARY).is_file():  # a disk may be full
            print_tables(*short_tables(read_run(out)))
        print(f"results: {shown}  (cohort report {shown})")
    return code


def _go_on(args: argparse.Namespace, machine: Machine | None, notes: RunLog) -> int:
    """Continues a run, for --resume."""
    folder = folder_of_machine(args.resume, machine)
    out = folder.absolute()
    for name in ("overwrite", "import_to", "as_proposed"):
        if getattr(args, name):
            raise CohortError(f"--resume, {flag_of(name)}", "one of the two", "both")
    options = given_in(args, RunSpec)
    if "out" in options and options["out"].absolute() != args.resume.absolute():
        hint = "leave it out, or start another run without --resume"
        raise CohortError("--out", f"{args.resume}, where the run continues", str(options["out"]), hint)
    if not out.is_dir():
        raise not_a_run(folder)
    with sole_use(out) as inherited:
        bring_back(out)
        earlier, spec = resumed(folder, options)
        demand_named_here(args, spec, folder / files.RUN)
        before, now = len(earlier.get("machines", {"hosts": ["this"]})["hosts"]), machine.size if machine else 1
        if before != now:
            hint = "continue the run on as many machines, or start another run without --resume"
            raise CohortError("--resume", f"{before} machine{'s' * (before > 1)}, as of the run", str(now), hint)
        _demand_machines(spec, machine)
        with meeting_if_any(machine, spec.machine_seconds) as meeting:
            _demand_tensorboard(spec)
            dataset = args.dataset or Path(earlier["sampler"]["dataset"])
            if not dataset.is_dir():
                hint = f"if it was moved: cohort train --resume {args.resume} DIR"
                raise CohortError(str(dataset), "the data set of the run", "no such folder", hint)
            inode = dataset.stat().st_ino
            data = open_to_train(dataset)
            trainer = trainer_spec(spec, data)
            demand_same_data(earlier["data"], data.path, trainer.parts, trainer.task_name, trainer.seed_order)
            demand_same_weights(earlier["trainer"], trainer)
            check_model(spec, data)
            run = _run_of(spec, data) | _about(args, data, spec, earlier.get("starts"))
            run |= {"data": earlier["data"], "resume": True, "dataset_inode": inode}
            remove_parts(out)
            if not (out / files.CHECKPOINT).exists():
                LOG.info(f"no {files.CHECKPOINT} in {out}: the run starts from the beginning")
            return _run(out, run, args.resume, inherited, meeting, notes, args.early)


def _demand_machines(spec: RunSpec, machine: Machine | None) -> None:
    if machine is None and spec.feature_placement == "partitioned":
        hint = "docs/how-to/machines.md starts several; on one, --host-bytes leaves rows on the disk"
        raise CohortError("--feature-placement partitioned", "several machines", "one", hint)


def _demand_tensorboard(spec: RunSpec) -> None:
    if spec.tensorboard and importlib.util.find_spec("tensorboard") is None:
        raise CohortError("--tensorboard", "the package tensorboard", "none", "pip install tensorboard")
