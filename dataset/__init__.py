"""Data sets on disk: a folder of .npy files and meta.json, described in FORMAT.md."""

from cohort_gnn.dataset.appending.append import append, append_from_tables
from cohort_gnn.dataset.changes import Changes, changes_since, state_of
from cohort_gnn.dataset.check import Problem, check
from cohort_gnn.dataset.generating.typed import generate_typed
from cohort_gnn.dataset.importing.from_pyg import from_pyg
from cohort_gnn.dataset.importing.from_tables import from_tables
from cohort_gnn.dataset.importing.importer import import_graph, import_npz
from cohort_gnn.dataset.importing.tensors import from_tensors
from cohort_gnn.dataset.link_split import split_links
from cohort_gnn.dataset.links import HeldOut, held_out, write_links
from cohort_gnn.dataset.original_ids import original_ids
from cohort_gnn.dataset.reader import Dataset, HeteroDataset, open, open_one_type
from cohort_gnn.dataset.stored_graph import NodeTable, Relation, StoredGraph
from cohort_gnn.dataset.tasks import LinkRows, Task, TaskRows, open_task, tasks_of, write_task
from cohort_gnn.dataset.writer import generate

__all__ = [
    "Changes",
    "Dataset",
    "HeldOut",
    "HeteroDataset",
    "LinkRows",
    "NodeTable",
    "Problem",
    "Relation",
    "StoredGraph",
    "Task",
    "TaskRows",
    "append",
    "append_from_tables",
    "changes_since",
    "check",
    "from_pyg",
    "from_tables",
    "from_tensors",
    "generate",
    "generate_typed",
    "held_out",
    "import_graph",
    "import_npz",
    "open",
    "open_one_type",
    "open_task",
    "original_ids",
    "split_links",
    "state_of",
    "tasks_of",
    "write_links",
    "write_task",
]
