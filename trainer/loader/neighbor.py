"""NeighborLoader: a loader like PyG's, with a sampler process of its own."""

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.data import BaseData

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import StoredGraph
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.spec import types
from cohort_gnn.spec.graph import EdgeType
from cohort_gnn.spec.run import SamplerSpec
from cohort_gnn.spec.types import checked
from cohort_gnn.trainer.loader.arguments import (
    DRAWS,
    EdgeArrays,
    cache_options,
    checked_order,
    data_folder,
    demand_draws_possible,
    input_id_of,
    is_set,
    sampler_options,
    take_pyg_arguments,
)
from cohort_gnn.trainer.loader.batch import Batch, HeteroBatch, OfSlot, batch_of
from cohort_gnn.trainer.loader.hetero import fanout_of, hops_of, seeds_of
from cohort_gnn.trainer.loader.lightning import keeps_order
from cohort_gnn.trainer.loader.memory_graph import MemoryGraph
from cohort_gnn.trainer.loader.node_tensors import checked_tensors, rows_by_name
from cohort_gnn.trainer.loader.sampler_process import SamplerProcess
from cohort_gnn.trainer.loader.source import OfPairs
from cohort_gnn.trainer.loader.state import Stateful, digest_of
from cohort_gnn.trainer.loader.stats import EpochMeter, LoaderStats
from cohort_gnn.trainer.loader.subgraph import DRAWN, checked_kind, subgraph_of
from cohort_gnn.trainer.loader.trees import demand_draws_offered, demand_times, tree_options, windows_of


class NeighborLoader(Stateful):
    """Yields minibatches of a data set as PyG ``Data``, or ``HeteroData`` of several node types. A separate sampler
    process builds and fetches them.

    Examples:
        >>> with cohort.NeighborLoader("data/cora", [10, 5], batch_size=512, shuffle=True, device="cpu") as loader:
        ...     batch = next(iter(loader))
        >>> batch.batch_size, batch.x.shape[1]  # the seeds are the first nodes
        (512, 1433)

    Args:
        data: folder of the data set (see dataset/FORMAT.md), or a ``Dataset`` from ``cohort.dataset.open()``. Or a PyG
            ``Data`` or ``HeteroData`` in memory: this loader writes its edges and ``x`` to shared memory, and removes
            them when the loader is closed. Batches have all its attributes, as in PyG, also those that are changed
            later. For a large graph, write a data set once with ``cohort.from_pyg``.
        num_neighbors: in-neighbours to draw per node, for each hop; the first entry is the hop from the seeds; -1: all
            neighbours. Several edge types: one list for all, or a dict with a list for each.
        input_nodes: seeds: int64 ids or a bool mask [num_nodes]; None: all nodes. Each node at most once, unless
            batches are disjoint. Several node types: the name of the seeds' type for all its nodes, or (name, ids or
            mask).
        batch_size: seeds per batch; the last batch of a pass may be smaller.
        shuffle: use a new order in each epoch, keyed by (seed, epoch).
        drop_last: leave out the last batch if it is smaller.
        device: "cuda", "cuda:N", "cpu", or "auto": a GPU if the machine has one and this build has CUDA. With several
            ranks on a machine, each rank uses the GPU with the number of its local rank.
        seed: seed of all random numbers; the same seed gives the same batches on every device.
        num_slots: number of batches that the shared buffer holds.
        topology: where a sampler on a GPU keeps the graph: "auto", "gpu" or "host".
        compress: where feature rows stay encoded: "none", "cache", "host", "both"; "auto": for a prepared data set
            "both", or "host" if the cache of each GPU has room for all raw rows; otherwise "none".
        cache_ratio: cache of each GPU as a share of all raw feature bytes, index included: one number, or one per rank;
            "auto": the memory that slots and ``trainer_bytes`` leave.
        cache_bytes: the same in bytes. Without both options there is no cache.
        cache_policy: how rows to cache are chosen: "plan", "degree", "random"; "none": no cache. "plan" counts the
            reads of a short run of the sampler, once for each fanout and batch size; the counts are stored beside the
            data set. The seeds of the short run are the split "train" of the data set, not ``input_nodes``, because the
            nodes of later loaders are not known yet.
        trainer_bytes: for "auto": peak GPU memory of this script, including its CUDA context and the sampler's.
        host_bytes: host memory for feature rows of a prepared data set, index included. The rows that are read most
            often, by the counts of ``cache_policy="plan"``, are kept there; the others stay on the disk. None: all rows
            are in host memory.
        order: order in which a GPU reads the host rows of a batch: "address" (ascending) or "asis".
        reuse: a GPU takes rows that earlier batches left in its memory, instead of fetching them again.
        edge_ids: batches have ``e_id`` int64 [num_edges], in the order of ``edge_index``: the position of each edge in
            the data set's ``indices``, and its column in ``cohort.dataset.open(data).to_pyg().edge_index``; of a PyG
            ``Data`` or ``HeteroData``, its column in ``edge_index``. None: of these alone, as in PyG.
        edge_weights: batches have ``edge_weight`` float32 [num_edges], if edges of their type have weights. None: if
            the data set has some; True: it must have some; False: leave them out.
        edge_attr: batches have ``edge_attr`` [num_edges, dim], in the order of ``edge_index``, if the data set has
            features of edges; False: leave them out.
        weight_attr: "edge_weight", or of a PyG ``Data`` or ``HeteroData`` the name of its weights: in-neighbours are
            drawn with probability proportional to the edge weights, one after the other without replacement, as by
            ``torch.multinomial``. Weights must be at least 0.
            An edge of weight 0 is never drawn, so a node can get fewer neighbours; but -1 takes all edges, whatever
            their weights. None, and of edge types without weights: all neighbours are equally likely.
        weight_strategy: with ``weight_attr``: "random": draw as said there; "top": take the edges of greatest weight,
            of equal weights those that come first in the data set. In a batch, the in-edges of a node are then in the
            order of their weights; edges of weight 0 are taken only if there are too few others.
        sampling: "neighbor": each node's in-neighbours are drawn by themselves; "labor": layer sampling, in which each
            node has one random number a hop and batch, and those of the in-neighbours with the smallest are drawn. For
            each node by itself that is the same draw, so means over neighbours need no weights; but nodes agree on
            neighbours, so batches have fewer nodes and fetch fewer rows (Balin, Catalyurek: Layer-Neighbor Sampling,
            arXiv 2210.13339; there, in-neighbours are drawn with a probability, here exactly ``num_neighbors`` are).
            Only uniform draws of batches that are not disjoint have it.
        batch_dependency: with ``sampling="labor"``: how many batches a node keeps its number; nodes change theirs in
            turn. Later batches then have more nodes of earlier ones (arXiv 2310.12403).
        layer_dependency: with ``sampling="labor"``: each node has one random number for all hops of a batch, so that
            hops agree on nodes, too, and batches have fewer of them. Each list by itself is drawn from uniformly, but
            what a drawn node draws depends on what has been drawn with it.
        importance_sampling: with ``sampling="labor"``: in-neighbours that short lists are likely to draw are the
            first choice of long ones, too, so batches have fewer nodes. A node draws a few more than ``num_neighbors``
            where chances differ, and batches have ``edge_weight`` float32 [num_edges]: the share of
            each edge in the mean over the in-neighbours of its target, for which they add up to 1. That mean is as far
            from the mean over all as with ``num_neighbors`` drawn alike. `cohort.nn.SAGEConv` takes them.
        seed_order: "shuffle": with ``shuffle=True``, seeds of a batch come from everywhere; a ``.npy`` file, int32 or
            int64 [num_nodes], the community of each node, for example one that ``cohort dataset partition`` has
            written: most seeds of a batch are of a few communities, which come in another random order each epoch. Such
            seeds share neighbours, so batches have fewer nodes; but accuracy may be lower. Of several node types, the
            nodes of all are numbered through, in the order of the types. Shuffled loaders of `with_nodes` have it, too.
        seed_mix: with ``seed_order=FILE``: the share of the seeds of each batch that come from everywhere, 0 to 1.
        sampler_sms: reserve this number of SMs of the GPU for the sampler, and switch PyTorch's current stream to one
            that is restricted to the other SMs, so that neither disturbs the other. 0: both share all SMs.
        cliques: GPUs that read each other's memory: "auto" (detected from the machine), "none", "all", "2x4", "3+5".
        transform: function that is called with each batch; the loop gets its result. ``x`` and ``edge_index`` are views
            here, too: change only ``batch.clone()``.
        node_tensors: additional data of nodes, tensors [num_nodes, ...] by name; several node types: such a dict for
            each type. Each batch gets the rows of its nodes, which the loop's thread gathers on the tensor's device and
            copies to the batch's.
        disjoint: each seed is the root of a separate tree. A node of several trees occurs several times in the batch,
            each time with its row; ``batch.batch`` int64 [num_nodes] is the number of each node's seed in the batch.
        time_attr: draw only edges whose time is at most the time of the seed; batches are then disjoint. For a PyG
            ``Data`` or ``HeteroData``, the name of the attribute that contains the times, of edges or of nodes (an edge
            then exists from the time of its source on; if it has a time of its own, from the later of both on). A data
            set has only one array of edge times, so any name is accepted.
        input_time: int64 times of the seeds, in the order of ``input_nodes``; required with ``time_attr``, unless
            this names times of nodes of a PyG ``Data`` or ``HeteroData``, which are then those of the seeds. Batches
            have ``seed_time`` int64 [batch_size]; of several node types, the type of the seeds has it; and for nodes
            with times in the data set ``time`` int64 [num_nodes].
        temporal_strategy: "uniform": draw at random from the edges up to the seed's time; "last": take the latest ones.
        time_window: with ``time_attr``: draw only edges whose time is at most so much before that of the seed,
            ``seed_time - time_window <= time <= seed_time``, in the unit of the times. Several edge types: one number
            for all that have times, or a dict with a number for some, such as ``{("user", "buys", "item"): 86_400}``;
            edges of the others may be of any age. None: so may all.
        replace: draw with replacement: a node with in-neighbours gets exactly as many edges as ``num_neighbors`` says,
            some of them several times; -1: each edge once. Only uniform draws have replacement, at any time.
        subgraph_type: "directional": batches have the drawn edges; "bidirectional": also their reverses, as PyG's, each
            pair of nodes once; "induced": all edges of the graph between their nodes. ``Batch`` and ``HeteroBatch`` say
            what else differs then.
        limit_seconds: how long the sampler may stay in one stage before it counts as hung, and how long ranks wait for
            each other's loaders.
        pyg_arguments: other arguments of PyG's loader.

    Each batch has ``x, edge_index, indptr, y, batch_size, n_id, input_id, num_sampled_nodes, num_sampled_edges``, with
    nodes in PyG's order (seeds first, then by hop). ``edge_index``, ``indptr`` and, if it is no copy, ``x`` are views
    of shared memory; ``Batch`` describes them and the attributes that options add, ``HeteroBatch`` the batches of
    several node types. A script that uses a batch on another CUDA stream than the current one must call
    ``batch.record_stream(stream)``.

    ``input_id`` has positions of seeds, or as in PyG the nodes of a mask; the argument ``input_id`` gives seeds other
    numbers. docs/how-to/pyg.md lists what differs from PyG, and arguments that are ignored or refused.

    Under torchrun, under ``cohort run --gpus 0,1``, and if torch.distributed is already initialised, local rank 0
    starts one sampler for all ranks of its machine. Every rank must make the same loaders, each with all
    ``input_nodes``. Batch b of a pass goes to rank b mod WORLD_SIZE. All ranks get the same number of batches: if a
    pass has too few, the last batch of some ranks has no seeds; ``drop_last`` leaves out such a last step. Weight the
    loss of each rank by its share of the seeds.

    ``stats()`` tells how long the loop waited in an epoch, and how much was read. ``state_dict()`` and
    ``load_state_dict()`` continue an epoch in the middle.

    Raises:
        CohortError: bad data, arguments or devices; ranks that make different loaders; a sampler that has ended, with
            its last stage and the end of its log.
        TypeError: arguments that PyG's loader does not have either.
    """

    _pair_request = OfPairs()  # of a loader whose seeds are pairs of nodes
    _meter: EpochMeter | None = None  # of the epoch begun last
    _times_argument = "input_time"
    _input_type: str | EdgeType  # of the seeds
    _key: str | EdgeType  # what results call it; empty: batches are of PyG's Data, which has no types

    def __init__(
        self,
        data: str | os.PathLike | StoredGraph | BaseData,
        num_neighbors: Sequence[int] | Mapping[EdgeType, Sequence[int]],
        input_nodes=None,
        *,
        batch_size: int = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        device: str | torch.device = "auto",
        seed: int = 0,
        num_slots: int = 4,
        topology: str = "auto",
        compress: str = "auto",
        cache_ratio: float | Sequence[float] | str | None = None,
        cache_bytes: int | Sequence[int] | None = None,
        cache_policy: str = "plan",
        trainer_bytes: int | None = None,
        host_bytes: int | None = None,
        order: str = "address",
        reuse: bool = True,
        edge_ids: bool | None = None,
        edge_weights: bool | None = None,
        edge_attr: bool = True,
        weight_attr: str | None = None,
        weight_strategy: str = "random",
        sampling: str = "neighbor",
        batch_dependency: int = 1,
        layer_dependency: bool = False,
        importance_sampling: bool = False,
        seed_order: str | os.PathLike = "shuffle",
        seed_mix: float = 0.5,
        sampler_sms: int = 0,
        cliques: str = "auto",
        transform: Callable[[Batch | HeteroBatch], object] | None = None,
        node_tensors: Mapping[str, torch.Tensor] | None = None,
        disjoint: bool = False,
        time_attr: str | None = None,
        input_time=None,
        temporal_strategy: str = "uniform",
        time_window: int | Mapping[EdgeType, int] | None = None,
        replace: bool = False,
        subgraph_type: str = "directional",
        limit_seconds: float = 600.0,
        **pyg_arguments,
    ):
        # From other loaders and tests: a sampler with its edges, further members of run.json, the graph in memory.
        self._sampler, self._subgraph = pyg_arguments.pop("_sampler", None), pyg_arguments.pop("_subgraph", DRAWN)
        debug, self._graph, input_id = (pyg_arguments.pop(name, None) for name in ("_debug", "_graph", "input_id"))
        take_pyg_arguments(pyg_arguments, type(self))
        self._transform, kind = transform, checked_kind(subgraph_type)
        self._trees, self._replace = tree_options(disjoint, time_attr, temporal_strategy, time_window), replace
        demand_draws_offered(self._trees, replace, cache_ratio, weight_attr, sampling)
        self.batch_size = checked("batch_size", batch_size, types.Positive)
        self.shuffle, self.drop_last = is_set("shuffle", shuffle), is_set("drop_last", drop_last)
        own = None  # a sampler of its own
        with contextlib.ExitStack() as cleanup:  # of a graph in memory: after the sampler's end, or where there is none
            if isinstance(data, Data | HeteroData):
                self._graph = self._graph or MemoryGraph(data, cleanup, time_attr, weight_attr, input_nodes)
                weight_attr = weight_attr and "edge_weight"  # as the data set calls them
            opened = self._open(data)
            self._types = self._sampler.types if opened is None else opened.types
            self.num_neighbors, self._fanout = hops_of(num_neighbors), fanout_of(self._types, num_neighbors)
            if opened is not None:
                arguments = locals()
                names = (*DRAWS, "seed", "num_slots", "topology", "order", "compress", "reuse")
                options = {name: arguments[name] for name in names}
                spec_options = cache_options(cache_ratio, cache_bytes, cache_policy, cliques, trainer_bytes, host_bytes)
                arrays = EdgeArrays(edge_ids, edge_weights, edge_attr)
                own = self._start(opened, device, kind, arrays, options, debug, spec_options, limit_seconds, cleanup)
        try:
            if own and sampler_sms:
                own.divide_gpu(sampler_sms)
            self._node_tensors = checked_tensors(node_tensors, self._types.counts)
            self._register(self._checked_seeds(input_nodes), input_time)
            self._input_id = input_id_of(input_id, input_nodes, self._ids)
        except BaseException:
            if own:
                own.close()
            raise

    def _open(self, data) -> StoredGraph | None:
        """The data set that a sampler of its own is to read; None: the sampler of another loader is there."""
        is_place = self._graph is None and isinstance(data, str | os.PathLike)
        folder = self._graph.folder if self._graph else data_folder(data)
        self.data = open_dataset(folder) if is_place else data
        return None if self._sampler else open_dataset(folder)

    def _start(
        self,
        data: StoredGraph,
        device,
        kind: str,
        arrays: EdgeArrays,
        options: dict,
        debug: dict | None,
        spec_options: dict,
        limit_seconds: float,
        cleanup: contextlib.ExitStack,
    ) -> SamplerProcess:
        options["seed_order"] = checked_order(options["seed_order"], self.shuffle)
        options = sampler_options(options, self._trees.time_attr) | (debug or {})
        if self._graph is None:
            demand_draws_possible(data, options["weight_attr"], self._trees.time_attr)
            options |= arrays.members(data, kind)
        else:
            options |= self._graph.edge_options(arrays, kind, data, options["importance_sampling"])
        demand_times(data, self._trees, self._windows)
        self._subgraph = subgraph_of(kind, data, options, self._trees)
        spec_options |= {name: options[name] for name in (*DRAWS, "reuse", "topology")}
        spec_options |= {f"use_{name}": options[name] for name in ("edge_weights", "edge_features")}
        spec = SamplerSpec(fanout=self._fanout, batch_size=self.batch_size, slots=options["num_slots"], **spec_options)
        limit_seconds = checked("limit_seconds", limit_seconds, types.AboveZero)
        self._sampler = SamplerProcess(data, device, options, spec, limit_seconds, cleanup.pop_all())
        return self._sampler

    def _register(self, seeds: np.ndarray, times, **negative_options: Sequence[np.ndarray | None]) -> None:
        """Registers the seeds with the sampler, and checks that all ranks of this machine make the same loader."""
        if times is None and self._graph is not None and self._ids.ndim == 1:
            times = self._graph.times_of(self._key or None, self._ids)
        self._times = self._trees.checked_times(times, len(seeds), self._times_argument)
        self._seed_set = self._sampler.source.add_seeds(seeds, None, self._times, owner=self, **negative_options)
        if self._sampler.process_rank.local_size > 1:
            identity = {"data": os.path.realpath(self._sampler.data)}
            self._sampler.demand_same_loader(self._seed_set, identity | self._identity())

    def _checked_seeds(self, input_nodes) -> np.ndarray:
        """int64 [n], as the sampler counts nodes; keeps their ids and their node type."""
        name, self._ids = seeds_of(self._types, input_nodes, self._trees.disjoint)
        self._input_type, self._key = name, self._sampler.key_of(name)
        return self._ids + self._types.first_node[name]

    def __repr__(self) -> str:
        seeds = f"{len(self._ids):,} {'pairs' if self._ids.ndim == 2 else 'seeds'}"
        graph = str(getattr(self.data, "path", self.data))
        return f"{type(self).__name__}({graph!r}, {seeds}, {self.num_neighbors}, batch_size={self.batch_size})"

    def with_nodes(
        self, input_nodes, *, input_time=None, shuffle=False, num_neighbors=None, batch_size=None, drop_last=False
    ):
        """A loader with other seeds (validation, test) and the same sampler; iterate over one loader at a time."""
        how = {"shuffle": shuffle, "drop_last": drop_last, "input_time": input_time}
        return NeighborLoader(self.data, input_nodes=input_nodes, **self._shared(num_neighbors, batch_size), **how)

    def _shared(self, num_neighbors, batch_size) -> dict:
        """What another loader with this one's sampler is made with, for the most part as this one."""
        self._sampler.require_usable()
        return {
            "num_neighbors": self.num_neighbors if num_neighbors is None else num_neighbors,
            "batch_size": self.batch_size if batch_size is None else batch_size,
            "transform": self._transform,
            "node_tensors": self._node_tensors,
            "_graph": self._graph,
            "_sampler": self._sampler,
            "_subgraph": self._subgraph,
            "replace": self._replace,
        } | self._trees.arguments()

    @property
    def device(self) -> torch.device:
        """The device of the batches."""
        return self._sampler.source.device

    @property
    def dataset(self) -> range:
        """As PyG's: an entry for each seed or pair, so that ``len(loader.dataset)`` counts those of all ranks."""
        return range(len(self._ids))

    def __len__(self) -> int:
        full, rest = divmod(len(self._ids), self.batch_size)
        num_ranks = self._sampler.process_rank.size
        return full // num_ranks if self.drop_last else -(-(full + (rest > 0)) // num_ranks)

    def __iter__(self) -> Iterator[Batch | HeteroBatch]:
        self._sampler.require_usable()
        epoch, self.epoch = int(self.epoch), int(self.epoch) + 1
        position = self._loaded if self._loaded and self._loaded[0] == epoch else [epoch, 0]
        self._under_way, self._loaded = position, None
        source, done = self._sampler.source, position[1]
        num_steps = len(self) - done
        meter = self._meter = EpochMeter(epoch, self.device)
        try:
            shuffle = self.shuffle and not keeps_order()
            how = (self.batch_size, epoch, shuffle, done, self._pair_request)
            draws = self._trees.fields(self._replace) | {"time_window": self._windows}
            which = source.request(self._seed_set, self._fanout, *how, **draws)
            # No local name for slot or batch: the slot would be held.
            batches = map(functools.partial(self._counted, position, meter), source.slots(which, num_steps))
            for _ in range(num_steps):
                yield next(batches)
                meter.step_ended()
            next(batches, None)  # has the source see that the pass is over
        except CohortError as error:
            raise self._sampler.explain(error) from None
        if self._under_way is position:
            self._under_way = None

    def _counted(self, position: list[int], meter: EpochMeter, slot):
        """The slot's batch, as the loop gets it; counts it in ``position``, [epoch, batches]."""
        position[1] += 1
        batch = self._batch_of(slot)
        self._subgraph.finish(batch)
        if self._graph is not None:
            self._graph.fill(batch, has_pairs=self._ids.ndim == 2)
        seeds = batch.store_of(self._input_type)
        seeds.update(rows_by_name(self._input_id, seeds.input_id))
        node_times = self._sampler.node_times if self._times is not None and self._graph is None else {}
        for type_, times in node_times.items():
            store = batch.store_of(type_)
            store.time = times[store.n_id]
        for type_, tensors in self._node_tensors.items():
            store = batch.store_of(type_)
            store.update(rows_by_name(tensors, store.n_id))
        meter.step_begins(slot)
        return batch if self._transform is None else self._transform(batch)

    def _batch_from_slot(self, slot) -> OfSlot:
        form, sampler = HeteroBatch if self._key else Batch, self._sampler
        return batch_of(form, self._types, slot, self._input_type, sampler.rows, sampler.edge_order)

    def _batch_of(self, slot) -> OfSlot:
        batch = self._batch_from_slot(slot)
        if self._times is not None:
            seeds = batch.store_of(self._input_type)
            seeds.seed_time = self._all_times[seeds.input_id]
        return batch

    @functools.cached_property
    def _windows(self) -> list[int]:
        """As requests have them; see `windows_of`."""
        return windows_of(self._types, self._trees.time_window)

    @functools.cached_property
    def _all_times(self) -> torch.Tensor:
        """int64 [seeds], of a loader with times, on the device of the batches."""
        return torch.tensor(self._times, device=self.device)

    def _identity(self) -> dict:
        """What the batches follow from, but for the data set itself."""
        tree_members = self._trees.identity(self._times) | ({"time_window": self._windows} if self._windows else {})
        return (
            tree_members
            | self._sampler.draws
            | {
                "seed": int(self._sampler.seed),
                "num_ranks": self._sampler.process_rank.size,
                "num_neighbors": self._fanout,
                "batch_size": self.batch_size,
                "shuffle": self.shuffle,
                "drop_last": self.drop_last,
                "input_nodes": self._digest,
                "replace": self._replace,
                "subgraph_type": self._subgraph.kind,
            }
            | ({"input_type": self._key} if self._key else {})
        )

    @functools.cached_property
    def _digest(self) -> str:
        return digest_of(self._ids)

    def stats(self) -> LoaderStats:
        """Times and reads of this rank's current or last epoch; on a GPU, this call waits for the stream."""
        return (self._meter or EpochMeter(self.epoch, self.device)).stats()

    def close(self) -> None:
        """Ends the sampler. Batches that are still referenced stay valid."""
        self._sampler.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
