"""Files of torch.save, read without running anything in them."""

import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import Any, BinaryIO

from cohort_gnn.base.errors import CohortError

LEAST_TORCH = "2.10"  # torch.load(weights_only=True) of earlier ones has holes: CVE-2025-32434, CVE-2026-24747
ZIP = b"PK\x03\x04"  # the first bytes of a file of torch.save
PICKLE = b"\x80\x02"  # those of a file of torch.save before PyTorch 1.6, which some data sets still have


def is_safe(torch_version: str) -> bool:
    """Whether this version of PyTorch reads a file without running what it says, as far as is known."""
    version, least = ([int(part) for part in text.split(".")[:2]] for text in (torch_version, LEAST_TORCH))
    return version >= least


def is_zip(path: Path) -> bool:
    """torch.save's usual form, which can be mapped."""
    with open(path, "rb") as file:
        return file.read(len(ZIP)) == ZIP


def load_inert(source: Path | BinaryIO, forms: Collection[bytes] = (ZIP,), **how: Any) -> Any:
    """What torch.load makes of a file with weights_only, on the CPU: tensors, numbers, text, lists and dicts.

    Args:
        source: the file, open in binary mode at its start or by its path.
        forms: first bytes that it may have. torch.load goes by them, and has readers of other forms.
        how: others of torch.load's arguments.

    Raises:
        CohortError: PyTorch is too old to do so without running what a file says.
        Exception: whatever torch's parsers meet in the file; ValueError: it has another form.
    """
    import torch

    if not is_safe(torch.__version__):
        expected = f"version {LEAST_TORCH} or newer, which reads files without running them"
        raise CohortError("PyTorch", expected, torch.__version__, "pip install --upgrade torch")
    if isinstance(source, Path):
        with open(source, "rb") as file:
            first = file.read(len(ZIP))
    else:
        first = source.read(len(ZIP))
    if not first.startswith(tuple(forms)):
        raise ValueError(f"no file of torch.save: it begins with {first!r}")
    if first == ZIP:
        with zipfile.ZipFile(source) as archive:
            packed = [info.filename for info in archive.infolist() if info.file_size != info.compress_size]
        if packed:  # memory for its claimed size would be allocated, and a mapped file is not decompressed
            raise ValueError(f"a compressed member, {packed[0]}")
    if not isinstance(source, Path):
        source.seek(0)
    return torch.load(source, map_location="cpu", weights_only=True, **how)
