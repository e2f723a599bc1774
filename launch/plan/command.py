"""``cohort plan``: what each GPU would cache and what that saves; a dry run that allocates nothing large."""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from cohort.base.errors import CohortError
from cohort.base.units import byte_count, format_bytes
from cohort.launch.options.arguments import group, positive
from cohort.launch.options.cache import add_cache_options, add_row_options, gpu_memory
from cohort.launch.options.devices import devices
from cohort.launch.options.groups import add_batch_options
from cohort.launch.options.partition import add_partition_option, clique_seeds, cliques_of_ranks, describe_gain
from cohort.launch.plan.table import (
    as_json,
    describe_saving,
    hit_rates,
    host_bytes,
    print_host_memory,
    print_plan,
    print_ratios,
)
from cohort.launch.run.train import open_dataset

RATIOS = (0.0, 0.05, 0.1, 0.5, 1.0)  # where nobody says how large the cache is to be


def register(commands) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "plan",
        help="what each GPU would cache, before a run",
        description=f"{__doc__} Where there is no GPU: what caches of several sizes would hold of one.",
    )
    add_batch_options(parser)
    add_row_options(group(parser, "Cache"))
    add_cache_options(parser, without="auto; without a GPU a table of ratios")
    add_partition_option(group(parser, "Cache"), "plan for cliques that train on the seeds of parts of their own")
    group(parser, "Devices").add_argument(
        "--num-gpus", "--gpus", type=_gpu_count, help="number of GPUs (default: of the visible ones, at least 1)"
    )
    group(parser, "Output").add_argument("--json", action="store_true", help="print the plan as JSON")
    experts = group(parser, "Experts")
    experts.add_argument(
        "--split", choices=["train", "val", "test"], default="train", help="seeds of the short run (default train)"
    )
    experts.add_argument(
        "--refresh", action="store_true", help="make the short run again though the data set has its counts"
    )
    experts.add_argument(
        "--row-bytes", type=byte_count, help="bytes of a stored feature row (default: as --compress has it)"
    )
    parser.set_defaults(func=plan)


def _gpu_count(text: str) -> int:
    if "," in text:
        raise argparse.ArgumentTypeError(f"expected how many GPUs, such as {text.count(',') + 1}, found {text}")
    return positive(text)


def plan(args: argparse.Namespace) -> int:
    """Runs the command: 0 when all fits, 1 when not, with what to change on standard error."""
    from cohort.dataset import open as open_folder

    open_dataset(args.dataset)
    data = open_folder(args.dataset)
    machine = devices()
    num_gpus = args.num_gpus or max(1, len(machine["gpus"]))
    cliques = _cliques(args.cliques, num_gpus, machine)
    counts, source = _counts(args, data, cliques)
    graph = _Graph(args, data, machine, cliques, counts, _needs(args, data, machine, counts))
    if _says_too_little(args, graph.needs):
        return _plan_ratios(graph, num_gpus, source)
    budgets = _budgets(args, data, num_gpus, graph.needs)
    found = _place(graph, *_with_topology(graph, budgets))
    gain = _gain(args, data, found.placed, found.common) if args.partition else {}
    if args.json:
        told = as_json(found.placed) | found.memory | gain
        print(json.dumps(told | {"counts": source, "wrong": found.wrong}, indent=2))
    else:
        print_plan(found.placed, source, found.memory)
        if gain:
            print(describe_gain(**gain["partition"]))
        if args.cache_policy in ("plan", "none"):
            print(describe_saving(host_bytes(found.placed), _host_bytes_without(graph, found.common)))
    return _say(found.wrong)


def _say(wrong: list[str]) -> int:
    """Says what will not fit; the exit code."""
    for line in wrong:
        print(f"cohort: will not fit: {line}", file=sys.stderr)
    return int(bool(wrong))


class _Graph(NamedTuple):
    """What is planned for; counts: of all GPUs, or of each clique."""

    args: argparse.Namespace
    data: object
    machine: dict
    cliques: list[list[int]]
    counts: list
    needs: object


class _Found(NamedTuple):
    """A plan, the arguments of cohort.cache.plan that made it, memory, and what will not fit."""

    placed: object
    common: dict
    memory: dict
    wrong: list[str]


def _says_too_little(args: argparse.Namespace, needs) -> bool:
    """Whether nobody says how large caches are to be, and it is not known what slots and trainer leave."""
    said = args.cache_ratio or args.cache_bytes is not None or args.cache_policy == "none" or args.gpu_memory
    return not said and None in (needs.gpu_bytes, needs.trainer_bytes)


def _plan_ratios(graph: _Graph, num_gpus: int, source: dict) -> int:
    """Plans for caches of several sizes; the exit code."""
    args, data = graph.args, graph.data
    raw_bytes = data.num_nodes * _raw_row_bytes(data)
    budgets = {ratio: [int(ratio * raw_bytes)] * num_gpus for ratio in RATIOS}
    found = {ratio: _place(graph, *_with_topology(graph, each)) for ratio, each in budgets.items()}
    wrong = found[0.0].wrong
    if args.json:
        plans = [{"ratio": ratio} | as_json(each.placed) | each.memory for ratio, each in found.items()]
        print(json.dumps({"ratios": plans, "counts": source, "wrong": wrong}, indent=2))
    else:
        print_ratios({ratio: each.placed for ratio, each in found.items()}, source)
        print_host_memory(found[1.0].memory)
        print("of one size more: --cache-ratio R; of all that is left: --gpu-memory 80GB --trainer-bytes 8GB")
    return _say(wrong)


def _with_topology(graph: _Graph, budgets: list[int]) -> tuple[list[int], bool]:
    """(bytes of each cache, whether the topology lies whole in GPUs beside them)."""
    from cohort.cache.plan import budget

    args, data, needs = graph.args, graph.data, graph.needs
    topology_bytes = data.indptr.nbytes + data.indices.nbytes
    takes_all = args.cache_ratio in (None, "auto") and args.cache_bytes is None and args.cache_policy != "none"
    if takes_all and args.topology == "auto" and not _says_too_little(args, needs):
        kept = budget.beside_topology(budgets, topology_bytes, data.num_nodes, _raw_row_bytes(data))
        return kept or budgets, kept is not None
    sizes = (topology_bytes, data.num_nodes, max(budgets), needs.gpu_bytes)
    return budgets, budget.topology_lies_in_gpus(args.topology, *sizes)


def _place(graph: _Graph, budgets: list[int], resident: bool) -> _Found:
    """Plans caches of such sizes; resident: the topology lies whole in GPUs beside them."""
    import numpy as np

    from cohort import cache
    from cohort.cache.plan import budget

    args, data, needs = graph.args, graph.data, graph.needs
    topology_bytes = data.indptr.nbytes + data.indices.nbytes
    if resident:
        needs = replace(needs, graph_bytes=needs.graph_bytes + topology_bytes)
    common = _planned_by(args, data, graph.machine, budgets) | {"topology": not resident, "cliques": graph.cliques}
    placed = cache.plan(data.indptr, _counts_to_plan(graph), **common)
    host_filling = budget.filling_bytes(placed, data.num_nodes)
    host_rows = np.broadcast_to(common["host_row_bytes"], data.num_nodes)
    host_needed = int(host_rows.sum()) + (0 if resident else topology_bytes) + host_filling
    host_present = budget.available_host_bytes()
    memory = {
        "slots_bytes": needs.slots_bytes,
        "graph_bytes": needs.graph_bytes,
        "host_needed_bytes": host_needed,
        "host_filling_bytes": host_filling,
        "host_present_bytes": host_present,
    }
    wrong = _caches_nothing(placed, budgets) + budget.misfits(budgets, needs, host_needed, host_present)
    return _Found(placed, common, memory, wrong)


def _counts_to_plan(graph: _Graph):
    return _by_gpu(graph.counts, graph.cliques) if graph.args.partition else graph.counts[0]


def _host_bytes_without(graph: _Graph, common: dict) -> float:
    """What a batch reads from the host where nothing is cached."""
    from cohort import cache

    nothing = {"budget_bytes": [0] * len(common["budget_bytes"])}
    return host_bytes(cache.plan(graph.data.indptr, _counts_to_plan(graph), **common | nothing))


def _needs(args: argparse.Namespace, data, machine: dict, counts: list):
    """What a GPU needs beside the cache."""
    from cohort.cache import MemoryNeeds
    from cohort.cache.plan import budget

    most_nodes = max(each.max_batch_nodes for each in counts) or data.num_nodes
    most_edges = max(each.max_batch_edges for each in counts) or data.num_edges
    raw_bytes = _raw_row_bytes(data)
    label_bytes = data.y.nbytes // data.num_nodes
    batch = (args.batch_size, args.fanout, most_nodes, most_edges)
    slot_bytes = budget.slot_bytes(data.num_nodes, raw_bytes, *batch, label_bytes=label_bytes)
    of_nodes = budget.bytes_of_nodes(data.num_nodes, args.trainer_bytes, label_bytes)
    return MemoryNeeds(gpu_memory(args, machine), args.slots * slot_bytes, args.trainer_bytes, of_nodes)


def _budgets(args: argparse.Namespace, data, num_gpus: int, needs) -> list[int]:
    from cohort.cache import budgets

    ratios, cache_bytes = args.cache_ratio, args.cache_bytes
    if args.cache_policy == "none":
        ratios, cache_bytes = None, [0]
    return budgets(num_gpus, data.num_nodes * _raw_row_bytes(data), ratios, cache_bytes, needs)


def _planned_by(args: argparse.Namespace, data, machine: dict, budget_bytes: list[int]) -> dict:
    """The arguments of cohort.cache.plan that data set and machine give."""
    from cohort.cache import Links
    from cohort.cache.plan.links import machine_bandwidth
    from cohort.cache.plan.options import say_aloud

    raw_row_bytes = _raw_row_bytes(data)
    row_bytes, host_row_bytes = _stored_row_bytes(args, data, raw_row_bytes, budget_bytes)
    bandwidth = args.bandwidth or machine_bandwidth(say_aloud, machine, list(range(len(budget_bytes))))
    rates, delays = (1e9 * rate for rate in bandwidth), (1e-9 * nanoseconds for nanoseconds in args.line_ns)
    return {
        "index_bytes": data.indices.itemsize,
        "recent": (args.slots - 1 if args.reuse == "on" and args.cache_policy == "plan" else 0, raw_row_bytes),
        "row_bytes": row_bytes,
        "host_row_bytes": host_row_bytes,
        "budget_bytes": budget_bytes,
        "links": Links(tuple(rates), tuple(delays)),
    }


def _gain(args: argparse.Namespace, data, placed, common: dict) -> dict:
    """Shares of each GPU's row reads that host memory need not serve, with the seeds of parts and without."""
    from cohort import cache

    counts, _ = _counts(args, data, None)
    without = cache.plan(data.indptr, counts[0], **common)
    shares = [
        [1 - hit_rates(each.gpu(gpu).feature_use)[2] for gpu in range(each.num_gpus)] for each in (placed, without)
    ]
    return {"partition": {"with_parts": shares[0], "without": shares[1]}}


def _raw_row_bytes(data) -> int:
    from cohort.cache.plan.planner import ELEMENT_BYTES

    return data.feature_dim * ELEMENT_BYTES[data.feature_dtype]


def _stored_row_bytes(args: argparse.Namespace, data, raw_row_bytes: int, budget_bytes: list[int]) -> tuple:
    """Bytes of feature rows in slabs and in host memory: each a number, or uint32 [V]. As sampler/load.cc has them."""
    from cohort.cache import holds_all_raw_rows, stored_row_bytes

    if args.row_bytes is not None:
        return args.row_bytes, args.row_bytes
    prepared = data.encoded_rows is not None
    if args.compress in ("host", "both") and not prepared:
        hint = f"encode them with: cohort dataset prepare {args.dataset}"
        raise CohortError(f"--compress {args.compress}", "a data set with encoded rows", str(args.dataset), hint)
    hold_all = all(holds_all_raw_rows(each, data.num_nodes, raw_row_bytes) for each in budget_bytes)
    in_host = args.compress in ("host", "both") or (args.compress == "auto" and prepared)
    in_slabs = args.compress in ("cache", "both") or (args.compress == "auto" and prepared and not hold_all)
    return stored_row_bytes(data, in_slabs), stored_row_bytes(data, True) if in_host else raw_row_bytes


def _counts(args: argparse.Namespace, data, cliques: list[list[int]] | None) -> tuple[list, dict]:
    """(counts, where they come from): of all GPUs, or with --partition of each of the cliques, if any are given."""
    from cohort import cache
    from cohort.cache.plan.options import presample

    if args.cache_policy in ("degree", "random"):
        if args.partition:
            raise CohortError("--partition", "--cache-policy plan, which counts", args.cache_policy, "leave one out")
        picks = -1 if min(args.fanout) < 0 else max(args.fanout)
        counts = cache.Counts.stand_in(args.cache_policy, data.indptr, data.indices, picks)
        return [counts], {"policy": args.cache_policy}
    of_parts = args.partition and cliques is not None
    sources = [
        presample(args.dataset, args.fanout, args.batch_size, args.presample_batches, args.split, args.refresh, seeds)
        for seeds in (clique_seeds(args.dataset, cliques, args.split) if of_parts else [None])
    ]
    counts = [cache.load_counts(Path(source["file"])) for source in sources]
    return counts, {"policy": args.cache_policy} | ({"cliques": sources} if of_parts else sources[0])


def _by_gpu(counts: list, cliques: list[list[int]]) -> list:
    """Each GPU's counts from those of the cliques."""
    of_gpu = {gpu: own for own, clique in zip(counts, cliques, strict=True) for gpu in clique}
    return [of_gpu[gpu] for gpu in sorted(of_gpu)]


def _cliques(text: str, num_gpus: int, machine: dict) -> list[list[int]]:
    from cohort.cache import cliques_named

    if text != "auto":
        return cliques_named(text, num_gpus)
    if num_gpus == 1:
        return [[0]]
    known = machine.get("cliques")
    if known is None or sum(map(len, known)) != num_gpus:
        hint = "say which GPUs read each other's memory: none, all, 2x4, 3+5"
        raise CohortError("--cliques auto", f"{num_gpus} GPUs to ask", f"{len(machine['gpus'])} here", hint)
    return cliques_of_ranks(text, list(range(num_gpus)), True, machine)


def _caches_nothing(placed, budgets: list[int]) -> list[str]:
    return [
        f"GPU {i}: a cache of {format_bytes(budget)} cannot even hold its index; use a larger --cache-ratio or 0"
        for i, budget in enumerate(budgets)
        if budget > 0 and placed.gpu(i).used_bytes == 0
    ]
