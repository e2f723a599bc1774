"""Cohort: GNN training on graphs larger than GPU memory.

``cohort.NeighborLoader`` and ``cohort.LinkNeighborLoader`` load minibatches for a script of your own.
``cohort.from_pyg``, ``cohort.from_tensors`` and ``cohort.from_tables`` write data sets, which ``cohort.dataset.open``
reads. ``cohort.train`` trains a model, ``cohort.load_model`` returns the model of a run, and ``cohort.Scorer`` answers
requests with it. ``cohort.nn`` has layers, ``cohort.ibp`` has codecs of feature rows.
For everything else there is the command ``cohort``: see ``cohort --help``.
"""

TYPE_CHECKING = False  # typing's, for which that module need not be loaded: in this one a Ctrl-C is a traceback

if TYPE_CHECKING:  # what type checkers and editors see of the names below
    from cohort_gnn import dataset as dataset
    from cohort_gnn import ibp as ibp
    from cohort_gnn import nn as nn
    from cohort_gnn.base.errors import CohortError as CohortError
    from cohort_gnn.base.version import __version__ as __version__
    from cohort_gnn.dataset import from_pyg as from_pyg
    from cohort_gnn.dataset import from_tables as from_tables
    from cohort_gnn.dataset import from_tensors as from_tensors
    from cohort_gnn.ibp.uses.sharded.rows import ShardedRows as ShardedRows
    from cohort_gnn.launch.run.api import train as train
    from cohort_gnn.trainer.loader.link import LinkNeighborLoader as LinkNeighborLoader
    from cohort_gnn.trainer.loader.neighbor import NeighborLoader as NeighborLoader
    from cohort_gnn.trainer.models.own import load_model as load_model
    from cohort_gnn.trainer.predict.scorer import Scorer as Scorer
    from cohort_gnn.trainer.report.callback import Callback as Callback

# Loaded on first use, so that `cohort --help` need not import torch.
_HOMES = {
    "Callback": "cohort_gnn.trainer.report.callback",
    "LinkNeighborLoader": "cohort_gnn.trainer.loader.link",
    "NeighborLoader": "cohort_gnn.trainer.loader.neighbor",
    "Scorer": "cohort_gnn.trainer.predict.scorer",
    "ShardedRows": "cohort_gnn.ibp.uses.sharded.rows",
    "from_pyg": "cohort_gnn.dataset",
    "from_tables": "cohort_gnn.dataset",
    "from_tensors": "cohort_gnn.dataset",
    "CohortError": "cohort_gnn.base.errors",
    "load_model": "cohort_gnn.trainer.models.own",
    "train": "cohort_gnn.launch.run.api",
    "__version__": "cohort_gnn.base.version",
}
_PACKAGES = {"dataset", "ibp", "nn"}
__all__ = [name for name in _HOMES if name != "__version__"]


def __dir__() -> list[str]:
    return [*_HOMES, *_PACKAGES]


if not TYPE_CHECKING:

    def __getattr__(name: str):
        import importlib

        if name in _HOMES:
            return getattr(importlib.import_module(_HOMES[name]), name)
        if name in _PACKAGES:
            return importlib.import_module(f"cohort_gnn.{name}")
        raise AttributeError(f"module 'cohort_gnn' has no attribute {name!r}")
