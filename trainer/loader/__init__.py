"""cohort.NeighborLoader."""

# Before the extension of this package: in the other order PyTorch 2.11 (CUDA 13.0, Python 3.12) crashed when imported.
import torch  # noqa: F401
