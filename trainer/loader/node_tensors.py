"""What a loader takes from tensors in memory: a graph that is no data set yet, and more about nodes than one keeps."""

import contextlib
import warnings
from collections.abc import Iterable, Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from cohort_gnn.base.errors import CohortError
from cohort_gnn.channel.run_folder import RunFolder
from cohort_gnn.dataset import Dataset, HeteroDataset, from_pyg
from cohort_gnn.dataset.hetero import Relation
from cohort_gnn.dataset.importing.hetero import from_hetero
from cohort_gnn.dataset.importing.tensors import times_of_sources
from cohort_gnn.spec.graph import EdgeType
from cohort_gnn.trainer.loader.batch import Batch
from cohort_gnn.trainer.loader.hetero import HeteroBatch
from cohort_gnn.trainer.loader.machine import has_other_ranks

OF_BATCHES = {"x", "edge_index", "indptr", "n_id", "input_id", "batch", "batch_size"}
OF_BATCHES |= {"e_id", "edge_weight", "edge_attr", "num_nodes", "num_sampled_nodes", "num_sampled_edges"}
OF_PAIRS = ("edge_label", "edge_label_index")  # of PyG's RandomLinkSplit: arguments of a LinkNeighborLoader
OF_BATCHES |= {*OF_PAIRS, "src_index", "dst_pos_index", "dst_neg_index", "seed_time", "input_type"}
TIMES = ("edge_time", "time")  # as from_pyg takes them
NodeTensors = dict[str | None, dict[str, Tensor]]  # by name, of each node type; None: of the only one


class Written(NamedTuple):
    """A graph in memory, as a loader reads it.

    Attributes:
        folder: of its data set.
        others: node attributes that the data set has not.
        has_labels: the labels of the seeds' type are among these; those of the data set are no labels.
        graph: what the data set was written from.
    """

    folder: Path
    others: NodeTensors
    has_labels: bool
    graph: Data | HeteroData


class EdgeColumns:
    """The edges of a graph in memory by their columns in its ``edge_index``, whose order its data set does not keep."""

    def __init__(self, graph: Data | HeteroData, data: Dataset | HeteroDataset):
        self._edges: dict[EdgeType | None, tuple[Any, Dataset | Relation]] = {}
        if isinstance(data, HeteroDataset):
            self._edges |= {name: (graph[name], lists) for name, lists in data.edge_types.items()}
        else:
            self._edges[None] = graph, data
        self._columns: dict[EdgeType | None, Tensor] = {}  # those asked for

    def of(self, name: EdgeType | None) -> Tensor:
        """int64 [E]: of the edge at each place in the data set's ``indices``, the column. Of equal edges, which differ
        in nothing that the data set has, any.

        Args:
            name: of an edge type; None: there is only one.
        """
        if name in self._columns:
            return self._columns[name]
        store, lists = self._edges[name]
        target = np.repeat(np.arange(len(lists.indptr) - 1), np.diff(lists.indptr))
        keys = [(*np.asarray(torch.as_tensor(store.edge_index).cpu()),), (lists.indices, target)]
        for there, dtype in (("edge_time", np.int64), ("edge_weight", np.float32)):
            numbers, written = getattr(store, there, None), getattr(lists, f"{there}s")
            if numbers is not None and written is not None:
                given = np.asarray(torch.as_tensor(numbers).cpu()).reshape(-1).astype(dtype)
                keys = [(given, *keys[0]), (written, *keys[1])]
        columns = np.empty(lists.num_edges, np.int64)
        columns[np.lexsort(keys[1])] = np.lexsort(keys[0])
        return self._columns.setdefault(name, torch.from_numpy(columns))

    def name_edges(self, batch: Batch | HeteroBatch) -> None:
        """Has ``e_id`` of a batch, where it has one, name columns in place of places."""
        for name in batch.edge_types if isinstance(batch, HeteroData) else [None]:
            store = batch if name is None else batch[name]
            if "e_id" in store:
                store.update(rows_of({"e_id": self.of(name)}, store.e_id))


def written(data: Data | HeteroData, cleanup: contextlib.ExitStack, time_attr: str | None, seeds) -> Written:
    """Writes a graph in memory as a data set, in a folder in shared memory that ``cleanup`` removes (after a kill the
    next run does).

    Args:
        time_attr: the attribute that has the times of edges or nodes; None: edges get no times.
        seeds: of a HeteroData: what names a node type or an edge type first.

    Raises:
        CohortError: several ranks, which would write one each; or as ``from_pyg``.
    """
    if has_other_ranks():
        hint = 'write it once, before the ranks start: cohort.from_pyg(data, "data/mine")'
        raise CohortError("data", "the folder of a data set, which ranks share", f"a PyG {type(data).__name__}", hint)
    folder = RunFolder()
    cleanup.callback(folder.remove)
    if isinstance(data, HeteroData):
        return _written_typed(data, folder.path / "data", time_attr, seeds)
    others = _others_of(data)
    graph = Data(
        **{name: value for name, value in data.to_dict().items() if name not in {*others, *TIMES, *OF_PAIRS, time_attr}}
    )
    if time_attr is not None and data.x is not None:
        graph.edge_time = _times_of(data, time_attr)
    if data.x is not None:
        _count_with(graph, len(data.x), others)
    _warn_of_what_is_left_out(
        f"Data.{name} {_shape(value)}"
        for name in ("y", *TIMES)
        if (value := data.to_dict().get(name)) is not None and name not in others and name != time_attr
    )
    of_edges = {}
    if graph.edge_attr is not None:  # also one number an edge, which from_pyg takes as its weight
        of_edges["edge_attr"] = graph.edge_attr.reshape(len(graph.edge_attr), prod(graph.edge_attr.shape[1:]))
        if time_attr is not None:  # beside which edges have no weights
            of_edges["edge_weight"] = graph.edge_weight
    return Written(from_pyg(graph, folder.path / "data", **of_edges), {None: others}, "y" in others, graph)


def _written_typed(data: HeteroData, folder: Path, time_attr: str | None, seeds) -> Written:
    while isinstance(seeds, tuple) and seeds:
        seeds = seeds[0]
    names = list(data.node_types)
    target = seeds if isinstance(seeds, str) and seeds in names else names[0] if names else None
    graph, others, has_times = HeteroData(), NodeTensors(), False
    for name in names:
        store = data[name]
        others[name] = _others_of(store)
        if store.get("x") is not None:
            graph[name].x = store.x
        elif store.num_nodes is not None:
            graph[name].num_nodes = store.num_nodes
        if time_attr is not None and time_attr in others[name]:
            graph[name].time, has_times = others[name][time_attr], True
    for name in data.edge_types:
        store = data[name]
        kept = ["edge_index", "adj_t", "edge_attr"] + ["edge_weight"] * (time_attr is None)
        graph[name].update({key: store[key] for key in kept if store.get(key) is not None})
        if time_attr is not None and isinstance(store.get(time_attr), Tensor):
            graph[name].edge_time, has_times = store[time_attr], True
    _warn_of_what_is_left_out(_left_out_of_types(data, others, time_attr), stacklevel=5)
    if time_attr is not None and not has_times:
        expected = f"the name of a tensor of times, of nodes or edges: data[TYPE].{time_attr}"
        raise CohortError("time_attr", expected, "none")
    of_target = others.get(target, {})
    if target is not None and graph[target].num_nodes is not None:
        _count_with(graph[target], graph[target].num_nodes, of_target)
    return Written(
        from_hetero(graph, folder, target=target, one_number_is_weight=False), others, "y" in of_target, graph
    )


def _others_of(store) -> dict[str, Tensor]:
    """Attributes of nodes that batches do not have anyway, of a Data or of a node type."""
    return {
        name: value
        for name, value in (store.to_dict() if isinstance(store, Data) else store).items()
        if name not in OF_BATCHES
        and isinstance(value, Tensor)
        and value.layout is torch.strided  # rows of others are not taken by ids
        and store.is_node_attr(name)
    }


def _left_out_of_types(data: HeteroData, others: NodeTensors, time_attr: str | None) -> Iterator[str]:
    """Names of attributes that batches of a HeteroData will not have."""
    for name in data.node_types:
        left = [key for key in data[name] if key not in OF_BATCHES and key not in others[name]]
        yield from (f"{key} {_shape(data[name][key])} of {name}" for key in left)
    for name in data.edge_types:
        kept = {*OF_BATCHES, *OF_PAIRS, "adj_t", time_attr} - ({"edge_weight"} if time_attr else set())
        left = [key for key in data[name] if key not in kept]
        yield from (f"{key} {_shape(data[name][key])} of {', '.join(name)}" for key in left)


def _shape(value) -> str:
    return str(list(value.shape)) if isinstance(value, Tensor) else f"({type(value).__name__})"


def _warn_of_what_is_left_out(names: Iterable[str], stacklevel: int = 4) -> None:
    left_out = list(names)
    if left_out:
        verb = "is" if len(left_out) == 1 else "are"
        kept = "dense tensors with a row for each node, and x, edge_index, edge_weight and edge_attr"
        warnings.warn(f"{', '.join(left_out)} {verb} left out: batches have {kept}", stacklevel=stacklevel)


def _count_with(store, num_nodes: int, others: Mapping[str, Tensor]) -> None:
    """Gives nodes the seeds that cache_policy="plan" counts with, all of one class."""
    store.y = torch.zeros(num_nodes, dtype=torch.int64)
    store.train_mask = others.get("train_mask", torch.ones(num_nodes, dtype=torch.bool))


def _times_of(data: Data, time_attr: str) -> Tensor:
    times = data.to_dict().get(time_attr)
    if not isinstance(times, Tensor):
        found = "none" if times is None else type(times).__name__
        raise CohortError("time_attr", f"the name of a tensor of times: data.{time_attr}", found)
    if data.is_node_attr(time_attr):
        return torch.from_numpy(times_of_sources(time_attr, data, times))
    return times


def checked_tensors(tensors: Mapping | None, counts: Mapping[str | None, int]) -> NodeTensors:
    """The argument ``node_tensors``.

    Args:
        counts: of the nodes of each type; None: of the only one.

    Raises:
        CohortError: one is no tensor [num_nodes, ...], or has the name of what batches have anyway; or a node type is
            unknown.
    """
    if None in counts:
        return {None: _checked("node_tensors", tensors or {}, counts[None])}
    found = {}
    for type_, of_type in (tensors or {}).items():
        place = f"node_tensors[{type_!r}]"
        if type_ not in counts or not isinstance(of_type, Mapping):
            expected = f"tensors by name, of one of the node types {', '.join(map(str, counts))}"
            raise CohortError(place, expected, type(of_type).__name__, 'node_tensors={"paper": {"year": year}}')
        found[type_] = _checked(place, of_type, counts[type_])
    return found


def _checked(argument: str, tensors: Mapping[str, Tensor], num_nodes: int) -> dict[str, Tensor]:
    for name, tensor in tensors.items():
        place = f"{argument}[{name!r}]"
        if name in OF_BATCHES:
            raise CohortError(place, f"another name than {', '.join(sorted(OF_BATCHES))}", repr(name))
        if not isinstance(tensor, Tensor) or tensor.dim() < 1 or len(tensor) != num_nodes:
            found = f"shape {list(tensor.shape)}" if isinstance(tensor, Tensor) else type(tensor).__name__
            raise CohortError(place, f"a tensor [{num_nodes}, ...], one row per node", found)
    return dict(tensors)


def rows_of(tensors: Mapping[str, Tensor], n_id: Tensor) -> dict[str, Tensor]:
    """Copies of the batch's rows, on the device of ``n_id``. Where a tensor is elsewhere, the ids go there and the rows
    come back."""
    return {name: tensor[n_id.to(tensor.device)].to(n_id.device) for name, tensor in tensors.items()}
