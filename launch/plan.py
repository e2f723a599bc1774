"""``cohort plan``: what each GPU would cache and what that saves; a dry run that allocates nothing large."""

import argparse
import json
import re
import sys
from dataclasses import replace
from pathlib import Path

from cohort.base.errors import CohortError
from cohort.base.units import byte_count, format_bytes
from cohort.launch.arguments import fanout, positive, slots
from cohort.launch.cache_options import add_cache_options, add_row_options, gpu_memory
from cohort.launch.devices import devices
from cohort.launch.partition import add_partition_option, clique_seeds, describe_gain
from cohort.launch.plan_table import as_json, hit_rates, print_plan
from cohort.launch.train import open_dataset


def register(commands) -> None:
    """Adds the command."""
    parser = commands.add_parser("plan", help="what each GPU would cache, before a run", description=__doc__)
    parser._negative_number_matcher = re.compile(r"-\d+(,-?\d+)*$")  # "--fanout -1,-1" gives a value, not an option
    parser.add_argument("dataset", type=Path, metavar="DIR", help="folder of a data set")
    parser.add_argument("--fanout", type=fanout, default=[25, 10], help="neighbours a hop; -1: all (default 25,10)")
    parser.add_argument("--batch-size", type=positive, default=1024, help="seeds a batch (default 1024)")
    parser.add_argument("--slots", type=slots, default=3, help="batches that the shared buffer holds (default 3)")
    parser.add_argument("--gpus", type=positive, help="how many (default: the visible ones, at least 1)")
    add_cache_options(parser, without="auto")
    parser.add_argument("--split", choices=["train", "val", "test"], default="train", help="seeds of that short run")
    parser.add_argument("--refresh", action="store_true", help="count again though the data set has the counts")
    add_partition_option(parser, "plan for cliques that train on the seeds of parts of their own")
    add_row_options(parser)
    parser.add_argument("--row-bytes", type=byte_count, help="of a stored row (default: as --compress has it)")
    parser.add_argument("--json", action="store_true", help="the plan as JSON")
    parser.set_defaults(func=plan)


def plan(args: argparse.Namespace) -> int:
    """Runs the command: 0 when all fits, 1 when not, with what to change on standard error."""
    import numpy as np

    from cohort import cache
    from cohort.cache import budget
    from cohort.dataset import open as open_folder

    open_dataset(args.dataset)
    data = open_folder(args.dataset)
    machine = devices()
    num_gpus = args.gpus or max(1, len(machine["gpus"]))
    cliques = _cliques(args.cliques, num_gpus, machine)
    counts, source = _counts(args, data, cliques)
    needs = _needs(args, data, machine, counts)
    budgets = _budgets(args, data, num_gpus, needs)
    topology_bytes = data.indptr.nbytes + data.indices.nbytes
    takes_all = args.cache_ratio in (None, "auto") and args.cache_bytes is None and args.cache_policy != "none"
    if takes_all and args.topology == "auto":
        kept = budget.beside_topology(budgets, topology_bytes, data.num_nodes, _raw_row_bytes(data))
        resident, budgets = kept is not None, kept or budgets
    else:
        resident = budget.topology_lies_in_gpus(
            args.topology, topology_bytes, data.num_nodes, max(budgets), needs.gpu_bytes
        )
    if resident:
        needs = replace(needs, graph_bytes=needs.graph_bytes + topology_bytes)
    common = _planned_by(args, data, machine, budgets) | {"topology": not resident, "cliques": cliques}
    placed = cache.plan(data.indptr, _by_gpu(counts, cliques) if args.partition else counts[0], **common)
    host_filling = budget.filling_bytes(placed, data.num_nodes)
    host_rows = np.broadcast_to(common["host_row_bytes"], data.num_nodes)
    host_needed = int(host_rows.sum()) + (0 if resident else topology_bytes) + host_filling
    host_present = budget.available_host_bytes()
    wrong = _caches_nothing(placed, budgets) + budget.misfits(budgets, needs, host_needed, host_present)
    memory = {
        "slots_bytes": needs.slots_bytes,
        "graph_bytes": needs.graph_bytes,
        "host_needed_bytes": host_needed,
        "host_filling_bytes": host_filling,
        "host_present_bytes": host_present,
    }
    gain = _gain(args, data, placed, common) if args.partition else {}
    if args.json:
        print(json.dumps(as_json(placed) | memory | gain | {"counts": source, "wrong": wrong}, indent=2))
    else:
        print_plan(placed, source, memory)
        if gain:
            print(describe_gain(**gain["partition"]))
    for line in wrong:
        print(f"cohort: will not fit: {line}", file=sys.stderr)
    return 1 if wrong else 0


def _needs(args: argparse.Namespace, data, machine: dict, counts: list):
    """What a GPU needs beside the cache."""
    from cohort.cache import MemoryNeeds, budget

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

    ratios, cache_bytes = None if args.cache_ratio == "auto" else args.cache_ratio, args.cache_bytes
    if args.cache_policy == "none":
        ratios, cache_bytes = None, [0]
    return budgets(num_gpus, data.num_nodes * _raw_row_bytes(data), ratios, cache_bytes, needs)


def _planned_by(args: argparse.Namespace, data, machine: dict, budget_bytes: list[int]) -> dict:
    """The arguments of cohort.cache.plan that data set and machine give."""
    from cohort.cache import Links
    from cohort.cache.links import machine_bandwidth
    from cohort.cache.options import say_aloud

    raw_row_bytes = _raw_row_bytes(data)
    row_bytes, host_row_bytes = _stored_row_bytes(args, data, raw_row_bytes, budget_bytes)
    bandwidth = args.bandwidth or machine_bandwidth(say_aloud, machine)
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
    from cohort.cache.planner import ELEMENT_BYTES

    return data.feature_dim * ELEMENT_BYTES[data.feature_dtype]


def _stored_row_bytes(args: argparse.Namespace, data, raw_row_bytes: int, budget_bytes: list[int]) -> tuple:
    """Bytes of feature rows in slabs and in host memory: each a number, or uint32 [V]. As sampler/load.cc has them."""
    from cohort.cache import holds_all_raw_rows, stored_row_bytes

    if args.row_bytes:
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
    from cohort.cache.options import presample

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
    return known


def _caches_nothing(placed, budgets: list[int]) -> list[str]:
    return [
        f"GPU {i}: a cache of {format_bytes(budget)} cannot even hold its index; use a larger --cache-ratio or 0"
        for i, budget in enumerate(budgets)
        if budget > 0 and placed.gpu(i).used_bytes == 0
    ]
