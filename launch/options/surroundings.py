"""What run.json says of a run besides its options: the command, the machine, the versions, the size of its graph."""

import os
import platform
import socket
import time
from importlib.metadata import PackageNotFoundError, version

from cohort_gnn.base.machine import cpu_model, devices
from cohort_gnn.base.version import __version__
from cohort_gnn.dataset import StoredGraph
from cohort_gnn.spec.results import GraphSizes, Started

PACKAGES = ("torch", "torch_geometric", "numpy")


def started(command: str, gpus: list[int] | None) -> Started:
    """What run.json records when a run is started or resumed.

    Args:
        gpus: numbers, among the visible GPUs, of those that the run uses; None: the CPU.
    """
    machine = devices() if gpus is not None else {"gpus": [], "versions": []}
    names = {gpu["ordinal"]: gpu["name"] for gpu in machine["gpus"]}
    facts: Started = {
        "command": command,
        "date": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "host": socket.gethostname(),
        "cpu": f"{len(os.sched_getaffinity(0))} cores, {cpu_model()}",
        "gpus": [names.get(gpu, str(gpu)) for gpu in gpus or []],
        "versions": {"cohort": __version__, "python": platform.python_version()},
    }
    for package in PACKAGES:
        try:
            facts["versions"][package] = version(package)
        except PackageNotFoundError:
            continue
    if machine["versions"]:
        facts["versions"] |= dict(zip(("CUDA driver", "CUDA runtime"), map(str, machine["versions"]), strict=True))
    if job := os.environ.get("SLURM_JOB_ID"):
        facts["slurm_job"] = job
    return facts


def sizes_of(data: StoredGraph) -> GraphSizes:
    """The sizes of a run's graph."""
    keys = {name: data.key_of(name) for name in data.node_types}
    edges = {" ".join(data.key_of(name)): relation.num_edges for name, relation in data.edge_types.items()}
    return {
        "num_nodes": data.num_nodes,
        "num_edges": data.num_edges,
        "num_classes": data.num_classes,
        "splits": {name: len(getattr(data, f"{name}_ids")) for name in ("train", "val", "test")},
        "feature_dims": {keys[name]: table.feature_dim for name, table in data.node_types.items()},
        "node_types": {keys[name]: table.num_nodes for name, table in data.node_types.items() if keys[name]},
        "edge_types": {name: count for name, count in edges.items() if name},
    }
