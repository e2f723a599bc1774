"""What `cohort predict --keep` leaves for a later `--update`: the rows that each layer made, and of what.

The folder has ``record.json``, which names a folder beside it with a .npy file for each layer and node type. The record
is replaced last, so that it always names rows that are whole.
"""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import torch

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.files import temporary_folder, write_whole
from cohort_gnn.base.machine import cpu_model
from cohort_gnn.base.version import __version__
from cohort_gnn.dataset import StoredGraph
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.dataset.array_file import map_array
from cohort_gnn.dataset.changes import Changes, changes_since, state_of
from cohort_gnn.dataset.columns import read_columns
from cohort_gnn.dataset.structured import read_structured
from cohort_gnn.spec.options import options_of
from cohort_gnn.spec.run import TrainerSpec
from cohort_gnn.spec.run_file import read_run_json
from cohort_gnn.trainer.predict.node_rows import PreparedRows, features_of

RECORD = "record.json"
NUM_ROWS = 1024  # of features of each node type, evenly spaced, that are compared
CURE = "predict all: leave out --update"


class Record(msgspec.Struct, forbid_unknown_fields=True):
    """The content of record.json.

    Attributes:
        rows: the folder with the rows.
        state: of the data set, as `state_of` gives it.
        nodes: of each type, how many there were.
        made_of: digests of what else the rows depend on.
    """

    format: Literal["cohort-kept-layers"]
    version: Literal[1]
    rows: str
    state: str
    nodes: dict[str, int]
    made_of: dict[str, str]


@dataclass(frozen=True, eq=False)
class Before:
    """What an earlier predict kept.

    Attributes:
        changes: of the data set since then.
    """

    folder: Path
    record: Record
    changes: Changes

    def rows(self, number: int, place: int, width: int, name: str) -> np.ndarray:
        """float32 [nodes, width], mapped: what a layer made for the nodes of a type, the `place`-th of the data set.

        Raises:
            CohortError: the file is missing or damaged.
        """
        file = self.folder / self.record.rows / file_of(number, place)
        rows = np.asarray(map_array(file))
        if rows.shape != (self.record.nodes[name], width) or rows.dtype != np.float32:
            expected = f"float32 [{self.record.nodes[name]}, {width}]"
            raise CohortError(str(file), expected, f"{rows.dtype} {list(rows.shape)}", CURE)
        return rows


@dataclass(frozen=True, eq=False)
class Opened:
    """A data set as it is at one moment.

    Attributes:
        state: None: nothing is kept, and nobody asked for it.
    """

    data: StoredGraph
    state: str | None = None
    before: Before | None = None


def opened(dataset: str, keep: str | None, update: str | None) -> Opened:
    """Opens a data set, and reads what an earlier predict kept.

    Raises:
        CohortError: nothing was kept there; the data set is another than the earlier one with appends.
    """
    if keep is None and update is None:
        return Opened(open_dataset(dataset))
    record, state = None if update is None else read_record(Path(update)), state_of(dataset)
    data = open_dataset(dataset)
    before = None
    if record is not None and update is not None:
        before = Before(Path(update), record, changes_since(dataset, record.state))
    if state != state_of(dataset):
        raise CohortError(dataset, "a data set that stays as it is meanwhile", "an append", "predict again")
    return Opened(data, state, before)


def read_record(folder: Path) -> Record:
    """Raises CohortError: there is none, or it is damaged."""
    if not (folder / RECORD).is_file():
        hint = f"predict all once: --keep {folder} in place of --update"
        raise CohortError(f"--update {folder}", "a folder that cohort predict --keep made", "none", hint)
    return read_structured(folder / RECORD, "JSON", Record, "what a predict has kept", CURE)


def file_of(number: int, place: int) -> str:
    """The rows that a layer made for the nodes of a type, the `place`-th of the data set."""
    return f"layer-{number}-{place}.npy"


@contextlib.contextmanager
def kept_folder(folder: Path, state: str, nodes: Mapping[str, int], made_of: dict[str, str]) -> Iterator[Path]:
    """A new folder for rows, in `folder`, which takes the place of those there when all went well.

    Raises:
        CohortError: `folder` is something else.
    """
    if folder.exists() and not (folder / RECORD).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise CohortError(f"--keep {folder}", "a new folder, or one that --keep made", "something else", "name another")
    folder.mkdir(exist_ok=True)
    with temporary_folder(folder / "rows") as temporary:
        yield temporary
        for file in temporary.iterdir():
            with file.open("rb") as opened_file:
                os.fsync(opened_file.fileno())
        name = f"rows-{os.urandom(8).hex()}"
        temporary.rename(folder / name)
        record = Record("cohort-kept-layers", 1, name, state, dict(nodes), made_of)
        write_whole(folder / RECORD, msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")
    for other in folder.glob("rows-*"):
        if other.name != name:
            shutil.rmtree(other)


def made_of(
    run: Path, model: torch.nn.Module, data: StoredGraph, nodes: Mapping[str, int], name: str, times: Any
) -> dict[str, str]:
    """What the rows of layers depend on beside the edges: digests, by what it is called.

    Args:
        nodes: of each type, how many are looked at, the first ones.
        name: of the node type whose scores are computed.
        times: which edges and ages count.
    """
    columns = read_columns(data.path)
    trained = read_run_json(run)["trainer"]
    described = {option.name: trained.get(option.name) for option in options_of(TrainerSpec) if option.group == "Model"}
    tables = {type_: table for type_, table in data.node_types.items() if table.feature_dim}
    return {
        "weights": _digest_of_weights(model),
        "model options": _digest(json.dumps(described, sort_keys=True, default=str)),
        "--node-type": name,
        "--at-time": _digest(repr(times)),
        "means and categories of columns": _digest(repr((columns.nodes, columns.edges))),
        "codec of features": ", ".join(map(_form_of, tables.values())),
        "features of nodes that were there": _digest_of_rows(tables, nodes),
        "processor or libraries": ", ".join(
            (cpu_model(), torch.backends.cpu.get_cpu_capability(), f"torch {torch.__version__}", __version__)
        ),
    }


def demand_same(before: Before, now: Mapping[str, str]) -> None:
    """Raises CohortError: rows that were kept are not those that would be made now."""
    others = [what for what, digest in now.items() if before.record.made_of.get(what) != digest]
    if others:
        expected = f"the same {', '.join(others)} as when these rows were made"
        raise CohortError(f"--update {before.folder}", expected, "others", CURE)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _digest_of_weights(model: torch.nn.Module) -> str:
    sha = hashlib.sha256()
    for name, values in model.state_dict().items():
        array = values.cpu().contiguous()
        sha.update(f"{name} {array.dtype} {list(array.shape)}".encode())
        sha.update(array.reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()[:32]


def _form_of(table: Any) -> str:
    """How rows of features are rounded: their dtype, and by a codec with losses its error."""
    rows = features_of(table)
    dtype = str(rows.dtype).removeprefix("torch.")
    if not isinstance(rows, PreparedRows) or rows.profile.error_bound == 0:
        return dtype
    return f"{dtype} by {rows.profile.codec} of {rows.profile.mantissa_bits} bits, error {rows.profile.error_bound}"


def _digest_of_rows(tables: Mapping[str, Any], nodes: Mapping[str, int]) -> str:
    """Of some of the first rows of each table, decoded."""
    sha = hashlib.sha256()
    for name, table in tables.items():
        if nodes[name]:
            ids = np.unique(np.linspace(0, nodes[name] - 1, NUM_ROWS).astype(np.int64))
            sha.update(features_of(table).take(torch.from_numpy(ids)).contiguous().view(torch.uint8).numpy().data)
    return sha.hexdigest()[:32]
