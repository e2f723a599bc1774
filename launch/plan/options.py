"""The options of ``cohort plan``."""

from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from cohort_gnn.launch.plan.network import GB_PER_S, MICROSECONDS
from cohort_gnn.spec import types
from cohort_gnn.spec.options import option
from cohort_gnn.spec.run import RunSpec

NO_OPTIONS = {
    "seed",
    "device",
    "ranks",
    "mps",
    "order",
    "fetch_sms",
    "use_edge_weights",
    "ahead",
}  # no plan depends on them
SEVERAL_OPTIONS = {"model", "hidden", "heads", "norm", "feature_placement"}  # needed with --machines
SEED_OPTIONS = {"task", "relation", "negatives", "negatives_from"}  # they say which nodes batches begin with
SEED_OPTIONS |= {"time_attr", "temporal_strategy", "time_window", "overlapping_times"}  # and at which times
MachineCounts = Annotated[list[types.Positive], Meta(min_length=1, description="numbers of machines: 2,4")]

# Those that a plan without a data set knows, besides the sizes of the graph.
PURCHASE_OPTIONS = {"fanout", "batch_size", "slots", "topology", "reuse", "cache_ratio", "cliques", "gpus", "bandwidth"}
PURCHASE_OPTIONS |= {
    "presample_batches",
    "gpu_memory",
    "trainer_bytes",
    "row_bytes",
    "cache_ratios",
    "num_gpus",
    "machines",
    "network",
}
PURCHASE_OPTIONS |= {"network_us", "step_ms", "parameters", "model", "hidden", "heads", "norm", "feature_placement"}

_graph = partial(option, group="A graph and GPUs that are not there")
_several_machines = partial(option, None, group="Several machines")


@dataclass(kw_only=True)
class PlanSpec(RunSpec):
    """Options of the command."""

    gpus: types.Gpus | None = option(
        None, "numbers of the visible GPUs to plan for (default: all); with --nodes: how many", group="Devices"
    )
    nodes: types.Count | None = _graph(None, "number of nodes: plan without a data set and without a GPU", metavar="N")
    edges: types.Count | None = _graph(None, "number of edges", metavar="E")
    dim: types.Positive | None = _graph(None, "columns of feature rows", metavar="C")
    dtype: types.FeatureDtype = _graph("float32", "type of the numbers in feature rows")
    degrees: str | None = _graph(
        None,
        "powerlaw, as cohort dataset generate makes them; or a .npy file of the degrees of all nodes, or of a sample of"
        " them: integers [n], or [n, 2] with in-degrees and out-degrees",
        metavar="powerlaw|FILE",
    )
    train_ratio: types.Share = _graph(0.01, "share of the nodes that train", metavar="R")
    train_nodes: types.Count | None = _graph(None, "number of nodes that train, in place of the share", metavar="N")
    classes: types.Positive = _graph(2, "columns of the model's output", metavar="N")
    gpu: str | None = _graph(
        None, "type of the GPUs, or a file of rates that cohort doctor --save wrote", metavar="h100|h200|FILE"
    )
    num_gpus: types.Positive | None = option(
        None, "plan for this number of GPUs, present or not (default: the GPUs of --gpus)", group="Devices"
    )
    machines: MachineCounts | None = _several_machines(
        "also compute epochs for this number of machines like this one", metavar="N[,N...]"
    )
    network: types.AboveZero | None = _several_machines(
        f"rate between two machines, as cohort doctor --machines measures it (default: {GB_PER_S:g} assumed)",
        metavar="GB/S",
    )
    network_us: types.AtLeastZero | None = _several_machines(
        "microseconds of a small sum over all machines, as cohort doctor --machines measures it"
        f" (default: {MICROSECONDS:g} assumed)",
        metavar="US",
    )
    step_ms: types.AboveZero | None = _several_machines(
        "milliseconds of a training step, as cohort bench step measures it (default: steps are left out)", metavar="MS"
    )
    parameters: types.Positive | None = _several_machines(
        "number of the model's parameters (default: counted from --model, --hidden, --heads and --norm)", metavar="N"
    )
    cache_ratios: types.Ratios | None = option(
        None,
        "print a table of these sizes, each for all GPUs, in place of one plan (default where no size is known:"
        " 0,0.05,0.1,0.5,1)",
        group="Cache",
        metavar="R[,R...]",
    )
    split: Literal["train", "val", "test"] = option("train", "seeds of the short run")
    row_bytes: types.Bytes | None = option(None, "bytes of a stored feature row (default: follows from --compress)")
    dataset: Path  # Path() without a data set
    refresh: bool
    json: bool


GRAPH_OPTIONS = {"nodes", "edges", "dim", "dtype", "degrees", "train_ratio", "train_nodes", "classes", "gpu"}
OWN_OPTIONS = ({field.name for field in fields(PlanSpec)} - {field.name for field in fields(RunSpec)}) | {"gpus"}
