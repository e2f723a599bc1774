"""Lossless, random-access compression of feature rows.

>>> table = Table(rows)                       # rows: torch, numpy or DLPack [rows, columns]
>>> table[ids]                                # rows[ids], bit for bit

or step by step:

>>> profile = fit(rows)                       # profile.why says why this codec
>>> encoded = encode(rows, profile)           # or encode(rows, profile, out="rows.ibp"): streamed to a file
>>> fetch(encoded, ids)                       # rows[ids]
>>> encoded = encoded.to("pinned")            # now fetch() takes CUDA ids too, and the GPU decodes from host memory
"""

import importlib
from typing import TYPE_CHECKING

from cohort_gnn.ibp.profile import Profile, fit
from cohort_gnn.ibp.rows import EncodedRows, bound, decode, encode, fetch, load
from cohort_gnn.ibp.stored import decode_stored, take
from cohort_gnn.ibp.table import Table, TableStats

if TYPE_CHECKING:
    from cohort_gnn.ibp.uses.embedding_bag import EmbeddingBag
    from cohort_gnn.ibp.uses.history import History
    from cohort_gnn.ibp.uses.pyg_store import pyg_store
    from cohort_gnn.ibp.uses.stream import stream_module
    from cohort_gnn.ibp.uses.topk.search import top_k

# Loaded on first use: they import torch and torch_geometric.
_HOMES = {
    "EmbeddingBag": "cohort_gnn.ibp.uses.embedding_bag",
    "History": "cohort_gnn.ibp.uses.history",
    "pyg_store": "cohort_gnn.ibp.uses.pyg_store",
    "stream_module": "cohort_gnn.ibp.uses.stream",
    "top_k": "cohort_gnn.ibp.uses.topk.search",
}
__all__ = [
    "EmbeddingBag",
    "EncodedRows",
    "History",
    "Profile",
    "Table",
    "TableStats",
    "bound",
    "decode",
    "decode_stored",
    "encode",
    "fetch",
    "fit",
    "load",
    "pyg_store",
    "stream_module",
    "take",
    "top_k",
]


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:

    def __getattr__(name: str):
        if name in _HOMES:
            return getattr(importlib.import_module(_HOMES[name]), name)
        raise AttributeError(f"module 'cohort_gnn.ibp' has no attribute {name!r}")
