"""Answers one request at a time: scores of any nodes, also of nodes and edges that the data set does not have yet."""

import contextlib
import os
import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cohort_gnn.base.distinct import distinct
from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import StoredGraph
from cohort_gnn.dataset import _native as dataset_native
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.nn.block import Block
from cohort_gnn.nn.row_tiles import row_tiles
from cohort_gnn.spec.graph import EdgeType
from cohort_gnn.spec.run import TrainerSpec, from_json
from cohort_gnn.spec.run_file import read_run_json
from cohort_gnn.spec.types import Fanout, Positive, Seed, Span, checked
from cohort_gnn.trainer.models.targets import LinkTargets
from cohort_gnn.trainer.predict.layerwise import outputs_of_layers
from cohort_gnn.trainer.predict.neighbourhoods import Lists, Neighbourhoods, NewEdges, TooManyEdges
from cohort_gnn.trainer.predict.node_rows import ArrayRows, PreparedRows, features_of
from cohort_gnn.trainer.predict.program import class_names, model_of_run, output_of, spans_at, windows_of
from cohort_gnn.trainer.predict.requests import Request, RequestReader
from cohort_gnn.trainer.predict.served_targets import ServedTargets


@dataclass(frozen=True, eq=False)
class _Reads:
    """What a layer reads for some targets of a node type.

    Attributes:
        blocks: edges, by edge type.
        ids: the nodes of the sources, by node type: of the targets' type the targets first.
        edge_attr: float32 [edges, features], of edge types whose features the model reads.
        ages: int64 [nodes], of node types whose ages the first layer reads.
    """

    blocks: dict[EdgeType, Block]
    ids: dict[str, np.ndarray]
    edge_attr: dict[EdgeType, Tensor]
    ages: dict[str, Tensor]


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
        CohortError: as of ``cohort predict``; there is no such GPU.
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
        self._device = _checked_device(device)
        self.model.to(self._device).eval()
        self._windows = windows_of(Path(run), self.data)
        self._relation, self._served = None, None
        if isinstance(self._targets, LinkTargets):
            self._relation, is_task = _links_of(Path(run))
            served = self.model, self.data, self._relation, self._device, self._windows, is_task
            self._served = ServedTargets(*served)
        sources = self._relation[0] if self._relation and len(self.data.node_types) > 1 else None
        self.node_type = output_of(self.model, node_type or sources)
        num_layers = len(self.model.edge_types)
        self._most = _checked_fanout(num_neighbors, num_layers, self.model.two_sided)
        self._tables = self.data.node_types
        self._counts = {name: table.num_nodes for name, table in self._tables.items()}
        most_edges = None if max_edges is None else checked("Scorer: max_edges", max_edges, Span)
        self._lists = Neighbourhoods(self.data.edge_types, checked("Scorer: seed", seed, Seed), most_edges)
        self._rows = {name: features_of(table) for name, table in self._tables.items() if table.feature_dim}
        tables = {relation: self.data.edge_types[relation].edge_table for relation in self.model.edge_dims}
        self._edge_rows = {relation: features_of(table) for relation, table in tables.items() if table is not None}
        self._reads = [list(self._tables), *outputs_of_layers(self.model, self._tables, self.node_type)[:-1]]
        self._reader = RequestReader(self.data, self.model, self.node_type, self._windows is not None)
        job = {"run": str(run), "dataset": str(self.data.path)}
        self.class_names = class_names(job) or [str(number) for number in range(self.model.num_classes)]

    def score(
        self,
        nodes: Sequence,
        *,
        new_nodes: Mapping | None = None,
        new_edges: Mapping | None = None,
        at_time: int | None = None,
        hidden: bool = False,
    ) -> Tensor:
        """Scores float32 [nodes, classes] of nodes of the target type; of a run that predicts links, the rows that its
        decoder compares, float32 [nodes, hidden].

        Args:
            nodes: their ids in the tables of the import, or their numbers where nodes were numbered; new ones too.
            new_nodes: what the request adds: {"id": [n], "x": [n, features]}. For data sets of several node types, such
                a mapping for each type. Where nodes have numbers, "id" may be left out: they get the next ones. Instead
                of "x", "columns" may have a list of values for each declared column, {name: [n]}. Where the type's
                nodes have times, "time" int64 [n] says since when new ones exist.
            new_edges: {"source": [m], "target": [m]}, ids of nodes, each edge with a new node at one end at least; what
                the import did to edges (reverses, loops, equal ones) is done to them. Where the model reads features of
                edges, "edge_attr": [m, features], or "columns" of theirs; where the data set's edges have times, "time"
                int64 [m]: since when each exists; where nodes have times, not before its source does. For data sets of
                several edge types, such a mapping for each (source type, name, target type).
            at_time: of a run that used times, which needs it: the edges that exist then count, as for ``cohort predict
                --at-time``.
            hidden: the rows that the last layer reads of the nodes themselves, [nodes, hidden columns], in place of
                their scores.

        Raises:
            CohortError: an id that no node has, a row of another width, a value that is no number, no times or features
                where they are needed.
        """
        request = {"nodes": nodes, "new_nodes": new_nodes, "new_edges": new_edges, "at_time": at_time}
        return self.score_together([request], hidden=hidden)[0]

    def score_together(self, requests: Sequence[Mapping], *, hidden: bool = False) -> list[Tensor]:
        """What `score` gives each of several requests, in less time.

        Args:
            requests: the arguments of `score` by name, of each.

        Raises:
            CohortError: as `score`, of any of them.
        """
        read, width = [self._reader.read(**request) for request in requests], self._width(hidden)
        alone = [i for i, request in enumerate(read) if self._reader.changes_lists(request)]
        at_one_time: dict[int | None, list[int]] = {}
        for i in sorted(set(range(len(read))) - set(alone)):
            at_one_time.setdefault(read[i].at_time, []).append(i)
        groups = deque([*at_one_time.values(), *([i] for i in alone)])
        scores: dict[int, Tensor] = {}
        while groups:
            group = groups.popleft()
            request = self._reader.merged([read[i] for i in group])
            wanted, places = np.unique(request.nodes, return_inverse=True)
            try:
                with torch.no_grad(), row_tiles():
                    rows = self._computed(wanted, request, hidden) if len(wanted) else torch.empty(0, width)
            except TooManyEdges:
                if len(group) == 1:
                    raise
                groups.extend([i] for i in group)  # the bound is that of a request
                continue
            parts = rows[torch.from_numpy(places)].split([len(read[i].nodes) for i in group])
            scores |= zip(group, parts, strict=True)
        return [scores[i] for i in range(len(read))]

    def _width(self, hidden: bool) -> int:
        """Columns of an answer; raises CohortError where the last layer reads no rows of the nodes themselves."""
        if not hidden:
            return self.model.num_classes
        last = len(self.model.edge_types) - 1
        if self.node_type not in (self._reads[last] if last else self._rows):
            expected = f"a run whose last layer reads rows of type {self.node_type} itself"
            raise CohortError("hidden", expected, "one that reads none", "score without it")
        return self.model.width_of(last - 1) if last else self._tables[self.node_type].feature_dim

    def best_targets(
        self,
        nodes: Sequence,
        k: int,
        *,
        new_nodes: Mapping | None = None,
        new_edges: Mapping | None = None,
        at_time: int | None = None,
        exclude_seen: bool = True,
    ) -> tuple[list[list], list[list[float]]]:
        """The k targets with the best scores for each source, of a run that predicts links: (their ids, their scores),
        a list for each source, the best first; shorter where there are fewer.

        Targets are nodes of the data set. The first call computes the rows of all of them, and so does one for another
        ``at_time``, when those that exist count.

        Args:
            nodes, new_nodes, new_edges, at_time: as `score` takes them; nodes are of the type of sources.
            exclude_seen: leave out targets that the source is linked to, by the request's edges too; not for runs of a
                task, whose targets may come again.

        Raises:
            CohortError: as `score`; or the run does not predict links, or by --decoder mlp.
        """
        if self._served is None or self._relation is None or self.node_type != self._relation[0]:
            actual = "labels" if self._served is None else f"with node_type {self.node_type}"
            raise CohortError("best_targets", "a run that learned to predict links, and its sources", actual)
        k = checked("best_targets: k", k, Positive)
        exclude_seen = checked("best_targets: exclude_seen", exclude_seen, bool)
        rows = self.score(nodes, new_nodes=new_nodes, new_edges=new_edges, at_time=at_time)
        request = self._reader.read(nodes, new_nodes, new_edges, at_time)
        new = request.edges.get(self._relation)
        best, scores = self._served.best(request.nodes, rows, k, new, exclude_seen, request.at_time)
        names = self._reader.ids[self._relation[2]]
        ids, values = [], []
        for targets, target_scores in zip(best, scores, strict=True):
            ids.append(names.names(targets[targets >= 0]))
            values.append(target_scores[targets >= 0].tolist())
        return ids, values

    def warm_up(self) -> None:
        """Scores some nodes, so that no request waits for what is loaded or allocated at first use."""
        request = Request(None if self._windows is None else 0)
        for number in (1, 64):
            nodes = np.arange(min(number, self._counts[self.node_type]))
            with contextlib.suppress(TooManyEdges), torch.no_grad(), row_tiles():
                if len(nodes):
                    self._computed(nodes, request, hidden=False)

    def has_lost_gpu(self) -> bool:
        """Whether CUDA has failed in this process for good, as after an illegal access or the end of MPS."""
        if self._device.type != "cuda":
            return False
        try:
            torch.cuda.synchronize(self._device)
        except RuntimeError:
            return True
        return False

    @property
    def predicts_links(self) -> bool:
        """Whether the run learned to predict links: then `score` gives rows, and `best_targets` targets."""
        return self._served is not None

    def _computed(self, wanted: np.ndarray, request: Request, hidden: bool) -> Tensor:
        """The scores of nodes, int64 [n], each once; on the CPU."""
        layers = self.model.edge_types[: len(self.model.edge_types) - hidden]
        outputs: list[dict[str, np.ndarray]] = [{self.node_type: wanted}]
        reads_of: list[dict[str, _Reads]] = []
        for number in reversed(range(len(layers))):  # what each layer needs of the one before
            made = {
                name: self._reads_for(number, name, nodes, request) for name, nodes in outputs[0].items() if len(nodes)
            }
            reads_of.insert(0, made)
            union = {kind: _union([reads.ids[kind] for reads in made.values()]) for kind in self._reads[number]}
            outputs.insert(0, union)
        rows = {name: self._features(name, nodes, request) for name, nodes in outputs[0].items()}
        for number, made in enumerate(reads_of):
            results = {}
            for name, reads in made.items():
                x = {kind: _chosen(rows[kind], outputs[number][kind], reads.ids[kind]) for kind in self._reads[number]}
                num_targets = {kind: len(outputs[number + 1][name]) if kind == name else 0 for kind in self._tables}
                ages = {"ages": reads.ages} if reads.ages else {}
                made_rows = self.model.layer_on(number, x, reads.blocks, num_targets, reads.edge_attr, **ages)
                results[name] = made_rows[name].float()
            rows = {
                name: results.get(name, self._on_device(np.empty((0, self.model.width_of(number)), np.float32)))
                for name in outputs[number + 1]
            }
        return rows[self.node_type].cpu()

    def _on_device(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self._device)

    def _reads_for(self, number: int, name: str, nodes: np.ndarray, request: Request) -> _Reads:
        """What a layer reads for nodes of a type."""
        relations = [relation for relation in self.model.edge_types[number] if relation[2] == name]
        most = self._most[len(self.model.edge_types) - 1 - number]
        keys = nodes
        if name in request.keys:
            count = self._counts[name]
            keys = np.where(nodes < count, nodes, request.keys[name][np.maximum(nodes - count, 0)])
        spans = {} if request.at_time is None else spans_at(self._windows or {}, request.at_time)
        came = request.edges
        lists = {
            relation: self._lists.lists(relation, nodes, came.get(relation), most, keys, spans.get(relation))
            for relation in relations
        }
        ids, blocks = {}, {}
        for kind in self._tables:
            own, from_kind = nodes if kind == name else nodes[:0], [own for own in relations if own[0] == kind]
            ids[kind], places = _numbered(own, [lists[relation].sources for relation in from_kind])
            for relation, source in zip(from_kind, places, strict=True):
                degrees = None
                if not self.model.two_sided:
                    counted = self._lists.in_degrees(relation, ids[kind], came.get(relation), spans.get(relation))
                    degrees = self._on_device(counted)
                edges = self._on_device(lists[relation].indptr), self._on_device(source)
                blocks[relation] = Block(*edges, len(ids[kind]), len(nodes), degrees=degrees)
        none = torch.zeros(1, dtype=torch.int64, device=self._device)
        for relation in self.model.edge_types[number]:
            if relation[2] != name:  # whose targets are other nodes
                blocks[relation] = Block(none, none[:0], len(ids[relation[0]]), 0)
        edge_attr = {
            relation: self._edge_attr(relation, lists.get(relation), came.get(relation))
            for relation in self.model.edge_types[number]
            if relation in self._edge_rows
        }
        aged = list(self.model.ages.spans) if self.model.ages is not None and number == 0 else []
        return _Reads(blocks, ids, edge_attr, {kind: self._ages(kind, ids[kind], request) for kind in aged})

    def _edge_attr(self, relation: EdgeType, lists: Lists | None, new: NewEdges | None) -> Tensor:
        """float32 [edges, features], of the edges of lists; None: of no edges."""
        places = np.empty(0, np.int64) if lists is None else lists.places
        count = len(self.data.edge_types[relation].indices)
        return self._taken(self._edge_rows[relation], places, None if new is None else new.rows, count)

    def _ages(self, name: str, nodes: np.ndarray, request: Request) -> Tensor:
        """int64 [n], of nodes of a type at the time of the scores."""
        stored, count = self._tables[name].node_times, self._counts[name]
        assert stored is not None and request.at_time is not None
        times, is_new = np.empty(len(nodes), np.int64), nodes >= count
        times[~is_new] = stored[nodes[~is_new]]
        if is_new.any():
            times[is_new] = request.times[name][nodes[is_new] - count]
        return self._on_device(request.at_time - times)

    def _features(self, name: str, nodes: np.ndarray, request: Request) -> Tensor:
        """What the first layer reads of nodes: rows, or ids where rows are learned."""
        if name not in self._rows:
            embeddings = self.model.embeddings
            learned = embeddings is not None and name in embeddings.keys()
            return self._on_device(nodes) if learned else torch.empty(len(nodes), 0, device=self._device)
        return self._taken(self._rows[name], nodes, request.rows.get(name), self._counts[name])

    def _taken(self, rows: ArrayRows | PreparedRows, places: np.ndarray, new: Tensor | None, count: int) -> Tensor:
        """float32 [n, dim]: stored rows, of places below their count, and after them new ones."""
        is_new = places >= count
        if len(places) and is_new.all():
            assert new is not None
            return new[torch.from_numpy(places - count)].to(self._device)
        ids = torch.from_numpy(np.where(is_new, 0, places))
        taken = rows.take(ids, pin=self._device.type == "cuda").to(self._device, non_blocking=True).float()
        if is_new.any():
            assert new is not None
            came = new[torch.from_numpy(places[is_new] - count)].to(self._device)
            taken[self._on_device(np.flatnonzero(is_new))] = came
        return taken


def _links_of(run: Path) -> tuple[EdgeType, bool]:
    """The relation whose links a run learned to predict, and whether these are a task's."""
    options = from_json(read_run_json(run)["trainer"], TrainerSpec, str(run / "run.json"))
    assert options.graph.relation is not None
    return options.graph.relation, options.task_name is not None


def _numbered(own: np.ndarray, sources: list[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
    """(``own`` and then the other sources, each node once; where each source stands there)"""
    if not sources:
        return own, []
    others, places = dataset_native.numbered_nodes(own, np.concatenate(sources))
    return np.concatenate((own, others)), np.split(places, np.cumsum(list(map(len, sources)))[:-1])


def _union(sets: list[np.ndarray]) -> np.ndarray:
    """int64 [n]: the nodes of a set as they stand, of several, or none, ascending."""
    return sets[0] if len(sets) == 1 else distinct(np.empty(0, np.int64), *sets)


def _chosen(rows: Tensor, nodes: np.ndarray, wanted: np.ndarray) -> Tensor:
    """The rows of wanted nodes among those of nodes, a `_union`."""
    return rows if nodes is wanted else rows[torch.from_numpy(np.searchsorted(nodes, wanted)).to(rows.device)]


def _checked_device(device: str | torch.device) -> torch.device:
    if not re.fullmatch(r"cpu|cuda(:\d+)?", str(device)):
        raise CohortError("Scorer: device", "cpu, cuda or cuda:N", repr(device)[:80])
    if str(device) != "cpu" and not torch.cuda.is_available():
        raise CohortError("Scorer: device", "a GPU that PyTorch can use", "none", 'device="cpu"')
    return torch.device(device)


def _checked_fanout(num_neighbors: Sequence[int] | None, num_layers: int, two_sided: bool) -> list[int]:
    if num_neighbors is None:
        return [-1] * num_layers
    if not two_sided:
        hint = "leave it out: all neighbours count, as in cohort predict"
        raise CohortError("num_neighbors", "a model that does not divide by degrees", "GCN", hint)
    most = checked("num_neighbors", num_neighbors, Fanout)
    if len(most) != num_layers or 0 in most:
        raise CohortError("num_neighbors", f"{num_layers} numbers above 0, or -1 for all", repr(num_neighbors))
    return most
