"""Epochs on several machines, computed: what trainers send each other, and how long that takes."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from cohort_gnn.base.errors import CohortError
from cohort_gnn.cache.planner import NETWORK_BYTES_PER_SECOND
from cohort_gnn.launch.plan.far import FarRows
from cohort_gnn.launch.plan.table import TIERS, gpu_plans
from cohort_gnn.spec.models import models_with
from cohort_gnn.spec.run import RunSpec

FLOAT_BYTES = 4  # of a gradient
HOST, REMOTE = TIERS.index("host"), TIERS.index("remote")  # of a plan's uses by tier
OTHER_SUMS = 2  # numbers that travel with the gradients, besides one a tensor: see StepSums in trainer/loop/ranks.py
GB_PER_S, MICROSECONDS = NETWORK_BYTES_PER_SECOND / 1e9, 50.0  # assumed, not measured


class Network(NamedTuple):
    """What joins machines.

    Attributes:
        bytes_per_second: from one machine to another.
        seconds: of a sum over all machines, beside the time of its bytes.
    """

    bytes_per_second: float
    seconds: float


class Step(NamedTuple):
    """One step of one trainer.

    Attributes:
        host_bytes, host_seconds: what its GPU reads from host memory for a batch, rows of other machines and of the
            disk included, and how long that takes.
        train_seconds: from forward to optimizer; 0: not known.
        sum_bytes: what the trainers add up.
        remote_bytes: rows that other machines send for a batch.
        disk_seconds: of the drive, for a batch.
    """

    host_bytes: float
    host_seconds: float
    train_seconds: float
    sum_bytes: int
    remote_bytes: float = 0.0
    disk_seconds: float = 0.0


@dataclass(frozen=True)
class Epoch:
    """An epoch of training; bytes are those of one machine, which receives as many as it sends.

    Attributes:
        network_bytes, network_seconds: of gradients.
        remote_bytes, remote_seconds: of rows of other machines.
        disk_seconds: of rows on the disk.
        seconds: of the epoch.
    """

    machines: int
    steps: int
    host_bytes: float
    network_bytes: float
    host_seconds: float
    train_seconds: float
    network_seconds: float
    seconds: float
    remote_bytes: float = 0.0
    remote_seconds: float = 0.0
    disk_seconds: float = 0.0


def network_of(spec) -> Network:
    """As the options of a PlanSpec say, else as assumed."""
    microseconds = MICROSECONDS if spec.network_us is None else spec.network_us
    return Network(1e9 * (spec.network or GB_PER_S), microseconds / 1e6)


def epochs(
    spec, placed, num_batches: int, parameters: int, rows: FarRows | None, plan_of: Callable
) -> tuple[Network, list[Epoch]]:
    """(the network, an epoch on one machine and on each number of --machines).

    Args:
        spec: a PlanSpec.
        placed: the cache plan of one machine.
        num_batches: of an epoch.
        parameters: of the model.
        rows: that are not in the memory of each machine; None: there are none.
        plan_of: planner.plan() with all arguments but ``machines``.
    """
    network = network_of(spec)
    sum_bytes = FLOAT_BYTES * (parameters + OTHER_SUMS)
    train_seconds = (spec.step_ms or 0) / 1e3
    results = []
    for machines in sorted({1, *spec.machines}):
        here, (remote_share, disk_reads) = placed, rows.shares(machines) if rows else (0.0, 0.0)
        if rows and rows.prefers_others(machines):
            here = plan_of(machines=machines)
        gpus = gpu_plans(here)
        host_bytes, host_seconds, remote_bytes = reads_of(here, remote_share)
        on_disk = len(gpus) * disk_reads / rows.drive if rows and disk_reads else 0.0
        step = Step(host_bytes, host_seconds, train_seconds, sum_bytes, remote_bytes, on_disk)
        results.append(epoch_on(machines, len(gpus), num_batches, step, network))
    return network, results


def reads_of(placed, remote_share: float) -> tuple[float, float, float]:
    """What a GPU reads for a batch: (bytes from host memory, seconds of the GPU that takes longest, bytes of rows from
    other machines, which are among the first).

    Args:
        placed: a cache plan.
        remote_share: of the bytes of rows, if the plan does not say which rows other machines have.
    """
    rows = [[gpu.feature_use[HOST], gpu.feature_use[REMOTE]] for gpu in gpu_plans(placed)]
    lists = [gpu.topology_use[HOST] for gpu in gpu_plans(placed)]
    row_bytes = sum(use.bytes for uses in rows for use in uses)
    remote_bytes = sum(remote.bytes for _, remote in rows)
    seconds_per_byte = len(rows) / NETWORK_BYTES_PER_SECOND  # as in the plan
    seconds = [
        host.seconds + remote.seconds - remote.bytes * seconds_per_byte + list_use.seconds
        for (host, remote), list_use in zip(rows, lists, strict=True)
    ]
    host_bytes = row_bytes + sum(use.bytes for use in lists)
    return host_bytes / len(rows), max(seconds), (remote_bytes or remote_share * row_bytes) / len(rows)


def epoch_on(machines: int, gpus: int, num_batches: int, step: Step, network: Network) -> Epoch:
    """An epoch on machines of so many GPUs each, the slowest of which sets the time.

    The sampler reads batches while the trainer computes, from host memory, disk and other machines at the same time, so
    an epoch takes the longest of these. Rows share the network with gradients. The trainer adds up gradients after each
    step, and waits for the sum. Trainers form a ring: each sends 2 (n - 1) / n of the bytes to the
    next one (Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, Journal of
    Parallel and Distributed Computing 69, 2009), and a machine has one link of the ring that leads to another machine.
    Sums within a machine are left out.
    """
    trainers = machines * gpus
    steps = math.ceil(num_batches / trainers)
    sent = 2 * (trainers - 1) / trainers * step.sum_bytes if machines > 1 else 0.0
    summing = sent / network.bytes_per_second + network.seconds if machines > 1 else 0.0
    rows_sent = gpus * step.remote_bytes
    travel = (rows_sent + sent) / network.bytes_per_second
    return Epoch(
        machines=machines,
        steps=steps,
        host_bytes=steps * gpus * step.host_bytes,
        network_bytes=steps * sent,
        host_seconds=steps * step.host_seconds,
        train_seconds=steps * step.train_seconds,
        network_seconds=steps * summing,
        seconds=steps * max(step.host_seconds, step.train_seconds + summing, travel, step.disk_seconds),
        remote_bytes=steps * rows_sent,
        remote_seconds=steps * rows_sent / network.bytes_per_second,
        disk_seconds=steps * step.disk_seconds,
    )


def count_parameters(spec: RunSpec, in_dim: int, out_dim: int) -> int:
    """The number of parameters of a built-in model, with the layers of trainer/models/sampled.py.

    Raises:
        CohortError: the number of parameters of the model's layers is not known.
    """
    kind = spec.model_kind
    if kind.parameters is None:
        expected = models_with("parameters")
        raise CohortError(f"--model {spec.model}", expected, "another model", "--parameters N says how many it has")
    dims = [in_dim] + [spec.hidden] * (len(spec.fanout) - 1) + [out_dim]
    heads = [1] * (len(dims) - 2) + [spec.heads]  # the last layer does not concatenate the outputs of its heads
    matrices, vectors = kind.parameters
    head_counts = (count if kind.has_heads else 1 for count in heads)
    shapes = zip(dims[:-1], dims[1:], head_counts, strict=True)
    layers = sum((matrices * rows + vectors) * columns * count + columns for rows, columns, count in shapes)
    return layers + (2 * spec.hidden * (len(dims) - 2) if spec.norm == "layer" else 0)
