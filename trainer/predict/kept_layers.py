"""What `cohort predict --keep` leaves for a later `--update`: the rows that each layer made, and of what.

The folder has ``record.json``, which names a folder beside it with a .npy file for each layer and node type, and for
the digests of each node type and edge type. The record is replaced last, so that it always names files that are whole.
"""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import msgspec
import numpy as np
import torch

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.files import demand_writable, temporary_folder, write_whole
from cohort_gnn.base.machine import cpu_model
from cohort_gnn.base.version import __version__
from cohort_gnn.dataset.array_file import map_array
from cohort_gnn.dataset.structured import read_structured
from cohort_gnn.spec.graph import EdgeType, GraphTypes
from cohort_gnn.spec.options import options_of
from cohort_gnn.spec.run import TrainerSpec
from cohort_gnn.spec.run_file import read_run_json
from cohort_gnn.trainer.predict.row_digests import Digests

RECORD = "record.json"
CURE = "predict all: leave out --update"
ROOM_HINT = "the disk must hold the rows of all layers"


class Record(msgspec.Struct, forbid_unknown_fields=True):
    """The content of record.json.

    Attributes:
        rows: the folder with the files.
        nodes: of each type, how many there were.
        edges: of each edge type, how many targets there were.
        made_of: digests of what else the rows depend on.
    """

    format: Literal["cohort-kept-layers"]
    version: Literal[2]
    rows: str
    nodes: dict[str, int]
    edges: list[tuple[EdgeType, int]]
    made_of: dict[str, str]


@dataclass(frozen=True, eq=False)
class Before:
    """What an earlier predict kept."""

    folder: Path
    record: Record

    def rows(self, number: int, name: str, width: int) -> np.memmap:
        """float32 [nodes, width], mapped: what a layer made for the nodes of a type.

        Raises:
            CohortError: the file is missing or damaged.
        """
        place, count = list(self.record.nodes).index(name), self.record.nodes[name]
        return self._array(layer_file(number, place), np.dtype(np.float32), (count, width))

    def digests(self) -> Digests:
        """Raises CohortError: a file is missing or damaged."""
        uint64 = np.dtype(np.uint64)
        nodes = {
            name: self._array(f"nodes-{place}.npy", uint64, (count,))
            for place, (name, count) in enumerate(self.record.nodes.items())
        }
        lists = {
            relation: self._array(f"lists-{place}.npy", uint64, (count,))
            for place, (relation, count) in enumerate(self.record.edges)
        }
        return Digests(nodes, lists)

    def _array(self, name: str, dtype: np.dtype, shape: tuple[int, ...]) -> np.memmap:
        file = self.folder / self.record.rows / name
        array = cast(np.memmap, map_array(file))
        if array.shape != shape or array.dtype != dtype:
            raise CohortError(str(file), f"{dtype} {list(shape)}", f"{array.dtype} {list(array.shape)}", CURE)
        return array


def read_before(folder: Path, types: GraphTypes, now: Mapping[str, str]) -> Before:
    """What is kept in a folder.

    Args:
        types: of the data set.
        now: what else rows would be made of, as `made_of` describes it.

    Raises:
        CohortError: nothing is kept there, it is damaged, or these rows are not those that would be made now.
    """
    if not (folder / RECORD).is_file():
        hint = f"predict all once: --keep {folder} in place of --update"
        raise CohortError(f"--update {folder}", "a folder that cohort predict --keep made", "none", hint)
    record = read_structured(folder / RECORD, "JSON", Record, "what a predict has kept", CURE)
    others = [what for what, digest in now.items() if record.made_of.get(what) != digest]
    if record.nodes.keys() != types.counts.keys() or [relation for relation, _ in record.edges] != types.edge_types:
        others.append("types of nodes and edges")
    if others:
        expected = f"the same {', '.join(others)} as when these rows were made"
        raise CohortError(f"--update {folder}", expected, "others", CURE)
    return Before(folder, record)


def layer_file(number: int, place: int) -> str:
    """The rows that a layer made for the nodes of a type, the `place`-th of the data set."""
    return f"layer-{number}-{place}.npy"


@contextlib.contextmanager
def kept_folder(folder: Path, types: GraphTypes, made_of: dict[str, str]) -> Iterator[Path]:
    """A new folder for rows and digests, in `folder`, which takes the place of those there when all went well.

    Args:
        types: of the data set.

    Raises:
        CohortError: `folder` is something else.
    """
    if folder.exists() and not (folder / RECORD).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise CohortError(f"--keep {folder}", "a new folder, or one that --keep made", "something else", "name another")
    with demand_writable(Path(f"--keep {folder}"), hint="make the folder above it, or name another"):
        folder.mkdir(exist_ok=True)
    with temporary_folder(folder / "rows") as temporary:
        yield temporary
        with demand_writable(Path(f"--keep {folder}"), hint=ROOM_HINT):
            name = _keep(folder, temporary, types, made_of)
    for other in folder.glob("rows-*"):
        if other.name != name:
            shutil.rmtree(other)


def keep_digests(folder: Path, digests: Digests) -> None:
    """Writes digests into the folder that `kept_folder` gave.

    Raises:
        CohortError: the disk has no room for them.
    """
    with demand_writable(Path(f"--keep {folder.parent}"), hint=ROOM_HINT):
        for what, arrays in (("nodes", digests.nodes), ("lists", digests.lists)):
            for place, array in enumerate(arrays.values()):
                np.save(folder / f"{what}-{place}.npy", array)


def _keep(folder: Path, temporary: Path, types: GraphTypes, made_of: dict[str, str]) -> str:
    """Has the record name new rows; returns the name of their folder."""
    for file in temporary.iterdir():
        with file.open("rb") as opened_file:
            os.fsync(opened_file.fileno())
    name = f"rows-{os.urandom(8).hex()}"
    temporary.rename(folder / name)
    edges = [(relation, types.counts[relation[2]]) for relation in types.edge_types]
    record = Record("cohort-kept-layers", 2, name, dict(types.counts), edges, made_of)
    write_whole(folder / RECORD, msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")
    return name


def made_of(run: Path, model: Any, name: str, times: Any, device: torch.device) -> dict[str, str]:
    """What the rows of layers depend on beside the data set: digests, by what it is called.

    Args:
        name: of the node type whose scores are computed.
        times: the time of the scores, and which edges count then.
        device: where layers run.
    """
    trained = read_run_json(run)["trainer"]
    described = {option.name: trained.get(option.name) for option in options_of(TrainerSpec) if option.group == "Model"}
    return {
        "weights": _digest_of_weights(model),
        "model options": _digest(json.dumps(described, sort_keys=True, default=str)),
        "--node-type": name,
        "--at-time": _digest(repr((times, model.ages and model.ages.spans))),
        "processor or libraries": ", ".join((*_processor(device), f"torch {torch.__version__}", __version__)),
    }


def _processor(device: torch.device) -> tuple[str, ...]:
    """What decides in which order numbers are added up."""
    if device.type == "cuda":
        precision = torch.get_float32_matmul_precision()
        return torch.cuda.get_device_name(device), f"CUDA {torch.version.cuda}", f"float32 {precision}"
    return cpu_model(), torch.backends.cpu.get_cpu_capability()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _digest_of_weights(model: torch.nn.Module) -> str:
    sha = hashlib.sha256()
    for name, values in model.state_dict().items():
        array = values.cpu().contiguous()
        sha.update(f"{name} {array.dtype} {list(array.shape)}".encode())
        sha.update(array.reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()[:32]
