"""What requests ask of a Scorer, and what they add to the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cohort_gnn.base.errors import CohortError, warn_user
from cohort_gnn.dataset import StoredGraph, original_ids
from cohort_gnn.dataset.arrays import float32
from cohort_gnn.dataset.columns import FittedColumn, read_columns
from cohort_gnn.dataset.stored_graph import FeatureTable
from cohort_gnn.dataset.tables.encoding import encoded_columns
from cohort_gnn.dataset.treatment import numbers_text
from cohort_gnn.spec.graph import EdgeType
from cohort_gnn.trainer.predict.appended_edges import AsAppended
from cohort_gnn.trainer.predict.neighbourhoods import NewEdges
from cohort_gnn.trainer.predict.node_ids import NodeIds

MOST_NEW_NODES = 1 << 20  # of one request
OF_NODES = ("id", "x", "columns", "time")  # members of new nodes
OF_EDGES = ("source", "target", "edge_attr", "columns", "time")  # members of new edges


@dataclass(frozen=True, eq=False)
class Request:
    """What a request adds to the graph, with numbers for its nodes.

    Attributes:
        at_time: of the scores; None: all edges count.
        ids: of new nodes, and their numbers, by node type.
        rows: float32 [new nodes, features] by node type.
        times: int64 [new nodes] by node type, where they have some.
        edges: by edge type.
        keys: int64 [new nodes] by node type, of requests that are scored together: the numbers that they have alone.
        nodes: int64 [n], those that are asked for.
    """

    at_time: int | None = None
    ids: dict[str, dict[Any, int]] = field(default_factory=dict)
    rows: dict[str, Tensor] = field(default_factory=dict)
    times: dict[str, np.ndarray] = field(default_factory=dict)
    edges: dict[EdgeType, NewEdges] = field(default_factory=dict)
    keys: dict[str, np.ndarray] = field(default_factory=dict)
    nodes: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))


class RequestReader:
    """Reads requests, whose nodes have ids.

    Args:
        model: what it reads must be there.
        node_type: of the nodes that are asked for.
        is_in_time: scores are those of a time.

    Attributes:
        ids: of the nodes of each type.
    """

    def __init__(self, data: StoredGraph, model: Any, node_type: str, is_in_time: bool):
        self._data, self._model, self._node_type, self._is_in_time = data, model, node_type, is_in_time
        self._counts = {name: table.num_nodes for name, table in data.node_types.items()}
        self._as_appended, self._declared = AsAppended(data), read_columns(data.path)
        sources = {relation[0] for relation, edges in data.edge_types.items() if edges.edge_times is not None}
        self._aged = sources | set(() if model.ages is None else model.ages.spans)  # types whose times are read
        if text := numbers_text(data.path):
            warn_user(text)
        self.ids = {name: NodeIds(original_ids(data.path, name), count, name) for name, count in self._counts.items()}

    def read(
        self,
        nodes: Sequence,
        new_nodes: Mapping | None = None,
        new_edges: Mapping | None = None,
        at_time: int | None = None,
    ) -> Request:
        """The arguments of `Scorer.score`.

        Raises:
            CohortError: as of `Scorer.score`.
        """
        if self._is_in_time != (at_time is not None):
            actual = "none" if at_time is None else "one for a run that did not use times"
            hint = "at_time=T scores by the edges that exist then, in the unit of the data set's times"
            expected = "a time" if self._is_in_time else "none"
            raise CohortError("at_time", expected, actual, hint if self._is_in_time else "leave it out")
        request = Request(None if at_time is None else int(_integers_of([at_time], 1, "at_time")[0]))
        for name, table in _by_type(new_nodes, list(self._data.node_types), OF_NODES, "new_nodes").items():
            self._read_nodes(name, table, request)
        tables = _by_type(new_edges, list(self._data.edge_types), OF_EDGES, "new_edges")
        requested = {relation: self._edges_of(relation, table, request) for relation, table in tables.items()}
        counts = {name: len(rows) for name, rows in request.rows.items()}
        edges = self._as_appended.edges(requested, counts, request.times)
        request.edges.update({name: self._with_rows_read(name, some) for name, some in edges.items()})
        return replace(request, nodes=self._numbers(self._node_type, nodes, request, "nodes"))

    def merged(self, requests: list[Request]) -> Request:
        """One request for all that several ask, at one time: their new nodes have numbers one after the other."""
        if len(requests) == 1:
            return requests[0]
        merged, shifts = Request(requests[0].at_time), []
        for name, stored in self._counts.items():
            some = [request.rows[name] for request in requests if name in request.rows]
            times = [request.times[name] for request in requests if name in request.times]
            sizes = [len(request.rows.get(name, ())) for request in requests]
            shifts.append(np.concatenate(([0], np.cumsum(sizes))))
            if some:
                merged.rows[name] = torch.cat(some)
                merged.keys[name] = stored + np.concatenate([np.arange(size) for size in sizes])
            if times:
                merged.times[name] = np.concatenate(times)
        shift_of = dict(zip(self._counts, shifts, strict=True))

        def moved(name: str, nodes: np.ndarray, number: int) -> np.ndarray:
            return np.where(nodes < self._counts[name], nodes, nodes + shift_of[name][number])

        for relation in self._data.edge_types:
            parts = [(i, request.edges[relation]) for i, request in enumerate(requests) if relation in request.edges]
            if parts:
                sources = np.concatenate([moved(relation[0], edges.sources, i) for i, edges in parts])
                targets = np.concatenate([moved(relation[2], edges.targets, i) for i, edges in parts])
                times = [edges.times for _, edges in parts if edges.times is not None]
                rows = [edges.rows for _, edges in parts if edges.rows is not None]
                beside = np.concatenate(times) if times else None, torch.cat(rows) if rows else None
                merged.edges[relation] = NewEdges(sources, targets, *beside)
        nodes = np.concatenate([moved(self._node_type, request.nodes, i) for i, request in enumerate(requests)])
        return replace(merged, nodes=nodes)

    def changes_lists(self, request: Request) -> bool:
        """Whether edges lead into nodes of the data set: then other requests must not see them."""
        return any((edges.targets < self._counts[name[2]]).any() for name, edges in request.edges.items())

    def _numbers(self, name: str, nodes: Sequence, request: Request, place: str) -> np.ndarray:
        """int64 [n], of nodes of a type by their ids."""
        return self.ids[name].numbers(nodes, request.ids.get(name, {}), place)

    def _read_nodes(self, name: str, table: Mapping, request: Request) -> None:
        place, stored = f"new_nodes {name}", self._data.node_types[name]
        has_some = isinstance(table, Mapping) and any(table.get(member) is not None for member in OF_NODES)
        if not has_some or set(table) - set(OF_NODES):
            raise CohortError(place, "some of id, x, columns and time", ", ".join(map(str, table)) or "nothing")
        if not stored.feature_dim and self._model.embeddings is not None and name in self._model.embeddings.keys():
            hint = "rows of these nodes were learned (--featureless embed), and there are none for others"
            raise CohortError(place, "no new nodes of this type", "some", hint)
        fitted = self._declared.nodes.get(name)
        x = _values_of(table, "x", fitted, place)
        first: Any = table.get("id") if x is None else x
        if not hasattr(first, "__len__"):
            raise CohortError(f"{place}: {'id' if x is None else 'x'}", "a list", type(first).__name__)
        count = len(first)
        if count > MOST_NEW_NODES:
            raise CohortError(place, f"at most {MOST_NEW_NODES:,} nodes in a request", f"{count:,}", "ask in parts")
        request.ids[name] = self.ids[name].new(table.get("id"), count, place)
        rows = _rows_of(x, count, stored, "node", f"{place}: x", self._as_appended.given_dim)
        request.rows[name] = self._as_appended.rows(rows)
        are_there = stored.node_times is not None
        times = _times_of(table, count, are_there, are_there and name in self._aged, "node", place)
        if times is not None:
            request.times[name] = times

    def _edges_of(self, relation: EdgeType, table: Mapping, request: Request) -> NewEdges:
        place, stored = f"new_edges {', '.join(relation)}", self._data.edge_types[relation]
        lacks_ends = not {"source", "target"} <= set(table)
        if lacks_ends or set(table) - set(OF_EDGES):
            expected = "source and target" if lacks_ends else f"no others than {', '.join(OF_EDGES)}"
            raise CohortError(place, expected, ", ".join(map(str, table)) or "nothing")
        sources, targets = (
            self._numbers(kind, table[end], request, f"{place}: {end}")
            for kind, end in ((relation[0], "source"), (relation[2], "target"))
        )
        count = len(sources)
        if count != len(targets):
            raise CohortError(place, f"{count} targets, one for each source", str(len(targets)))
        known = (sources < self._counts[relation[0]]) & (targets < self._counts[relation[2]])
        if known.any():
            hint = "append edges between nodes of the data set to it: cohort dataset append"
            raise CohortError(place, "a new node at one end at least", f"edge {int(known.argmax())} without", hint)
        has_times, have_sources = (
            some is not None for some in (stored.edge_times, self._data.node_types[relation[0]].node_times)
        )
        times = _times_of(table, count, has_times, has_times and not have_sources, "edge", place)
        fitted = next((some.columns for some in self._declared.edges if tuple(some.type) == relation), None)
        values = _values_of(table, "edge_attr", fitted, place)
        features = stored.edge_table
        is_read = {relation, self._as_appended.reverse_of(relation)} & set(self._model.edge_dims)
        if values is None and (features is None or not is_read):
            return NewEdges(sources, targets, times)
        if features is None:
            raise CohortError(f"{place}: edge_attr", "none: edges of this type have no features", "some")
        rows = _rows_of(values, count, features, "edge", f"{place}: edge_attr")
        return NewEdges(sources, targets, times, rows)

    def _with_rows_read(self, relation: EdgeType, edges: NewEdges) -> NewEdges:
        """The edges, with features if the model reads some of this type."""
        dim, actual = self._model.edge_dims.get(relation), None if edges.rows is None else edges.rows.shape[1]
        if dim is not None and actual != dim:
            hint = "give the edges of this type themselves, not those of its reverse"
            raise CohortError(f"new_edges {', '.join(relation)}: edge_attr", f"{dim} features", f"{actual or 0}", hint)
        return edges if dim is not None else replace(edges, rows=None)


def _values_of(table: Mapping, member: str, fitted: list[FittedColumn] | None, place: str) -> Any:
    """Rows as they were given, or those of values of declared columns, float32 [n, features]; None: neither."""
    columns = table.get("columns")
    if columns is None:
        return table.get(member)
    if table.get(member) is not None:
        raise CohortError(place, f"{member} or columns", "both")
    if not fitted:
        hint = f"{member} takes rows of features"
        raise CohortError(f"{place}: columns", "a data set whose features were declared", "another", hint)
    if not isinstance(columns, Mapping):
        raise CohortError(f"{place}: columns", "a list of values by column", type(columns).__name__)
    try:
        return encoded_columns(fitted, columns, f"{place}: columns")
    except RecursionError as error:
        raise CohortError(f"{place}: columns", "values, or lists of numbers", "lists in lists in lists") from error


def _rows_of(
    values: Any, count: int, features: FeatureTable, what: str, place: str, given_dim: int | None = None
) -> Tensor:
    """float32 [count, features], as the data set would have them in its dtype.

    Args:
        what: has them, for messages.
        given_dim: columns that rows have before those of the data set were made of them; None: as many as it has.

    Raises:
        CohortError: another shape; values that are no numbers, or none that the dtype has.
    """
    dim, dtype = given_dim or features.feature_dim, features.feature_dtype
    expected = f"[{count}, {dim}], {dim} features a {what}" + (" before --pca" if given_dim else "")
    if values is None and count and dim:
        raise CohortError(place, expected, "none")
    try:
        if isinstance(values, Tensor):
            values = values.detach().cpu()
            values = values.float() if values.dtype in (torch.float16, torch.bfloat16) else values
        rows = np.asarray([] if values is None else values)
        if rows.size and rows.dtype.kind not in "biuf":
            raise TypeError(f"values of {rows.dtype}")
        with np.errstate(over="ignore"):  # to infinity, which is refused
            rows = float32(place, rows)
    except (TypeError, ValueError, OverflowError) as error:
        raise CohortError(place, f"numbers [{count}, {dim}]", str(error)) from error
    if not dim and rows.size:
        raise CohortError(place, f"none: {what}s of this type have no features", "some")
    if not count or not dim:
        return torch.empty(count, dim)
    if rows.shape != (count, dim):
        raise CohortError(place, expected, str(list(rows.shape)))
    if not np.isfinite(rows).all():
        raise CohortError(
            place, "finite numbers", "one that is not", f"row {int((~np.isfinite(rows)).any(1).argmax())}"
        )
    kept = torch.from_numpy(rows).to(getattr(torch, dtype or "float32"))
    if not kept.float().isfinite().all():
        raise CohortError(place, f"numbers that {dtype} has, as the data set", "larger ones")
    if dtype == "uint8" and not torch.equal(kept.float(), torch.from_numpy(rows)):
        raise CohortError(place, "whole numbers from 0 to 255, as the data set has", "others")
    return kept.float()


def _times_of(table: Mapping, count: int, are_there: bool, are_read: bool, what: str, place: str) -> np.ndarray | None:
    """int64 [count]; None: there are none.

    Args:
        are_there: the data set's have times.
        are_read: the scores depend on them.
        what: has them, for messages.
    """
    times = table.get("time")
    if times is None and not are_read:
        return None
    place = f"{place}: time"
    if not are_there:
        raise CohortError(place, f"none: {what}s of this type have no times", "some")
    if times is None:
        raise CohortError(place, f"one for each {what}, as the data set's {what}s have", "none")
    return _integers_of(times, count, place)


def _integers_of(values: Any, count: int, place: str) -> np.ndarray:
    """int64 [count]."""
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, OverflowError) as error:
        raise CohortError(place, f"integers [{count}]", str(error)) from error
    if array.shape != (count,):
        raise CohortError(place, f"integers [{count}]", str(list(array.shape)))
    integers = array.astype(np.int64) if array.dtype.kind in "iu" or not count else None
    if integers is None or (array.dtype.kind == "u" and count and int(array.max()) > np.iinfo(np.int64).max):
        raise CohortError(place, "integers from -2^63 to 2^63 - 1", "others")
    return integers


def _by_type(tables: Mapping | None, types: list, members: Sequence[str], place: str) -> dict:
    """{type: table}; of a graph of one type, the table may stand alone."""
    if tables is None:
        return {}
    if not isinstance(tables, Mapping):
        raise CohortError(place, "a mapping", type(tables).__name__)
    is_by_type = all(isinstance(table, Mapping) for table in tables.values()) and not set(tables) <= set(members) - set(
        types
    )
    if len(types) == 1 and tables and not is_by_type:
        return {types[0]: tables}
    for name, table in tables.items():
        if name not in types or not isinstance(table, Mapping):
            known = ", ".join("/".join(known) if isinstance(known, tuple) else known for known in types)
            raise CohortError(place, f"a mapping for some of {known}", str(name))
    return dict(tables)
