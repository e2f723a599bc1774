"""Data sets on disk: a folder of .npy files and meta.json, described in FORMAT.md."""

from cohort.dataset.check import Problem, check
from cohort.dataset.importing.importer import import_graph, import_npz
from cohort.dataset.importing.tensors import from_pyg, from_tensors
from cohort.dataset.reader import Dataset, open
from cohort.dataset.writer import generate

__all__ = ["Dataset", "Problem", "check", "from_pyg", "from_tensors", "generate", "import_graph", "import_npz", "open"]
