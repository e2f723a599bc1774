"""What a data set has to have of the frames that it was made of."""

from __future__ import annotations

import decimal
import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np
from frames import Column


def float32(column: Column) -> np.ndarray | None:
    """float32 [n] of a column of numbers, NaN where one is missing; None where float32 cannot hold one."""
    with np.errstate(over="ignore"):
        out = np.array([np.nan if value is None else np.float32(value) for value in column.values], np.float32)
    for value, rounded in zip(column.values, out.tolist(), strict=True):
        if isinstance(value, int) and (not np.isfinite(rounded) or int(rounded) != value):
            return None
        if isinstance(value, float) and np.isfinite(value) and not np.isfinite(rounded):
            return None
    return out


def float64(column: Column) -> np.ndarray:
    """float64 [n] of a column of numbers, NaN where one is missing: what is standardized."""
    return np.array([np.nan if value is None else float(value) for value in column.values])


def matrix(columns: Sequence[Column]) -> np.ndarray | None:
    parts = [float32(column) for column in columns]
    return None if any(part is None for part in parts) else np.stack(parts, axis=1)


def unlike(what: str, found: np.ndarray | None, wanted: np.ndarray | None) -> str:
    """What is different, in words; `wanted` None: these values should have been refused."""
    if wanted is None:
        return f"{what}: taken, although their type does not hold them\n"
    if found is None or found.shape != wanted.shape:
        return f"{what}: shape {None if found is None else found.shape}, not {wanted.shape}\n"
    same = (found == wanted) | ((found != found) & (wanted != wanted))
    if same.all():
        return ""
    at = tuple(int(i) for i in np.argwhere(~same)[0])
    return f"{what}{list(at)}: {found[at]!r}, not {wanted[at]!r} ({int((~same).sum())} differ)\n"


def ids_unlike(found: Any, wanted: Column) -> str:
    """What is different between the ids that a data set keeps and those of a column.

    Numbers may be written in other ways, such as 7 and 7.00.
    """
    kept = [] if found is None else found.to_pylist()
    if len(kept) != len(wanted.values):
        return f"ids: {len(kept)}, not {len(wanted.values)}\n"
    for node, (one, other) in enumerate(zip(kept, wanted.values, strict=True)):
        same = str(one) == str(other)
        if not same and not isinstance(other, str | uuid.UUID):
            same = decimal.Decimal(one) == decimal.Decimal(other)
        if not same and isinstance(one, int) and isinstance(other, str):  # all ids are integers in texts
            same = one == int(other)
        if not same:
            return f"id of node {node}: {one!r}, not {other!r}\n"
    return ""


def edges_unlike(lists: Any, src: Sequence[int], dst: Sequence[int], beside: np.ndarray | None, kept: Any) -> str:
    """Edges with what they have beside, [E] or [E, F], in whatever order.

    Args:
        lists: indptr and indices that were written, and `kept` what they have beside.
    """
    target = np.repeat(np.arange(len(lists.indptr) - 1), np.diff(lists.indptr))
    found, wanted = np.stack([lists.indices, target], axis=1), np.stack([src, dst], axis=1).astype(np.int64)
    if beside is None and kept is None:
        return unlike("edges", _sorted(found), _sorted(wanted))
    if beside is None or kept is None or len(beside) != len(kept):
        return "edges: what they have beside is taken, lost or of another length\n"
    return unlike("edges", _sorted(found, kept), _sorted(wanted, beside))


def _sorted(ends: np.ndarray, beside: np.ndarray | None = None) -> np.ndarray:
    """Rows of the ends and of what lies beside, as bits."""
    if beside is not None:
        bits = np.ascontiguousarray(
            beside.reshape(len(ends), beside.size // max(1, len(ends))) + 0
        )  # no negative zeros
        if bits.dtype == np.float32:
            bits = np.where(bits != bits, np.float32(np.nan), bits).view(np.int32)
        ends = np.concatenate([ends.astype(np.int64), bits.astype(np.int64)], axis=1)
    return ends[np.lexsort(ends.T[::-1])]
