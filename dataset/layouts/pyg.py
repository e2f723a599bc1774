"""PyG: `Data` saved by torch.save, and the processed/data.pt of its data sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import arrays
from cohort_gnn.dataset.array_file import MemoryArray
from cohort_gnn.dataset.arrays import MASKS
from cohort_gnn.dataset.layouts.graph import Graph
from cohort_gnn.dataset.layouts.streams import Edges, Weights
from cohort_gnn.dataset.layouts.torch_files import array_of, is_dense, load_tensors, rows_of_tensor

HINT = (
    "save a Data object, or a dict of its tensors: torch.save(data.to_dict(), FILE); or write the data set yourself: "
    "cohort.from_pyg(data, OUT)"
)
TIMES = ("edge_time", "time")
NAMES_HINT = (
    "use the names of a Data: x, edge_index, y, edge_weight, train_mask, val_mask, test_mask; or pass the tensors to "
    "cohort.from_tensors(OUT, x=..., edge_index=..., y=...)"
)

TEMPORAL_HINT = (
    "cohort.from_tensors(OUT, x=torch.ones(data.num_nodes, 1), edge_index=torch.stack([data.src, data.dst]), "
    "edge_time=data.t, edge_attr=data.msg)"
)

OTHER_NAMES = {  # of what a data set keeps: of nodes, and of edges
    "x": ("feat", "feats", "features", "node_feat", "node_features", "node_attr"),
    "y": ("label", "labels", "target", "targets"),
    "edge_weight": ("weight", "weights", "edge_weights"),
    "edge_attr": ("edge_attrs", "edge_feat", "edge_feats", "edge_features", "efeat", "msg"),
    "edge_time": ("t", "timestamp", "timestamps", "edge_ts", "edge_timestamp"),
}
TYPES_HINT = "data.to_heterogeneous() makes relations of edge_type, and types of node_type"


def kept_under_other_names(
    members: Mapping[str, Any], num_nodes: int | None, num_edges: int | None, place: str = "data"
) -> list[str]:
    """What to call attributes of a Data, or of a type's store, that a data set would keep under another name."""
    cures = []
    for kept, others in OTHER_NAMES.items():
        rows = num_edges if kept.startswith("edge_") else num_nodes
        fits = [name for name in others if getattr(members.get(name), "shape", ())[:1] == (rows,)]
        if fits and members.get(kept) is None:
            cures.append(f"{place}.{kept} = {place}.{fits[0]} keeps it")
    return cures + ([TYPES_HINT] if place == "data" and members.get("edge_type") is not None else [])


def read_data(source: Path, name: str | None = None) -> Graph:
    """The graph of a file, and its masks: a Data object, its dict, or what InMemoryDataset.save writes."""
    place, data = str(source), _dict_of(str(source), load_tensors(source, HINT))
    if "_global_store" in data or any(isinstance(key, tuple) for key in data):
        hint = "several node types: cohort.from_pyg(data, OUT) writes them"
        raise CohortError(place, "a Data object or a dict of its tensors", "a HeteroData", hint)
    if {"src", "dst", "t"} <= set(data):
        raise CohortError(place, "a Data object or a dict of its tensors", "a TemporalData", TEMPORAL_HINT)
    if data.get("edge_index") is None:
        hint = f"{NAMES_HINT}; {source}:NAME is a tensor of edges alone"
        if data.get("adj_t") is not None:
            hint = f"before it is saved: {arrays.ADJ_HINT}"
        expected = "a tensor edge_index" if data.get("x") is not None else "tensors x and edge_index"
        raise CohortError(place, expected, ", ".join(map(str, data)) or "none", hint)
    keys = ("x", "edge_index", "y", "edge_weight", "edge_attr", "edge_time", "time", *MASKS)
    tensors = {key: _tensor(place, key, data[key]) for key in keys if _is_there(data, key)}
    edge_index = array_of(tensors["edge_index"])
    arrays.demand_shape(f"{place}: edge_index", edge_index, (2, None))
    num_nodes = _num_nodes(f"{place}: num_nodes", data.get("num_nodes"), tensors)
    weights, attributes = tensors.get("edge_weight"), edge_attr_of(SimpleNamespace(**tensors))
    times = {key: arrays.edge_times(f"{place}: {key}", array_of(tensors[key])) for key in TIMES if key in tensors}
    have_nodes = "time" in times and is_of_nodes(len(times["time"]), num_nodes, edge_index.shape[1])
    node_times = times.pop("time") if have_nodes else None
    time, edge_times = next(iter(times.items()), ("", None))
    if len(times) == 2:
        del tensors["time"]  # not used
    beside = (
        ("edge_weight", weights, "the edges' weights"),
        (time, edge_times, "the edges' times"),
        ("time", node_times, "the nodes' times"),
        ("edge_attr", attributes, "the edges' features"),
    )
    notes = [f"{key}: {what}" for key, numbers, what in beside if numbers is not None]
    if unused := [str(key) for key in data if _is_there(data, key) and key not in (*tensors, "num_nodes")]:
        cures = kept_under_other_names(data, num_nodes, edge_index.shape[1])
        notes.append("; ".join([f"{source.name}: not used: {', '.join(unused)}", *cures]))
    if weights is not None:
        weights = Weights.from_array(MemoryArray(f"{place}: edge_weight", array_of(weights)))
    edges = replace(
        Edges.in_memory(f"{place}: edge_index", edge_index[0], edge_index[1]),
        weights=weights,
        times=_weights_of(f"{place}: {time}", edge_times),
        features=None if attributes is None else rows_of_tensor(f"{place}: edge_attr", attributes),
    )
    graph = Graph.homogeneous(
        name=name or source.resolve().stem,
        edges=edges,
        features=rows_of_tensor(f"{place}: x", tensors["x"]) if "x" in tensors else None,
        labels=MemoryArray(f"{place}: y", array_of(tensors["y"])) if "y" in tensors else None,
        notes=notes,
        num_nodes=num_nodes,
        node_times=_weights_of(f"{place}: time", node_times),
        any_task=True,
    )
    if "x" not in tensors:
        hint = f"pass --features FILE; {NAMES_HINT}"
        graph.missing["features"] = CohortError(place, "a tensor x", ", ".join(map(str, data)) or "none", hint)

    def mask_of(name: str) -> np.ndarray:
        return arrays.mask(f"{place}: {name}", array_of(tensors[name]), name)

    if masks := {name: partial(mask_of, name) for name in MASKS if name in tensors}:
        graph.take_splits(source, masks, MASKS)
    return graph


def _dict_of(place: str, content: Any) -> dict:
    """The tensors of a Data object, of a dict, or of the first of (data, slices, ...) when they are one graph."""
    if isinstance(content, tuple) and content and len(content) >= 2:
        if content[1] is not None:
            if not isinstance(content[1], dict):
                raise CohortError(place, "a Data object or a dict of tensors", f"a tuple of {len(content)}", HINT)
            graphs = max((len(offsets) - 1 for offsets in content[1].values()), default=0)
            if graphs != 1:
                raise CohortError(place, "one graph", f"{graphs} graphs", "save the one that you want: " + HINT)
        content = content[0]
    if hasattr(content, "to_dict"):
        content = content.to_dict()
    if not isinstance(content, dict):
        raise CohortError(place, "a Data object or a dict of tensors", type(content).__name__, HINT)
    return content


def edge_attr_of(data: Any) -> Any:
    """edge_attr of a Data or of the store of a relation, in which [E] becomes [E, 1]."""
    attributes: Any = getattr(data, "edge_attr", None)
    return attributes[:, None] if len(getattr(attributes, "shape", ())) == 1 else attributes


def _num_nodes(place: str, declared: Any, tensors: dict) -> int | None:
    """As the file says, or as the first array of nodes does."""
    if declared is not None:
        if not isinstance(declared, int) or declared < 1:
            raise CohortError(place, "a number of nodes, of at least 1", str(declared)[:80])
        return declared
    return next((len(tensors[key]) for key in ("x", "y", *MASKS) if key in tensors), None)


def is_of_nodes(num_times: int, num_nodes: int | None, num_edges: int) -> bool:
    """Whether ``time`` has a time for each node; else it has one for each edge. `num_nodes` None: unknown."""
    return num_times == num_nodes if num_nodes is not None else num_times != num_edges


def _weights_of(place: str, times: np.ndarray | None) -> Weights | None:
    return None if times is None else Weights.from_array(MemoryArray(place, times), are_times=True)


def _is_there(data: dict, key: str) -> bool:
    return data.get(key) is not None


def _tensor(place: str, key: str, value: Any):
    if not is_dense(value):
        raise CohortError(f"{place}: {key}", "a dense tensor", type(value).__name__, HINT)
    return value
