"""`--row-normalize` and `--pca K`: what becomes of feature rows."""

from __future__ import annotations

import numpy as np
import scipy  # its packages load on first use

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.units import format_bytes
from cohort_gnn.dataset.arrays import as_float32
from cohort_gnn.dataset.components import Components
from cohort_gnn.dataset.importing.options import ConvertOptions
from cohort_gnn.dataset.layouts.streams import Rows

EXTRA_DIRECTIONS = 16
ITERATIONS = 6


def transformed(
    rows: Rows | None, options: ConvertOptions, components: Components | None = None
) -> tuple[Rows | None, Components | None]:
    """The rows, if there are some, after --row-normalize and --pca, which have them in memory; and the components.

    Args:
        components: that other rows had; None: --pca finds some.
    """
    if rows is None or not (options.row_normalize or options.pca is not None):
        return rows, None
    x = rows.matrix if rows.matrix is not None else _in_memory(rows, options)
    if rows.dtype == "bfloat16":  # its bits
        x = as_float32(x, rows.dtype)
    if options.row_normalize:
        x = row_normalized(x)
    if options.pca is None:
        return Rows.from_matrix(rows.place, x), None
    if components is None:
        x, components = principal_components(x, options.pca, options.seed)
    else:
        x = components.coordinates(x, rows.place)
    return Rows.from_matrix(rows.place, x), components


def _in_memory(rows: Rows, options: ConvertOptions) -> np.ndarray:
    parts, size = [], 0
    for part in rows.chunks(options.block_bytes):
        parts.append(part)
        size += part.nbytes
        if 4 * size > options.memory:
            hint = "use a larger --memory, or leave out --pca and --row-normalize"
            raise CohortError(rows.place, f"rows of {format_bytes(options.memory // 4)}", "more", hint)
    return np.concatenate(parts)


def row_normalized(x):
    """Rows whose absolute values add up to 1, float32; rows of zeros stay."""
    sums = np.asarray(abs(x).sum(axis=1, dtype=np.float64)).reshape(-1, 1)
    scale = np.divide(1.0, sums, out=np.zeros_like(sums), where=sums != 0)
    if scipy.sparse.issparse(x):
        return scipy.sparse.csr_matrix(scipy.sparse.diags(scale[:, 0]) @ x, dtype=np.float32)
    return (x * scale).astype(np.float32)


def principal_components(x, num_components: int, seed: int = 0) -> tuple[np.ndarray, Components]:
    """Coordinates of the centred rows along the first principal directions, float32 [V, K], and these.

    Randomised subspace iteration (Halko, Martinsson, Tropp 2011) with a fixed start; a sparse x is never made dense:
    centring enters as a rank-one term. Each direction's largest element is positive, which fixes the signs.

    Args:
        x: [V, D], a NumPy array or a SciPy CSR matrix.
        num_components: K, at most min(V, D).
    """
    if not 1 <= num_components <= min(x.shape):
        limit = f"between 1 and {min(x.shape)} components of {x.shape[0]} x {x.shape[1]} features"
        raise CohortError("--pca", limit, str(num_components))
    x = x.astype(np.float64)
    values = x.data if scipy.sparse.issparse(x) else x
    if not np.isfinite(values).all():
        raise CohortError("--pca", "finite features", "NaN or Inf", "replace them, e.g. with numpy.nan_to_num")
    mean = np.asarray(x.mean(axis=0)).reshape(1, -1)
    width = min(num_components + EXTRA_DIRECTIONS, *x.shape)
    basis = np.random.default_rng(seed).standard_normal((x.shape[1], width))
    for _ in range(ITERATIONS):
        rows, _ = np.linalg.qr(x @ basis - mean @ basis)
        basis, _ = np.linalg.qr(x.T @ rows - mean.T @ rows.sum(axis=0, keepdims=True))
    _, _, directions = np.linalg.svd(x @ basis - mean @ basis, full_matrices=False)
    directions = basis @ directions[:num_components].T
    largest = np.abs(directions).argmax(axis=0)
    directions *= np.where(directions[largest, np.arange(num_components)] < 0, -1.0, 1.0)
    coordinates = np.ascontiguousarray(x @ directions - mean @ directions, dtype=np.float32)
    return coordinates, Components(mean[0], directions)
