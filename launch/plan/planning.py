"""What ``cohort plan`` plans for, and the plans."""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.machine import devices
from cohort_gnn.base.units import format_bytes
from cohort_gnn.cache import budget, planner
from cohort_gnn.cache.interconnect import machine_bandwidth
from cohort_gnn.cache.options import bytes_of_nodes, memory_needs, presample, raw_bytes_of, row_tables
from cohort_gnn.dataset.links import link_edges
from cohort_gnn.launch.options.devices import gpu_memory
from cohort_gnn.launch.options.partition import clique_seeds, cliques_of_ranks
from cohort_gnn.launch.plan import network, table
from cohort_gnn.launch.plan.far import (
    DiskPlan,
    FarRows,
    Reads,
    are_divided,
    bytes_in_host,
    demand_encoded_tables,
    far_rows,
    plan_disk,
)
from cohort_gnn.launch.plan.options import PlanSpec
from cohort_gnn.launch.run.job import open_to_train, planned_seeds, topology_bytes, with_task
from cohort_gnn.launch.run.times import check_times, learns_links, task_of
from cohort_gnn.launch.run.train import check_links, check_of_links, models_for
from cohort_gnn.spec.meta import read_meta


class PlannedCache(NamedTuple):
    """A plan, the arguments of planner.plan() that made it with the counts, memory, and what will not fit."""

    placed: object
    common: dict
    memory: dict
    wrong: list[str]


class Planning:
    """What is planned for, and with what.

    Attributes:
        num_batches: of an epoch, of all GPUs together.
        counts: of all GPUs, or with --partition of each clique; source: where they come from.
        needs: what a GPU needs beside the cache.
        raw_bytes: of all raw feature rows.
    """

    def __init__(self, spec: PlanSpec):
        self.data, self.machine = open_to_train(spec.dataset), devices()
        self._trees: dict[str, Any] | None = None  # of disjoint batches, as presample() takes them
        spec, self.num_batches, self._seeds = self._with_seeds(spec)
        self.spec = spec
        if spec.gpus and spec.num_gpus not in (None, len(spec.gpus)):
            actual = f"{len(spec.gpus)} and {spec.num_gpus} GPUs"
            raise CohortError("--gpus, --num-gpus", "one of the two", actual)
        self.num_gpus = spec.num_gpus or len(spec.gpus or self.machine["gpus"]) or 1
        self.cliques = self._cliques()
        self._gpu_bytes = gpu_memory(spec, self.machine)
        self._meta = read_meta(spec.dataset)
        self.raw_bytes = raw_bytes_of(self._meta)
        self._demand_sizes()
        self.counts, self.source = self._counts(self.cliques if spec.partition else None)
        self._topology_bytes = topology_bytes(self.data, self.spec.weight_attr)
        names = ("max_batch_nodes", "max_batch_edges")
        seen = [{name: getattr(counts, name) for name in names} for counts in self.counts if counts.max_batch_nodes]
        spec = replace(spec, gpu_memory=self._gpu_bytes)
        self.needs = memory_needs(spec, self._meta, seen, disjoint=self._trees is not None)

    def _demand_sizes(self) -> None:
        """Raises CohortError for options that fit neither each other nor the data set: before a short run, which takes
        its time."""
        spec = self.spec
        if spec.cache_ratios and (spec.cache_ratio or spec.cache_bytes is not None):
            raise CohortError("--cache-ratios", "no --cache-ratio and no --cache-bytes", "one of them")
        hint = "--cache-ratios R,R,... prints a table of sizes, each for all GPUs"
        budget.demand_one_each(self.num_gpus, spec.cache_ratio, spec.cache_bytes, hint)
        if spec.cache_ratio == "auto":
            budget.demand_known(self._gpu_bytes, spec.trainer_bytes)
        if spec.machines and self.compares_sizes:
            raise CohortError("--machines", "the size of the caches", "none", "add --cache-ratio R or --cache-bytes B")
        if spec.machines:
            self.parameters()
        self._tables([0] * self.num_gpus)

    def _with_seeds(self, spec: PlanSpec) -> tuple[PlanSpec, int, np.ndarray | None]:
        """(the options, with as many nodes in a batch as sampling begins with; batches of an epoch, of all GPUs
        together; the nodes that batches begin with, None: those of the split)."""
        data, spec = self.data, with_task(spec, self.data)
        check_of_links(spec, data)
        check_times(spec, data)
        if learns_links(spec, data):
            check_links(spec, data)
            if spec.split != "train":
                raise CohortError("--split", f"train, with --task {spec.task}", spec.split, "leave it out")
        if spec.task == "link":
            num_seeds = link_edges(data, spec.relation).lists.num_edges
        else:
            num_seeds = task_of(spec, data).splits[spec.split].num_rows
        seeds, batch_size, self._trees = planned_seeds(spec, data, spec.split)
        return replace(spec, batch_size=batch_size), -(-num_seeds // spec.batch_size), seeds

    def _cliques(self) -> list[list[int]]:
        text, num_gpus = self.spec.cliques, self.num_gpus
        if text == "auto" and num_gpus > 1 and sum(map(len, self.machine["cliques"])) != num_gpus:
            hint = "say which GPUs read each other's memory: none, all, 2x4, 3+5"
            actual = f"{len(self.machine['gpus'])} here"
            raise CohortError("--cliques auto", f"{num_gpus} GPUs to ask", actual, hint)
        return cliques_of_ranks(text, list(range(num_gpus)), num_gpus > 1, self.machine)

    def parameters(self) -> int:
        """The parameters of the model: as --parameters says, else counted.

        Raises:
            CohortError: they cannot be counted.
        """
        spec, data = self.spec, self.data
        if spec.parameters is not None:
            return spec.parameters
        out_dim = spec.hidden if learns_links(spec, data) else task_of(spec, data).num_classes
        if spec.model in models_for(data):
            return network.count_parameters(spec, data.node_types[data.target].feature_dim, out_dim)
        hint = "--parameters N says how many the model has"
        raise CohortError("--machines", f"--parameters, for the types of {data.path}", f"--model {spec.model}", hint)

    def _counts(self, cliques: list[list[int]] | None) -> tuple[list[planner.Counts], dict]:
        """(counts, where they come from): of all GPUs, or of each of the cliques."""
        spec, data = self.spec, self.data
        if spec.cache_policy in ("degree", "random"):
            if spec.partition:
                expected = "--cache-policy plan, which counts"
                raise CohortError("--partition", expected, spec.cache_policy, "leave one out")
            picks = -1 if min(spec.fanout) < 0 else max(spec.fanout)
            first = data.first_node
            edges = [
                planner.PlanEdges(relation.indptr, relation.indices, (first[source], first[target]))
                for (source, _, target), relation in data.edge_types.items()
            ]
            stand_in = planner.Counts.stand_in(spec.cache_policy, edges, data.num_nodes, picks)
            return [stand_in], {"policy": spec.cache_policy}
        fanout = spec.fanout * len(data.edge_types)
        run = (spec.dataset, fanout, spec.batch_size, spec.presample_batches, spec.split, spec.refresh)
        seeds = clique_seeds(spec.dataset, cliques, spec.split) if cliques else [self._seeds]
        sources = [presample(*run, relation, spec.draws, self._trees) for relation in seeds]
        counts = [planner.load_counts(Path(source["file"])) for source in sources]
        how = {"policy": spec.cache_policy, "batch_dependency": spec.batch_dependency, "seed_order": spec.seed_order}
        return counts, how | ({"cliques": sources} if cliques else sources[0])

    @property
    def counts_to_plan(self):
        """As planner.plan() takes them: those of all GPUs, or of each clique."""
        return self.counts if self.spec.partition else self.counts[0]

    @property
    def compares_sizes(self) -> bool:
        """Whether to plan caches of several sizes: on request, or because no option sets their size and the memory that
        slots and trainer leave is unknown."""
        spec = self.spec
        said = spec.cache_ratio or spec.cache_bytes is not None or spec.cache_policy == "none"
        return spec.cache_ratios is not None or not said and None in (self._gpu_bytes, spec.trainer_bytes)

    def budgets(self) -> list[int]:
        """Bytes of each cache, as options ask."""
        sizes = self.spec.cache_ratio, self.spec.cache_bytes
        if self.spec.cache_policy == "none":
            sizes = None, [0]
        return budget.budgets(self.num_gpus, self.raw_bytes, *sizes, self.needs)

    def place(self, budgets: list[int]) -> PlannedCache:
        """Plans caches of such sizes, or less, where the topology takes a part of what is left."""
        spec, data, needs = self.spec, self.data, self.needs
        takes_all = spec.cache_ratio in (None, "auto") and spec.cache_bytes is None and spec.cache_policy != "none"
        if takes_all and spec.topology == "auto" and not self.compares_sizes:
            kept = budget.beside_topology(budgets, self._topology_bytes, row_tables(self._meta))
            budgets, in_gpus = kept or budgets, kept is not None
        else:
            sizes = (self._topology_bytes, bytes_of_nodes(self._meta), max(budgets), needs.gpu_bytes)
            in_gpus = budget.topology_lies_in_gpus(spec.topology, *sizes)
        if in_gpus:
            needs = replace(needs, graph_bytes=needs.graph_bytes + self._topology_bytes)
        common = self._planned_by(budgets, not in_gpus)
        placed = planner.plan(counts=self.counts_to_plan, **common)
        host_filling = placed.filling_bytes(data.num_nodes)
        host_rows = sum(int(bytes_in_host(rows).sum(dtype=np.int64)) for rows in common["tables"])
        if spec.machines and are_divided(spec.feature_placement, host_rows, spec.host_bytes, self._row_files()):
            host_rows //= min(spec.machines)
        if spec.host_bytes is not None:
            host_rows = min(host_rows, spec.host_bytes)
        memory = {
            "slots_bytes": needs.slots_bytes,
            "graph_bytes": needs.graph_bytes,
            "host_needed_bytes": host_rows + (0 if in_gpus else self._topology_bytes) + host_filling,
            "host_filling_bytes": host_filling,
            "host_present_bytes": budget.available_host_bytes(),
        }
        wrong = [
            f"GPU {i}: a cache of {format_bytes(size)} cannot even hold its index; use a larger --cache-ratio or 0"
            for i, size in enumerate(budgets)
            if size > 0 and placed.gpu(i).used_bytes == 0
        ]
        host = memory["host_needed_bytes"], memory["host_present_bytes"]
        return PlannedCache(placed, common, memory, wrong + budget.misfits(budgets, needs, *host))

    def _planned_by(self, budgets: list[int], with_lists: bool) -> dict:
        """The arguments of planner.plan() that data set and machine give."""
        spec = self.spec
        relations = [
            planner.PlanLists(relation.indptr, relation.indices.itemsize) for relation in self.data.edge_types.values()
        ]
        bandwidth = spec.bandwidth or machine_bandwidth(self.machine, list(range(len(budgets))))
        (local, peer, host), delays = bandwidth, spec.line_ns
        seconds_per_line = 1e-9 * delays[0], 1e-9 * delays[1], 1e-9 * delays[2]
        return {
            "tables": self._tables(budgets),
            "relations": relations if with_lists else [],
            "pool_slots": spec.slots if spec.reuse and spec.cache_policy in ("plan", "none") else 0,
            "budget_bytes": budgets,
            "cliques": self.cliques,
            "links": planner.PlanLinks((1e9 * local, 1e9 * peer, 1e9 * host), seconds_per_line),
        }

    def _tables(self, budgets: list[int]) -> list[planner.PlanRows]:
        """The rows of each node type, as sampler/load.cc has them in slabs and in host memory."""
        spec, tables = self.spec, list(self.data.node_types.values())
        if spec.row_bytes is not None:
            stored = [(spec.row_bytes if table.feature_dim else 0) for table in tables]
            return [
                planner.PlanRows(table.num_nodes, row_bytes, row_bytes)
                for table, row_bytes in zip(tables, stored, strict=True)
            ]
        prepared = any(table.encoded_rows is not None for table in tables)
        if spec.compress in ("host", "both") and not prepared:
            hint = f"encode them with: cohort dataset prepare {spec.dataset}"
            raise CohortError(f"--compress {spec.compress}", "a data set with encoded rows", str(spec.dataset), hint)
        hold_all = all(planner.holds_all_raw_rows(row_bytes, row_tables(self._meta)) for row_bytes in budgets)
        in_host = spec.compress in ("host", "both") or (spec.compress == "auto" and prepared)
        if spec.host_bytes is not None and spec.host_bytes < self.raw_bytes:
            option = f"--host-bytes {format_bytes(spec.host_bytes)}"
            demand_encoded_tables(option, self.data.feature_tables, in_host, spec.dataset)
        in_slabs = spec.compress in ("cache", "both") or (spec.compress == "auto" and prepared and not hold_all)
        return [
            planner.PlanRows(
                table.num_nodes,
                planner.stored_row_bytes(table, in_slabs),
                planner.stored_row_bytes(table, True) if in_host else planner.raw_row_bytes(table),
            )
            for table in tables
        ]

    def on_disk(self, placement: PlannedCache) -> DiskPlan | None:
        """What --host-bytes leaves on the disk; None: nothing, or it is not known what a batch reads."""
        host_bytes = self.spec.host_bytes
        if host_bytes is None or self.source["policy"] in ("degree", "random"):
            return None
        return plan_disk(self._reads(placement), host_bytes, self.num_batches)

    def far(self, placement: PlannedCache) -> FarRows | None:
        """Rows of --machines that are not in the memory of each; None: there are none."""
        spec = self.spec
        if spec.feature_placement == "partitioned":
            demand_encoded_tables(
                "--feature-placement partitioned", self.data.feature_tables, bool(self._row_files()), spec.dataset
            )
        return far_rows(self._reads(placement), spec.feature_placement, spec.host_bytes, [1, *(spec.machines or [])])

    def _reads(self, placement: PlannedCache) -> Reads:
        return Reads(placement.common["tables"], self.counts, placement.placed, self._row_files())

    def _row_files(self) -> list[Path]:
        """The files of encoded rows, where host memory has encoded ones."""
        if self.spec.compress not in ("auto", "host", "both"):
            return []
        return [table.encoded_rows for table in self.data.node_types.values() if table.encoded_rows is not None]

    def gain(self, placement: PlannedCache) -> dict:
        """Shares of each GPU's row reads that host memory need not serve, with the seeds of parts and without."""
        (counts,), _ = self._counts(None)
        plans = {"with_parts": placement.placed, "without": planner.plan(counts=counts, **placement.common)}
        return {"partition": {name: table.shares_in_gpus(plan) for name, plan in plans.items()}}
