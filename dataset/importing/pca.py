"""`--pca K`: a bag of words becomes K dense numbers."""

from __future__ import annotations

import numpy as np
import scipy  # its packages load on first use

from cohort_gnn.base.errors import CohortError

EXTRA_DIRECTIONS = 16
ITERATIONS = 6


def principal_components(x, num_components: int, seed: int = 0) -> np.ndarray:
    """Coordinates of the centred rows along the first principal directions, float32 [V, K].

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
    return np.ascontiguousarray(x @ directions - mean @ directions, dtype=np.float32)
