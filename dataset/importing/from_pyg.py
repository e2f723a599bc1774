"""Data sets from graphs of PyG in memory."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cohort_gnn.base.errors import CohortError, warn_user
from cohort_gnn.dataset import arrays
from cohort_gnn.dataset.importing import tensors
from cohort_gnn.dataset.importing.convert import write_graph
from cohort_gnn.dataset.importing.options import ConvertOptions
from cohort_gnn.dataset.layouts.graph import Graph, Nodes
from cohort_gnn.dataset.layouts.pyg import TEMPORAL_HINT, edge_attr_of, kept_under_other_names
from cohort_gnn.dataset.layouts.streams import Edges, Weights
from cohort_gnn.spec.graph import EdgeType
from cohort_gnn.spec.types import checked_arguments

NEEDED = {  # of a Data, and what to do where it is not there
    "edge_index": "fill it in, give one graph of a PyG data set (dataset[0]), or use from_tensors",
    "x": "give each node a row: data.x = torch.ones(data.num_nodes, 1), or use from_tensors",
}
GRAPHS_OF = {  # package -> what makes a Data of its graphs
    "networkx": "torch_geometric.utils.from_networkx(graph)",
    "dgl": "torch_geometric.utils.from_dgl(graph), or from_tensors as docs/how-to/graph.md shows",
    "igraph": "from_tensors with edge_index=numpy.array(graph.get_edgelist()).T",
}
KEPT = {"x", "num_nodes", "edge_index", "edge_weight", "edge_time", "time", "edge_attr"}  # of a Data, or of every type
KEPT_DTYPES = ("float32", "float16", "bfloat16", "uint8")  # of features
KEPT_OF_TARGET = KEPT | {"y", *arrays.MASKS}  # of a Data, or of the type that has them


@checked_arguments
def from_pyg(
    data: Any,
    out: str | os.PathLike,
    *,
    target: str | None = None,
    reverse_edges: bool = False,
    reverse_of: Mapping[EdgeType, EdgeType | None] | None = None,
    overwrite: bool = False,
    **options: Any,
) -> Path:
    """Writes a torch_geometric Data or HeteroData as a data set.

    Of a Data: x, edge_index, optional y, train/val/test masks, weights or times, times of nodes, and features of edges.
    Weights are `edge_weight`, features `edge_attr`, of which [E] becomes [E, 1]. Times are `edge_time` [E], or `time`,
    integers [E] or [V]. Of a HeteroData: x and `time` of each node type that has them (without x it needs num_nodes),
    edge_index, weights, times and features of each edge type, y and masks of one node type. Where nodes have times, an
    edge exists from the later of its own time and its source's. Other attributes are left out with a warning.

    Args:
        target: of a HeteroData, the node type whose y and masks are kept; default: the only one that has y.
        reverse_edges: of a HeteroData, adds a relation ("b", "rev_NAME", "a") for each ("a", "NAME", "b") without a
            reverse.
        reverse_of: of a HeteroData, which edge types are reverses: {edge type: the edge type whose edges it has in the
            other direction, or None if it is not the reverse of any}. An edge type whose edges are exactly those of
            another in the other direction, as ``T.ToUndirected()`` makes it, is recognised without this. Link
            prediction excludes the pairs of a batch from the reverse edge type, too.
        options: passed to from_tensors (task, split, seed, num_classes, name, ...), which describes `y`. For a
            HeteroData: these five.

    Raises:
        CohortError: for another object, or like from_tensors.
    """
    if callable(getattr(data, "metadata", None)):
        return _from_hetero(data, out, target, reverse_edges, reverse_of, overwrite, **options)
    if target is not None or reverse_edges or reverse_of:
        option = "target" if target is not None else "reverse_edges" if reverse_edges else "reverse_of"
        raise CohortError("from_pyg", f"a HeteroData with {option}", f"a {type(data).__name__}", f"leave {option} out")
    _demand_data(data)
    members: dict[str, Any] = data.to_dict() if hasattr(data, "to_dict") else {}
    num_edges = next(iter(getattr(members.get("edge_index"), "shape", ())[1:]), None)
    num_nodes = next((count for name in ("x", "y") for count in np.shape(members.get(name, ()))[:1] if count), None)
    cures = kept_under_other_names(members, members.get("num_nodes", num_nodes), num_edges)
    for attribute, hint in NEEDED.items():
        if getattr(data, attribute, None) is None:
            hint = "; or ".join([*(cure for cure in cures if cure.startswith(f"data.{attribute} =")), hint])
            has_adj = hasattr(data, "adj_t")
            actual = f"a {type(data).__name__} without" + (", but with adj_t" if has_adj else "")
            raise CohortError("from_pyg", f"a Data with {attribute}", actual, arrays.ADJ_HINT if has_adj else hint)
    splits = {split: mask for split, mask in tensors.masks_of(data).items() if mask is not None}
    tensors.demand_rows("x", data.x, members.get("num_nodes"))
    _warn_of_what_is_left_out(
        [
            f"Data.{key} {list(value.shape) if hasattr(value, 'shape') else f'({type(value).__name__})'}"
            for key, value in members.items()
            if key not in KEPT_OF_TARGET | {"adj_t"} and value is not None
        ],
        "; ".join(["x, y, time, edge_index, edge_weight, edge_time, edge_attr and the three masks", *cures]),
    )
    _warn_of_float32({f"Data.{name}": getattr(data, name, None) for name in ("x", "edge_attr")})
    kept = {name: getattr(data, name, None) for name in ("x", "y", "edge_index", "edge_weight")}
    kept |= _times_of(data) | {"edge_attr": edge_attr_of(data)}
    return tensors.from_tensors(out, overwrite=overwrite, **{**kept, **splits, **options})


def _demand_data(data: Any) -> None:
    """Raises CohortError for graphs of other kinds, with what makes a Data of them."""
    kind = type(data)
    if kind.__name__ == "TemporalData":
        raise CohortError("from_pyg", "a Data, or a HeteroData", "a TemporalData", TEMPORAL_HINT)
    if (cure := GRAPHS_OF.get(kind.__module__.partition(".")[0])) is not None:
        raise CohortError("from_pyg", "a Data, or a HeteroData of PyG", f"{kind.__module__}.{kind.__name__}", cure)


def _times_of(data: Any) -> dict[str, Any]:
    """A Data object's times of edges and of nodes; `time` may be either."""
    edge_times: Any = getattr(data, "edge_time", None)
    times: Any = getattr(data, "time", None)
    if np.shape(times)[:1] == np.shape(data.x)[:1] != ():
        if edge_times is None and len(times) == data.num_edges:
            hint = "data.edge_time has times of edges"
            warn_user(f"data.time: taken for times of nodes, of which there are as many as edges; {hint}")
        return {"edge_time": edge_times, "node_time": times}
    return {"edge_time": _one_of("data", edge_times, times)}


def _one_of(place: str, edge_times: Any, times: Any) -> Any:
    """The times of edges, of the attributes `edge_time` and `time`."""
    if edge_times is not None and times is not None:
        warn_user(f"{place}.time is left out: {place}.edge_time has the times of edges")
    return times if edge_times is None else edge_times


def _warn_of_float32(features: Mapping[str, Any]) -> None:
    """Warns if a data set does not keep the dtype of features; `features`: by name."""
    for place, x in features.items():
        dtype = str(getattr(x, "dtype", "")).removeprefix("torch.")
        if dtype and dtype not in KEPT_DTYPES:
            kept = ", ".join(KEPT_DTYPES)
            cure = ".float() says so without a warning"
            warn_user(f"{place} {dtype} is stored as float32: a data set keeps {kept}; {cure}")


def _warn_of_what_is_left_out(names: Sequence[str], kept: str) -> None:
    """Warns once of all attributes that a data set does not keep."""
    if names:
        verb = "is" if len(names) == 1 else "are"
        warn_user(f"{'; '.join(names)} {verb} left out: a data set keeps {kept}")


# --- HeteroData -----------------------------------------------------------------------------------------------------


def _from_hetero(
    data: Any,
    out: str | os.PathLike,
    target: str | None,
    reverse_edges: bool,
    reverse_of: Mapping[EdgeType, EdgeType | None] | None,
    overwrite: bool,
    *,
    name: str | None = None,
    num_classes: int | None = None,
    task: str = "classification",
    split: Sequence[float] = (0.6, 0.2, 0.2),
    seed: int = 0,
) -> Path:
    out = tensors.new_folder(out, overwrite)
    target = _target_of(data, target)
    graph = Graph(
        name=name or out.name,
        place="from_pyg",
        nodes={type_: replace(_nodes(type_, data[type_]), times=_node_times(type_, data)) for type_ in data.node_types},
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
    stores = {_type_name(type_): data[type_] for type_ in [*data.node_types, *data.edge_types]}
    left_out = [
        f"{key} of {type_name}"
        for type_name, store in stores.items()
        for key, value in store.items()
        if value is not None and key not in (KEPT_OF_TARGET if type_name == target else KEPT)
    ]
    per_relation = "edge_index, edge_weight, times and edge_attr of each relation"
    kept = f"x and time of each type, {per_relation}, y and the three masks of the target"
    cures = [
        cure
        for type_ in [*data.node_types, *data.edge_types]
        for cure in kept_under_other_names(
            dict(data[type_].items()),
            data[type_].num_nodes if isinstance(type_, str) else None,
            None if isinstance(type_, str) else data[type_].num_edges,
            f"data[{type_!r}]",
        )
    ]
    _warn_of_what_is_left_out(left_out, "; ".join([kept, *cures]))
    _warn_of_float32({f"x of {type_}": data[type_].get("x") for type_ in data.node_types})
    _warn_of_float32({f"edge_attr of {_type_name(type_)}": data[type_].get("edge_attr") for type_ in data.edge_types})
    write_graph(graph, out, ConvertOptions(task=task, split=split, seed=seed, overwrite=overwrite))
    return out


def _type_name(type_: str | EdgeType) -> str:
    return type_ if isinstance(type_, str) else ", ".join(type_)


def _target_of(data: Any, target: str | None) -> str:
    """The node type that has y."""
    labelled = [type_ for type_ in data.node_types if data[type_].get("y") is not None]
    if target is not None:
        if target not in data.node_types:
            raise CohortError("target", f"one of the node types {', '.join(data.node_types)}", repr(target))
        return target
    if len(labelled) == 1:
        return labelled[0]
    actual = f"y of {', '.join(labelled)}" if labelled else "no y"
    candidates = labelled or list(data.node_types)
    hint = f"choose one: target={candidates[0]!r}" if candidates else "it has no nodes yet: data['paper'].x = ..."
    raise CohortError("from_pyg", "a HeteroData in which one node type has y", actual, hint)


def _nodes(type_: str, store: Any) -> Nodes:
    x, count = store.get("x"), store.get("num_nodes")
    if count == 0 or (count is None and np.shape(x)[:1] == (0,)):
        raise CohortError(type_, "a node type with nodes", "none", arrays.NO_NODES_HINT)
    if x is not None:
        tensors.demand_rows(f"{type_}.x", x, count)
        rows, num_nodes = tensors.rows_of(f"{type_}.x", x)
        return Nodes(num_nodes, rows)
    if count is None and store.get("y") is not None:
        count = len(store["y"])
    if count is None or int(count) < 1:
        actual = "none of them" if count is None else f"num_nodes = {count}"
        hint = f"data[{type_!r}].num_nodes = ...; nodes without features need no x"
        raise CohortError(type_, "x, or a num_nodes of at least 1", actual, hint)
    return Nodes(int(count))


def _node_times(type_: str, data: Any) -> Weights | None:
    return tensors.weights_in(f"{type_}.time", data[type_].get("time"), are_times=True)


def _edges(type_: EdgeType, data: Any) -> Edges:
    type_name, store = _type_name(type_), data[type_]
    place = f"edge_index of {type_name}"
    if store.get("edge_index") is None:
        hint = arrays.ADJ_HINT.replace("data.", f"data[{type_}].") if store.get("adj_t") is not None else "fill it in"
        raise CohortError(place, "integers [2, E]", "none", hint)
    src, dst = tensors.ends_of(place, store["edge_index"])
    endpoints = (arrays.integers(f"{place}: {end}", ids) for end, ids in (("src", src), ("dst", dst)))
    times, attributes = _one_of(f"data[{type_}]", store.get("edge_time"), store.get("time")), edge_attr_of(store)
    return replace(
        Edges.in_memory(place, *endpoints),
        weights=tensors.weights_in(f"edge_weight of {type_name}", store.get("edge_weight")),
        times=tensors.weights_in(f"times of {type_name}", times, are_times=True),
        features=None if attributes is None else tensors.rows_of(f"edge_attr of {type_name}", attributes)[0],
    )
