"""What a loader takes from tensors in memory: a graph that is no data set yet, and more about nodes than one keeps."""

import contextlib
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor
from torch_geometric.data import Data

from cohort_gnn.base.errors import CohortError
from cohort_gnn.channel.run_folder import RunFolder
from cohort_gnn.dataset import from_pyg
from cohort_gnn.dataset.importing.tensors import times_of_sources
from cohort_gnn.trainer.loader.machine import has_other_ranks

OF_BATCHES = {"x", "edge_index", "indptr", "n_id", "input_id", "batch", "batch_size"}
OF_BATCHES |= {"e_id", "edge_weight", "edge_attr"}
TIMES = ("edge_time", "time")  # as from_pyg takes them


def written(data: Data, cleanup: contextlib.ExitStack, time_attr: str | None = None) -> tuple[Path, dict[str, Tensor]]:
    """A data set of a graph in memory, in a folder in shared memory that ``cleanup`` removes (after a kill the next run
    does); and its other node attributes, ``y`` among them, by name.

    Args:
        time_attr: the attribute that has the times of edges or nodes; None: edges get no times.

    Raises:
        CohortError: several ranks, which would write one each; or as ``from_pyg``.
    """
    if has_other_ranks():
        hint = 'write it once, before the ranks start: cohort.from_pyg(data, "data/mine")'
        raise CohortError("data", "the folder of a data set, which ranks share", "a PyG Data", hint)
    others = {
        name: value
        for name, value in data.to_dict().items()
        if name not in OF_BATCHES and isinstance(value, Tensor) and data.is_node_attr(name)
    }
    graph = Data(**{name: value for name, value in data.to_dict().items() if name not in {*others, *TIMES, time_attr}})
    if time_attr is not None and data.x is not None:
        graph.edge_time = _times_of(data, time_attr)
    if data.x is not None:  # the seeds that --cache-policy plan counts with, all of one class
        graph.y = torch.zeros(len(data.x), dtype=torch.int64)
        graph.train_mask = others.get("train_mask", torch.ones(len(data.x), dtype=torch.bool))
    of_edges = {}
    if graph.edge_attr is not None:  # also one number an edge, which from_pyg takes as its weight
        of_edges["edge_attr"] = graph.edge_attr.reshape(len(graph.edge_attr), -1)
        if time_attr is not None:  # beside which edges have no weights
            of_edges["edge_weight"] = graph.edge_weight
    folder = RunFolder()
    cleanup.callback(folder.remove)
    try:
        return from_pyg(graph, folder.path / "data", **of_edges), others
    except BaseException:
        cleanup.close()
        raise


def _times_of(data: Data, time_attr: str) -> Tensor:
    times = data.to_dict().get(time_attr)
    if not isinstance(times, Tensor):
        found = "none" if times is None else type(times).__name__
        raise CohortError("time_attr", f"the name of a tensor of times: data.{time_attr}", found)
    if data.is_node_attr(time_attr):
        return torch.from_numpy(times_of_sources(time_attr, data, times))
    return times


def checked_tensors(tensors: Mapping[str, Tensor] | None, num_nodes: int) -> dict[str, Tensor]:
    """The argument ``node_tensors``.

    Raises:
        CohortError: one is no tensor [num_nodes, ...], or has the name of what batches have anyway.
    """
    for name, tensor in (tensors or {}).items():
        place = f"node_tensors[{name!r}]"
        if name in OF_BATCHES:
            raise CohortError(place, f"another name than {', '.join(sorted(OF_BATCHES))}", repr(name))
        if not isinstance(tensor, Tensor) or tensor.dim() < 1 or len(tensor) != num_nodes:
            found = f"shape {list(tensor.shape)}" if isinstance(tensor, Tensor) else type(tensor).__name__
            raise CohortError(place, f"a tensor [{num_nodes}, ...], one row per node", found)
    return dict(tensors or {})


def rows_of(tensors: Mapping[str, Tensor], n_id: Tensor) -> dict[str, Tensor]:
    """Copies of the batch's rows, on the device of ``n_id``. Where a tensor is elsewhere, the ids go there and the rows
    come back."""
    return {name: tensor[n_id.to(tensor.device)].to(n_id.device) for name, tensor in tensors.items()}
