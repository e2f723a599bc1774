"""Answers one request at a time: scores of any nodes, also of nodes and edges that the data set does not have yet."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import StoredGraph, original_ids
from cohort_gnn.dataset import _native as dataset_native
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.dataset.columns import read_columns
from cohort_gnn.dataset.tables.encoding import encoded_columns
from cohort_gnn.nn.block import Block
from cohort_gnn.nn.row_tiles import row_tiles
from cohort_gnn.spec.graph import EdgeType
from cohort_gnn.spec.run import TrainerSpec, from_json
from cohort_gnn.spec.run_file import read_run_json
from cohort_gnn.trainer.models.targets import LinkTargets
from cohort_gnn.trainer.predict.layerwise import outputs_of_layers
from cohort_gnn.trainer.predict.neighbourhoods import Neighbourhoods, NewEdges
from cohort_gnn.trainer.predict.node_ids import NodeIds
from cohort_gnn.trainer.predict.node_rows import features_of
from cohort_gnn.trainer.predict.program import class_names, model_of_run, output_of
from cohort_gnn.trainer.predict.served_targets import ServedTargets

MOST_NEW_NODES = 1 << 20  # of one request
MEMBERS = {"id", "x", "columns", "source", "target"}  # of new nodes and new edges


@dataclass(frozen=True, eq=False)
class _Request:
    """What a request adds to the graph, with numbers for its nodes.

    Attributes:
        ids: of new nodes, and their numbers, by node type.
        rows: float32 [new nodes, features] by node type.
        edges: by edge type.
        keys: int64 [new nodes] by node type, of requests that are scored together: the numbers that they have alone.
        nodes: int64 [n], those that are asked for.
    """

    ids: dict[str, dict[Any, int]]
    rows: dict[str, Tensor]
    edges: dict[EdgeType, NewEdges]
    keys: dict[str, np.ndarray]
    nodes: np.ndarray


class Scorer:
    """Scores of nodes by a trained model, for one request at a time.

    Examples:
        >>> scorer = cohort.Scorer("runs/first", "data/cora")
        >>> scorer.score([17, 4]).shape
        torch.Size([2, 7])
        >>> new = {"id": [2708], "x": torch.zeros(1, 1433)}
        >>> scorer.score([2708], new_nodes=new, new_edges={"source": [17, 4], "target": [2708, 2708]}).shape
        torch.Size([1, 7])

    A score depends on the request's own nodes and edges and on the data set, never on the other nodes of the request or
    on other requests: without ``num_neighbors`` it is, byte for byte, what ``cohort predict`` writes for the node with
    the same ``--device``, and for a new node what it would write after ``cohort dataset append`` of the same nodes and
    edges.

    The data set is read as it is when the Scorer is made. Calls from several threads are allowed and run at once.

    Args:
        run: folder of a run of ``cohort train``.
        data: folder of the data set, or an open one.
        num_neighbors: how many in-neighbours of a node count, of each edge type, by hop, the seeds' own first; longer
            lists are drawn from, by ``seed`` and the node alone. None: all, however many. Not for GCN, which divides by
            degrees.
        seed: of what is drawn.
        max_edges: lists of in-neighbours that a hop of a request may read, in edges; None: any number.
        node_type: of a run that predicts links, whose rows are wanted; None: that of the sources.
        device: where the model runs: "cpu", "cuda" or "cuda:N". Rows and lists are read, and answers given, on the CPU.

    Raises:
        CohortError: as of ``cohort predict``; there is no such GPU; or the model needs what requests cannot have yet:
            times, features of edges, ages.
    """

    def __init__(
        self,
        run: str | os.PathLike,
        data: str | os.PathLike | StoredGraph,
        *,
        num_neighbors: Sequence[int] | None = None,
        seed: int = 0,
        max_edges: int | None = None,
        node_type: str | None = None,
        device: str | torch.device = "cpu",
    ):
        self.data = data if isinstance(data, StoredGraph) else open_dataset(data)
        self.model, self._targets = model_of_run(Path(run), self.data)
        self._device = torch.device(device)
        if self._device.type == "cuda" and not torch.cuda.is_available():
            raise CohortError("Scorer: device", "a GPU that PyTorch can use", "none", 'device="cpu"')
        self.model.to(self._device).eval()
        _demand_plain(self.model, self.data)
        self._relation = _relation_of(Path(run)) if isinstance(self._targets, LinkTargets) else None
        self._served = self._relation and ServedTargets(self.model, self.data, self._relation, self._device)
        sources = self._relation[0] if self._relation and len(self.data.node_types) > 1 else None
        self.node_type = output_of(self.model, node_type or sources)
        num_layers = len(self.model.edge_types)
        self._most = _checked_fanout(num_neighbors, num_layers, self.model.two_sided)
        self._tables = self.data.node_types
        counts = {name: table.num_nodes for name, table in self._tables.items()}
        self._counts, self._lists = counts, Neighbourhoods(self.data.edge_types, seed, max_edges)
        self._rows = {name: features_of(table) for name, table in self._tables.items() if table.feature_dim}
        self._reads = [list(self._tables), *outputs_of_layers(self.model, self._tables, self.node_type)[:-1]]
        self._ids = {name: NodeIds(original_ids(self.data.path, name), counts[name], name) for name in counts}
        job = {"run": str(run), "dataset": str(self.data.path)}
        self.class_names = class_names(job) or [str(number) for number in range(self.model.num_classes)]

    def score(
        self,
        nodes: Sequence,
        *,
        new_nodes: Mapping | None = None,
        new_edges: Mapping | None = None,
        hidden: bool = False,
    ) -> Tensor:
        """Scores float32 [nodes, classes] of nodes of the target type; of a run that predicts links, the rows that its
        decoder compares, float32 [nodes, hidden].

        Args:
            nodes: their ids in the tables of the import, or their numbers where nodes were numbered; new ones too.
            new_nodes: what the request adds: {"id": [n], "x": [n, features]}. For data sets of several node types, such
                a mapping for each type. Where nodes have numbers, "id" may be left out: they get the next ones. Instead
                of "x", "columns" may have a list of values for each declared column, {name: [n]}.
            new_edges: {"source": [m], "target": [m]}, ids of nodes, each edge with a new node at one end at least. For
                data sets of several edge types, such a mapping for each (source type, name, target type).
            hidden: the rows that the last layer reads of the nodes themselves, [nodes, hidden columns], in place of
                their scores.

        Raises:
            CohortError: an id that no node has, a row of another width, a value that is no number.
        """
        return self.score_together([{"nodes": nodes, "new_nodes": new_nodes, "new_edges": new_edges}], hidden=hidden)[0]

    def score_together(self, requests: Sequence[Mapping], *, hidden: bool = False) -> list[Tensor]:
        """What `score` gives each of several requests, in less time.

        Args:
            requests: the arguments of `score` by name, of each.

        Raises:
            CohortError: as `score`, of any of them.
        """
        read = [self._read(**request) for request in requests]
        together = [i for i, request in enumerate(read) if not self._changes_lists(request)]
        groups = [together] * bool(together) + [[i] for i in range(len(read)) if i not in set(together)]
        scores: dict[int, Tensor] = {}
        for group in groups:
            request = self._merged([read[i] for i in group])
            wanted, places = np.unique(request.nodes, return_inverse=True)
            with torch.no_grad(), row_tiles():
                rows = self._computed(wanted, request, hidden) if len(wanted) else torch.empty(0, self._width(hidden))
            parts = rows[torch.from_numpy(places)].split([len(read[i].nodes) for i in group])
            scores |= zip(group, parts, strict=True)
        return [scores[i] for i in range(len(read))]

    def _width(self, hidden: bool) -> int:
        """Columns of an answer."""
        return self.model.width_of(len(self.model.edge_types) - 2) if hidden else self.model.num_classes

    def _changes_lists(self, request: _Request) -> bool:
        """Whether edges lead into nodes of the data set: then other requests must not see them."""
        return any((edges.targets < self._counts[name[2]]).any() for name, edges in request.edges.items())

    def _merged(self, requests: list[_Request]) -> _Request:
        """One request for all that several ask: their new nodes have numbers one after the other."""
        if len(requests) == 1:
            return requests[0]
        merged, shifts = _Request({}, {}, {}, {}, np.empty(0, np.int64)), []
        for name in self._tables:
            some = [request.rows[name] for request in requests if name in request.rows]
            sizes = [len(request.rows.get(name, ())) for request in requests]
            shifts.append(np.concatenate(([0], np.cumsum(sizes))))
            if some:
                merged.rows[name] = torch.cat(some)
                merged.keys[name] = self._counts[name] + np.concatenate([np.arange(size) for size in sizes])
        shift_of = dict(zip(self._tables, shifts, strict=True))

        def moved(name: str, nodes: np.ndarray, number: int) -> np.ndarray:
            return np.where(nodes < self._counts[name], nodes, nodes + shift_of[name][number])

        for relation in self.data.edge_types:
            parts = [(i, request.edges[relation]) for i, request in enumerate(requests) if relation in request.edges]
            if parts:
                sources = np.concatenate([moved(relation[0], edges.sources, i) for i, edges in parts])
                targets = np.concatenate([moved(relation[2], edges.targets, i) for i, edges in parts])
                merged.edges[relation] = NewEdges(sources, targets)
        nodes = np.concatenate([moved(self.node_type, request.nodes, i) for i, request in enumerate(requests)])
        return replace(merged, nodes=nodes)

    def best_targets(
        self,
        nodes: Sequence,
        k: int,
        *,
        new_nodes: Mapping | None = None,
        new_edges: Mapping | None = None,
        exclude_seen: bool = True,
    ) -> tuple[list[list], list[list[float]]]:
        """The k targets with the best scores for each source, of a run that predicts links: (their ids, their scores),
        a list for each source, the best first; shorter where there are fewer.

        Targets are nodes of the data set. The first call computes the rows of all of them.

        Args:
            nodes, new_nodes, new_edges: as `score` takes them; nodes are of the type of sources.
            exclude_seen: leave out targets that the source is linked to, by the request's edges too.

        Raises:
            CohortError: as `score`; or the run does not predict links, or by --decoder mlp.
        """
        if self._served is None or self._relation is None or self.node_type != self._relation[0]:
            actual = "labels" if self._served is None else f"with node_type {self.node_type}"
            raise CohortError("best_targets", "a run that learned to predict links, and its sources", actual)
        if k < 1:
            raise CohortError("best_targets: k", "a number above 0", str(k))
        rows = self.score(nodes, new_nodes=new_nodes, new_edges=new_edges)
        request = self._read(nodes, new_nodes, new_edges)
        new = request.edges.get(self._relation)
        best, scores = self._served.best(request.nodes, rows, k, new, exclude_seen)
        names = self._ids[self._relation[2]]
        ids, values = [], []
        for targets, target_scores in zip(best, scores, strict=True):
            ids.append(names.names(targets[targets >= 0]))
            values.append(target_scores[targets >= 0].tolist())
        return ids, values

    @property
    def predicts_links(self) -> bool:
        """Whether the run learned to predict links: then `score` gives rows, and `best_targets` targets."""
        return self._served is not None

    def _computed(self, wanted: np.ndarray, request: _Request, hidden: bool) -> Tensor:
        """The scores of nodes, int64 [n], each once; on the CPU."""
        layers = self.model.edge_types[: len(self.model.edge_types) - hidden]
        outputs: list[dict[str, np.ndarray]] = [{self.node_type: wanted}]
        blocks: list[dict[str, Any]] = []
        for number in reversed(range(len(layers))):  # what each layer needs of the one before
            made = {
                name: self._blocks(number, name, nodes, request) for name, nodes in outputs[0].items() if len(nodes)
            }
            blocks.insert(0, made)
            reads = {kind: _union([ids[kind] for _, ids in made.values()]) for kind in self._reads[number]}
            outputs.insert(0, reads)
        rows = {name: self._features(name, nodes, request) for name, nodes in outputs[0].items()}
        for number, made in enumerate(blocks):
            results = {}
            for name, (relations, ids) in made.items():
                x = {kind: _chosen(rows[kind], outputs[number][kind], ids[kind]) for kind in self._reads[number]}
                num_targets = {kind: len(outputs[number + 1][name]) if kind == name else 0 for kind in self._tables}
                results[name] = self.model.layer_on(number, x, relations, num_targets, {})[name].float()
            rows = {
                name: results.get(name, self._on_device(np.empty((0, self.model.width_of(number)), np.float32)))
                for name in outputs[number + 1]
            }
        return rows[self.node_type].cpu()

    def _on_device(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self._device)

    def _blocks(
        self, number: int, name: str, nodes: np.ndarray, request: _Request
    ) -> tuple[dict[EdgeType, Block], dict[str, np.ndarray]]:
        """The edges of a layer into nodes of a type, and the nodes of their sources: of the targets' type the targets
        first."""
        relations = [relation for relation in self.model.edge_types[number] if relation[2] == name]
        most = self._most[len(self.model.edge_types) - 1 - number]
        keys = nodes
        if name in request.keys:
            count = self._counts[name]
            keys = np.where(nodes < count, nodes, request.keys[name][np.maximum(nodes - count, 0)])
        lists = {
            relation: self._lists.lists(relation, nodes, request.edges.get(relation), most, keys)
            for relation in relations
        }
        ids, blocks = {}, {}
        for kind in self._tables:
            own, from_kind = nodes if kind == name else nodes[:0], [own for own in relations if own[0] == kind]
            ids[kind], places = _numbered(own, [lists[relation].sources for relation in from_kind])
            for relation, source in zip(from_kind, places, strict=True):
                degrees = None
                if not self.model.two_sided:
                    in_degrees = self._lists.in_degrees(relation, ids[kind], request.edges.get(relation))
                    degrees = self._on_device(in_degrees)
                edges = self._on_device(lists[relation].indptr), self._on_device(source)
                blocks[relation] = Block(*edges, len(ids[kind]), len(nodes), degrees=degrees)
        none = torch.zeros(1, dtype=torch.int64, device=self._device)
        for relation in self.model.edge_types[number]:
            if relation[2] != name:  # whose targets are other nodes
                blocks[relation] = Block(none, none[:0], len(ids[relation[0]]), 0)
        return blocks, ids

    def _features(self, name: str, nodes: np.ndarray, request: _Request) -> Tensor:
        """What the first layer reads of nodes: rows, or ids where rows are learned."""
        if name not in self._rows:
            embeddings = self.model.embeddings
            learned = embeddings is not None and name in embeddings.keys()
            return self._on_device(nodes) if learned else torch.empty(len(nodes), 0, device=self._device)
        count, on_gpu = self._counts[name], self._device.type == "cuda"
        is_new = nodes >= count
        stored = self._rows[name].take(torch.from_numpy(np.where(is_new, 0, nodes)), pin=on_gpu)
        rows = stored.to(self._device, non_blocking=True).float()
        if is_new.any():
            new = request.rows[name][torch.from_numpy(nodes[is_new] - count)]
            rows[self._on_device(np.flatnonzero(is_new))] = new.to(self._device)
        return rows

    def _numbers(self, name: str, nodes: Sequence, request: _Request, place: str) -> np.ndarray:
        """int64 [n], of nodes of a type by their ids."""
        return self._ids[name].numbers(nodes, request.ids.get(name, {}), place)

    def _read(self, nodes: Sequence, new_nodes: Mapping | None = None, new_edges: Mapping | None = None) -> _Request:
        request = _Request({}, {}, {}, {}, np.empty(0, np.int64))
        for name, table in _by_type(new_nodes, list(self._tables), "new_nodes").items():
            self._read_nodes(name, table, request)
        for relation, table in _by_type(new_edges, list(self.data.edge_types), "new_edges").items():
            place = f"new_edges {', '.join(relation)}"
            if set(table) != {"source", "target"}:
                raise CohortError(place, "source and target", ", ".join(map(str, table)) or "nothing")
            numbers = [
                self._numbers(kind, table[end], request, f"{place}: {end}")
                for kind, end in ((relation[0], "source"), (relation[2], "target"))
            ]
            if len(numbers[0]) != len(numbers[1]):
                raise CohortError(place, f"{len(numbers[0])} targets, one for each source", str(len(numbers[1])))
            known = (numbers[0] < self._counts[relation[0]]) & (numbers[1] < self._counts[relation[2]])
            if known.any():
                hint = "append edges between nodes of the data set to it: cohort dataset append"
                raise CohortError(place, "a new node at one end at least", f"edge {int(known.argmax())} without", hint)
            request.edges[relation] = NewEdges(*numbers)
        return replace(request, nodes=self._numbers(self.node_type, nodes, request, "nodes"))

    def _read_nodes(self, name: str, table: Mapping, request: _Request) -> None:
        place, dim = f"new_nodes {name}", self._tables[name].feature_dim
        members = ("id", "x", "columns")
        has_some = isinstance(table, Mapping) and any(table.get(member) is not None for member in members)
        if not has_some or set(table) - set(members):
            raise CohortError(place, "some of id, x and columns", ", ".join(map(str, table)) or "nothing")
        if not dim and self.model.embeddings is not None and name in self.model.embeddings.keys():
            hint = "rows of these nodes were learned (--featureless embed), and there are none for others"
            raise CohortError(place, "no new nodes of this type", "some", hint)
        x = table.get("x")
        if table.get("columns") is not None:
            x = self._encoded(name, table, place)
        first = table["id"] if x is None else x
        if not hasattr(first, "__len__"):
            raise CohortError(f"{place}: {'id' if x is None else 'x'}", "a list", type(first).__name__)
        count = len(first)
        if count > MOST_NEW_NODES:
            raise CohortError(place, f"at most {MOST_NEW_NODES:,} nodes in a request", f"{count:,}", "ask in parts")
        request.ids[name] = self._ids[name].new(table.get("id"), count, place)
        request.rows[name] = _rows_of(x, count, dim, self._tables[name].feature_dtype, place)

    def _encoded(self, name: str, table: Mapping, place: str) -> np.ndarray:
        """float32 [n, features]: the rows of values of declared columns."""
        fitted, columns = read_columns(self.data.path).nodes.get(name), table["columns"]
        if table.get("x") is not None:
            raise CohortError(place, "x or columns", "both")
        if not fitted:
            hint = "x takes rows of features"
            raise CohortError(f"{place}: columns", "a data set whose features were declared", "another", hint)
        if not isinstance(columns, Mapping):
            raise CohortError(f"{place}: columns", "a list of values by column", type(columns).__name__)
        return encoded_columns(fitted, columns, f"{place}: columns")


def _relation_of(run: Path) -> EdgeType:
    """The relation whose links a run learned to predict."""
    relation = from_json(read_run_json(run)["trainer"], TrainerSpec, str(run / "run.json")).graph.relation
    assert relation is not None
    return relation


def _rows_of(values: Any, count: int, dim: int, dtype: str | None, place: str) -> Tensor:
    """float32 [count, dim], as the data set would have them in its dtype.

    Raises:
        CohortError: another shape; values that are no numbers, or none that the dtype has.
    """
    if not dim:
        if values is not None and np.size(values):
            raise CohortError(f"{place}: x", "none: nodes of this type have no features", "some")
        return torch.empty(count, 0)
    try:
        with np.errstate(over="ignore"):  # to infinity, which is refused
            rows = np.asarray(values, np.float32)
    except (TypeError, ValueError) as error:
        raise CohortError(f"{place}: x", f"numbers [{count}, {dim}]", str(error)) from error
    if rows.shape != (count, dim):
        raise CohortError(f"{place}: x", f"[{count}, {dim}], {dim} features a node", str(list(rows.shape)))
    if not np.isfinite(rows).all():
        raise CohortError(
            f"{place}: x", "finite numbers", "one that is not", f"row {int((~np.isfinite(rows)).any(1).argmax())}"
        )
    kept = torch.from_numpy(rows).to(getattr(torch, dtype or "float32"))
    if not kept.float().isfinite().all():
        raise CohortError(f"{place}: x", f"numbers that {dtype} has, as the data set", "larger ones")
    if dtype == "uint8" and not torch.equal(kept.float(), torch.from_numpy(rows)):
        raise CohortError(f"{place}: x", "whole numbers from 0 to 255, as the data set has", "others")
    return kept.float()


def _by_type(tables: Mapping | None, types: list, place: str) -> dict:
    """{type: table}; of a graph of one type, the table may stand alone."""
    if tables is None:
        return {}
    if not isinstance(tables, Mapping):
        raise CohortError(place, "a mapping", type(tables).__name__)
    is_by_type = all(isinstance(table, Mapping) for table in tables.values()) and not set(tables) <= MEMBERS - set(
        types
    )
    if len(types) == 1 and tables and not is_by_type:
        return {types[0]: tables}
    for name, table in tables.items():
        if name not in types or not isinstance(table, Mapping):
            known = ", ".join("/".join(known) if isinstance(known, tuple) else known for known in types)
            raise CohortError(place, f"a mapping for some of {known}", str(name))
    return dict(tables)


def _numbered(own: np.ndarray, sources: list[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
    """(``own`` and then the other sources, each node once; where each source stands there)"""
    if not sources:
        return own, []
    others, places = dataset_native.numbered_nodes(own, np.concatenate(sources))
    return np.concatenate((own, others)), np.split(places, np.cumsum(list(map(len, sources)))[:-1])


def _union(sets: list[np.ndarray]) -> np.ndarray:
    """int64 [n]: the nodes of a set as they stand, of several ascending."""
    return sets[0] if len(sets) == 1 else np.unique(np.concatenate(sets))


def _chosen(rows: Tensor, nodes: np.ndarray, wanted: np.ndarray) -> Tensor:
    """The rows of wanted nodes among those of nodes, a `_union`."""
    return rows if nodes is wanted else rows[torch.from_numpy(np.searchsorted(nodes, wanted)).to(rows.device)]


def _checked_fanout(num_neighbors: Sequence[int] | None, num_layers: int, two_sided: bool) -> list[int]:
    if num_neighbors is None:
        return [-1] * num_layers
    if not two_sided:
        hint = "leave it out: all neighbours count, as in cohort predict"
        raise CohortError("num_neighbors", "a model that does not divide by degrees", "GCN", hint)
    most = list(num_neighbors)
    if len(most) != num_layers or not all(isinstance(number, int) and (number == -1 or number > 0) for number in most):
        raise CohortError("num_neighbors", f"{num_layers} numbers above 0, or -1 for all", repr(num_neighbors))
    return most


def _demand_plain(model: Any, data: StoredGraph) -> None:
    """Raises CohortError: the model reads what requests cannot bring yet."""
    hint = "score all nodes: cohort predict"
    if model.edge_dims:
        raise CohortError("Scorer", "a model that reads no features of edges", "one that does", hint)
    timed = any(relation.edge_times is not None for relation in data.edge_types.values())
    if model.ages is not None or timed:
        raise CohortError("Scorer", "a data set whose edges have no times", "one with times", hint)
