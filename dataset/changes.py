"""What was appended to a data set, and since when: appended.json, and the files in appended/ that it names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from cohort_gnn.base.distinct import distinct
from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.files import write_whole
from cohort_gnn.dataset.array_file import map_array
from cohort_gnn.dataset.arrays import demand_shape, integers
from cohort_gnn.dataset.digests import digest_of_files
from cohort_gnn.dataset.reader import open as open_dataset
from cohort_gnn.dataset.stored_graph import StoredGraph
from cohort_gnn.dataset.structured import read_structured
from cohort_gnn.spec.graph import EdgeType
from cohort_gnn.spec.meta import OF_EDGES, OF_TARGET, read_meta

RECORD, FOLDER = "appended.json", "appended"
HINT = "import the data set again"


class ChangedLists(msgspec.Struct, forbid_unknown_fields=True):
    """A relation, and the file of the nodes whose lists of in-neighbours changed: int64 [any], ascending."""

    type: EdgeType
    file: str


class Step(msgspec.Struct, forbid_unknown_fields=True):
    """What one call appended.

    Attributes:
        before: the state of the data set until then.
        nodes: by type, how many nodes there were; those from this number on are new.
        lists: of each relation with other lists than before.
    """

    before: str
    nodes: dict[str, int]
    lists: list[ChangedLists]


class Appended(msgspec.Struct, forbid_unknown_fields=True):
    """The content of appended.json: the steps in their order."""

    format: Literal["cohort-appended"] = "cohort-appended"
    version: Literal[1] = 1
    steps: list[Step] = []


@dataclass(frozen=True)
class Changes:
    """What has changed in a data set.

    Attributes:
        first_new: by node type, the number of its nodes before: those from it on are new. Their features and labels are
            new; those of other nodes are as they were.
        changed_lists: by edge type, int64 [any], ascending: the target nodes, new ones too, whose in-neighbours, or the
            weights, times or features of whose edges, are others than before.
    """

    first_new: Mapping[str, int]
    changed_lists: Mapping[EdgeType, np.ndarray]


def state_of(folder: str | os.PathLike) -> str:
    """32 hexadecimal digits that name the state of a data set: others after each append.

    Large arrays are digested by pieces, as the data set of a run is. Feature rows do not count, which may be there
    encoded alone.

    Example:
        >>> state_of("data/shop")
        '0d3cbb7a54f6cbe5a7b0e3a1ff20e3f5'
    """
    path = Path(folder)
    meta = read_meta(path)
    described = [(nodes, ("node_times",)) for nodes in meta["nodes"]] + [(edges, OF_EDGES) for edges in meta["edges"]]
    described.append((meta["target"], OF_TARGET))
    arrays = [entry[name] for entry, names in described for name in names if name in entry]
    record = [RECORD] if (path / RECORD).exists() else []
    return digest_of_files(path / name for name in ("meta.json", *record, *arrays))


def changes_since(folder: str | os.PathLike, state: str) -> Changes:
    """What was appended to a data set after it had a state.

    Raises:
        CohortError: it never had this state, so that nothing is known.

    Example:
        >>> before = state_of("data/shop")
        >>> append("data/shop", edges="new.parquet")
        >>> changes_since("data/shop", before).first_new
        {'node': 2708}
    """
    path, data = Path(folder), open_dataset(folder)
    steps = read_appended(path).steps
    first_new = {type_: table.num_nodes for type_, table in data.node_types.items()}
    if state == state_of(path):
        return Changes(first_new, {})
    since = next((number for number, step in enumerate(steps) if step.before == state), None)
    if since is None:
        actual = (
            f"another, to which {len(steps)} appends have led" if steps else "another, to which nothing was appended"
        )
        raise CohortError(f"{path}: state {state}", "a state that the data set once had", actual, "compute all again")
    lists: dict[EdgeType, np.ndarray] = {}
    for step in steps[since:]:
        for changed in step.lists:
            nodes = _nodes_of(path, changed)
            lists[changed.type] = distinct(lists[changed.type], nodes) if changed.type in lists else nodes
    return Changes(steps[since].nodes, lists)


def read_appended(folder: Path) -> Appended:
    """The content of appended.json; without the file, no steps.

    Raises:
        CohortError: the file is damaged.
    """
    if not (folder / RECORD).exists():
        return Appended()
    return read_structured(folder / RECORD, "JSON", Appended, "what was appended to a data set", HINT)


def record_step(folder: Path, before: StoredGraph, state: str, changed: Mapping[EdgeType, np.ndarray]) -> None:
    """Adds a step to the record in `folder`, which is that of the data set before.

    Args:
        before: the data set until now, in this state.
        changed: by edge type, the nodes whose lists are others than before.
    """
    appended = read_appended(before.path)
    lists = []
    for type_, nodes in changed.items():
        if not len(nodes):
            continue
        name = ".".join(filter(None, (str(len(appended.steps) + 1), *before.key_of(type_), "npy")))
        lists.append(ChangedLists(type_, name))
        (folder / FOLDER).mkdir(exist_ok=True)
        np.save(folder / FOLDER / name, nodes)
    counts = {type_: table.num_nodes for type_, table in before.node_types.items()}
    record = Appended(steps=[*appended.steps, Step(state, counts, lists)])
    write_whole(folder / RECORD, msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n", synced=False)


def problems_of_record(data: StoredGraph) -> list[CohortError]:
    """What is wrong with the record of a data set: the counts of nodes, and the nodes that its files name."""
    problems, counts = [], {type_: 0 for type_ in data.node_types}
    for step in read_appended(data.path).steps:
        for type_, count in ((type_, step.nodes.get(type_, -1)) for type_ in data.node_types):
            if not counts[type_] <= count <= data.node_types[type_].num_nodes:
                expected = f"numbers of nodes that grow to {data.node_types[type_].num_nodes}"
                problems.append(CohortError(f"{data.path / RECORD}: {type_}", expected, str(count), HINT))
            counts[type_] = count
        for changed in step.lists:
            if changed.type not in data.edge_types:
                expected = f"one of the relations {', '.join(map(str, data.edge_types))}"
                problems.append(CohortError(str(data.path / RECORD), expected, str(changed.type), HINT))
                continue
            count = len(data.edge_types[changed.type].indptr) - 1
            nodes = _nodes_of(data.path, changed)
            if np.any(np.diff(nodes) <= 0) or len(nodes) and not 0 <= nodes[0] <= nodes[-1] < count:
                problems.append(
                    CohortError(
                        str(data.path / FOLDER / changed.file), f"ascending nodes in [0, {count})", "others", HINT
                    )
                )
    return problems


def _nodes_of(folder: Path, changed: ChangedLists) -> np.ndarray:
    """int64 [any]"""
    nodes = np.asarray(map_array(folder / FOLDER / Path(changed.file).name))
    demand_shape(changed.file, nodes, (None,))
    return integers(changed.file, nodes)
