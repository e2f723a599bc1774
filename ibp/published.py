"""The names of the published library, with their meaning, on host memory.

`mask` and `bitval` are uint32 or uint64 [chunks], one for each 4 or 8 bytes of a row; `bitmask` is int32
[ceil(rows / 32)], bit i % 32 of word i / 32 set when row i is compressed. The bytes of a row are FORMAT.md 4.2.
"""

import numpy as np

from cohort.base.errors import CohortError
from cohort.ibp import _native, arrays
from cohort.ibp.rows import EncodedRows, Profile, fetch, fit


def preprocess(ds, threshold=None, chunk_bytes=4):
    """(mask, bitval) of the bits that at least `threshold` of all rows share; None sweeps 0.70 to 0.95."""
    native = fit(ds, "invariant", sample=1.0, chunk_bytes=chunk_bytes, threshold=threshold).native
    dtype = np.uint32 if chunk_bytes == 4 else np.uint64
    return np.array(native.mask, dtype), np.array(native.value, dtype)


def _profile(ds, mask, bitval) -> Profile:
    mask, bitval = np.asarray(mask), np.asarray(bitval)
    if mask.dtype.itemsize not in (4, 8) or mask.shape != bitval.shape or mask.ndim != 1:
        raise CohortError("mask, bitval", "4 or 8-byte integers [chunks], both", f"{mask.dtype} {mask.shape}")
    dtype = fit(ds[:1], "raw").dtype
    words = [array.view(f"u{mask.dtype.itemsize}").tolist() for array in (mask, bitval)]
    return Profile(_native.invariant_profile(dtype, ds.shape[1], mask.dtype.itemsize, *words))


def get_compress_size(ds, mask, bitval, index_arr=None, compress_total=False):
    """Bytes of each row (of those in `index_arr`), int64 [rows], or their sum."""
    profile = _profile(ds, mask, bitval)
    rows = ds if index_arr is None else ds[index_arr]
    lengths = np.array(_native.row_lengths(rows, profile.native), np.int64)
    lengths[lengths == 0] = profile.row_bytes
    return int(lengths.sum()) if compress_total else lengths


def compress_inplace(ds, mask, bitval):
    """Compresses each row over itself; returns the bitmask."""
    encoded = _native.encode_in_place(ds, _profile(ds, mask, bitval).native)
    return np.array(encoded.bitmask, np.uint32).view(np.int32)


def decompress_fetch(comp, mask, bitval, bitmask, index_arr=None, output_tensor=None):
    """Rows `index_arr` (default: all) of what compress_inplace left in `comp`."""
    profile = _profile(comp, mask, bitval)
    words = np.ascontiguousarray(bitmask).view(np.uint32)
    encoded = EncodedRows(_native.with_bitmask(comp, profile.native, words), arrays.kind_of(comp), keep=comp)
    index = np.arange(len(comp)) if index_arr is None else index_arr
    return fetch(encoded, index, output_tensor)
