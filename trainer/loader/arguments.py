"""Checks the arguments of a NeighborLoader. Wrong ones raise CohortError."""

import inspect
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from msgspec import Meta

from cohort_gnn.base.distinct import distinct, has_repeats
from cohort_gnn.base.errors import CohortError, warn_user
from cohort_gnn.base.machine import choose_device
from cohort_gnn.base.spelling import did_you_mean
from cohort_gnn.dataset import StoredGraph
from cohort_gnn.spec import types
from cohort_gnn.spec.options import options_of
from cohort_gnn.spec.run import SamplerSpec, whole_path_of_order
from cohort_gnn.spec.types import checked
from cohort_gnn.trainer.loader import _native
from cohort_gnn.trainer.loader.machine import ProcessRank
from cohort_gnn.trainer.loader.reverse_types import names_no_edges

OF_WORKERS = {  # arguments of PyG's worker processes, and their defaults
    "num_workers": 0,
    "persistent_workers": False,
    "pin_memory": False,
    "prefetch_factor": None,
    "filter_per_worker": None,
    "worker_init_fn": None,
    "multiprocessing_context": None,
    "timeout": 0,
    "in_order": True,
    "pin_memory_device": "",
    "is_sorted": False,
}
# Arguments of PyG's loader: their defaults there, and what to do here instead.
NOT_OFFERED = {
    "directed": (True, "subgraph_type='induced' has all edges between the nodes"),
    "transform_sampler_output": (None, "change batches in the loop"),
    "neighbor_sampler": (None, "the sampler process draws neighbours"),
    "sampler": (
        None,
        "shuffle=True orders the seeds, and ranks share batches without one; with_nodes(ids) takes others, and with"
        " disjoint=True ids may repeat",
    ),
    "batch_sampler": (None, "batch_size, shuffle and drop_last make the batches"),
    "generator": (None, "seed=... makes the batches"),
    "collate_fn": (None, "change batches in the loop"),
    "custom_cls": (None, "batches are torch_geometric.data.Data"),
}
OF_SAMPLER: dict = {option.name: option.type for option in options_of(SamplerSpec)} | {"num_slots": types.Slots}
DRAWS = [option.name for option in options_of(SamplerSpec) if option.for_draws]
Bytes = Annotated[int, Meta(ge=0, description="bytes, an integer of at least 0")]


def is_set(name: str, value) -> bool:
    """A switch among the arguments.

    Raises:
        CohortError: neither True nor False, nor 1 or 0.
    """
    if isinstance(value, bool | int | np.bool_) and value in (0, 1):
        return bool(value)
    raise CohortError(name, "True or False", repr(value)[:80])


def checked_order(seed_order, shuffle: bool) -> str:
    """The argument ``seed_order``, a file by its absolute path.

    Raises:
        CohortError: neither "shuffle" nor a .npy file that is there, or a file for seeds in their own order.
    """
    order = os.fspath(seed_order) if isinstance(seed_order, os.PathLike) else seed_order
    order = whole_path_of_order(checked("seed_order", order, types.SeedOrder))
    if order != "shuffle" and not shuffle:
        raise CohortError("seed_order", "shuffle=True, with a file of communities", "shuffle=False", "say shuffle=True")
    if order != "shuffle" and not Path(order).is_file():
        raise CohortError("seed_order", "a file with the community of each node", f"no file {order}")
    return order


def data_folder(data) -> Path:
    """The argument ``data``: a data set's folder, or what cohort.dataset.open() has returned."""
    if isinstance(data, StoredGraph):
        return data.path
    if isinstance(data, str | os.PathLike):
        return Path(data).expanduser()
    is_pyg = any(base.__module__.startswith("torch_geometric.") for base in type(data).__mro__)
    hint = "cohort.from_pyg(data, FOLDER) writes one" if is_pyg else "cohort.from_tensors(...) writes one"
    if is_pyg and type(data).__name__ == "TemporalData":  # which from_pyg does not take either
        hint = "Data(x=x, edge_index=torch.stack([data.src, data.dst]), edge_time=data.t, edge_attr=data.msg)"
    actual = f"a PyG {type(data).__name__}" if is_pyg else type(data).__name__
    raise CohortError("data", "the folder of a data set, or a PyG Data or HeteroData", actual, hint)


def take_pyg_arguments(others: dict, loader: type) -> None:
    """Takes the arguments that only PyG's loader has. Those of worker processes are ignored, with a warning if they are
    not the defaults; all others must have PyG's default values.

    Raises:
        CohortError: one has a value that is not supported.
        TypeError: PyG has no such argument either.
    """
    for name, value in others.items():
        if name in OF_WORKERS:
            continue
        if name not in NOT_OFFERED:
            makers = [vars(base)["__init__"] for base in loader.__mro__ if "__init__" in vars(base)]
            known = {parameter for maker in makers for parameter in inspect.signature(maker).parameters}
            hint = did_you_mean(name, sorted(known - {"self", "args", "kwargs", "pyg_arguments"}))
            message = f"{loader.__name__}() got an unexpected keyword argument {name!r}"
            raise TypeError(f"{message}; {hint}" if hint else message)
        default, hint = NOT_OFFERED[name]
        actual = repr(getattr(value, "value", value))  # of an enumeration, or of the value itself
        if actual != repr(default):
            raise CohortError(name, f"{default!r}, the only supported value", actual[:80], hint)
    ignored = [name for name, value in others.items() if name in OF_WORKERS and value != OF_WORKERS[name]]
    if ignored:
        why = "the sampler process makes the batches, from lists that are sorted"
        warn_user(f"{', '.join(ignored)}: ignored: {why}")


def sampler_options(arguments: dict, time_attr: str | None) -> dict:
    """Members of run.json: the arguments of OF_SAMPLER, and whether draws depend on times.

    Raises:
        CohortError: one is out of range.
    """
    options = {name: checked(name, value, OF_SAMPLER[name]) for name, value in arguments.items()}
    return options | ({} if time_attr is None else {"edge_times": True})


@dataclass(frozen=True)
class EdgeArrays:
    """The arguments that say which arrays of edges batches have. None: see NeighborLoader.

    Raises:
        CohortError: one is no switch.
    """

    edge_ids: bool | None
    edge_weights: bool | None
    edge_attr: bool

    def __post_init__(self):
        for name, value in vars(self).items():
            if value is not None:
                is_set(name, value)

    def members(self, data: StoredGraph, subgraph_type: str) -> dict:
        """Members of run.json, for batches of a data set.

        Raises:
            CohortError: the data set has no weights.
        """
        has_weights = any(relation.edge_weights is not None for relation in data.edge_types.values())
        if self.edge_weights and not has_weights:
            raise _without(data, "edge_weights", "weight")
        weights = has_weights if self.edge_weights is None else bool(self.edge_weights)
        rows = bool(self.edge_attr) and bool(data.edge_tables)
        if names_no_edges(data, subgraph_type):
            weights, rows = bool(self.edge_weights), False
        return {"edge_ids": bool(self.edge_ids), "edge_weights": weights, "edge_features": rows}


def demand_draws_possible(data: StoredGraph, weight_attr, time_attr) -> None:
    """Raises CohortError: an argument asks for weights or times of edges that no edge has."""
    lists = data.edge_types.values()
    if weight_attr is not None and all(relation.edge_weights is None for relation in lists):
        raise _without(data, "weight_attr", "weight")
    if time_attr is not None and all(relation.edge_times is None for relation in lists):
        raise _without(data, "time_attr", "time")


def _without(data: StoredGraph, argument: str, what: str) -> CohortError:
    hint = f"write the data set with edge_{what}, or import it with --edge-{what}s or --{what}-column"
    return CohortError(argument, f"a data set with edge {what}s", f"{data.path} without", hint)


def cache_options(cache_ratio, cache_bytes, cache_policy: str, cliques: str, trainer_bytes, host_bytes=None) -> dict:
    """The arguments of a loader that say where rows are kept, as SamplerSpec has them.

    Raises:
        CohortError: one is out of range, or ``cache_ratio="auto"`` comes without ``trainer_bytes``.
    """
    auto = isinstance(cache_ratio, str) and cache_ratio == "auto"
    if auto and trainer_bytes is None and cache_policy != "none":
        raise CohortError(
            'cache_ratio="auto"',
            "trainer_bytes: a script's own peak of GPU memory is unknown",
            "None",
            'after an epoch without a cache and with topology="host", (free, total) = torch.cuda.mem_get_info():'
            " give total - free",
        )
    return {
        "cache_ratio": cache_ratio if auto else _listed("cache_ratio", cache_ratio, types.Ratios),
        "cache_bytes": _listed("cache_bytes", cache_bytes, list[Bytes]),
        "cache_policy": checked("cache_policy", cache_policy, types.CachePolicy),
        "cliques": cliques,
        "host_bytes": None if host_bytes is None else checked("host_bytes", host_bytes, Bytes),
        "trainer_bytes": None if trainer_bytes is None else checked("trainer_bytes", trainer_bytes, Bytes),
    }


def _listed(name: str, values, type_: type) -> list | None:
    """A list, made from a single value or from one value for each rank."""
    if values is None:
        return None
    several = isinstance(values, Sequence | np.ndarray) and not isinstance(values, str)
    return checked(name, values if several else [values], type_)


def smallest_gpu(gpus: Sequence[int]) -> int:
    """Bytes of memory of the smallest of these GPUs (ordinals)."""
    return min(torch.cuda.get_device_properties(gpu).total_memory for gpu in gpus)


def is_mask(input_nodes) -> bool:
    """Whether seeds are given as a mask."""
    return str(getattr(input_nodes, "dtype", "")) in ("bool", "torch.bool")


def ids_of(input_nodes, num_nodes: int, may_repeat: bool = False) -> np.ndarray:
    """int64 [n] ids from None, ids or a mask."""
    if input_nodes is None:
        return np.arange(num_nodes, dtype=np.int64)
    try:
        # An array that is mapped and read-only, as a data set's splits are, is nothing that torch should be shown.
        ids = input_nodes if isinstance(input_nodes, np.ndarray) else np.asarray(torch.as_tensor(input_nodes).cpu())
    except (TypeError, ValueError, RuntimeError) as error:
        raise CohortError("input_nodes", "integer ids [n] or a bool mask", repr(input_nodes)[:80]) from error
    if isinstance(input_nodes, list | tuple) and ids.shape == (0,):
        ids = ids.astype(np.int64)  # an empty list has no dtype
    if ids.dtype == np.bool_:
        if ids.shape != (num_nodes,):
            raise CohortError("input_nodes", f"a mask of shape [{num_nodes}]", f"shape {list(ids.shape)}")
        ids = np.flatnonzero(ids)
    if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
        hint = "" if ids.ndim else "as in PyG it is the third argument: say batch_size=..."
        raise CohortError("input_nodes", "integer ids [n] or a bool mask", f"{ids.dtype} {list(ids.shape)}", hint)
    is_old_mask = ids.dtype == np.uint8 and len(ids) == num_nodes and ids.max(initial=0) <= 1
    if is_old_mask and may_repeat and num_nodes > 2:  # its zeros and ones would be seeds
        raise CohortError("input_nodes", "integer ids [n] or a bool mask", "a mask of uint8", "pass mask.bool()")
    ids = ids.astype(np.int64)
    if len(ids) and (ids.min() < 0 or ids.max() >= num_nodes):
        raise CohortError("input_nodes", f"ids in [0, {num_nodes})", f"{ids.min()} .. {ids.max()}")
    if not may_repeat and has_repeats(ids):
        hint = "input_nodes.unique(); or disjoint=True, with which each seed has a tree of its own"
        hint = "for a mask, pass mask.bool()" if len(ids) == num_nodes and ids.max() <= 1 else hint
        raise CohortError("input_nodes", "every node once", f"{len(ids) - len(distinct(ids))} duplicates", hint)
    return ids


def tensor_of(place: str, values, expected: str) -> torch.Tensor:
    """An argument as a tensor; raises CohortError if it is none."""
    try:
        return torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise CohortError(place, expected, repr(values)[:80]) from error


def input_id_of(input_id, input_nodes, ids: np.ndarray) -> dict[str, torch.Tensor]:
    """{"input_id": the numbers of the seeds in ``input_id`` of batches}, as in PyG: the argument of this name, or the
    node ids where seeds are a mask. Without both the dict is empty, and batches have the positions of the seeds.

    Args:
        ids: of the seeds, [n], or [n, 2] of pairs.

    Raises:
        CohortError: the argument does not fit the seeds.
    """
    if input_id is not None:
        expected = f"a tensor [{len(ids)}], one number per seed"
        numbers = tensor_of("input_id", input_id, expected)
        if numbers.shape != (len(ids),):
            raise CohortError("input_id", expected, f"{list(numbers.shape)}")
        return {"input_id": numbers}
    nodes = input_nodes[1] if isinstance(input_nodes, tuple | list) and len(input_nodes) == 2 else input_nodes
    return {"input_id": torch.from_numpy(ids)} if ids.ndim == 1 and is_mask(nodes) else {}


def device_of_rank(device, process_rank: ProcessRank) -> tuple[str, int]:
    """("cpu" or "cuda", ordinal) for what the user asked for. Ranks of one machine have the GPUs 0, 1, ... in turn."""
    is_auto, asked = str(device) == "auto", None
    try:
        asked = None if is_auto else torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise CohortError("device", "auto, cpu, cuda or cuda:N", repr(device)) from error
    if asked is not None and asked.type not in ("cpu", "cuda"):
        raise CohortError("device", "auto, cpu, cuda or cuda:N", str(asked))
    wanted, num_gpus = asked.type if asked else "auto", torch.cuda.device_count() if torch.cuda.is_available() else 0
    if choose_device("device", wanted, _native.with_cuda(), num_gpus, "device='cpu'") == "cpu":
        return "cpu", 0
    if process_rank.local_size > 1:
        ours = process_rank.local_rank
        if asked is not None and asked.index not in (None, ours):
            hint = "choose GPUs with CUDA_VISIBLE_DEVICES"
            raise CohortError("device", f"cuda:{ours} on local rank {ours}", str(asked), hint)
        return "cuda", _gpu_of_rank(process_rank)
    return "cuda", torch.cuda.current_device() if asked is None else asked.index or 0


def _gpu_of_rank(process_rank: ProcessRank) -> int:
    """The GPU of one of several ranks of a machine. The sampler that they share must see the GPUs of all."""
    if (visible := torch.cuda.device_count()) < process_rank.local_size:
        hint = "every rank must see all of them: srun --gpus-per-node=N, without --gpus-per-task and --gpu-bind"
        raise CohortError("CUDA_VISIBLE_DEVICES", f"{process_rank.local_size} GPUs, one per rank", str(visible), hint)
    return process_rank.local_rank
