"""Small random graphs of PyG, with attributes of many kinds, and options that its loaders and Cohort's share."""

import torch
import torch_geometric.transforms as T
from hypothesis import strategies as st
from pyg_batches import Graph
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import NegativeSampling
from torch_geometric.sampler.base import NumNeighbors

TYPES = ("author", "paper", "venue")
DTYPES = [torch.float32, torch.float64, torch.float16, torch.int64, torch.int32, torch.bool]
OF_NODES = {"x": [(3,), (1,), ()], "y": [(), (1,), (3,)], "year": [()], "emb": [(2, 2)], "time": [()]}
OF_EDGES = {"edge_weight": [(), (1,)], "edge_attr": [(), (1,), (4,)], "edge_type": [()], "rating": [(), (2,)]}
OF_EDGES |= {"edge_time": [()]}
ONE_DTYPE = {"time": torch.int64, "edge_time": torch.int64, "edge_weight": torch.float32}


class Rows:
    """Random rows, from one seed."""

    def __init__(self, seed: int):
        self.generator = torch.Generator().manual_seed(seed)

    def integers(self, bound: int, *shape: int) -> Tensor:
        return torch.randint(bound, shape, generator=self.generator)

    def order(self, count: int) -> Tensor:
        return torch.randperm(count, generator=self.generator)

    def of(self, dtype: torch.dtype, *shape: int) -> Tensor:
        return (self.integers(4 if dtype == torch.bool else 1000, *shape) / 4).to(dtype)


@st.composite
def graphs(draw, typed: bool, timed: str | None = None) -> Graph:
    """A Data or a HeteroData.

    Args:
        timed: "time" of nodes or "edge_time" of edges, which then have it.
    """
    rows = Rows(draw(st.integers(0, 2**31)))
    return draw(_typed(rows, timed)) if typed else draw(_plain(rows, timed))


@st.composite
def _plain(draw, rows: Rows, timed: str | None) -> Data:
    count = draw(st.integers(2, 20))
    data = Data(edge_index=_edges(draw, rows, count, count), num_nodes=count)
    _fill(draw, rows, data, count, OF_NODES, timed)
    _fill(draw, rows, data, data.edge_index.size(1), OF_EDGES, timed)
    if draw(st.booleans()):
        data.name = "of a graph"
    if draw(st.booleans()) and timed != "edge_time":
        data = T.ToUndirected(reduce="max")(data)
    return data


@st.composite
def _typed(draw, rows: Rows, timed: str | None) -> HeteroData:
    data, names = HeteroData(), TYPES[: draw(st.integers(1, 3))]
    for name in names:
        data[name].num_nodes = draw(st.integers(1, 15))
        _fill(draw, rows, data[name], data[name].num_nodes, OF_NODES, timed)
    ends = st.tuples(st.sampled_from(names), st.sampled_from(["to", "of"]), st.sampled_from(names))
    for relation in draw(st.lists(ends, min_size=1, max_size=3, unique=True)):
        store = data[relation]
        store.edge_index = _edges(draw, rows, data[relation[0]].num_nodes, data[relation[2]].num_nodes)
        _fill(draw, rows, store, store.edge_index.size(1), OF_EDGES, timed)
    if draw(st.booleans()):
        data.name = "of a graph"
    if draw(st.booleans()) and timed != "edge_time":
        data = T.ToUndirected(reduce="max", merge=draw(st.booleans()))(data)
    return data


def _edges(draw, rows: Rows, num_sources: int, num_targets: int) -> Tensor:
    """int64 [2, any], often with parallel edges."""
    count = draw(st.integers(1, 40))
    return torch.stack([rows.integers(num_sources, count), rows.integers(num_targets, count)])


def _fill(draw, rows: Rows, store, count: int, kinds: dict, timed: str | None) -> None:
    """Gives the store attributes of some of the kinds. Times, of which no two edges have the same, are there or not."""
    for name, shapes in kinds.items():
        if name == timed == "edge_time":
            store[name] = rows.order(count) * 5
        elif name == timed or ("time" not in name and draw(st.booleans())):
            dtype = ONE_DTYPE.get(name) or draw(st.sampled_from(DTYPES))
            store[name] = rows.of(dtype, count, *draw(st.sampled_from(shapes)))


@st.composite
def node_options(draw, data: Graph, kind: str, timed: str | None) -> dict:
    """Arguments of both NeighborLoaders.

    Args:
        kind: "directional", "bidirectional", "induced" or "disjoint".
    """
    name = draw(st.sampled_from(data.node_types)) if isinstance(data, HeteroData) else None
    num_nodes, rows = (data if name is None else data[name]).num_nodes, Rows(draw(st.integers(0, 2**31)))
    seeds = draw(st.sampled_from(["all", "ids", "list", "mask"] + ["again"] * (kind == "disjoint")))
    ids = rows.order(num_nodes)[: draw(st.integers(1, num_nodes))]
    mask = torch.zeros(num_nodes, dtype=torch.bool).index_fill(0, ids, True)
    again = torch.cat([ids, ids[:2]])
    nodes = {"all": None, "ids": ids, "list": ids.tolist(), "mask": mask, "again": again}[seeds]
    options = _common(draw, data, kind, timed) | {"input_nodes": nodes if name is None else (name, nodes)}
    if timed == "edge_time" or (timed and draw(st.booleans())):
        count = num_nodes if seeds == "all" else len(again) if seeds == "again" else len(ids)
        options["input_time"] = rows.of(torch.int64, count)
    return options


@st.composite
def pair_options(draw, data: Graph, kind: str, timed: str | None) -> dict:
    """Arguments of both LinkNeighborLoaders."""
    name = draw(st.sampled_from(data.edge_types)) if isinstance(data, HeteroData) else None
    store, rows = data if name is None else data[name], Rows(draw(st.integers(0, 2**31)))
    pairs = store.edge_index
    if draw(st.booleans()):
        counts = [data.num_nodes] * 2 if name is None else [data[end].num_nodes for end in name[::2]]
        num_pairs = draw(st.integers(1, 12))
        pairs = torch.stack([rows.integers(count, num_pairs) for count in counts])
    options = _common(draw, data, kind, timed)
    given = None if pairs is store.edge_index and draw(st.booleans()) else pairs
    options["edge_label_index"] = given if name is None else (name, given)
    amount = draw(st.sampled_from([1, 2, 0.5]))
    mode = draw(st.sampled_from([None, "binary", "triplet"]))
    if mode is not None and (amount != 0.5 or (mode == "binary" and kind != "disjoint")):
        options["neg_sampling"] = NegativeSampling(mode, amount)
    shape, dtype = draw(st.sampled_from([None, (), (2,)])), draw(st.sampled_from([torch.float32, torch.int64]))
    if mode != "triplet" and shape is not None:
        options["edge_label"] = rows.integers(3, pairs.size(1), *shape).to(dtype)
    if timed:
        options["edge_label_time"] = rows.of(torch.int64, pairs.size(1))
    return options


def _common(draw, data: Graph, kind: str, timed: str | None) -> dict:
    hops = draw(st.integers(1, 3))
    options: dict = {"num_neighbors": [-1] * hops, "batch_size": draw(st.integers(1, 9))}
    options |= {"disjoint": True} if kind == "disjoint" else {"subgraph_type": kind}
    if timed:
        options["time_attr"] = timed
    if timed == "edge_time" and draw(st.booleans()):
        latest = [draw(st.integers(0, 3)) for _ in range(hops)]
        options |= {"temporal_strategy": "last", "num_neighbors": latest}
    if isinstance(data, HeteroData) and draw(st.booleans()):
        of_one = draw(st.sampled_from(data.edge_types))
        lists = {name: options["num_neighbors"] for name in data.edge_types} | {of_one: [0] * hops}
        options["num_neighbors"] = draw(st.sampled_from([lists, NumNeighbors({of_one: [0] * hops}, [-1] * hops)]))
    if kind == "directional" and draw(st.booleans()) and all("edge_weight" in each for each in data.edge_stores):
        options["weight_attr"] = "edge_weight"
    if draw(st.booleans()):
        options["transform"] = with_more_rows
    return options


def with_more_rows(batch: Graph) -> Graph:
    """Changes an attribute of a batch, and adds attributes to it."""
    for store in batch.node_stores:
        store.half = store.n_id / 2
        if "year" in store:
            store.year = store.year.double() + 1
    return batch


def without_pairs(data: Graph, options: dict, batch: Graph) -> tuple[Graph, dict]:
    """The graph without the edges that are pairs of a batch and without their reverses, and options for this batch.
    What is left of edges has `edge_column`, the columns in the graph."""
    name, pairs = options["edge_label_index"] if isinstance(data, HeteroData) else (None, options["edge_label_index"])
    input_id = (batch if name is None else batch[name]).input_id
    pairs = ((data if name is None else data[name]).edge_index if pairs is None else pairs)[:, input_id]
    rest = data.clone()
    for other, reverse in relations_of_pairs(data, name):
        store = rest if other is None else rest[other]
        barred = set(map(tuple, (pairs.flip(0) if reverse else pairs).T.tolist()))
        keep = torch.tensor([edge not in barred for edge in map(tuple, store.edge_index.T.tolist())], dtype=torch.bool)
        of_edges = (data if other is None else data[other]).edge_attrs()  # later their number may be that of nodes
        if "edge_column" not in store:
            store.edge_column = torch.arange(len(keep))
        for attribute in {*of_edges, "edge_column"}:
            value = store[attribute]
            store[attribute] = value[:, keep] if attribute == "edge_index" else value[keep]
    label = {"edge_label": options["edge_label"][input_id]} if "edge_label" in options else {}
    how = options.get("neg_sampling")
    if label and how and options["edge_label"].min() == 0:  # of the loader's labels, not of the batch's
        label["edge_label"] = label["edge_label"] + 1
    of_batch = {"batch_size": len(input_id), "input_id": input_id}
    return rest, options | label | of_batch | {"edge_label_index": pairs if name is None else (name, pairs)}


def has_reverse_by_its_edges(data: HeteroData) -> bool:
    """Whether an edge type has exactly the edges of another in the other direction, and no name that says it."""
    edges = {name: sorted(map(tuple, data[name].edge_index.T.tolist())) for name in data.edge_types}
    return any(
        one != other
        and one[::2] == (other[2], other[0])
        and f"rev_{one[1]}" != other[1]
        and f"rev_{other[1]}" != one[1]
        and edges[one] == sorted((target, source) for source, target in edges[other])
        for one in edges
        for other in edges
    )


def relations_of_pairs(data: Graph, name) -> list[tuple]:
    """The relations that have the edges of one, and whether in the other direction."""
    if name is None:
        return [(None, False), (None, True)]
    edges = {each: sorted(map(tuple, data[each].edge_index.T.tolist())) for each in data.edge_types}
    reverses = {each: sorted((target, source) for source, target in edges[each]) for each in edges}
    found = [(name, False)]
    for relation, reverse in found:
        for other in edges:
            is_reverse = (other[0], other[2]) == (relation[2], relation[0]) and edges[other] == reverses[relation]
            if is_reverse and (other, not reverse) not in found:
                found.append((other, not reverse))
    if name[0] == name[2] and all(not reverse for _, reverse in found):
        found.append((name, True))
    return found
