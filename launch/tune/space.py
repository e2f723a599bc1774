"""What ``cohort tune`` varies: the values of each option, what fits a GPU, and options as a file for --config."""

import argparse
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from cohort_gnn.cache import budget
from cohort_gnn.cache import options as cache_options
from cohort_gnn.cache.options import bytes_of_nodes, memory_needs, presample, raw_bytes_of
from cohort_gnn.cache.planner import holds_all_raw_rows
from cohort_gnn.launch.options.devices import gpu_memory
from cohort_gnn.launch.options.parser import changed_from_defaults, given_in, spec_of
from cohort_gnn.launch.run.calibrate import HEADROOM
from cohort_gnn.launch.run.job import planned_seeds, topology_bytes, with_task
from cohort_gnn.launch.tune.search import Axis, Point
from cohort_gnn.spec.run import RunSpec, whole_path_of_order

CACHE_RATIOS = [0.0, 0.01, 0.05, 0.1, 0.2, 0.5, 1.1]  # 1.1: all rows, and the index
SAMPLER_SMS = (0, 8, 16, 24, 32, 48)  # 0: shared with the trainer
SLOTS = (3, 4, 6)
GPU_ONLY = ("cache_ratio", "sampler_sms", "reuse")
RUNS_OWN = ("epochs", "out", "quiet")  # on the command line, options of the tuning; in a --config file, of its runs


def start_of(spec: RunSpec, is_prepared: bool) -> Point:
    """The options as given."""
    ratio = spec.cache_ratio or 0.0
    if isinstance(ratio, list) and len(ratio) == 1:
        ratio = ratio[0]
    return {
        "cache_ratio": ratio if spec.cache_bytes is None else None,
        "sampler_sms": spec.sampler_sms,
        "slots": spec.slots,
        "reuse": spec.reuse,
        "compress": "none" if spec.compress == "auto" and not is_prepared else spec.compress,
    }


def axes_of(args: argparse.Namespace, device: str, data) -> tuple[list[Axis], dict[str, str]]:
    """(what is varied, {what is not: why}).

    Args:
        data: the data set, opened.
    """
    tables = data.feature_tables
    has_raw = all(table.x is not None for table in tables)
    forms = ("none", "cache") if has_raw else ()  # forms that need only rows that the data set has
    if any(table.encoded_rows is not None for table in tables):
        forms = ("auto", *forms, "host", "both")
    values = {
        "cache_ratio": tuple(sorted(args.cache_ratios or CACHE_RATIOS, reverse=True)),  # the plan expects most of much
        "sampler_sms": SAMPLER_SMS,
        "slots": SLOTS,
        "reuse": (True, False),
        "compress": tuple(form for form in forms if device == "cuda" or form in ("auto", "none", "host")),
    }
    spec = spec_of(args, RunSpec)
    fixed = {name: "given" for name in values if hasattr(args, name)}  # on the command line
    for name in values:
        if why := _why_fixed(name, spec, device, len(values[name])):
            fixed.setdefault(name, why)
    return [Axis(name, options) for name, options in values.items() if name not in fixed], fixed


def _why_fixed(name: str, spec: RunSpec, device: str, num_values: int) -> str:
    if device == "cpu" and name in GPU_ONLY:
        return "no effect on the CPU"
    if name == "sampler_sms" and not spec.mps:
        return "--no-mps"
    if name == "cache_ratio" and spec.cache_bytes is not None:
        return "--cache-bytes is given"
    if name == "compress" and spec.coarse_epochs:
        return "--coarse-epochs is given"
    if name == "cache_ratio" and spec.cache_policy == "none":
        return "--cache-policy none"
    return "" if num_values > 1 else "the data set has its rows in one form only"


def same_as(point: Point, device: str, meta: dict) -> Point:
    """A point with its effective compression: "auto" depends on whether caches have room for all raw rows; without a
    cache, rows are encoded in host memory or nowhere."""
    ratio, compress = point["cache_ratio"], point["compress"]
    if compress == "auto" and isinstance(ratio, float | list):
        caches = [int(share * raw_bytes_of(meta)) for share in (ratio if isinstance(ratio, list) else [ratio])]
        compress = (
            "host" if all(holds_all_raw_rows(share, cache_options.row_tables(meta)) for share in caches) else "both"
        )
    if device == "cpu" or ratio == 0:
        compress = {"both": "host", "cache": "none"}.get(compress, compress)
    return point | {"compress": compress}


class Room:
    """Whether a GPU has room for a point, by the rule of ``cohort plan``; always, where its memory is unknown."""

    def __init__(self, spec: RunSpec, meta: dict, data):
        self._spec, self._meta, self._data, self._dataset = spec, meta, data, data.path
        self._trees: dict[str, Any] | None = None  # of disjoint batches, as presample() takes them
        self._topology_bytes = topology_bytes(data, spec.weight_attr)
        self._fanout = spec.fanout * len(data.edge_types)
        self._gpu_bytes = gpu_memory(spec)
        self._trainer_bytes = spec.trainer_bytes
        self._counts: list[dict] = []

    def learn(self, peak_bytes: int | None) -> None:
        """Takes what a GPU needed beside slots in a run without a cache, unless --trainer-bytes says it."""
        if peak_bytes is None or self._gpu_bytes is None or self._trainer_bytes is not None:
            return
        graph_bytes = self._topology_bytes if self._holds_topology(0) else 0
        self._trainer_bytes = math.ceil(HEADROOM * max(0, peak_bytes - graph_bytes))

    def fits(self, point: Point) -> bool:
        ratio = point["cache_ratio"]
        if self._gpu_bytes is None or not isinstance(ratio, float) or ratio == 0:
            return True
        cache_bytes = int(ratio * raw_bytes_of(self._meta))
        spec = self._spec
        if not self._counts and spec.cache_policy == "plan":  # the trials with a cache find them there
            seeds, batch_size, self._trees = planned_seeds(with_task(spec, self._data), self._data)
            run = (self._dataset, self._fanout, batch_size, spec.presample_batches)
            self._counts = [presample(*run, seeds=seeds, draws=spec.draws, trees=self._trees)]
        memory = {"gpu_memory": self._gpu_bytes, "trainer_bytes": self._trainer_bytes, "slots": point["slots"]}
        disjoint = self._trees is not None
        needs = memory_needs(replace(spec, **memory), self._meta, self._counts, disjoint=disjoint)
        if self._holds_topology(cache_bytes):
            needs = replace(needs, graph_bytes=needs.graph_bytes + self._topology_bytes)
        return not budget.misfits([cache_bytes], needs, 0, 0)

    def _holds_topology(self, cache_bytes: int) -> bool:
        where, node_bytes = self._spec.topology, bytes_of_nodes(self._meta)
        return budget.topology_lies_in_gpus(where, self._topology_bytes, node_bytes, cache_bytes, self._gpu_bytes)


def options_at(args: argparse.Namespace, start: Point) -> Callable[[Point], dict]:
    """A function of a point: the options of ``cohort train`` there that are not its defaults."""
    base_options = train_options(args)

    def at(point: Point) -> dict:
        changed = {name: value for name, value in point.items() if value != start[name]}
        options = base_options | changed
        if changed.get("cache_ratio") == 0:
            del options["cache_ratio"]
        return options

    return at


def train_options(args: argparse.Namespace) -> dict:
    """The arguments of `cohort tune` that are options of the runs: {name: value}, without defaults. Files that runs
    read have whole paths, since run.toml may be used from another folder."""
    runs = {name: value for name, value in vars(args).items() if name not in RUNS_OWN}
    options = changed_from_defaults(given_in(argparse.Namespace(**runs), RunSpec), RunSpec)
    if "seed_order" in options:
        options["seed_order"] = whole_path_of_order(options["seed_order"])
    if "init" in options:
        options["init"] = options["init"].expanduser().absolute()
    return options


def as_toml(options: dict) -> str:
    """Options as a file that --config reads."""
    return "".join(f"{name.replace('_', '-')} = {_toml(value)}\n" for name, value in options.items())


def _toml(value) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)
