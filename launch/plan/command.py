"""``cohort plan``: shows what each GPU would cache, and how much that saves; a dry run that allocates nothing large."""

import argparse
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from cohort.base.errors import CohortError
from cohort.base.units import byte_count, format_bytes
from cohort.launch.options.arguments import add_dataset, group, kind
from cohort.launch.options.cache import gpu_memory
from cohort.launch.options.devices import devices
from cohort.launch.options.parser import add_options, spec_of
from cohort.launch.options.partition import clique_seeds, cliques_of_ranks, describe_gain
from cohort.launch.plan import network
from cohort.launch.plan.table import (
    as_json,
    describe_saving,
    hit_rates,
    host_bytes,
    print_epochs,
    print_host_memory,
    print_plan,
    print_ratios,
)
from cohort.launch.run.job import open_dataset
from cohort.spec.options import options_of
from cohort.spec.run import SamplerSpec
from cohort.spec.types import Positive

NO_OPTIONS = {"seed", "device", "ranks", "mps", "order", "fetch_sms", "edge_weights"}  # no plan depends on them
OPTIONS = {each.name for each in options_of(SamplerSpec) if not each.is_hidden} - NO_OPTIONS
RATIOS = (0.0, 0.05, 0.1, 0.5, 1.0)  # where nobody says how large the cache is to be


@dataclass(kw_only=True)
class PlanSpec(SamplerSpec):
    """Options of the command; row_bytes: of a stored feature row, None: as --compress has it."""

    dataset: Path
    split: str = "train"
    refresh: bool = False
    row_bytes: int | None = None
    json: bool = False


def register(commands) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "plan",
        help="show what each GPU would cache, before a run",
        description=f"{__doc__} Without a GPU: the content of one GPU's cache for several sizes.",
    )
    add_dataset(parser)
    add_options(
        parser,
        SamplerSpec,
        OPTIONS,
        cache_ratio="cache of each GPU as a share of all raw feature bytes, index included; auto: the memory that slots"
        " and trainer leave (default: auto; without a GPU a table of ratios)",
        partition="plan for cliques that each train on the seeds of their own part",
        gpus="numbers of the visible GPUs to plan for (default: all)",
    )
    group(parser, "Devices").add_argument(
        "--num-gpus",
        type=kind(Positive),
        help="plan for this number of GPUs, present or not (default: the GPUs of --gpus)",
    )
    network.add_machine_options(parser)
    group(parser, "Output").add_argument("--json", action="store_true", help="print the plan as JSON")
    experts = group(parser, "Experts")
    experts.add_argument(
        "--split", choices=["train", "val", "test"], default="train", help="seeds of the short run (default train)"
    )
    experts.add_argument(
        "--refresh", action="store_true", help="repeat the short run even if the data set has its counts"
    )
    experts.add_argument(
        "--row-bytes", type=byte_count, help="bytes of a stored feature row (default: follows from --compress)"
    )
    parser.set_defaults(func=plan)


def plan(args: argparse.Namespace) -> int:
    """Runs the command: 0 when all fits, 1 when not, with what to change on standard error."""
    from cohort.dataset import open as open_folder

    own = {name: getattr(args, name) for name in ("dataset", "split", "refresh", "row_bytes", "json")}
    spec = spec_of(args, PlanSpec, **own)
    _check_machines(args, spec)
    open_dataset(spec.dataset)
    data = open_folder(spec.dataset)
    machine = devices()
    num_gpus = _count_gpus(spec, args.num_gpus, machine)
    cliques = _cliques(spec.cliques, num_gpus, machine)
    counts, source = _counts(spec, data, cliques)
    graph = _Graph(spec, data, machine, cliques, counts, _needs(spec, data, machine, counts))
    if _says_too_little(spec, graph.needs):
        if args.machines:
            raise CohortError("--machines", "the size of the caches", "none", "add --cache-ratio R or --cache-bytes B")
        return _plan_ratios(graph, num_gpus, source)
    budgets = _budgets(spec, data, num_gpus, graph.needs)
    found = _place(graph, *_with_topology(graph, budgets))
    gain = _gain(spec, data, found.placed, found.common) if spec.partition else {}
    several = _epochs(args, spec, data, found.placed) if args.machines else None
    if spec.json:
        told = as_json(found.placed) | found.memory | gain | (network.as_json(*several) if several else {})
        print(json.dumps(told | {"counts": source, "wrong": found.wrong}, indent=2))
    else:
        print_plan(found.placed, source, found.memory)
        if gain:
            print(describe_gain(**gain["partition"]))
        if spec.cache_policy in ("plan", "none"):
            print(describe_saving(host_bytes(found.placed), _host_bytes_without(graph, found.common)))
        if several:
            print_epochs(*several)
    return _say(found.wrong)


def _check_machines(args: argparse.Namespace, spec: PlanSpec) -> None:
    """Raises CohortError for options that do not go with several machines, or go with them alone."""
    network.demand_machines(args)
    if args.machines and spec.partition:
        raise CohortError("--machines", "one machine with --partition", "--partition", "leave one of the two out")
    if args.machines and spec.cache_policy in ("degree", "random"):
        raise CohortError(
            "--machines", "--cache-policy plan or none, which know the bytes of a batch", spec.cache_policy
        )


def _epochs(args: argparse.Namespace, spec: PlanSpec, data, placed) -> tuple:
    """See network.epochs."""
    seeds = {"train": data.train_ids, "val": data.val_ids, "test": data.test_ids}[spec.split]
    num_batches = -(-len(seeds) // spec.batch_size)
    return network.epochs(args, placed, num_batches, (data.feature_dim, data.num_classes))


def _count_gpus(spec: PlanSpec, num_gpus: int | None, machine: dict) -> int:
    """How many GPUs are planned for."""
    if spec.gpus and num_gpus not in (None, len(spec.gpus)):
        raise CohortError("--gpus, --num-gpus", "one of the two", f"{len(spec.gpus)} and {num_gpus} GPUs")
    return num_gpus or len(spec.gpus or machine["gpus"]) or 1


def _say(wrong: list[str]) -> int:
    """Says what will not fit; the exit code."""
    for line in wrong:
        print(f"cohort: will not fit: {line}", file=sys.stderr)
    return int(bool(wrong))


class _Graph(NamedTuple):
    """What is planned for; counts: of all GPUs, or of each clique."""

    spec: PlanSpec
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


def _says_too_little(spec: PlanSpec, needs) -> bool:
    """Whether no option sets the size of caches, and the needs of slots and trainer are not known either."""
    said = spec.cache_ratio or spec.cache_bytes is not None or spec.cache_policy == "none" or spec.gpu_memory
    return not said and None in (needs.gpu_bytes, needs.trainer_bytes)


def _plan_ratios(graph: _Graph, num_gpus: int, source: dict) -> int:
    """Plans for caches of several sizes; the exit code."""
    spec, data = graph.spec, graph.data
    raw_bytes = data.num_nodes * _raw_row_bytes(data)
    budgets = {ratio: [int(ratio * raw_bytes)] * num_gpus for ratio in RATIOS}
    found = {ratio: _place(graph, *_with_topology(graph, each)) for ratio, each in budgets.items()}
    wrong = found[0.0].wrong
    if spec.json:
        plans = [{"ratio": ratio} | as_json(each.placed) | each.memory for ratio, each in found.items()]
        print(json.dumps({"ratios": plans, "counts": source, "wrong": wrong}, indent=2))
    else:
        print_ratios({ratio: each.placed for ratio, each in found.items()}, source)
        print_host_memory(found[1.0].memory)
        print("for details of one size: --cache-ratio R; for all free memory: --gpu-memory 80GB --trainer-bytes 8GB")
    return _say(wrong)


def _with_topology(graph: _Graph, budgets: list[int]) -> tuple[list[int], bool]:
    """(bytes of each cache, whether the topology lies whole in GPUs beside them)."""
    from cohort.cache.plan import budget
    from cohort.cache.plan.options import bytes_of_nodes

    spec, data, needs = graph.spec, graph.data, graph.needs
    topology_bytes = data.indptr.nbytes + data.indices.nbytes
    takes_all = spec.cache_ratio in (None, "auto") and spec.cache_bytes is None and spec.cache_policy != "none"
    if takes_all and spec.topology == "auto" and not _says_too_little(spec, needs):
        kept = budget.beside_topology(budgets, topology_bytes, data.num_nodes, _raw_row_bytes(data))
        return kept or budgets, kept is not None
    sizes = (topology_bytes, bytes_of_nodes(_meta(spec)), max(budgets), needs.gpu_bytes)
    return budgets, budget.topology_lies_in_gpus(spec.topology, *sizes)


def _place(graph: _Graph, budgets: list[int], resident: bool) -> _Found:
    """Plans caches of such sizes; resident: the topology lies whole in GPUs beside them."""
    import numpy as np

    from cohort import cache
    from cohort.cache.plan import budget

    spec, data, needs = graph.spec, graph.data, graph.needs
    topology_bytes = data.indptr.nbytes + data.indices.nbytes
    if resident:
        needs = replace(needs, graph_bytes=needs.graph_bytes + topology_bytes)
    common = _planned_by(spec, data, graph.machine, budgets) | {"topology": not resident, "cliques": graph.cliques}
    placed = cache.plan(data.indptr, _counts_to_plan(graph), **common)
    host_filling = placed.filling_bytes(data.num_nodes)
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
    return graph.counts if graph.spec.partition else graph.counts[0]


def _host_bytes_without(graph: _Graph, common: dict) -> float:
    """What a batch reads from the host where nothing is cached."""
    from cohort import cache

    nothing = {"budget_bytes": [0] * len(common["budget_bytes"])}
    return host_bytes(cache.plan(graph.data.indptr, _counts_to_plan(graph), **common | nothing))


def _needs(spec: PlanSpec, data, machine: dict, counts: list):
    """What a GPU needs beside the cache."""
    from cohort.cache.plan.options import memory_needs

    names = ("max_batch_nodes", "max_batch_edges")
    seen = [{name: getattr(each, name) for name in names} for each in counts if each.max_batch_nodes]
    return memory_needs(replace(spec, gpu_memory=gpu_memory(spec, machine)), _meta(spec), seen)


def _meta(spec: PlanSpec) -> dict:
    return json.loads((spec.dataset / "meta.json").read_text())


def _budgets(spec: PlanSpec, data, num_gpus: int, needs) -> list[int]:
    from cohort.cache import budgets

    ratios, cache_bytes = spec.cache_ratio, spec.cache_bytes
    if spec.cache_policy == "none":
        ratios, cache_bytes = None, [0]
    return budgets(num_gpus, data.num_nodes * _raw_row_bytes(data), ratios, cache_bytes, needs)


def _planned_by(spec: PlanSpec, data, machine: dict, budget_bytes: list[int]) -> dict:
    """The arguments of cohort.cache.plan that data set and machine give."""
    from cohort.cache import Links
    from cohort.cache.plan.links import machine_bandwidth

    raw_row_bytes = _raw_row_bytes(data)
    row_bytes, host_row_bytes = _stored_row_bytes(spec, data, raw_row_bytes, budget_bytes)
    bandwidth = spec.bandwidth or machine_bandwidth(machine, list(range(len(budget_bytes))))
    rates, delays = (1e9 * rate for rate in bandwidth), (1e-9 * nanoseconds for nanoseconds in spec.line_ns)
    return {
        "index_bytes": data.indices.itemsize,
        "recent": (spec.slots - 1 if spec.reuse and spec.cache_policy == "plan" else 0, raw_row_bytes),
        "row_bytes": row_bytes,
        "host_row_bytes": host_row_bytes,
        "budget_bytes": budget_bytes,
        "links": Links(tuple(rates), tuple(delays)),
    }


def _gain(spec: PlanSpec, data, placed, common: dict) -> dict:
    """Shares of each GPU's row reads that host memory need not serve, with the seeds of parts and without."""
    from cohort import cache

    counts, _ = _counts(spec, data, None)
    without = cache.plan(data.indptr, counts[0], **common)
    shares = [
        [1 - hit_rates(each.gpu(gpu).feature_use)[2] for gpu in range(each.num_gpus)] for each in (placed, without)
    ]
    return {"partition": {"with_parts": shares[0], "without": shares[1]}}


def _raw_row_bytes(data) -> int:
    from cohort.cache.plan.planner import ELEMENT_BYTES

    return data.feature_dim * ELEMENT_BYTES[data.feature_dtype]


def _stored_row_bytes(spec: PlanSpec, data, raw_row_bytes: int, budget_bytes: list[int]) -> tuple:
    """Bytes of feature rows in slabs and in host memory: each a number, or uint32 [V]. As sampler/load.cc has them."""
    from cohort.cache import holds_all_raw_rows, stored_row_bytes

    if spec.row_bytes is not None:
        return spec.row_bytes, spec.row_bytes
    prepared = data.encoded_rows is not None
    if spec.compress in ("host", "both") and not prepared:
        hint = f"encode them with: cohort dataset prepare {spec.dataset}"
        raise CohortError(f"--compress {spec.compress}", "a data set with encoded rows", str(spec.dataset), hint)
    hold_all = all(holds_all_raw_rows(each, data.num_nodes, raw_row_bytes) for each in budget_bytes)
    in_host = spec.compress in ("host", "both") or (spec.compress == "auto" and prepared)
    in_slabs = spec.compress in ("cache", "both") or (spec.compress == "auto" and prepared and not hold_all)
    return stored_row_bytes(data, in_slabs), stored_row_bytes(data, True) if in_host else raw_row_bytes


def _counts(spec: PlanSpec, data, cliques: list[list[int]] | None) -> tuple[list, dict]:
    """(counts, where they come from): of all GPUs, or with --partition of each of the cliques, if any are given."""
    from cohort import cache
    from cohort.cache.plan.options import presample

    if spec.cache_policy in ("degree", "random"):
        if spec.partition:
            raise CohortError("--partition", "--cache-policy plan, which counts", spec.cache_policy, "leave one out")
        picks = -1 if min(spec.fanout) < 0 else max(spec.fanout)
        counts = cache.Counts.stand_in(spec.cache_policy, data.indptr, data.indices, picks)
        return [counts], {"policy": spec.cache_policy}
    of_parts = spec.partition and cliques is not None
    sources = [
        presample(spec.dataset, spec.fanout, spec.batch_size, spec.presample_batches, spec.split, spec.refresh, seeds)
        for seeds in (clique_seeds(spec.dataset, cliques, spec.split) if of_parts else [None])
    ]
    counts = [cache.load_counts(Path(source["file"])) for source in sources]
    return counts, {"policy": spec.cache_policy} | ({"cliques": sources} if of_parts else sources[0])


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
