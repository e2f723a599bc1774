"""Bytes and speed of float32 rows whose elements may be off by a bounded error, beside other codecs of this kind.

    python -m pip install zfpy pysz
    PYTHONPATH=build/python python bench/ibp/bounded_codecs.py --rows vectors.npy [--mantissa-bits 3,7] [--markdown]

For each table and each t of --mantissa-bits: plane A of codec planes with t bits of the mantissa, then ZFP and SZ3 with
the greatest absolute error that plane A has on this table as their bound, then bfloat16 and FP8 (E4M3, scaled so that
the greatest element fits), whose errors are as they are. ZFP and SZ3 take the table as a whole, as two-dimensional
data; "ZFP, a row each" takes each row for itself, as a loader that reads single rows needs. Speeds are of one thread of
this machine's CPU, the best of three.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pysz
import torch
import zfpy

from cohort_gnn import ibp

Codec = tuple[Callable[[np.ndarray], tuple[object, int]], Callable[[object], np.ndarray]]  # encode, decode


@dataclass
class Line:
    """What a codec makes of a table. Errors: |found - x|, absolute and divided by |x| where x is not 0."""

    name: str
    bits: float  # of an element
    absolute: float
    relative: float
    encode: float  # GB/s of rows
    decode: float
    takes_single_rows: bool


def best_seconds(call: Callable[[], object]) -> tuple[float, object]:
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        result = call()
        seconds.append(time.perf_counter() - begin)
    return min(seconds), result


def measured(name: str, codec: Codec, rows: np.ndarray, takes_single_rows: bool) -> Line:
    encode, decode = codec
    encoding, (stored, size) = best_seconds(lambda: encode(rows))
    decoding, found = best_seconds(lambda: decode(stored))
    error = np.abs(found.astype(np.float64) - rows)
    nonzero = rows != 0
    relative = (error[nonzero] / np.abs(rows[nonzero].astype(np.float64))).max()
    speeds = rows.nbytes / encoding / 1e9, rows.nbytes / decoding / 1e9
    return Line(name, 8 * size / rows.size, error.max(), relative, *speeds, takes_single_rows)


def planes(rows: np.ndarray, mantissa_bits: int) -> Codec:
    profile = ibp.fit(rows, codec="planes", mantissa_bits=mantissa_bits)
    ids = np.arange(len(rows))
    return (
        lambda rows: (ibp.encode(rows, profile), len(rows) * profile.slot_bytes),
        lambda encoded: ibp.fetch(encoded, ids, planes="A"),
    )


def zfp(bound: float) -> Codec:
    def encode(rows: np.ndarray) -> tuple[bytes, int]:
        stored = zfpy.compress_numpy(rows, tolerance=bound)
        return stored, len(stored)

    return encode, zfpy.decompress_numpy


def zfp_of_rows(bound: float) -> Codec:
    def encode(rows: np.ndarray) -> tuple[list[bytes], int]:
        stored = [zfpy.compress_numpy(row, tolerance=bound, write_header=False) for row in rows]
        return stored, sum(map(len, stored))

    def decode(stored: list[bytes], shape: tuple[int, ...] = ()) -> np.ndarray:
        kind = zfpy.dtype_to_ztype(np.dtype(np.float32))
        return np.stack([zfpy._decompress(row, kind, shape, tolerance=bound) for row in stored])

    return encode, decode


def sz3(bound: float) -> Codec:
    def encode(rows: np.ndarray) -> tuple[tuple, int]:
        config = pysz.szConfig(rows.shape)
        config.errorBoundMode = pysz.szErrorBoundMode.ABS
        config.absErrorBound = bound
        stored, _ = pysz.sz.compress(rows, config)
        return (stored, rows.shape), len(stored)

    return encode, lambda stored: pysz.sz.decompress(stored[0], np.float32, stored[1])[0]


def narrow(dtype: torch.dtype, rows: np.ndarray) -> Codec:
    scale = float(np.abs(rows).max()) / torch.finfo(dtype).max if dtype == torch.float8_e4m3fn else 1.0

    def encode(rows: np.ndarray) -> tuple[torch.Tensor, int]:
        stored = (torch.from_numpy(rows) / scale).to(dtype)
        return stored, stored.nbytes

    return encode, lambda stored: (stored.float() * scale).numpy()


def lines_of(rows: np.ndarray, mantissa_bits: int) -> list[Line]:
    coarse = measured(f"plane A, t = {mantissa_bits}", planes(rows, mantissa_bits), rows, True)
    bound = coarse.absolute
    zfp_rows, (_, decode) = zfp_of_rows(bound)[0], zfp_of_rows(bound)
    return [
        coarse,
        measured("ZFP", zfp(bound), rows, False),
        measured("ZFP, a row each", (zfp_rows, lambda stored: decode(stored, rows.shape[1:])), rows, True),
        measured("SZ3", sz3(bound), rows, False),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=Path, nargs="+", required=True, help=".npy files of float32 rows")
    parser.add_argument("--mantissa-bits", type=lambda text: [int(t) for t in text.split(",")], default=[3, 7])
    args = parser.parse_args()
    torch.set_num_threads(1)
    print("| table | codec | bits an element | ratio | greatest error | relative | encode, decode GB/s | single rows |")
    print("|---|---|---|---|---|---|---|---|")
    for file in args.rows:
        rows = np.ascontiguousarray(np.load(file))
        lines = [line for bits in args.mantissa_bits for line in lines_of(rows, bits)]
        lines += [measured("bfloat16", narrow(torch.bfloat16, rows), rows, True)]
        lines += [measured("FP8 (E4M3)", narrow(torch.float8_e4m3fn, rows), rows, True)]
        for line in lines:
            cells = [file.stem, line.name, f"{line.bits:.2f}", f"{32 / line.bits:.2f}", f"{line.absolute:.2g}"]
            cells += [f"{line.relative:.2g}", f"{line.encode:.2f}, {line.decode:.2f}"]
            print("| " + " | ".join([*cells, "yes" if line.takes_single_rows else "no"]) + " |")


if __name__ == "__main__":
    main()
