"""The published and the promised ratios, on real rows. Skipped where the folder of data is not there."""

from pathlib import Path

import numpy as np
import pytest
from processes import ALL_TESTS

from cohort_gnn import ibp

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


def need(name: str) -> Path:
    path = next(
        (folder / name for folder in (DATA, DATA.parents[2] / "shared" / "data") if (folder / name).exists()), None
    )
    if path is None:
        pytest.skip(f"{name} is not in {DATA}")
    return path


def features(name: str, row_normalize=False) -> np.ndarray:
    sparse = pytest.importorskip("scipy.sparse")
    with np.load(need(name)) as file:
        parts = (file["attr_data"], file["attr_indices"], file["attr_indptr"])
        rows = sparse.csr_matrix(parts, file["attr_shape"]).toarray().astype(np.float32)
    if row_normalize:
        rows /= np.maximum(rows.sum(1, keepdims=True), 1)
    return rows


def saved_percent(rows: np.ndarray, codec: str, sample=1.0, min_sample=4096) -> float:
    profile = ibp.fit(rows, codec, sample=sample, min_sample=min_sample)
    return 100 * (1 - profile.mean_row_bytes(rows) / profile.row_bytes)


def pca(rows: np.ndarray, count: int) -> np.ndarray:
    centred = rows - rows.mean(0)
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    return np.ascontiguousarray(u[:, :count] * s[:count], dtype=np.float32)


def test_deepwalk():
    rows = np.load(need("deepwalk128_f32.npy"))
    assert saved_percent(rows, "invariant") >= 11.7
    assert saved_percent(rows, "exponent") >= 14.3
    for codec in ("invariant", "exponent"):
        held_out = saved_percent(rows, codec, sample=0.1, min_sample=1)
        assert abs(held_out - saved_percent(rows, codec)) <= 0.2


def test_citeseer():
    rows = features("citeseer.npz", row_normalize=True)
    ratio = 100 / (100 - saved_percent(rows, "invariant"))
    assert ratio == pytest.approx(25.0, rel=0.01)
    assert saved_percent(rows, "sparse") >= 99.5
    assert ibp.fit(rows).codec == "sparse"


@pytest.mark.skipif(not ALL_TESTS, reason="takes 40 s: tests/run.sh --all runs it")
def test_citeseer_pca():
    rows = pca(features("citeseer.npz", row_normalize=True), 100)
    assert saved_percent(rows, "exponent") >= 14.2


def test_cora():
    assert saved_percent(features("cora.npz"), "sparse") >= 99.3


@pytest.mark.parametrize(
    ("dtype", "columns", "exponent", "invariant"),
    [("float32", 256, 14.7, 12.0), ("bfloat16", 512, 29.5, 24.0), ("float16", 512, 11.1, 9.5)],
)
def test_gaussian(dtype, columns, exponent, invariant):
    torch = pytest.importorskip("torch")
    rows = torch.randn(20000, columns, generator=torch.Generator().manual_seed(0)).to(getattr(torch, dtype))
    assert saved_percent(rows, "exponent") >= exponent and saved_percent(rows, "invariant") >= invariant
