"""Encoded feature rows beside a data set: what they were made from. FORMAT.md says what the files hold."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from cohort.dataset import _native

PREPARED_FOLDER = "prepared"
ENCODED_FILE = "features.ibp"


def raw_key(raw: Path) -> dict:
    """What tells whether a file has changed: its size and time; zeros when there is no file."""
    if not raw.exists():
        return {"raw_bytes": 0, "raw_mtime_ns": 0}
    status = raw.stat()
    return {"raw_bytes": status.st_size, "raw_mtime_ns": status.st_mtime_ns}


def is_prepared(folder: Path) -> bool:
    """True for a folder that `cohort dataset prepare` wrote."""
    return (folder / "prepared.json").exists()


def has_encoded_rows(folder: Path) -> bool:
    """True for a data set whose feature rows are there encoded: beside it, or, renumbered, in its own folder."""
    return any((each / ENCODED_FILE).exists() for each in (folder, folder / PREPARED_FOLDER))


def write_prepared(folder: Path, key: dict, raw_file: str = "../features.npy") -> None:
    """Writes prepared.json: the rows in `folder` are those of `raw_file` (seen from there) as it was at `key`."""
    text = {"format": "cohort-prepared", "version": 1, "raw_file": raw_file} | key
    (folder / "prepared.json").write_text(json.dumps(text, indent=2) + "\n")


def take_rows(rows: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """rows[ids] by all threads: uint8 [V, row bytes], int64 [n] -> uint8 [n, row bytes]."""
    out = np.empty((len(ids), rows.shape[1]), dtype=np.uint8)
    _native.take_rows(rows, ids, out)
    return out
