"""Data sets of several node types from a HeteroData in memory."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cohort_gnn.base.errors import CohortError, warn_user
from cohort_gnn.dataset import arrays
from cohort_gnn.dataset.hetero import RelationType
from cohort_gnn.dataset.importing import tensors
from cohort_gnn.dataset.importing.convert import ConvertOptions, write_graph
from cohort_gnn.dataset.importing.typed import TypedConversion
from cohort_gnn.dataset.layouts.graph import Edges, Weights
from cohort_gnn.dataset.layouts.pyg import features_of
from cohort_gnn.dataset.layouts.typed import Nodes, TypedGraph


def from_hetero(
    data: Any,
    out: str | os.PathLike,
    *,
    target: str | None = None,
    reverse_edges: bool = False,
    reverse_of: Mapping[RelationType, RelationType | None] | None = None,
    overwrite: bool = False,
    split: Sequence[float] = (0.6, 0.2, 0.2),
    seed: int = 0,
    num_classes: int | None = None,
    task: str = "classification",
    name: str | None = None,
) -> Path:
    """Writes a torch_geometric HeteroData as a data set of several node types; ``from_pyg`` says how."""
    out = tensors.new_folder(out, overwrite)
    target = _target_of(data, target)
    graph = TypedGraph(
        name=name or out.name,
        place="from_pyg",
        nodes={type_: _nodes(type_, data[type_]) for type_ in data.node_types},
        edges={type_: _edges(type_, data) for type_ in data.edge_types},
        target=target,
        labels=tensors.labels_of(data[target].get("y"), task),
        splits=tensors.splits_of(tensors.masks_of(data[target])),
        num_classes=num_classes,
        reverse=reverse_edges,
        reverse_of=reverse_of,
    )
    if not graph.edges:
        raise CohortError("from_pyg", "a HeteroData with edges", "none", "data['a', 'to', 'b'].edge_index = ...")
    graph.demand_types()
    _warn_of_what_is_left_out(data, target)
    for type_ in [*data.node_types, *data.edge_types]:
        name = "x" if isinstance(type_, str) else "edge_attr"
        if data[type_].get(name) is not None:
            tensors.warn_of_float32(
                f"{name} of {type_ if isinstance(type_, str) else ', '.join(type_)}", data[type_][name]
            )
    write_graph(TypedConversion, graph, out, ConvertOptions(task=task, split=split, seed=seed, overwrite=overwrite))
    return out


def _target_of(data: Any, target: str | None) -> str:
    """The node type that has y."""
    labelled = [type_ for type_ in data.node_types if data[type_].get("y") is not None]
    if target is not None:
        if target not in data.node_types:
            raise CohortError("target", f"one of the node types {', '.join(data.node_types)}", repr(target))
        return target
    if len(labelled) == 1:
        return labelled[0]
    found = f"y of {', '.join(labelled)}" if labelled else "no y"
    candidates = labelled or list(data.node_types)
    hint = f"choose one: target={candidates[0]!r}" if candidates else "it has no nodes yet: data['paper'].x = ..."
    raise CohortError("from_pyg", "a HeteroData in which one node type has y", found, hint)


def _nodes(type_: str, store: Any) -> Nodes:
    x, given = store.get("x"), store.get("num_nodes")
    if x is not None:
        rows, num_nodes = tensors.rows_of(f"{type_}.x", x)
        if given is not None and int(given) != num_nodes:
            raise CohortError(f"{type_}.x", f"num_nodes = {int(given)} rows", f"{num_nodes}")
        return Nodes(num_nodes, rows)
    if given is None and store.get("y") is not None:
        given = len(store["y"])
    if given is None or int(given) < 1:
        found = "none of them" if given is None else f"num_nodes = {int(given)}"
        hint = f"data[{type_!r}].num_nodes = ...; nodes without features need no x"
        raise CohortError(type_, "x, or a num_nodes of at least 1", found, hint)
    return Nodes(int(given))


def _edges(type_: RelationType, data: Any) -> Edges:
    place, store = f"edge_index of {', '.join(type_)}", data[type_]
    if store.get("edge_index") is None:
        hint = "fill it in"
        if store.get("adj_t") is not None:
            hint = f"data[{type_}].edge_index = torch_geometric.utils.to_edge_index(data[{type_}].adj_t)[0].flip(0)"
        raise CohortError(place, "integers [2, E]", "none", hint)
    src, dst = tensors.ends_of(place, store["edge_index"])
    ends = (arrays.integers(f"{place}: {end}", ids) for end, ids in (("src", src), ("dst", dst)))
    weights, attributes = store.get("edge_weight"), features_of(store)
    rows = None if attributes is None else tensors.rows_of(f"edge_attr of {', '.join(type_)}", attributes)[0]
    weights = tensors.weights_in(f"edge_weight of {', '.join(type_)}", weights)
    return replace(Edges.in_memory(place, *ends), weights=weights, times=_times(type_, data), features=rows)


def _times(type_: RelationType, data: Any) -> Weights | None:
    """The edges' own times, or those of their sources."""
    store, source = data[type_], data[type_[0]]
    times, place = store.get("edge_time", store.get("time")), f"times of {', '.join(type_)}"
    if times is None and source.get("time") is not None:
        of_edges = f"edge_index of {', '.join(type_)}"
        nodes = arrays.integers(f"{of_edges}: src", tensors.ends_of(of_edges, store["edge_index"])[0])
        count = _nodes(type_[0], source).num_nodes or 0
        arrays.demand_nodes(f"{of_edges}: src", nodes, count)
        times = tensors.times_of_nodes(f"{type_[0]}.time", source["time"], count)[nodes]
    return tensors.weights_in(place, times, are_times=True)


def _warn_of_what_is_left_out(data: Any, target: str) -> None:
    """Names in one warning what a HeteroData has beside the members of a data set."""
    left_out = []
    for type_ in [*data.node_types, *data.edge_types]:
        kept = tensors.KEPT_OF_TARGET if type_ == target else tensors.KEPT
        where = type_ if isinstance(type_, str) else ", ".join(type_)
        left_out += [f"{key} of {where}" for key, value in data[type_].items() if value is not None and key not in kept]
    if left_out:
        verb = "is" if len(left_out) == 1 else "are"
        of_relations = "edge_index, edge_weight, times and edge_attr of each relation"
        kept_text = f"x and time of each type, {of_relations}, y and the three masks of the target"
        warn_user(f"{'; '.join(left_out)} {verb} left out: a data set keeps {kept_text}")
