"""Data sets on disk: a folder of .npy files and meta.json, described in FORMAT.md."""

import importlib
from typing import TYPE_CHECKING

from cohort_gnn.dataset.check import Problem, check  # functions with the names of their modules come at once
from cohort_gnn.dataset.original_ids import original_ids

if TYPE_CHECKING:  # what type checkers and editors see of the names below
    from cohort_gnn.dataset.appending.append import append as append
    from cohort_gnn.dataset.appending.append import append_from_tables as append_from_tables
    from cohort_gnn.dataset.changes import Changes as Changes
    from cohort_gnn.dataset.changes import changes_since as changes_since
    from cohort_gnn.dataset.changes import state_of as state_of
    from cohort_gnn.dataset.generating.typed import generate_typed as generate_typed
    from cohort_gnn.dataset.importing.from_pyg import from_pyg as from_pyg
    from cohort_gnn.dataset.importing.from_tables import from_tables as from_tables
    from cohort_gnn.dataset.importing.importer import import_graph as import_graph
    from cohort_gnn.dataset.importing.importer import import_npz as import_npz
    from cohort_gnn.dataset.importing.tensors import from_tensors as from_tensors
    from cohort_gnn.dataset.link_split import split_links as split_links
    from cohort_gnn.dataset.links import HeldOut as HeldOut
    from cohort_gnn.dataset.links import held_out as held_out
    from cohort_gnn.dataset.links import write_links as write_links
    from cohort_gnn.dataset.reader import Dataset as Dataset
    from cohort_gnn.dataset.reader import HeteroDataset as HeteroDataset
    from cohort_gnn.dataset.reader import open as open
    from cohort_gnn.dataset.reader import open_one_type as open_one_type
    from cohort_gnn.dataset.stored_graph import NodeTable as NodeTable
    from cohort_gnn.dataset.stored_graph import Relation as Relation
    from cohort_gnn.dataset.stored_graph import StoredGraph as StoredGraph
    from cohort_gnn.dataset.tasks import LinkRows as LinkRows
    from cohort_gnn.dataset.tasks import Task as Task
    from cohort_gnn.dataset.tasks import TaskRows as TaskRows
    from cohort_gnn.dataset.tasks import open_task as open_task
    from cohort_gnn.dataset.tasks import tasks_of as tasks_of
    from cohort_gnn.dataset.tasks import write_task as write_task
    from cohort_gnn.dataset.writer import generate as generate

# Loaded on first use, so that programs that read a data set need not load what imports one.
_HOMES = {
    "Changes": "cohort_gnn.dataset.changes",
    "Dataset": "cohort_gnn.dataset.reader",
    "HeldOut": "cohort_gnn.dataset.links",
    "HeteroDataset": "cohort_gnn.dataset.reader",
    "LinkRows": "cohort_gnn.dataset.tasks",
    "NodeTable": "cohort_gnn.dataset.stored_graph",
    "Relation": "cohort_gnn.dataset.stored_graph",
    "StoredGraph": "cohort_gnn.dataset.stored_graph",
    "Task": "cohort_gnn.dataset.tasks",
    "TaskRows": "cohort_gnn.dataset.tasks",
    "append": "cohort_gnn.dataset.appending.append",
    "append_from_tables": "cohort_gnn.dataset.appending.append",
    "changes_since": "cohort_gnn.dataset.changes",
    "from_pyg": "cohort_gnn.dataset.importing.from_pyg",
    "from_tables": "cohort_gnn.dataset.importing.from_tables",
    "from_tensors": "cohort_gnn.dataset.importing.tensors",
    "generate": "cohort_gnn.dataset.writer",
    "generate_typed": "cohort_gnn.dataset.generating.typed",
    "held_out": "cohort_gnn.dataset.links",
    "import_graph": "cohort_gnn.dataset.importing.importer",
    "import_npz": "cohort_gnn.dataset.importing.importer",
    "open": "cohort_gnn.dataset.reader",
    "open_one_type": "cohort_gnn.dataset.reader",
    "open_task": "cohort_gnn.dataset.tasks",
    "split_links": "cohort_gnn.dataset.link_split",
    "state_of": "cohort_gnn.dataset.changes",
    "tasks_of": "cohort_gnn.dataset.tasks",
    "write_links": "cohort_gnn.dataset.links",
    "write_task": "cohort_gnn.dataset.tasks",
}
__all__ = ["Problem", "check", "original_ids", *_HOMES]


def __dir__() -> list[str]:
    return [*__all__]


if not TYPE_CHECKING:

    def __getattr__(name: str):
        if name in _HOMES:
            return getattr(importlib.import_module(_HOMES[name]), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
