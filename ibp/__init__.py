"""Lossless, random-access compression of feature rows.

>>> table = Table(rows)                       # rows: torch, numpy or DLPack [rows, columns]
>>> table[ids]                                # rows[ids], bit for bit

or step by step:

>>> profile = fit(rows)                       # profile.why says why this codec
>>> encoded = encode(rows, profile)           # or encode(rows, profile, out="rows.ibp"): streamed to a file
>>> fetch(encoded, ids)                       # rows[ids]
>>> encoded = encoded.to("pinned")            # now fetch() takes CUDA ids too, and the GPU decodes from host memory
"""

from cohort.ibp.rows import EncodedRows, Profile, bound, decode, decode_stored, encode, fetch, fit, load, take
from cohort.ibp.table import Table, TableStats

__all__ = [
    "EncodedRows",
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
    "take",
]
