"""Epochs on several machines, computed: what trainers send each other, and how long that takes."""

import argparse
import math
from dataclasses import asdict, dataclass
from typing import Annotated, NamedTuple

from msgspec import Meta

from cohort.base.errors import CohortError
from cohort.launch.options.arguments import group, kind
from cohort.launch.options.parser import add_options, spec_of
from cohort.spec import types
from cohort.spec.run import RunSpec

MachineCounts = Annotated[list[types.Positive], Meta(min_length=1, description="numbers of machines: 2,4")]
FLOAT_BYTES = 4  # of a gradient
OTHER_SUMS = 2  # numbers that travel with the gradients: see StepSums in trainer/ranks.py
GB_PER_S, MICROSECONDS = 12.5, 50.0  # assumed: 100 Gbit/s Ethernet; nobody has measured them here
MODEL_OPTIONS = {"model", "hidden", "heads", "norm"}
OWN_OPTIONS = ("network", "network_us", "step_ms", "parameters")


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
        host_bytes, host_seconds: what its GPU reads from host memory for a batch, and how long that takes.
        train_seconds: from forward to optimizer; 0: not known.
        sum_bytes: what the trainers add up.
    """

    host_bytes: float
    host_seconds: float
    train_seconds: float
    sum_bytes: int


@dataclass(frozen=True)
class Epoch:
    """An epoch of training; bytes are those of one machine, which receives as many as it sends."""

    machines: int
    steps: int
    host_bytes: float
    network_bytes: float
    host_seconds: float
    train_seconds: float
    network_seconds: float
    seconds: float


def add_machine_options(parser: argparse.ArgumentParser) -> None:
    """Adds --machines, and what it needs to know."""
    several = group(parser, "Several machines")
    several.add_argument(
        "--machines",
        type=kind(MachineCounts),
        metavar="N[,N...]",
        help="also compute epochs for this number of machines like this one, each with the whole data set",
    )
    several.add_argument(
        "--network",
        type=kind(types.AboveZero),
        metavar="GB/S",
        help=f"rate between two machines, as cohort doctor --machines measures it (default: {GB_PER_S:g} assumed)",
    )
    several.add_argument(
        "--network-us",
        type=kind(types.AtLeastZero),
        metavar="US",
        help="microseconds of a small sum over all machines, as cohort doctor --machines measures it"
        f" (default: {MICROSECONDS:g} assumed)",
    )
    several.add_argument(
        "--step-ms",
        type=kind(types.AboveZero),
        metavar="MS",
        help="milliseconds of a training step, as cohort bench step measures it (default: steps are left out)",
    )
    several.add_argument(
        "--parameters",
        type=kind(types.Positive),
        metavar="N",
        help="number of the model's parameters (default: counted from --model, --hidden, --heads and --norm)",
    )
    add_options(parser, RunSpec, MODEL_OPTIONS, model="with --machines: the model whose gradients are sent")


def demand_machines(args: argparse.Namespace) -> None:
    """Raises CohortError for options that say something of several machines where there is one."""
    given = [name for name in OWN_OPTIONS if getattr(args, name) is not None]
    given += sorted(name for name in MODEL_OPTIONS if hasattr(args, name))
    if given and not args.machines:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise CohortError(flags, "--machines N: a plan for one machine needs no model and no network", "no --machines")


def epochs(args: argparse.Namespace, placed, num_batches: int, sizes: tuple[int, int]) -> tuple[Network, list[Epoch]]:
    """(the network, an epoch on one machine and on each number of --machines).

    Args:
        placed: the cache plan of one machine.
        num_batches: of an epoch.
        sizes: features and classes of the data set.
    """
    network = Network(1e9 * (args.network or GB_PER_S), _or(args.network_us, MICROSECONDS) / 1e6)
    gpus = [placed.gpu(i) for i in range(placed.num_gpus)]
    reads = [(gpu.feature_use[2], gpu.topology_use[2]) for gpu in gpus]
    sum_bytes = FLOAT_BYTES * ((args.parameters or count_parameters(spec_of(args, RunSpec), *sizes)) + OTHER_SUMS)
    host_bytes = sum(use.bytes for of_gpu in reads for use in of_gpu) / len(gpus)
    host_seconds = max(sum(use.seconds for use in of_gpu) for of_gpu in reads)
    step = Step(host_bytes, host_seconds, (args.step_ms or 0) / 1e3, sum_bytes)
    counts = sorted({1, *args.machines})
    return network, [epoch_on(machines, len(gpus), num_batches, step, network) for machines in counts]


def epoch_on(machines: int, gpus: int, num_batches: int, step: Step, network: Network) -> Epoch:
    """An epoch on machines of so many GPUs each, the slowest of which sets the time.

    The sampler reads batches while the trainer computes, so an epoch takes the longer of the two. The trainer adds up
    gradients after each step, and waits for the sum. Trainers form a ring: each sends 2 (n - 1) / n of the bytes to the
    next one (Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, Journal of
    Parallel and Distributed Computing 69, 2009), and a machine has one link of the ring that leads to another machine.
    Sums within a machine are left out.
    """
    trainers = machines * gpus
    steps = math.ceil(num_batches / trainers)
    sent = 2 * (trainers - 1) / trainers * step.sum_bytes if machines > 1 else 0.0
    summing = sent / network.bytes_per_second + network.seconds if machines > 1 else 0.0
    return Epoch(
        machines=machines,
        steps=steps,
        host_bytes=steps * gpus * step.host_bytes,
        network_bytes=steps * sent,
        host_seconds=steps * step.host_seconds,
        train_seconds=steps * step.train_seconds,
        network_seconds=steps * summing,
        seconds=steps * max(step.host_seconds, step.train_seconds + summing),
    )


def as_json(network: Network, found: list[Epoch]) -> dict:
    """Members of the plan's JSON."""
    return {"network": network._asdict(), "epochs": [asdict(each) for each in found]}


def count_parameters(spec: RunSpec, in_dim: int, out_dim: int) -> int:
    """Of the built-in models: as the layers of trainer/models/sampled.py have them.

    Raises:
        CohortError: the model is the user's.
    """
    if spec.has_own_model:
        raise CohortError(f"--model {spec.model}", "sage, gcn or gat", "a class", "--parameters N says how many it has")
    dims = [in_dim] + [spec.hidden] * (len(spec.fanout) - 1) + [out_dim]
    heads = [1] * (len(dims) - 2) + [spec.heads]  # whose outputs the last layer does not put side by side
    of_layer = {
        "sage": lambda rows, columns, heads: 2 * rows * columns + columns,  # of neighbours, of the node, bias
        "gcn": lambda rows, columns, heads: rows * columns + columns,
        "gat": lambda rows, columns, heads: (rows + 2) * columns * heads + columns,  # both ends of an edge, bias
    }[spec.model]
    layers = sum(map(of_layer, dims[:-1], dims[1:], heads))
    return layers + (2 * spec.hidden * (len(dims) - 2) if spec.norm == "layer" else 0)


def _or(value: float | None, default: float) -> float:
    return default if value is None else value
