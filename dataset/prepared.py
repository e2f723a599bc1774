"""Encoded feature rows beside a data set: what they were made from. FORMAT.md says what the files hold."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cohort_gnn.dataset import _native

PREPARED_FOLDER = "prepared"
ENCODED_FILE = "features.ibp"
Owner = str | tuple[str, ...]  # whose rows: of nodes or of edges of a type, as StoredGraph.key_of() calls it


def is_prepared(folder: Path) -> bool:
    """True for a folder that `cohort dataset prepare` wrote."""
    return (folder / "prepared.json").exists()


def has_encoded_rows(folder: Path) -> bool:
    """True for a data set with feature rows that are there encoded: beside it, or, renumbered, in its own folder."""
    return is_prepared(folder) or is_prepared(folder / PREPARED_FOLDER)


def encoded_file(owner: Owner) -> str:
    """The name of the file of encoded rows."""
    if owner == ():
        return f"edge_{ENCODED_FILE}"
    names = owner if isinstance(owner, tuple) else (owner,)
    return ".".join((*filter(None, names), ENCODED_FILE))


@dataclass(frozen=True)
class RawRows:
    """The file that encoded rows were made from, relative to their folder, and its size and time, which show whether it
    has changed; zeros if there is no file."""

    raw_file: str
    raw_bytes: int = 0
    raw_mtime_ns: int = 0

    @classmethod
    def from_file(cls, raw: Path) -> RawRows:
        """Describes a file in the folder above the encoded rows, as it is now."""
        status = raw.stat() if raw.exists() else None
        return cls(f"../{raw.name}", status.st_size, status.st_mtime_ns) if status else cls(f"../{raw.name}")


def write_prepared(folder: Path, raw: dict[Owner, RawRows], edge_types: Sequence[tuple[str, ...]] = ((),)) -> None:
    """Writes prepared.json: the encoded rows in `folder` are these raw rows; see encoded_file().

    Args:
        edge_types: of the data set, in their order, as StoredGraph.key_of() calls them.
    """
    text: dict[str, Any] = {"version": 1} | (asdict(raw[""]) if "" in raw else {})
    names = [name for name in raw if name and isinstance(name, str)]
    if names or () not in edge_types:
        tables = [{"type": name, "file": encoded_file(name)} | asdict(raw[name]) for name in names]
        text = {"version": 2, "tables": tables}
    edge_owners = [(edge_types.index(owner), owner) for owner in raw if isinstance(owner, tuple)]
    if edge_owners:
        text["edge_tables"] = [
            {"relation": number, "file": encoded_file(owner)} | asdict(raw[owner]) for number, owner in edge_owners
        ]
    (folder / "prepared.json").write_text(json.dumps({"format": "cohort-prepared"} | text, indent=2) + "\n")


def take_rows(rows: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """rows[ids] by all threads: uint8 [V, row bytes], int64 [n] -> uint8 [n, row bytes]."""
    out = np.empty((len(ids), rows.shape[1]), dtype=np.uint8)
    _native.take_rows(rows, ids, out)
    return out
