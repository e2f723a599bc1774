"""The rows that the IBP paper's figures are measured on."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cohort_gnn.base.errors import CohortError

NUM_ROWS = 20000
WORD_COUNTS = ("citeseer", "cora", "pubmed")  # .npz files of bags of words, as the paper's sparse data sets


@dataclass(frozen=True)
class Rows:
    """A table.

    Attributes:
        data: [rows, columns]; bfloat16 is held as uint16.
        dtype: float32, float16 or bfloat16.
    """

    name: str
    data: np.ndarray
    dtype: str

    @property
    def row_bytes(self) -> int:
        return self.data.shape[1] * self.data.itemsize

    def for_ibp(self, picked: np.ndarray | None = None):
        """The rows (those picked) as cohort.ibp takes them: bfloat16 as a torch tensor."""
        data = self.data if picked is None else self.data[picked]
        if self.dtype != "bfloat16":
            return data
        import torch

        return torch.from_numpy(data.view(np.int16)).view(torch.bfloat16)


def bfloat16_bits(values: np.ndarray) -> np.ndarray:
    """float32 to the nearest bfloat16, ties to even, as uint16; finite values only."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def made_up(num_rows: int = NUM_ROWS) -> list[Rows]:
    """Gaussian rows of 1 KB in three dtypes."""
    values = np.random.default_rng(0).standard_normal((num_rows, 512), dtype=np.float32)
    return [
        Rows("gaussian_f32", np.ascontiguousarray(values[:, :256]), "float32"),
        Rows("gaussian_bf16", bfloat16_bits(values), "bfloat16"),
        Rows("gaussian_f16", values.astype(np.float16), "float16"),
    ]


def word_counts(path: Path) -> np.ndarray:
    """float32 [nodes, words], each row divided by its sum, of a .npz file with attr_* in CSR form."""
    import scipy.sparse

    with np.load(path, allow_pickle=False) as file:
        try:
            parts = tuple(file[f"attr_{name}"] for name in ("data", "indices", "indptr"))
            rows = scipy.sparse.csr_matrix(parts, file["attr_shape"]).toarray().astype(np.float32)
        except KeyError as error:
            raise CohortError(
                str(path), "arrays attr_data, attr_indices, attr_indptr, attr_shape", str(error)
            ) from error
    return rows / np.maximum(rows.sum(1, keepdims=True), 1)


def from_folder(folder: Path) -> list[Rows]:
    """The real rows in a folder: what the paper's figures are about."""
    if not folder.is_dir():
        raise CohortError(str(folder), "a folder", "none")
    tables = [
        Rows(name, word_counts(folder / f"{name}.npz"), "float32")
        for name in WORD_COUNTS
        if (folder / f"{name}.npz").exists()
    ]
    for path in sorted(folder.glob("*.npy")):
        rows = np.load(path, allow_pickle=False)
        if rows.ndim != 2 or rows.dtype not in (np.float32, np.float16):
            raise CohortError(str(path), "float32 or float16 [rows, columns]", f"{rows.dtype} {list(rows.shape)}")
        tables.append(Rows(path.stem, np.ascontiguousarray(rows), str(rows.dtype)))
    if not tables:
        raise CohortError(str(folder), f"{', '.join(WORD_COUNTS)} as .npz, or .npy files", "none of them")
    return tables
