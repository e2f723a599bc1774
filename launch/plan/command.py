"""``cohort plan``: shows what each GPU would cache, and how much that saves; a dry run that allocates nothing large."""

import argparse
import json
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path

from cohort_gnn.base.errors import CohortError
from cohort_gnn.cache import planner
from cohort_gnn.launch.options.parser import add_dataset, add_options, as_text, group, spec_of
from cohort_gnn.launch.options.partition import describe_gain
from cohort_gnn.launch.plan import network, table
from cohort_gnn.launch.plan.options import (
    GRAPH_OPTIONS,
    NO_OPTIONS,
    OWN_OPTIONS,
    PURCHASE_OPTIONS,
    SEED_OPTIONS,
    SEVERAL_OPTIONS,
    PlanSpec,
)
from cohort_gnn.launch.plan.planning import Planning
from cohort_gnn.launch.plan.purchase import Purchase
from cohort_gnn.spec.options import flag_of, options_of
from cohort_gnn.spec.run import SamplerSpec

RATIOS = (0.0, 0.05, 0.1, 0.5, 1.0)  # where no option sets the size of the cache


def register(parser) -> None:
    """Adds the arguments of the command."""
    parser.description = (
        f"{__doc__} Without a GPU: the content of one GPU's cache for several sizes. With --nodes, and"
        " without a data set: epochs on a graph and GPUs that are not there."
    )
    add_dataset(parser, nargs="?")
    shown = {option.name for option in options_of(SamplerSpec) if not option.is_hidden} - NO_OPTIONS
    add_options(
        parser,
        PlanSpec,
        shown | SEVERAL_OPTIONS | SEED_OPTIONS | OWN_OPTIONS,
        cache_ratio="cache of each GPU as a share of all raw feature bytes, index included; auto: all memory that"
        " slots and trainer leave free (default: auto; without a GPU a table of ratios)",
        partition="plan for cliques that each train on the seeds of their own part",
        model="with --machines: the model whose gradients are sent; with --nodes: the model that trains",
        feature_placement="with --machines: replicated: each has all feature rows; partitioned: each keeps a part of"
        " the encoded rows and asks others for the rest; auto: partitioned if they exceed --host-bytes or the available"
        " memory",
    )
    group(parser, "Output").add_argument("--json", action="store_true", help="print the plan as JSON")
    text = "repeat the short run even if its counts are stored beside the data set"
    group(parser, "Experts").add_argument("--refresh", action="store_true", help=text)
    parser.set_defaults(func=plan_command)


def plan_command(args: argparse.Namespace) -> int:
    """Runs the command: 0 when all fits, 1 when not, with what to change on standard error."""
    spec = spec_of(args, PlanSpec, dataset=args.dataset or Path(), refresh=args.refresh, json=args.json)
    _check_graph(args, spec)
    if args.dataset is None:
        return _plan_purchase(spec)
    _check_machines(args, spec)
    planning = Planning(spec)
    if planning.compares_sizes:
        wrong = _plan_ratios(planning)
    else:
        wrong = _plan_one(planning)
    for line in wrong:
        print(f"cohort: will not fit: {line}", file=sys.stderr)
    return int(bool(wrong))


def _check_machines(args: argparse.Namespace, spec: PlanSpec) -> None:
    """Raises CohortError for options that do not go with several machines, or go with them alone."""
    if spec.machines and spec.partition:
        raise CohortError("--machines", "one machine with --partition", "--partition", "leave one of the two out")
    if spec.machines and spec.cache_policy in ("degree", "random"):
        expected = "--cache-policy plan or none, which know the bytes of a batch"
        raise CohortError("--machines", expected, spec.cache_policy)
    names = ("network", "network_us", "step_ms", "parameters", *sorted(SEVERAL_OPTIONS))
    flags = [flag_of(name) for name in names if hasattr(args, name)]
    if flags and not spec.machines:
        expected = "--machines N: a plan for one machine needs no model, no network and no parts"
        raise CohortError(", ".join(flags), expected, "no --machines")


def _check_graph(args: argparse.Namespace, spec: PlanSpec) -> None:
    """Raises CohortError for neither a data set nor a graph that is not there, and for options of the other."""
    names = {option.name for option in options_of(PlanSpec) if hasattr(args, option.name)}
    if spec.nodes is None and args.dataset is None:
        hint = "for a graph that is not there: --nodes N --edges E --dim C --degrees powerlaw --gpu h100"
        raise CohortError("cohort plan", "DIR, the folder of a data set", "none", hint)
    if args.dataset is not None and names & GRAPH_OPTIONS:
        flags = ", ".join(map(flag_of, sorted(names & GRAPH_OPTIONS)))
        hint = "leave DIR out, or these options; --gpus 0,1 names GPUs of this machine"
        raise CohortError(flags, "a plan without a data set", str(args.dataset), hint)
    others = (names | ({"refresh"} if args.refresh else set())) - PURCHASE_OPTIONS - GRAPH_OPTIONS
    if args.dataset is None and others:
        hint = "plan for a small one instead: cohort dataset generate makes it"
        raise CohortError(", ".join(map(flag_of, sorted(others))), "a data set", "--nodes alone", hint)


def _plan_purchase(spec: PlanSpec) -> int:
    """Plans for a graph and GPUs that are not there; 1 if no size of the cache fits."""
    ratios = sorted(spec.cache_ratios or RATIOS)
    if spec.cache_ratio is not None:
        if spec.cache_ratios or not isinstance(spec.cache_ratio, list) or len(spec.cache_ratio) > 1:
            hint = "--cache-ratios R,R,... has a row for each"
            raise CohortError("--cache-ratio", "one number, without a data set", as_text(spec.cache_ratio), hint)
        ratios = spec.cache_ratio
    purchase = Purchase(spec)
    numbers = sorted({1, *(spec.machines or [])})
    estimates = [purchase.estimate(ratio, machines) for machines in numbers for ratio in ratios]
    if spec.json:
        print(json.dumps(table.purchase_as_json(purchase, estimates), indent=2))
    else:
        table.print_purchase(purchase, estimates)
    return int(all(estimate.wrong for estimate in estimates))


def _plan_one(planning: Planning) -> list[str]:
    """Plans for the caches that options ask for; says what will not fit."""
    spec, placement = planning.spec, planning.place(planning.budgets())
    plan = partial(planner.plan, counts=planning.counts_to_plan, **placement.common)
    gain = planning.gain(placement) if spec.partition else {}
    several = None
    if spec.machines:
        num_parameters = planning.parameters()
        several = network.epochs(
            spec, placement.placed, planning.num_batches, num_parameters, planning.far(placement), plan
        )
    on_disk = planning.on_disk(placement)
    if spec.json:
        report = table.plan_as_json(placement.placed, planning.data.types) | placement.memory | gain
        if on_disk:
            report |= on_disk.as_json()
        if several:
            report |= {"network": several[0]._asdict(), "epochs": list(map(asdict, several[1]))}
        print(json.dumps(report | {"counts": planning.source, "wrong": placement.wrong}, indent=2))
        return placement.wrong
    table.print_plan(placement.placed, planning.source, placement.memory, planning.data.types)
    if gain:
        print(describe_gain(**gain["partition"]))
    if spec.cache_policy in ("plan", "none"):
        without = plan(budget_bytes=[0] * planning.num_gpus)
        print(table.describe_saving(table.host_bytes(placement.placed), table.host_bytes(without)))
    if on_disk:
        print(on_disk.line())
    if several:
        table.print_epochs(*several)
    return placement.wrong


def _plan_ratios(planning: Planning) -> list[str]:
    """Plans for caches of several sizes; says what will not fit."""
    ratios = sorted({0.0, *(planning.spec.cache_ratios or RATIOS)})  # others are compared with no cache
    placements = {ratio: planning.place([int(ratio * planning.raw_bytes)] * planning.num_gpus) for ratio in ratios}
    wrong = placements[0.0].wrong
    if planning.spec.json:
        plans = [
            {"ratio": ratio, "wrong": placement.wrong}
            | table.plan_as_json(placement.placed, planning.data.types)
            | placement.memory
            for ratio, placement in placements.items()
        ]
        print(json.dumps({"ratios": plans, "counts": planning.source, "wrong": wrong}, indent=2))
    else:
        knows_gpu = planning.needs.gpu_bytes is not None
        fits = {ratio: not placement.wrong for ratio, placement in placements.items()} if knows_gpu else {}
        table.print_ratios({ratio: placement.placed for ratio, placement in placements.items()}, planning.source, fits)
        table.print_host_memory(placements[ratios[-1]].memory)
        print("for details of one size: --cache-ratio R; for all free memory: --gpu-memory 80GB --trainer-bytes 8GB")
    return wrong
