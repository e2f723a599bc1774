"""What needs no GPU: how few rows a fit needs (Table 5), and chunk size against threshold (Figure 13)."""

from collections.abc import Iterator

import numpy as np
from paper_rows import Rows

from cohort_gnn import ibp

SAMPLE_PERCENTS = (1, 2, 5, 10, 25, 50, 100)
HELD_OUT = 0.2
CHUNK_BYTES = (4, 8)
THRESHOLD_PERCENTS = (70, 75, 80, 85, 90, 95)


def measure(rows: Rows) -> Iterator[dict]:
    yield from sample_fractions(rows)
    yield from chunks_and_thresholds(rows)


def split(num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """int64 row numbers to fit on, and to hold out: HELD_OUT of them."""
    order = np.random.default_rng(0).permutation(num_rows)
    count = max(round(num_rows * HELD_OUT), 1)
    return np.sort(order[count:]), np.sort(order[:count])


def sample_fractions(rows: Rows) -> Iterator[dict]:
    """The ratio on held-out rows, of a fit that looked at a share of the others: the paper's codec, then our choice."""
    fit_rows, held_out = (rows.for_ibp(picked) for picked in split(len(rows.data)))
    best = ibp.fit(fit_rows, sample=1.0).codec
    for codec in dict.fromkeys(["invariant", best]):
        for percent in SAMPLE_PERCENTS:
            profile = ibp.fit(fit_rows, codec, sample=percent / 100, min_sample=1)
            mean_bytes = profile.mean_row_bytes(held_out)
            yield {
                "figure": "sample",
                "rows": rows.name,
                "codec": codec,
                "sample_percent": percent,
                "sample_rows": profile.sample_rows,
                "ratio": rows.row_bytes / mean_bytes,
                "saved_percent": 100 * (1 - mean_bytes / rows.row_bytes),
            }


def chunks_and_thresholds(rows: Rows) -> Iterator[dict]:
    """Bytes the invariant codec saves, fitted and scored on all rows as in the paper."""
    data = rows.for_ibp()
    for chunk_bytes in CHUNK_BYTES:
        for percent in THRESHOLD_PERCENTS:
            profile = ibp.fit(data, "invariant", sample=1.0, chunk_bytes=chunk_bytes, threshold=percent / 100)
            yield {
                "figure": "chunk",
                "rows": rows.name,
                "chunk_bytes": chunk_bytes,
                "threshold_percent": percent,
                "saved_percent": 100 * (1 - profile.mean_row_bytes(data) / rows.row_bytes),
            }
