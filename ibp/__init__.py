"""Lossless, random-access compression of feature rows.

>>> profile = fit(rows)                       # rows: torch, numpy or DLPack [rows, columns]; profile.why says why
>>> encoded = encode(rows, profile)           # or encode(rows, profile, out="rows.ibp"): streamed to a file
>>> fetch(encoded, index)                     # rows[index], bit for bit
>>> encoded = encoded.to("pinned")            # now fetch() takes CUDA indices, and the GPU decodes from host memory
"""

from cohort.ibp.rows import EncodedRows, Profile, bound, decode, decode_stored, encode, fetch, fit, load, take

__all__ = [
    "EncodedRows",
    "Profile",
    "bound",
    "decode",
    "decode_stored",
    "encode",
    "fetch",
    "fit",
    "load",
    "take",
]
