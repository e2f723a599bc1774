"""fit(): how the rows of a table are encoded."""

import os
from dataclasses import dataclass, field

from cohort_gnn.base.errors import CohortError
from cohort_gnn.ibp import _native, arrays
from cohort_gnn.spec.types import checked_arguments

CODECS = ("auto", *_native.CODECS)  # that fit() takes
MANTISSA_BITS = 3  # of plane A, unless asked for


@dataclass(frozen=True, eq=False)
class Profile:
    """How the rows of a table are encoded. Made by fit(), stored by save() and load().

    Examples:
        >>> profile = cohort.ibp.fit(torch.randn(1000, 16))
        >>> profile.dtype, profile.num_columns
        ('float32', 16)

    Attributes:
        why: the numbers for which this codec was chosen; empty after load().
        candidates: for each codec tried: codec, bytes_per_row, stored_per_row, lines_per_row, raw_share.
        sample_rows: number of rows that fit() has sampled; 0 after load().
        codec, dtype: names. num_columns, row_bytes: of a row before encoding. slot_bytes: of its place in layout slots.
        mantissa_bits: codec planes: the mantissa bits in plane A.
        error_bound: codec planes: the relative error bound of ``fetch(planes="A")``, 2^-(mantissa_bits + 1): for every
            element x and its value a in plane A, |a - x| <= error_bound * |x|. 0 for other codecs.
    """

    native: _native.Profile
    why: str = ""
    candidates: list[dict] = field(default_factory=list)
    sample_rows: int = 0

    codec = property(lambda self: self.native.codec)
    dtype = property(lambda self: self.native.dtype)
    num_columns = property(lambda self: self.native.num_columns)
    row_bytes = property(lambda self: self.native.row_bytes)
    slot_bytes = property(lambda self: self.native.slot_bytes)
    mantissa_bits = property(lambda self: self.native.mantissa_bits)
    error_bound = property(lambda self: self.native.error_bound)

    def save(self, path) -> None:
        """Writes a file for ``Profile.load`` and ``cohort ibp encode --profile``."""
        self.native.save(os.fsdecode(path))

    @staticmethod
    def load(path) -> "Profile":
        """Reads a file of ``save``; a CohortError, if it is none."""
        return Profile(_native.Profile.load(os.fsdecode(path)))

    def mean_row_bytes(self, rows) -> float:
        """The mean encoded bytes of a row of `rows`, for example of rows that fit() has not sampled."""
        arrays.demand_rows(rows, "mean_row_bytes: rows")
        return _native.mean_row_bytes(arrays.computed(rows), self.native)

    def __eq__(self, other):
        return isinstance(other, Profile) and self.native == other.native

    def __repr__(self):
        return f"Profile({self.codec}, {self.dtype} x {self.num_columns}{', ' + self.why if self.why else ''})"


@checked_arguments
def fit(
    rows,
    codec="auto",
    *,
    sample: float = 0.01,
    min_sample: int = 4096,
    chunk_bytes: int = 4,
    threshold: float | None = None,
    seed: int = 0,
    mantissa_bits: int | None = None,
) -> Profile:
    """Chooses from a sample of the rows how to encode them.

    Args:
        rows: [num_rows, num_columns]. Of a CUDA tensor, the sampled rows are copied to the host.
        codec: one of ``CODECS``; auto: the one with the fewest 128-byte lines per row, then the least memory. exponent
            takes rows of floats, layers rows of float16 or bfloat16, planes rows of float32. auto never chooses planes.
        sample: share of the rows to sample.
        min_sample: minimum number of rows to sample.
        chunk_bytes: 4 or 8 (invariant).
        threshold: share of rows that must agree on a bit; None: the best value from 0.70 to 0.95.
        mantissa_bits: of plane A, 0 to 22 (codec planes alone); None: 3.

    Raises:
        CohortError: an argument that does not fit.
    """
    if mantissa_bits is not None and codec != "planes":
        raise CohortError("fit: mantissa_bits", 'codec="planes"', f'codec="{codec}"', "other codecs have one plane")
    mantissa_bits = MANTISSA_BITS if mantissa_bits is None else mantissa_bits
    arrays.demand_rows(rows, "fit: rows")
    if threshold is not None and not 0.505 < threshold <= 1:
        raise CohortError("fit: threshold", "a share, 0.51 to 1", str(threshold))
    for name, value, most in (
        ("min_sample", min_sample, 2**63),
        ("chunk_bytes", chunk_bytes, 9),
        ("seed", seed, 2**64),
    ):
        arrays.demand_integer(f"fit: {name}", value, 0, most - 1)
    rows = arrays.computed(rows)
    if not 0 <= mantissa_bits <= 22:
        raise CohortError("fit: mantissa_bits", "0 to 22", str(mantissa_bits))
    if arrays.is_cuda(rows):
        rows, sample = _sample_of(rows, sample, min_sample, seed)
    percent = 0 if threshold is None else round(threshold * 100)
    options = (str(codec), sample, min_sample, chunk_bytes, percent, seed, mantissa_bits)
    native, why, count, candidates = _native.fit(rows, *options)
    return Profile(native, why, candidates, count)


def _sample_of(rows, sample, min_sample, seed):
    """The rows that fit() looks at, in host memory, and the share of them that it is to look at."""
    import torch

    if rows.dim() != 2 or len(rows) == 0:  # an error of fit()
        return rows.cpu(), sample
    ids = torch.from_numpy(_native.sample_rows(len(rows), sample, min_sample, seed))
    return rows.detach()[ids.to(rows.device)].cpu(), 1.0
