"""Epochs on a graph and on GPUs that are not there, computed from the sizes of the graph and the rates of a GPU."""

import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.cache import budget, planner
from cohort_gnn.cache.gpu_rates import rates_named
from cohort_gnn.cache.options import bytes_of_nodes, memory_needs, raw_bytes_of
from cohort_gnn.launch.plan import network
from cohort_gnn.launch.plan.options import PlanSpec
from cohort_gnn.launch.plan.shape import Degrees, degrees_of_file, expected_batch, powerlaw
from cohort_gnn.launch.plan.steps import bytes_of_step, layers_of, seconds_of_step
from cohort_gnn.launch.plan.table import gpu_plans, hit_rates
from cohort_gnn.spec.results import TIERS

MEASURED_GPUS = 2  # epochs on more were never measured, nor any on several machines
LABEL_BYTES = 8


@dataclass(frozen=True)
class Estimate:
    """An epoch with caches of one size.

    Attributes:
        ratio: of each cache to all raw feature bytes.
        rows: shares of the rows of a batch, by tier.
        tier_bytes: rows and lists that the GPUs of a machine read in an epoch, by tier.
        cache_bytes, gpu_bytes, host_bytes: the cache and all memory of a GPU, and the memory of a machine.
        floor_seconds, limit: the least time of an epoch, and the part that needs it.
        seconds: of an epoch.
        is_measured: epochs on so many GPUs and machines were measured; otherwise nobody has compared.
        wrong: what will not fit.
    """

    machines: int
    ratio: float
    rows: dict[str, float]
    tier_bytes: dict[str, float]
    cache_bytes: int
    gpu_bytes: int
    host_bytes: int
    floor_seconds: float
    limit: str
    seconds: float
    is_measured: bool
    wrong: list[str]


class Purchase:
    """What is planned for: a graph, batches, and GPUs.

    Attributes:
        num_seeds, num_batches: of an epoch, of all GPUs together.
        batch: that is expected.
        step_seconds: of a whole batch, without sums over GPUs.
        disk_bytes: of the data set, with raw rows and, where ``--row-bytes`` says how long they are, encoded ones.

    Raises:
        CohortError: options that are missing or do not fit each other.
    """

    def __init__(self, spec: PlanSpec):
        self.num_nodes, self.num_edges, degrees = graph_of(spec)
        self.rates = rates_named(spec.gpu or "")
        self.spec = spec = replace(spec, gpu_memory=spec.gpu_memory or int(self.rates.memory_bytes.value))
        self.num_seeds = spec.train_nodes or round(spec.train_ratio * self.num_nodes)
        if not 1 <= self.num_seeds <= self.num_nodes:
            expected = f"1 to {self.num_nodes:,} nodes that train"
            raise CohortError("--train-nodes, --train-ratio", expected, f"{self.num_seeds:,}")
        self.num_gpus = number_of_gpus(spec)
        self.cliques = planner.cliques_named("all" if spec.cliques == "auto" else spec.cliques, self.num_gpus)
        self.num_batches = math.ceil(self.num_seeds / spec.batch_size)
        sizes = self.num_nodes, self.num_seeds, spec.batch_size
        self.batch = expected_batch(degrees, *sizes, spec.fanout, spec.presample_batches)
        self._index_bytes = 4 if self.num_nodes < 2**31 else 8
        self.topology_bytes = 8 * (self.num_nodes + 1) + self._index_bytes * self.num_edges
        self._meta = meta_of(spec, self.num_nodes, self.num_edges)
        self.raw_bytes = raw_bytes_of(self._meta)
        self._raw_row_bytes = self.raw_bytes // self.num_nodes
        self._row_bytes = spec.row_bytes or self._raw_row_bytes
        encoded_bytes = self.num_nodes * self._row_bytes if spec.row_bytes else 0
        self.disk_bytes = self.raw_bytes + encoded_bytes + self.topology_bytes + LABEL_BYTES * self.num_nodes
        self.step_seconds, step_bytes = self._step()
        most = {"max_batch_nodes": sum(self.batch.nodes), "max_batch_edges": sum(self.batch.edges)}
        self.needs = memory_needs(spec, self._meta, [{name: math.ceil(size) for name, size in most.items()}])
        if spec.trainer_bytes is None:
            self.needs = replace(self.needs, trainer_bytes=int(self.rates.context_bytes.value) + step_bytes)

    def _step(self) -> tuple[float, int]:
        """(seconds, bytes) of a step: as computed, or seconds as --step-ms says."""
        spec = self.spec
        if spec.step_ms is not None:
            return spec.step_ms / 1e3, 0
        if self.rates.step_source:
            hint = "--step-ms M, as cohort bench step measures it"
            raise CohortError(f"--gpu {spec.gpu}", "a GPU whose steps are known", self.rates.step_source, hint)
        layers = list(layers_of(spec, self.batch, spec.dim or 0, spec.classes))
        return seconds_of_step(layers, self.rates), bytes_of_step(layers)

    def estimate(self, ratio: float, machines: int = 1) -> Estimate:
        """An epoch with caches of this size on each GPU of so many machines."""
        spec, scale = self.spec, self.batch.nodes_each
        cache_bytes = int(ratio * self.raw_bytes)
        sizes = self.topology_bytes, bytes_of_nodes(self._meta), cache_bytes, spec.gpu_memory
        in_gpus = budget.topology_lies_in_gpus(spec.topology, *sizes)
        needs = replace(self.needs, graph_bytes=self.needs.graph_bytes + in_gpus * self.topology_bytes)
        parts = machines if spec.feature_placement == "partitioned" else 1
        placed = self._placed(cache_bytes, not in_gpus, parts)
        gpus = gpu_plans(placed)
        uses = [list(zip(gpu.feature_use, gpu.topology_use, strict=True)) for gpu in gpus]
        tier_bytes = {  # of a batch on each GPU
            tier: scale * sum(use.bytes for tiers in uses for use in tiers[number]) for number, tier in enumerate(TIERS)
        }
        shares = np.mean([hit_rates(gpu.feature_use) for gpu in gpus], axis=0).tolist()
        host_bytes = self.num_nodes * self._row_bytes // parts + (0 if in_gpus else self.topology_bytes)
        host_bytes += int(scale * placed.filling_bytes(len(self.batch.indptr) - 1))
        floor_seconds, limit, seconds = self._epoch(tier_bytes, machines)
        batches = self.num_seeds / spec.batch_size / self.num_gpus / machines  # of each GPU
        return Estimate(
            machines,
            ratio,
            dict(zip(TIERS, shares, strict=True)),
            {tier: batches * num_bytes for tier, num_bytes in tier_bytes.items()},
            cache_bytes,
            cache_bytes + needs.slots_bytes + needs.graph_bytes + (needs.trainer_bytes or 0),
            host_bytes,
            floor_seconds,
            limit,
            seconds,
            machines == 1 and self.num_gpus <= MEASURED_GPUS,
            budget.misfits([cache_bytes], needs, 0, 0),
        )

    def _placed(self, cache_bytes: int, with_lists: bool, machines: int):
        """The plan of the caches of the nodes that stand for all: bytes are to be multiplied by `nodes_each`."""
        spec, count = self.spec, len(self.batch.indptr) - 1
        holds_all = planner.holds_all_raw_rows(cache_bytes, [(self.num_nodes, self._raw_row_bytes)])
        return planner.plan(
            [planner.PlanRows(count, self._raw_row_bytes if holds_all else self._row_bytes, self._row_bytes)],
            [planner.PlanLists(self.batch.indptr, self._index_bytes)] if with_lists else [],
            self.batch.counts,
            cliques=self.cliques,
            budget_bytes=[int(cache_bytes / self.batch.nodes_each)] * self.num_gpus,
            links=planner.PlanLinks(self._links),
            pool_slots=spec.slots if spec.reuse else 0,
            machines=machines,
        )

    @property
    def _links(self) -> tuple[float, float, float]:
        """Bytes a second of local, peer and host memory."""
        if self.spec.bandwidth:
            local, peer, host = self.spec.bandwidth
            return 1e9 * local, 1e9 * peer, 1e9 * host
        return self.rates.local.value, self.rates.peer.value, self.rates.host.value

    def _epoch(self, tier_bytes: dict[str, float], machines: int) -> tuple[float, str, float]:
        """(the least time, the part that needs it, the epoch).

        Args:
            tier_bytes: of a batch on each GPU, together.
        """
        spec, rates, num_gpus = self.spec, self.rates, self.num_gpus
        _, peer, host = self._links
        from_host, remote = ((tier_bytes["host"] + tier_bytes["remote"]) / num_gpus, tier_bytes["remote"] / num_gpus)
        links = {
            "PCIe": from_host / host,
            "host memory": num_gpus * from_host / rates.host_memory.value,
            "NVLink": tier_bytes["peer"] / num_gpus / peer,
            "sampling": rates.sample_seconds.value + sum(self.batch.edges) * rates.sample_edge_seconds.value,
        }
        link = max(links, key=links.__getitem__)
        parameters = spec.parameters or network.count_parameters(spec, spec.dim or 0, spec.classes)
        sum_bytes = network.FLOAT_BYTES * (parameters + network.OTHER_SUMS)
        train = self.step_seconds
        if num_gpus > 1:
            train += rates.sum_seconds.value + 2 * (num_gpus - 1) / num_gpus * sum_bytes / peer

        def epoch(link_seconds: float) -> network.Epoch:
            step = network.Step(from_host, link_seconds, train, sum_bytes, remote)
            return network.epoch_on(machines, num_gpus, self.num_batches, step, network.network_of(spec))

        least = epoch(links[link])
        parts = {
            link: least.host_seconds,
            "the trainer's steps": least.train_seconds + least.network_seconds,
            "the network": least.remote_seconds,
        }
        pause = 0.0 if link == "sampling" else rates.fetch_seconds.value
        taken = epoch(links[link] + pause).seconds + rates.epoch_seconds.value
        return least.seconds, max(parts, key=parts.__getitem__), taken


def graph_of(spec: PlanSpec) -> tuple[int, int, Degrees]:
    """(nodes, edges, degrees) as options say.

    Raises:
        CohortError: an option is missing, or contradicts a file of degrees.
    """
    named = {"--dim": spec.dim, "--degrees": spec.degrees, "--gpu": spec.gpu}
    missing = [flag for flag, value in named.items() if value is None]
    if missing:
        hint = "--degrees powerlaw, or a .npy file of degrees; --gpu h100; --dim C columns of features"
        raise CohortError("--nodes", "what else a plan without a data set needs", f"no {', '.join(missing)}", hint)
    num_nodes, num_edges = int(spec.nodes or 0), spec.edges
    if spec.degrees != "powerlaw":
        degrees, mean = degrees_of_file(Path(spec.degrees or ""))
        expected = round(mean * num_nodes)
        if num_edges is not None and abs(num_edges - expected) > 0.01 * expected:
            raise CohortError("--edges", f"{expected:,}, as {spec.degrees} has them", f"{num_edges:,}", "leave it out")
        return num_nodes, expected, degrees
    if num_edges is None:
        raise CohortError("--degrees powerlaw", "the number of edges", "none", "add --edges E")
    return num_nodes, num_edges, powerlaw(num_nodes, num_edges)


def number_of_gpus(spec: PlanSpec) -> int:
    """Of each machine: as --num-gpus says, or --gpus, which is a number where there are no GPUs to name."""
    if spec.gpus is None or spec.num_gpus is not None and spec.gpus == [spec.num_gpus]:
        return spec.num_gpus or 1
    if spec.num_gpus is not None or len(spec.gpus) > 1 or spec.gpus[0] < 1:
        expected = "without a data set, a number of GPUs of at least 1"
        raise CohortError("--gpus", expected, ",".join(map(str, spec.gpus)), "use --num-gpus N")
    return spec.gpus[0]


def meta_of(spec: PlanSpec, num_nodes: int, num_edges: int) -> dict:
    """As meta.json of a data set has the sizes."""
    return {
        "nodes": [{"count": num_nodes, "features": {"dim": spec.dim, "dtype": spec.dtype}}],
        "edges": [{"count": num_edges}],
        "target": {"task": "multiclass", "num_classes": spec.classes, "label_dtype": "int64"},
    }
