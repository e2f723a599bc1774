"""The picture of invariant bits: for each bit of a row, how many of the rows have the same."""

from pathlib import Path

import numpy as np


def agreement(rows, max_rows: int = 4096) -> np.ndarray:
    """float [columns, bits of an element], most significant first: the share of sampled rows with the commoner bit."""
    step = max(len(rows) // max_rows, 1)
    sample = rows[::step][:max_rows]
    if not isinstance(sample, np.ndarray):
        import torch

        sample = sample.contiguous().view(torch.int16).numpy()
    sample = np.ascontiguousarray(sample)
    size = sample.dtype.itemsize
    as_bytes = sample.view(np.uint8).reshape(len(sample), -1, size)[:, :, ::-1]  # the most significant byte first
    ones = np.unpackbits(as_bytes, axis=2).mean(axis=0)
    return np.maximum(ones, 1 - ones)


def draw_agreement(rows, path: Path) -> None:
    """Writes the picture as a PNG: a line for each bit, a column for each column of the table."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shares = agreement(rows)
    figure, axes = pyplot.subplots(figsize=(10, 4), layout="constrained")
    image = axes.imshow(shares.T, aspect="auto", interpolation="nearest", vmin=0.5, vmax=1, cmap="viridis")
    axes.set_xlabel("column")
    axes.set_ylabel("bit, most significant on top")
    share = (shares >= 0.8).mean()
    axes.set_title(f"{100 * share:.1f} % of the bits have one value in at least 80 % of the rows")
    figure.colorbar(image, label="share of rows that agree")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
