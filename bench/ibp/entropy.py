"""How far codecs are from the entropy of a table's columns, and what shorter codes of exponents would save.

    PYTHONPATH=build/python python bench/ibp/entropy.py --data FOLDER

The folder has tables of words (.npz files with attr_data, attr_indices, attr_indptr, attr_shape) and of float32
vectors (.npy), which are also looked at as float16 and bfloat16; the first 20,000 rows of each. Prints what the best
codec saves, packed, and the most that any code of single columns can save. For words that follows from
the entropy of each column's elements; for vectors from the entropy of each column's signs and exponents, with mantissas
as they are, since these are close to random. Then bits of an exponent: with that codec, by Huffman's code, and the
entropy.
"""

import argparse
import heapq
from pathlib import Path

import numpy as np
import torch

from cohort_gnn import ibp

MOST_ROWS = 20_000
CODECS = ("invariant", "exponent", "layers", "sparse")
MANTISSA_BITS = {torch.float32: 23, torch.float16: 10, torch.bfloat16: 7}


def words(path: Path) -> np.ndarray:
    """float32 [rows, words]"""
    import scipy.sparse

    with np.load(path, allow_pickle=False) as file:
        parts = tuple(file[f"attr_{name}"] for name in ("data", "indices", "indptr"))
        return scipy.sparse.csr_matrix(parts, file["attr_shape"])[:MOST_ROWS].toarray().astype(np.float32)


def shares(values: np.ndarray) -> np.ndarray:
    """Of the different ones among a column's values, the largest first."""
    counts = np.unique(values, return_counts=True)[1]
    return np.sort(counts)[::-1] / len(values)


def entropy(values: np.ndarray) -> float:
    of_each = shares(values)
    return float(-(of_each * np.log2(of_each)).sum())


def huffman(values: np.ndarray) -> float:
    heap, bits = list(shares(values)), 0.0
    heapq.heapify(heap)
    while len(heap) > 1:
        both = heapq.heappop(heap) + heapq.heappop(heap)
        heapq.heappush(heap, both)
        bits += both
    return bits


def saved(rows) -> tuple[str, float]:
    """The codec that leaves the fewest bytes, packed, and the share that it saves. (The choice of `ibp.fit` is the one
    that is read fastest.)"""
    of_halves = str(rows.dtype) in ("torch.float16", "torch.bfloat16")  # layers encodes no others
    profiles = [ibp.fit(rows, codec) for codec in CODECS if codec != "layers" or of_halves]
    mean_bytes, best = min((profile.mean_row_bytes(rows), profile.codec) for profile in profiles)
    return best, 1 - mean_bytes / profiles[0].row_bytes


def main(folder: Path) -> None:
    print("| rows | codec | saved % | of single columns at most % |")
    print("|---|---|---|---|")
    lines = []
    for path in sorted(folder.glob("*.npz")):
        table = words(path)
        bits = np.mean([entropy(column) for column in table.T])
        codec, part = saved(table)
        print(f"| {path.stem}, float32 x {table.shape[1]} | {codec} | {100 * part:.2f} | {100 * (1 - bits / 32):.2f} |")
    for path in sorted(folder.glob("*.npy")):
        vectors = torch.from_numpy(np.load(path)[:MOST_ROWS])
        for dtype, mantissa in MANTISSA_BITS.items():
            rows = vectors.to(dtype).contiguous()
            width = 8 * dtype.itemsize
            integers = rows.view(torch.int32 if width == 32 else torch.int16).numpy().astype(np.int64).T
            signs = np.mean([entropy(column < 0) for column in integers])
            exponents = [column >> mantissa & (1 << width - 1 - mantissa) - 1 for column in integers]
            least = np.mean([entropy(column) for column in exponents])
            codec, part = saved(rows)
            name = f"{path.stem}, {str(dtype).removeprefix('torch.')} x {rows.shape[1]}"
            bound = 1 - (signs + least + mantissa) / width
            print(f"| {name} | {codec} | {100 * part:.2f} | {100 * bound:.2f} |")
            now = (1 - part) * width - 1 - mantissa
            of_huffman = np.mean([huffman(column) for column in exponents])
            lines.append(f"| {name} | {now:.2f} | {of_huffman:.2f} | {least:.2f} |")
    print("\n| rows | bits of an exponent | Huffman | entropy |\n|---|---|---|---|")
    print("\n".join(lines))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    main(parser.parse_args().data)
