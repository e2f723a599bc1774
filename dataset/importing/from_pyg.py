"""Data sets from graphs of PyG in memory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cohort_gnn.base.errors import CohortError, warn_user
from cohort_gnn.dataset.importing import tensors
from cohort_gnn.dataset.importing.hetero import from_hetero
from cohort_gnn.dataset.layouts.pyg import features_of

NEEDED = {  # of a Data, and what to do where it is not there
    "edge_index": "fill it in, give one graph of a PyG data set (dataset[0]), or use from_tensors",
    "x": "give each node a row: data.x = torch.ones(data.num_nodes, 1), or use from_tensors",
}


def from_pyg(
    data: Any,
    out: str | os.PathLike,
    *,
    target: str | None = None,
    reverse_edges: bool = False,
    reverse_of: Mapping[tuple[str, str, str], tuple[str, str, str] | None] | None = None,
    overwrite: bool = False,
    **options: Any,
) -> Path:
    """Writes a torch_geometric Data or HeteroData as a data set.

    Of a Data: x, edge_index, optional y, train/val/test masks, weights or times, and features of edges. Weights are
    `edge_weight`, features `edge_attr`, of which [E] becomes [E, 1]. Times are `edge_time` [E], or `time`, integers [E]
    or [V]: times of nodes become those of the edges from them. Of a HeteroData: x of each node type that has one (the
    others need num_nodes), edge_index, weights, times and features of each edge type, y and masks of one node type. The
    times of an edge type without any are those of its source nodes, `time` [N] of their type. Other attributes are left
    out with a warning.

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
        of_types: dict[str, Any] = {"target": target, "reverse_edges": reverse_edges, "reverse_of": reverse_of}
        return from_hetero(data, out, overwrite=overwrite, **of_types, **options)
    if target is not None or reverse_edges or reverse_of:
        given = "target" if target is not None else "reverse_edges" if reverse_edges else "reverse_of"
        raise CohortError("from_pyg", f"a HeteroData with {given}", f"a {type(data).__name__}", f"leave {given} out")
    for attribute, hint in NEEDED.items():
        if getattr(data, attribute, None) is None:
            has_adj = hasattr(data, "adj_t")
            found = f"a {type(data).__name__} without" + (", but with adj_t" if has_adj else "")
            raise CohortError("from_pyg", f"a Data with {attribute}", found, tensors.ADJ_HINT if has_adj else hint)
    splits = {split: mask for split, mask in tensors.masks_of(data).items() if mask is not None}
    weights, times = getattr(data, "edge_weight", None), _times_of(data)
    of_edges = {"edge_weight": weights, "edge_time": times, "edge_attr": features_of(data)}
    _warn_of_what_is_left_out(data)
    for name in ("x", "edge_attr"):
        if getattr(data, name, None) is not None:
            tensors.warn_of_float32(f"Data.{name}", data[name])
    return tensors.from_tensors(
        out,
        x=data.x,
        y=getattr(data, "y", None),
        edge_index=data.edge_index,
        overwrite=overwrite,
        **{**of_edges, **splits, **options},
    )


def _warn_of_what_is_left_out(data: Any) -> None:
    """Names in one warning what a Data has beside the members of a data set."""
    members = data.to_dict() if hasattr(data, "to_dict") else {}
    left_out = [
        f"Data.{key} {list(value.shape) if hasattr(value, 'shape') else f'({type(value).__name__})'}"
        for key, value in members.items()
        if key not in tensors.KEPT_OF_TARGET | {"adj_t"} and value is not None
    ]
    if left_out:
        verb = "is" if len(left_out) == 1 else "are"
        kept = "x, y, edge_index, edge_weight, edge_time, edge_attr and the three masks"
        warn_user(f"{', '.join(left_out)} {verb} left out: a data set keeps {kept}")


def _times_of(data: Any) -> Any:
    """A Data object's edge_time, or its time as that of edges."""
    if getattr(data, "edge_time", None) is not None:
        return data.edge_time
    times = getattr(data, "time", None)
    return times if times is None or len(times) != len(data.x) else _times_of_sources("time", data, times)


def _times_of_sources(place: str, data: Any, times: Any) -> np.ndarray:
    """int64 [E] of times [V] of a Data's nodes: an edge is as old as its source."""
    return tensors.times_of_nodes(place, times, len(data.x))[tensors.edges_of(data.edge_index, len(data.x))[0]]
