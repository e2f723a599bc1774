"""The trainer's peak of GPU memory, for ``--cache-ratio auto``: measured by a short run, and remembered."""

import contextlib
import hashlib
import json
import logging
import math
from pathlib import Path
from typing import Annotated, TypedDict

import msgspec
from msgspec import Meta

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.files import remembered, scratch_folder
from cohort_gnn.base.programs import ask_sampler
from cohort_gnn.base.units import format_bytes
from cohort_gnn.cache.options import writable_folder
from cohort_gnn.dataset import StoredGraph
from cohort_gnn.launch.run.programs import run_programs
from cohort_gnn.launch.run.stopping import handlers_kept
from cohort_gnn.launch.run.supervise import ReportedFailure
from cohort_gnn.spec.options import Affects, names_that_affect
from cohort_gnn.spec.run import RunSpec

LOG = logging.getLogger(__name__)

MAX_BATCHES = 10  # of each pass of the short run
HEADROOM = 1.05  # later batches may be larger than those
OF_DATA = ("num_nodes", "num_edges", "num_classes")
OF_TABLE = ("num_nodes", "feature_dtype", "feature_dim")  # of a node type


class _Peak(TypedDict):
    trainer_peak_bytes: Annotated[int, Meta(gt=0)]
    key: dict


def trainer_bytes(data: StoredGraph, run: dict) -> int:
    """What a run must leave of each GPU beside slots and cache: its own needs, with headroom, and what others use now.

    Its own peak is measured unless a file in the data set's folder has it, for the same model, batches and data; where
    that folder cannot be written, a file in the user's cache folder.

    Args:
        run: what becomes run.json, without a cache.
    """
    key = peak_key(data, run)
    folder = data.path
    with contextlib.suppress(CohortError):  # remembered() reports that nothing can be kept
        folder = writable_folder(data.path)
    path = peak_file(folder, key)

    def peak_in(text: str) -> int:
        stored = msgspec.json.decode(text, type=_Peak)
        if stored["key"] != key:
            raise ValueError("another key")
        return stored["trainer_peak_bytes"]

    def measured() -> str:
        LOG.info(f"--cache-ratio auto: measuring the trainer's memory by {MAX_BATCHES} batches without a cache")
        peak = _measure(run)
        LOG.info(f"in addition to slots and cache, a GPU needs {format_bytes(peak)}: {path}")
        return json.dumps({"trainer_peak_bytes": peak, "key": key}, indent=2) + "\n"

    return math.ceil(HEADROOM * remembered(path, peak_in, measured)) + _used_bytes(run)


def _used_bytes(run: dict) -> int:
    """What is in use of the run's GPUs before it starts: of other programs, and under MPS beyond a limit; the most."""
    if run["sampler"]["device"] != "cuda":
        return 0
    return max(ask_sampler("--memory", *map(str, run["sampler"]["gpus"]))["used_bytes"])


def peak_key(data: StoredGraph, run: dict) -> dict:
    """What the peak depends on."""
    options = {name: run["trainer"][name] for name in sorted(names_that_affect(RunSpec, Affects.MEMORY))}
    sampler = {name: run["sampler"][name] for name in ("num_ranks", "topology")}
    key = options | sampler | {"edge_dim": run["trainer"]["edge_dim"]}
    key |= {name: getattr(data, name) for name in OF_DATA}
    tables = [[getattr(table, name) for name in OF_TABLE] for table in data.node_types.values()]
    return key | {"tables": tables, "edge_types": ["__".join(name) for name in data.edge_types]}


def peak_file(folder: Path, key: dict) -> Path:
    """Where the peak is remembered."""
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    return folder / f"peak-{digest}.json"


def _measure(run: dict) -> int:
    """The run's own peak, in a few batches of each pass.

    Raises:
        ReportedFailure: the short run has failed or was stopped.
    """
    unwatched = {"quiet": True, "profile": False, "tensorboard": False, "callbacks": None}
    trainer = run["trainer"] | unwatched | {"epochs": 1, "max_batches": MAX_BATCHES}
    used_before = _used_bytes(run)
    with handlers_kept(), scratch_folder("calibrate") as folder:
        short = run | {"sampler": dict(run["sampler"]), "trainer": trainer}
        code = run_programs(folder, short, show_output=False, is_kept=False)
        if code != 0:
            raise ReportedFailure(code)
        peak = json.loads((folder / "summary.json").read_text())["trainer_peak_bytes"]
    if peak is None:
        raise CohortError("--cache-ratio auto", "a peak of GPU memory to measure", "a run without a GPU")
    own = peak - min(used_before, _used_bytes(run))  # others may have freed some meanwhile
    if own <= 0:
        hint = "start again when they have come to rest, or say it: --trainer-bytes 4GB"
        raise CohortError("--cache-ratio auto", "a GPU whose memory can be measured", "other programs change it", hint)
    return own
