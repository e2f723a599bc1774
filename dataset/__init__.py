"""Data sets on disk: a folder of .npy files and meta.json, described in FORMAT.md."""

from cohort.dataset.check import Problem, check
from cohort.dataset.generating.typed import generate_typed
from cohort.dataset.hetero import HeteroDataset, NodeTable, Relation
from cohort.dataset.importing.importer import import_graph, import_npz
from cohort.dataset.importing.tensors import from_pyg, from_tensors
from cohort.dataset.link_split import split_links
from cohort.dataset.links import HeldOut, held_out, write_links
from cohort.dataset.reader import Dataset, open, open_one_type
from cohort.dataset.writer import generate

__all__ = [
    "Dataset",
    "HeldOut",
    "HeteroDataset",
    "NodeTable",
    "Problem",
    "Relation",
    "check",
    "from_pyg",
    "from_tensors",
    "generate",
    "generate_typed",
    "held_out",
    "import_graph",
    "import_npz",
    "open",
    "open_one_type",
    "split_links",
    "write_links",
]
