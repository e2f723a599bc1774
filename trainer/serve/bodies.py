"""The bodies of requests and of answers: JSON, or streams of Arrow."""

from __future__ import annotations

import json
from typing import Any, Literal

import msgspec

from cohort_gnn.base.errors import CohortError

ARROW = "application/vnd.apache.arrow.stream"
JSON = "application/json"


class NewNodes(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Nodes that the data set does not have: rows of features, or values of the declared columns."""

    id: list[int | str] | None = None
    x: list[list[float]] | None = None
    columns: dict[str, list[Any]] | None = None
    time: list[int] | None = None
    type: str | None = None

    @property
    def count(self) -> int:
        return len(self.x or self.id or next(iter((self.columns or {}).values()), []))


class NewEdges(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Edges with a new node at one end at least, by the ids of their ends, with rows of features, or values of the
    declared columns, and times where those of the data set have some."""

    source: list[int | str]
    target: list[int | str]
    edge_attr: list[list[float]] | None = None
    columns: dict[str, list[Any]] | None = None
    time: list[int] | None = None
    type: tuple[str, str, str] | None = None


class Request(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What is asked for.

    Attributes:
        nodes: ids of nodes of the target type, new ones too.
        new_nodes, new_edges: what the request adds to the graph, for this answer alone; "type" may be left out where
            the data set has one.
        at_time: of the scores of a run that used times: the edges that exist then count.
        output: scores of all classes, or the rows that the last layer reads; of a run that predicts links, the rows
            that its decoder compares, or the best targets of each node.
        top_k: the so many best classes of each node and their scores, in place of all; or so many targets.
        exclude_seen: targets that a node is linked to are left out.
    """

    nodes: list[int | str]
    new_nodes: list[NewNodes] = []
    new_edges: list[NewEdges] = []
    at_time: int | None = None
    output: Literal["scores", "hidden", "rows", "targets"] = "scores"
    top_k: int | None = None
    exclude_seen: bool = True

    @property
    def num_nodes(self) -> int:
        return len(self.nodes) + sum(some.count for some in self.new_nodes)

    def arguments(self, node_types: list[str], edge_types: list[tuple[str, str, str]]) -> dict[str, Any]:
        """Those of Scorer.score.

        Raises:
            CohortError: a type is left out where there are several, or comes twice.
        """
        nodes = _by_type("new_nodes", self.new_nodes, node_types)
        edges = _by_type("new_edges", self.new_edges, edge_types)
        return {
            "nodes": self.nodes,
            "new_nodes": {name: _members_of(some) for name, some in nodes.items()},
            "new_edges": {name: _members_of(some) for name, some in edges.items()},
            "at_time": self.at_time,
        }


def _members_of(part: NewNodes | NewEdges) -> dict[str, Any]:
    """What a part has, but for its type."""
    members = {name: getattr(part, name) for name in part.__struct_fields__ if name != "type"}
    return {name: value for name, value in members.items() if value is not None}


def _by_type(place: str, parts: list, types: list) -> dict:
    tables: dict = {}
    for part in parts:
        if part.type is None and len(types) > 1:
            raise CohortError(place, 'a "type" for each part, as the data set has several', "none")
        name = types[0] if part.type is None else part.type
        if name in tables:
            raise CohortError(place, "each type once", f"{name} again")
        tables[name] = part
    return tables


def request_of(body: bytes, content_type: str) -> Request:
    """Reads a request.

    Raises:
        CohortError: the body is neither, or has other members.
    """
    kind = content_type.partition(";")[0].strip().lower() or JSON
    try:
        if kind == ARROW:
            return msgspec.convert(_row_of(body), Request)
        if kind == JSON:
            return msgspec.json.decode(body, type=Request)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CohortError("the body", "a request as /openapi.json describes it", str(error)) from error
    raise CohortError("Content-Type", f"{JSON} or {ARROW}", kind[:80])


def _row_of(body: bytes) -> dict[str, Any]:
    """The one row of a stream of Arrow, whose columns are the members of a request."""
    import pyarrow as pa

    try:
        with pa.ipc.open_stream(body) as reader:
            table = reader.read_all()
        table.validate(full=True)
        rows = table.to_pylist()
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise CohortError("the body", "a stream of Arrow", str(error)[:200]) from error
    if len(rows) != 1:
        raise CohortError("the body", "one row, whose columns are the members of a request", f"{len(rows)} rows")
    row = _without_nulls(rows[0])
    for part in {"new_nodes", "new_edges"} & set(row):
        row[part] = [_without_nulls(some) for some in row[part]] if isinstance(row[part], list) else row[part]
    return row


def _without_nulls(value: Any) -> Any:
    """The members of a struct that are there, and of structs in it: all parts have those of each. Other values stay."""
    if not isinstance(value, dict):
        return value
    return {name: _without_nulls(some) for name, some in value.items() if some is not None}


def answer_of(request: Request, rows: Any, class_names: list[str], accept: str) -> tuple[bytes, str]:
    """(the body, its type): of each node its id, and its scores, row, best classes or best targets.

    Args:
        rows: float32 tensor [nodes, columns]; of "targets" the ids of targets and their scores, lists of lists.
    """
    if request.output == "targets":
        members = dict(zip(("targets", "scores"), rows, strict=True))
    elif request.top_k is not None and request.output == "scores":
        best = rows.topk(min(request.top_k, rows.shape[1]))
        members = {
            "classes": [[class_names[number] for number in row] for row in best.indices.tolist()],
            "scores": best.values.tolist(),
        }
    else:
        members = {request.output: rows.tolist()}
    if ARROW in accept:
        return _arrow({"id": request.nodes} | members), ARROW
    if request.output == "scores" and request.top_k is None:
        members = {"class_names": class_names} | members
    return msgspec.json.encode({"nodes": request.nodes} | members), JSON


def _arrow(columns: dict[str, list]) -> bytes:
    import pyarrow as pa

    types = dict.fromkeys(("scores", "hidden", "rows"), pa.list_(pa.float32()))
    table = pa.table({name: pa.array(values, types.get(name)) for name, values in columns.items()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def openapi(version: str) -> bytes:
    """The description of the service, OpenAPI 3.1."""
    (schema,), parts = msgspec.json.schema_components([Request], ref_template="#/components/schemas/{name}")
    error = {"description": "what was expected, and what was found", "content": {JSON: {"schema": {"type": "object"}}}}
    refusals = ("400", "401", "408", "413", "500", "503")
    answers = {"200": {"description": "scores, in the order of nodes"}} | dict.fromkeys(refusals, error)
    row = {"description": "one row, whose columns are the members of the JSON object"}
    body = {"required": True, "content": {JSON: {"schema": schema}, ARROW: {"schema": row}}}
    paths = {
        "/v1/scores": {"post": {"requestBody": body, "responses": answers}},
        "/healthz": {"get": {"responses": {"200": {"description": "requests are answered"}}}},
        "/metrics": {"get": {"responses": {"200": {"description": "counts and times, for Prometheus"}}}},
    }
    info = {"title": "cohort serve", "version": version}
    return json.dumps({"openapi": "3.1.0", "info": info, "paths": paths, "components": {"schemas": parts}}).encode()
