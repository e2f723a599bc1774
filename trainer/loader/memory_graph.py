"""A PyG Data or HeteroData in memory that a loader reads."""

import contextlib
import math
import weakref
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import HeteroData
from torch_geometric.data.data import BaseData
from torch_geometric.data.storage import BaseStorage

from cohort_gnn.base.errors import CohortError, warn_user
from cohort_gnn.channel.run_folder import RunFolder
from cohort_gnn.dataset import StoredGraph, from_pyg, from_tensors
from cohort_gnn.dataset.arrays import ADJ_HINT, NO_NODES_HINT, edge_times, edge_weights, times_of_sources
from cohort_gnn.dataset.importing.tensors import demand_rows, ends_of
from cohort_gnn.spec.graph import NODE_TYPE, EdgeType
from cohort_gnn.spec.run import weights_beside_shares
from cohort_gnn.trainer.loader.arguments import EdgeArrays
from cohort_gnn.trainer.loader.batch import OfSlot
from cohort_gnn.trainer.loader.machine import has_other_ranks
from cohort_gnn.trainer.loader.reverse_types import names_no_edges

FETCHED = (torch.float32, torch.float16, torch.bfloat16, torch.uint8)  # dtypes of rows that the sampler fetches
# Attributes that are the loader's, also where the graph has some of these names: as in PyG.
LOADERS_OWN = {"edge_index", "adj_t", "batch", "batch_size", "input_id", "seed_time", "num_nodes"}
LOADERS_OWN |= {"num_sampled_nodes", "num_sampled_edges"}
OF_PAIRS = {"edge_label", "edge_label_index", "edge_label_time"}  # the same in loaders of pairs
Name = str | EdgeType | None  # of a node type or an edge type; None: of the only one


class MemoryGraph:
    """A graph in memory. The sampler reads a data set that has its edges, what draws depend on, and its rows ``x``.
    Batches get all else from the graph itself, as those of PyG's loaders do.

    Attributes:
        data: the graph. If its user changes it, batches follow, but for its edges and what draws depend on.
        folder: of the data set.
        left_out: names of attributes that batches do not get.
    """

    def __init__(
        self,
        data: BaseData,
        cleanup: contextlib.ExitStack,
        time_attr: str | None,
        weight_attr: str | None,
        seeds,
    ):
        """Writes the data set into a folder in shared memory that ``cleanup`` removes (after a kill the next run does).

        Args:
            time_attr, weight_attr: names of the times of nodes or edges, and of the weights of edges, that draws depend
                on; None: they depend on none.
            seeds: of a HeteroData: what names a node type or an edge type first.

        Raises:
            CohortError: several ranks, which would write one each; or the graph cannot be sampled.
        """
        if has_other_ranks():
            hint = 'write it once, before the ranks start: cohort.from_pyg(data, "data/mine")'
            actual = f"a PyG {type(data).__name__}"
            raise CohortError("data", "the folder of a data set, which ranks share", actual, hint)
        self.data, self.left_out = data, set[str]()
        self._nodes: dict[Name, BaseStorage] = {store._key: store for store in data.node_stores}
        self._edges: dict[Name, BaseStorage] = {store._key: store for store in data.edge_stores}
        for name, store in self._nodes.items():
            if hasattr(x := store.get("x"), "__len__"):
                demand_rows(_place("x", name), x, store.get("num_nodes"))
        self._ends = {name: self._ends_of(name, store) for name, store in self._edges.items()}
        self._node_times: dict[Name, np.ndarray] = {}
        self._weight_attr = weight_attr
        for store in self._edges.values():
            _warn_of_unclear(store, weight_attr)
        times, weights = self._times_of_edges(time_attr), self._weights_of_edges(weight_attr)
        # Of the node types whose rows the data set has, the tensor of these, and how often it had been changed.
        self._rows = {
            name: (weakref.ref(store["x"]), store["x"]._version)
            for name, store in self._nodes.items()
            if _is_fetched(store)
        }
        run_folder = RunFolder()
        cleanup.callback(run_folder.remove)
        self.folder = run_folder.path / "data"
        self._write(times, weights, seeds)
        self._columns = {
            name: _order(endpoints, times.get(name), weights.get(name)) for name, endpoints in self._ends.items()
        }
        del self._ends

    def columns_of(self, name: EdgeType | None) -> Tensor:
        """int64 [E]: of the edge at each place in the data set's ``indices``, the column in the graph's ``edge_index``.

        Args:
            name: of an edge type; None: there is only one.
        """
        return self._columns[name]

    def times_of(self, name: str | None, nodes: np.ndarray) -> np.ndarray | None:
        """int64 [n] of nodes of a type; None: draws do not depend on their times."""
        return self._node_times[name][nodes] if name in self._node_times else None

    def edge_options(self, arrays: EdgeArrays, subgraph_type: str, written: StoredGraph, has_shares: bool) -> dict:
        """Members of run.json, for batches with these arrays of edges.

        Args:
            written: the data set of the graph.
            has_shares: batches have an ``edge_weight`` of the draws.

        Raises:
            CohortError: no edges have weights, or batches would have those of the graph and of the draws.
        """
        has_weights = any(store.get("edge_weight") is not None for store in self._edges.values())
        if arrays.edge_weights and not has_weights:
            raise CohortError("edge_weights", "a graph with edge_weight", "none")
        if has_shares and has_weights and arrays.edge_weights is not False:
            raise weights_beside_shares()
        asked = {"e_id": arrays.edge_ids, "edge_weight": arrays.edge_weights, "edge_attr": arrays.edge_attr}
        self.left_out |= {name for name, is_asked in asked.items() if is_asked is not None and not is_asked}
        named = not names_no_edges(written, subgraph_type)
        return {"edge_ids": named or bool(arrays.edge_ids), "edge_weights": False, "edge_features": False}

    # --- batches ----------------------------------------------------------------------------------------------------

    def fill(self, batch: OfSlot, has_pairs: bool) -> None:
        """Gives a batch the rows of its nodes and edges, and the other attributes of the graph."""
        loader_keys = LOADERS_OWN | self.left_out | (OF_PAIRS if has_pairs else set())
        for name, graph_store in (self._nodes | self._edges).items():
            self._fill(name, batch.store_of(name or NODE_TYPE), graph_store, loader_keys)
        if None not in self._nodes:
            batch.stores[0].update(self.data.stores[0])

    def _fill(self, name: Name, store: BaseStorage, graph_store: BaseStorage, loader_keys: set[str]) -> None:
        device = store["edge_index" if "edge_index" in store else "n_id"].device
        if "e_id" in store:
            store["e_id"] = self._columns[name][store["e_id"].cpu()].to(device)
        n_id, e_id = store.get("n_id"), store.get("e_id")
        store.pop("y", None)  # the data set has none
        if not self._has_rows_of(name, graph_store):
            store.pop("x", None)
        loader_keys = loader_keys | (set(store) - {"n_id", "e_id"})
        for key, value in graph_store.items():
            if key in loader_keys:
                continue
            are_weights = key == self._weight_attr and _is_unclear(graph_store, key)
            if graph_store.is_node_attr(key) and not are_weights:
                store[key] = _taken(value, n_id, _dim(graph_store, key), device)
            elif graph_store.is_edge_attr(key) or are_weights:
                if e_id is not None:  # as in PyG, batches without e_id have no attributes of edges
                    store[key] = _taken(value, e_id, _dim(graph_store, key), device)
            else:
                store[key] = value.to(device) if isinstance(value, Tensor) else value
        if "e_id" in self.left_out:
            store.pop("e_id", None)
        if n_id is not None and "x" not in store:
            store["num_nodes"] = len(n_id)

    def _has_rows_of(self, name: Name, graph_store: BaseStorage) -> bool:
        """Whether the data set's rows of a node type are those that the graph has now."""
        if name not in self._rows:
            return False
        written, version = self._rows[name]
        x = written()
        return x is not None and graph_store.get("x") is x and not x.requires_grad and x._version == version

    # --- the data set -----------------------------------------------------------------------------------------------

    def _ends_of(self, name: Name, store: BaseStorage) -> tuple[np.ndarray, np.ndarray]:
        """Sources and targets of edges, integers [E] each."""
        place = _place("edge_index", name)
        if store.get("edge_index") is None:
            has_adj, expected = store.get("adj_t") is not None, f"a {type(self.data).__name__} with edge_index"
            actual, at = "adj_t alone" if has_adj else "none", "" if name is None else f"[{name!r}]"
            hint = ADJ_HINT.replace("data.", f"data{at}.") if has_adj else "fill it in"
            raise CohortError(place, expected, actual, hint)
        return ends_of(place, store["edge_index"])

    def _times_of_edges(self, attribute: str | None) -> dict[Name, np.ndarray]:
        """int64 [E] of each edge type that has times: since when an edge and its source are there."""
        if attribute is None:
            return {}
        node_stores = {name: store for name, store in self._nodes.items() if _has(store, attribute, for_nodes=True)}
        edge_stores = {name: store for name, store in self._edges.items() if _has(store, attribute, for_nodes=False)}
        if not node_stores and not edge_stores:
            at = "data" if None in self._nodes else "data[TYPE]"
            expected = f"the name of a tensor of times, one for each node or edge: {at}.{attribute}"
            values = self.data.get(attribute) if None in self._nodes else None
            actual = "none" if values is None else _length_of(values, self._nodes[None])
            raise CohortError("time_attr", expected, actual)
        for name, store in node_stores.items():
            self._node_times[name] = self._numbers(name, store, attribute, store.num_nodes, edge_times)
        source_types = {name: None if name is None else name[0] for name in self._edges}
        times = {
            name: times_of_sources(f"{_place('edge_index', name)}: src", self._ends[name][0], self._node_times[source])
            for name, source in source_types.items()
            if source in node_stores
        }
        for name, store in edge_stores.items():
            own = self._numbers(name, store, attribute, len(self._ends[name][0]), edge_times)
            times[name] = np.maximum(own, times[name]) if name in times else own
        for name, (sources, _) in self._ends.items() if not times else ():  # a data set with times has some
            times[name] = np.full(len(sources), np.iinfo(np.int64).min)
        return times

    def _weights_of_edges(self, attribute: str | None) -> dict[Name, np.ndarray]:
        """float32 [E] of each edge type that has weights."""
        if attribute is None:
            return {}
        weights = {
            name: self._numbers(name, store, attribute, len(self._ends[name][0]), edge_weights)
            for name, store in self._edges.items()
            if _has(store, attribute, for_nodes=False) or _is_unclear(store, attribute)
        }
        if not weights:
            actual, hint = repr(attribute), ""
            for name, store in self._edges.items():
                if isinstance(values := store.get(attribute), Tensor):
                    actual += f", {list(values.shape)} for {len(self._ends[name][0])} edges"
                    hint = "a transform that changed the edges may have left it as it was"
            raise CohortError("weight_attr", "the name of a tensor of weights, one for each edge", actual, hint)
        for name, numbers in weights.items():
            if bad := np.flatnonzero(~(np.isfinite(numbers) & (numbers >= 0)))[:1].tolist():
                place = f"{_place(attribute, name)}[{bad[0]}]"
                raise CohortError(place, "a weight that is finite and at least 0", f"{numbers[bad[0]]}")
        return weights

    def _numbers(self, name: Name, store: BaseStorage, attribute: str, count: int, convert) -> np.ndarray:
        """[count]"""
        place = _place(attribute, name)
        try:
            values = _native(store[attribute])
            is_array = isinstance(values, np.ndarray)
            array = values if is_array else np.asarray(torch.as_tensor(values).detach().cpu())
        except (TypeError, ValueError, RuntimeError) as error:
            raise CohortError(place, "a tensor of numbers", type(store[attribute]).__name__) from error
        numbers = convert(place, array)
        if len(numbers) != count:
            raise CohortError(place, f"shape [{count}]", f"shape {list(array.shape)}")
        return numbers

    def _write(self, times: dict[Name, np.ndarray], weights: dict[Name, np.ndarray], seeds) -> None:
        """The labels, all of one class, and the split are what ``cache_policy="plan"`` counts with."""
        while isinstance(seeds, tuple | list) and seeds:
            seeds = seeds[0]
        if None in self._nodes:
            store = self._nodes[None]
            count = _count(None, store)
            from_tensors(
                self.folder,
                x=store["x"] if self._rows else np.broadcast_to(np.uint8(1), (count, 1)),
                y=np.zeros(count, np.int64),
                edge_index=np.stack(self._ends[None]),
                edge_weight=weights.get(None),
                edge_time=times.get(None),
                train_ids=_train_mask(store, count),
            )
            return
        names = list(map(str, self._nodes))
        target = seeds if isinstance(seeds, str) and seeds in names else next(iter(names), None)
        graph = HeteroData()
        for name, store in self._nodes.items():
            graph[name].update({"x": store["x"]} if name in self._rows else {"num_nodes": _count(name, store)})
        for name, endpoints in self._ends.items():
            beside = {"edge_weight": weights.get(name), "edge_time": times.get(name)}
            graph[name].edge_index = np.stack(endpoints)
            graph[name].update({key: numbers for key, numbers in beside.items() if numbers is not None})
        if target is not None:
            count = _count(target, self._nodes[target])
            graph[target].y = torch.zeros(count, dtype=torch.int64)
            graph[target].train_mask = torch.from_numpy(_train_mask(self._nodes[target], count))
        from_pyg(graph, self.folder, target=target)


def _place(attribute: str, name: Name) -> str:
    """For messages."""
    return attribute if name is None else f"{attribute} of {name if isinstance(name, str) else ', '.join(name)}"


def _has(store: BaseStorage, attribute: str, for_nodes: bool) -> bool:
    """Whether nodes, or edges, have an attribute; that of a type is one of this name, whatever its shape."""
    if store.get(attribute) is None:
        return False
    if store._key is not None:
        return True
    return store.is_node_attr(attribute) if for_nodes else store.is_edge_attr(attribute)


def _length_of(values: Any, store: BaseStorage) -> str:
    """For messages about an array of a graph of one type."""
    length = f"{len(values):,} values" if hasattr(values, "__len__") else type(values).__name__
    return f"{length} for {store.num_nodes:,} nodes and {store.num_edges:,} edges"


def _is_unclear(store: BaseStorage, key: str) -> bool:
    """Whether an array fits nodes and edges, as there are as many, and its name does not say which; PyG says: nodes."""
    if store._key is not None or key not in store or store.num_nodes != store.num_edges:
        return False
    return (
        store.is_node_attr(key) and key not in ("x", "y", "pos") and not any(part in key for part in ("node", "mask"))
    )


def _warn_of_unclear(store: BaseStorage, weight_attr: str | None) -> None:
    if unclear := [f"data.{key}" for key in store.keys() if key != weight_attr and _is_unclear(store, key)]:
        hint = 'only names with "edge" in them are of edges, such as data.edge_weight'
        warn_user(f"{', '.join(unclear)}: taken for arrays of nodes, of which there are as many as edges; {hint}")


def _count(name: Name, store: BaseStorage) -> int:
    """How many nodes there are."""
    if not store.num_nodes:
        at = "data" if name is None else f"data[{name!r}]"
        actual = "none of them" if store.num_nodes is None else "num_nodes = 0"
        hint = f"{at}.num_nodes = ..." if store.num_nodes is None or name is None else NO_NODES_HINT
        raise CohortError(_place("nodes", name), "x, or a num_nodes of at least 1", actual, hint)
    return int(store.num_nodes)


def _train_mask(store: BaseStorage, count: int) -> np.ndarray:
    """bool [count]; without one of this form all nodes."""
    mask = store.get("train_mask")
    is_one = isinstance(mask, Tensor) and mask.dtype == torch.bool and mask.shape == (count,)
    return mask.cpu().numpy() if is_one else np.ones(count, bool)


def _is_fetched(store: BaseStorage) -> bool:
    """Whether a data set keeps the rows as they are, and gradients do not go through them."""
    x = store.get("x")
    if not isinstance(x, Tensor) or x.layout is not torch.strided or x.dtype not in FETCHED:
        return False
    if x.dim() != 2 or 0 in x.shape or x.requires_grad or x.is_inference() or not store.is_node_attr("x"):
        return False
    return x.dtype == torch.uint8 or math.isfinite(x.sum(dtype=torch.float64))


def _dim(store: BaseStorage, key: str) -> int:
    """The one that counts nodes or edges."""
    return store._parent().__cat_dim__(key, store[key], store)


def _taken(value: Any, ids: Tensor, dim: int, device: torch.device) -> Any:
    """What nodes or edges with these ids have of an attribute, on the device of the batch."""
    if isinstance(value, list | tuple):
        return [value[number] for number in ids.tolist()]
    if isinstance(value, np.ndarray):
        rows = _native(value.take(ids.cpu().numpy(), axis=dim))
        return torch.from_numpy(rows).to(device) if rows.dtype.kind in "biufc" else rows
    if isinstance(value, Tensor):
        return value.index_select(dim, ids.to(value.device)).to(device)
    return value[ids.to(value.device)].to(device)  # a TensorFrame


def _native(value: Any) -> Any:
    """An array in the byte order of the machine, the only one that torch takes; or what else it is."""
    return value.astype(value.dtype.newbyteorder("="), copy=False) if isinstance(value, np.ndarray) else value


def _order(endpoints: tuple[np.ndarray, np.ndarray], times: np.ndarray | None, weights: np.ndarray | None) -> Tensor:
    """int64 [E], the columns of edges in the order in which a data set has them: by target, by time, by source, by the
    bits of weights."""
    source, target = (torch.from_numpy(np.ascontiguousarray(array, np.int64)) for array in endpoints)
    keys = [target, source] if times is None else [target, torch.from_numpy(times), source]
    if weights is not None:
        keys.append(torch.from_numpy(weights.view(np.uint32).astype(np.int64)))
    order = torch.argsort(keys.pop(), stable=True)
    while keys:
        order = order[torch.argsort(keys.pop()[order], stable=True)]
    return order
