"""Lossless, random-access compression of feature rows.

>>> profile = fit(rows)                       # rows: torch, numpy or DLPack [rows, columns]; profile.why says why
>>> encoded = encode(rows, profile)           # or encode(rows, profile, out="rows.ibp"): streamed to a file
>>> fetch(encoded, index)                     # rows[index], bit for bit
>>> encoded = encoded.to("pinned")            # now fetch() takes CUDA indices: decodes on the way from host memory

`preprocess, get_compress_size, compress_inplace, decompress_fetch` are the published names (cohort.ibp.published).
"""

from cohort.ibp.published import compress_inplace, decompress_fetch, get_compress_size, preprocess
from cohort.ibp.rows import EncodedRows, Profile, bound, decode, encode, fetch, fit, load

__all__ = [
    "EncodedRows",
    "Profile",
    "bound",
    "compress_inplace",
    "decode",
    "decompress_fetch",
    "encode",
    "fetch",
    "fit",
    "get_compress_size",
    "load",
    "preprocess",
]
