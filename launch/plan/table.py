"""A cache plan as a table and as JSON."""

from collections.abc import Iterable
from dataclasses import asdict
from itertools import accumulate

import numpy as np

from cohort_gnn.base.tables import TextTable, print_tables
from cohort_gnn.base.units import format_bytes
from cohort_gnn.spec.graph import GraphTypes
from cohort_gnn.spec.results import TIERS


def gpu_plans(plan) -> list:
    """The plan of each GPU."""
    return [plan.gpu(i) for i in range(plan.num_gpus)]


def plan_as_json(plan, types: GraphTypes) -> dict:
    """{"seconds", "gpus": [...]}: everything that print_plan shows, in bytes and seconds a batch."""
    return {
        "seconds": plan.seconds,
        "cliques": [plan.clique(i).gpus for i in range(plan.num_cliques)],
        "gpus": [_gpu_json(gpu) | {"types": held_of_types(gpu, types)} for gpu in gpu_plans(plan)],
    }


def held_of_types(gpu, types: GraphTypes) -> dict[str, int]:
    """How many rows of each node type with features, and lists of each relation, a GPU holds."""
    rows = _counted(gpu.features.nodes, types.counts.values())
    lists = _counted(gpu.topology.nodes, [types.counts[target] for _, _, target in types.edge_types])
    held = {name: count for (name, dim), count in zip(types.feature_dims.items(), rows, strict=True) if dim}
    return held | dict(zip(map(" ".join, types.edge_types), lists, strict=True))


def _counted(items: np.ndarray, sizes: Iterable[int]) -> list[int]:
    """How many of the items are in each of consecutive ranges of these sizes."""
    bounds = np.fromiter(accumulate(sizes), np.int64)
    parts = np.searchsorted(bounds, items, side="right")
    return np.bincount(parts, minlength=len(bounds)).tolist()


def _gpu_json(gpu) -> dict:
    out = {
        "budget_bytes": gpu.budget_bytes,
        "used_bytes": gpu.used_bytes,
        "index_bytes": gpu.index_bytes,
        "alpha": gpu.alpha,
        "seconds": gpu.seconds,
        "host_bytes": _host_bytes(gpu),
    }
    kinds = ("features", gpu.features, gpu.feature_use), ("topology", gpu.topology, gpu.topology_use)
    for kind, slab, uses in kinds:
        out[kind] = {"rows": len(slab.nodes), "bytes": slab.bytes, "known_rows": slab.num_entries}
        out[kind]["hit_rate"] = dict(zip(TIERS, hit_rates(uses), strict=True))
        for tier, use in zip(TIERS, uses, strict=True):
            out[kind][tier] = {name: getattr(use, name) for name in ("reads", "bytes", "lines", "seconds")}
    return out


NOTHING_READ = (
    "\nwithout a cache nothing is read from host memory either: the graph is so small that it fits in GPU memory, and"
    " the pool of rows of earlier batches has them all; this says nothing about a larger graph"
)


def hit_rates(uses) -> list[float]:
    """Shares of the reads that (local, peer, host, recent) serve; zeros without any."""
    reads = sum(use.reads for use in uses)
    return [use.reads / reads if reads else 0.0 for use in uses]


def host_bytes(plan) -> float:
    """What a batch reads from the host, the mean over GPUs: rows, and lists where they are the plan's business."""
    return sum(map(_host_bytes, gpu_plans(plan))) / plan.num_gpus


def _host_bytes(gpu) -> float:
    return gpu.feature_use[2].bytes + gpu.topology_use[2].bytes


def shares_in_gpus(plan) -> list[float]:
    """Of the rows that each GPU reads, those that host memory need not serve."""
    return [1 - hit_rates(gpu.feature_use)[TIERS.index("host")] for gpu in gpu_plans(plan)]


def describe_saving(with_cache: float, without: float) -> str:
    """What a batch reads from the host, in bytes, beside what it would read there without a cache."""
    change = f" ({100 * (with_cache - without) / without:+.1f} %)" if without else NOTHING_READ
    return f"a batch reads {format_bytes(with_cache)} from host memory, {format_bytes(without)} without a cache{change}"


def print_ratios(plans: dict, source: dict, fits: dict) -> None:
    """A row for each cache ratio: {ratio: plan}, the first without a cache.

    Args:
        fits: {ratio: whether a GPU has room for it}; {}: unknown.
    """
    columns = ["ratio", "of each GPU", "rows in GPUs %", "host B per batch", "change %", "ms", *["fits"] * bool(fits)]
    note = "rows in GPUs: in caches, or in pools; host B: rows and lists; ms: sum of all reads"
    table = TextTable("Cache sizes", columns, note=note)
    none = host_bytes(plans[min(plans)])
    for ratio, plan in plans.items():
        gpus = gpu_plans(plan)
        share = sum(shares_in_gpus(plan)) / len(gpus)
        read = host_bytes(plan)
        change = f"{100 * (read - none) / none:+.1f}" if none else "-"
        seconds = sum(gpu.seconds for gpu in gpus) / len(gpus)
        cells = (format_bytes(gpus[0].budget_bytes), f"{100 * share:.1f}", format_bytes(read), change)
        has_room = ["yes" if fits[ratio] else "no"] if fits else []
        table.rows.append([f"{ratio:g}", *cells, f"{1e3 * seconds:.3f}", *has_room])
    table.note += NOTHING_READ * (none == 0)
    print_tables(table)
    _print_counts(source)


def print_epochs(network, epochs: list) -> None:
    """A row for each number of machines: what an epoch reads and sends, and how long that takes."""
    columns = ["machines", "steps", "from host", "to others", "host s", "train s", "network s", "epoch s"]
    divided, on_disk = (any(getattr(epoch, name) for epoch in epochs) for name in ("remote_bytes", "disk_seconds"))
    columns[-1:-1] = ["rows of others", "rows s"] * divided + ["disk s"] * on_disk
    table = TextTable("Epochs on several machines, computed", columns)
    for epoch in epochs:
        sizes = (format_bytes(epoch.host_bytes), format_bytes(epoch.network_bytes))
        parts = [epoch.host_seconds, epoch.train_seconds, epoch.network_seconds]
        seconds = [_seconds(part) for part in parts]
        seconds += [format_bytes(epoch.remote_bytes), _seconds(epoch.remote_seconds)] * divided
        seconds += [_seconds(epoch.disk_seconds)] * on_disk
        table.rows.append([str(epoch.machines), str(epoch.steps), *sizes, *seconds, _seconds(epoch.seconds)])
    rate, delay = network.bytes_per_second / 1e9, 1e6 * network.seconds
    table.note = f"network: {rate:g} GB/s and {delay:g} us for each sum of gradients (--network, --network-us)"
    table.note += "\nbytes: of one machine, which receives as many as it sends"
    others = ["disk s"] * on_disk + ["rows s + the time to send gradients"] * divided
    table.note += (
        f"\nepoch s: the largest of {', '.join(['host s', 'train s + network s', *others])}; a run takes longer"
    )
    if not epochs[0].train_seconds:
        table.note += "\ntrain s is not known, so epochs leave it out: --step-ms"
    print_tables(table)


def purchase_as_json(purchase, estimates: list) -> dict:
    """{"batch", "step_seconds", "disk_bytes", "rates": {name: [value, source]}, "epochs": [...]}."""
    rates = purchase.rates.all()
    batch = {"nodes": purchase.batch.nodes, "edges": purchase.batch.edges}
    sizes = {"num_batches": purchase.num_batches, "disk_bytes": purchase.disk_bytes}
    known = {"batch": batch, "step_seconds": purchase.step_seconds, **sizes}
    return known | {"rates": rates, "epochs": list(map(asdict, estimates))}


def print_purchase(purchase, estimates: list) -> None:
    """A row for each size of the caches, on each number of machines, and where the rates come from."""
    tiers = ("local", "recent", "peer", "host", "remote")
    columns = ["machines", "ratio", *(f"{tier} %" for tier in tiers), "host B", "GPU B", "host memory"]
    columns += ["floor s", "limit", "epoch s", ""]
    table = TextTable("Epochs, predicted", columns)
    for plan in estimates:
        sizes = plan.tier_bytes["host"] + plan.tier_bytes["remote"], plan.gpu_bytes, plan.host_bytes
        shares = [f"{100 * plan.rows[tier]:.1f}" for tier in tiers]
        times = [_seconds(plan.floor_seconds), plan.limit, _seconds(plan.seconds)]
        label = "will not fit" if plan.wrong else "measured rates" if plan.is_measured else "computed"
        table.rows.append([str(plan.machines), f"{plan.ratio:g}", *shares, *map(format_bytes, sizes), *times, label])
    table.note = (
        "ratio: cache of each GPU as a share of all raw feature bytes; local to remote: where rows of a batch come"
    )
    table.note += " from (recent: earlier batches)\nhost B: read from host memory in an epoch, by the GPUs of a machine"
    table.note += "; GPU B: memory of a GPU; floor: the least time, and what needs it"
    table.note += "\ncomputed: no epoch on so many GPUs or machines was measured"
    print_tables(table)
    batch, spec = purchase.batch, purchase.spec
    print(
        f"an epoch: {purchase.num_seeds:,} nodes that train (--train-ratio, --train-nodes) in {purchase.num_batches:,}"
        f" batches of {sum(batch.nodes):,.0f} nodes and {sum(batch.edges):,.0f} edges; {purchase.num_gpus} x {spec.gpu}"
        f" a machine; a step {1e3 * purchase.step_seconds:.2f} ms"
    )
    print(f"disk: {format_bytes(purchase.disk_bytes)} for the data set")
    pages = dict.fromkeys(rate.source.partition(",")[0] for rate in purchase.rates.all().values())
    print(f"rates: {'; '.join(pages)} (--json: each with its table)")
    for problem in dict.fromkeys(problem for plan in estimates for problem in plan.wrong):
        print(f"will not fit: {problem}")


def _seconds(seconds: float) -> str:
    return f"{seconds:.4f}" if seconds else "-"


def print_host_memory(memory: dict) -> None:
    """Prints one line: how much host memory a run takes."""
    names = [f"host_{which}_bytes" for which in ("needed", "filling", "present")]
    needed, filling, present = (format_bytes(memory[name]) for name in names)
    print(f"host memory: {needed} needed ({filling} of it until the cache is filled), {present} available")


def print_plan(plan, source: dict, memory: dict, types: GraphTypes) -> None:
    """What each GPU holds, what to expect of a batch, where the counts come from, and host memory.

    Args:
        types: of the graph: a table says what GPUs hold of each, if they hold rows or lists of several.
    """
    held = TextTable("Cache", ["GPU", "budget", "index", "rows", "row bytes", "lists", "list bytes", "alpha"])
    rates = ("rows local", "recent", "peer", "host", "lists local", "peer", "host")
    expected = TextTable("Reads of a batch, %", ["GPU", *rates, "host B", "ms"])
    expected.note = "rows: feature rows (recent: in the pool); lists: neighbour lists"
    expected.note += "\nalpha: share of the lists in the cache"
    expected.note += "\nms: sum of all reads"
    for i, gpu in enumerate(gpu_plans(plan)):
        slabs = [(f"{len(slab.nodes):,}", format_bytes(slab.bytes)) for slab in (gpu.features, gpu.topology)]
        sizes = (format_bytes(gpu.budget_bytes), format_bytes(gpu.index_bytes), *slabs[0], *slabs[1])
        held.rows.append([str(i), *sizes, f"{gpu.alpha:.3f}"])
        rows, lists = (dict(zip(TIERS, hit_rates(uses), strict=True)) for uses in (gpu.feature_use, gpu.topology_use))
        served = [*(rows[tier] for tier in ("local", "recent", "peer", "host")), *(lists[tier] for tier in TIERS[:3])]
        shares = [f"{100 * rate:.1f}" for rate in served]
        expected.rows.append([str(i), *shares, format_bytes(_host_bytes(gpu)), f"{1e3 * gpu.seconds:.3f}"])
    by_type = _types_table(plan, types)
    print_tables(held, *[by_type] * (len(by_type.rows) > 2), expected)
    cliques = " ".join("{" + ",".join(map(str, plan.clique(i).gpus)) + "}" for i in range(plan.num_cliques))
    slots, graph = (format_bytes(memory[f"{which}_bytes"]) for which in ("slots", "graph"))
    print(f"cliques {cliques}; in addition to its cache, a GPU holds {slots} of slots and {graph} of the graph")
    _print_counts(source)
    print_host_memory(memory)


def _types_table(plan, types: GraphTypes) -> TextTable:
    gpus = [held_of_types(gpu, types) for gpu in gpu_plans(plan)]
    sizes = {name: types.counts[name] for name in gpus[0] if name in types.counts}
    sizes |= {" ".join(name): types.counts[name[2]] for name in types.edge_types}
    shown = TextTable("Rows and lists by type", ["of", "all", *(f"GPU {i}" for i in range(len(gpus)))])
    shown.note = "rows of node types with features; lists of relations"
    for name, size in sizes.items():
        shown.rows.append([name, f"{size:,}", *(f"{held[name]:,}" for held in gpus)])
    return shown


def _print_counts(source: dict) -> None:
    for number, clique_counts in enumerate(source.get("cliques", [])):
        print(f"counts of clique {number}: {_describe_counts(source | clique_counts)}")
    if "cliques" not in source:
        print(f"counts: {_describe_counts(source)}")


def _describe_counts(source: dict) -> str:
    stand_in = {"degree": "out-degrees", "random": "chance"}.get(source["policy"])
    if stand_in:
        return f"{stand_in}, a stand-in for counts: ms and bytes are not those of a real batch"
    how = "counted earlier" if source["reused"] else "counted now"
    depend = source["batch_dependency"] > 1 or source["seed_order"] != "shuffle"
    more = "; as they depend on each other, the pool finds more than this says" * depend
    return f"{source['batches']} batches of the sampler ({how}), {source['file']}{more}"
