"""Weights, times and feature rows of edges, on their way into a data set."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.units import format_bytes
from cohort_gnn.dataset import _native
from cohort_gnn.dataset.layouts.streams import Edges, Rows, WeightReader, Weights
from cohort_gnn.dataset.prepared import take_rows
from cohort_gnn.dataset.writer import write_rows

FEATURES = "edge_features.npy"
UNSORTED = "edge_features.unsorted.npy"  # while the edges are sorted
NUMBERS, TIMES, WEIGHTS = "edge_numbers.npy", "edge_times.npy", "edge_weights.npy"
BYTES_BESIDE = {"weights": 8, "times": 40}  # of memory, for each edge with features
MAX_BLOCK = 32_000_000  # bytes

# progress(what is being done, how much of it is done, in [0, 1])
ProgressCall = Callable[[str, float], None]


def block_bytes_of(memory: int) -> int:
    """Of a file, read at once by what may take so many bytes of memory."""
    return max(1, min(MAX_BLOCK, memory // 32))


class EdgeData:
    """The weights, times and feature rows of edges that an EdgeSorter sorts.

    Weights and times alone are parts of the sort keys. Rows are not: where edges have rows, the keys have the edges'
    numbers, and all that edges have is put into the new order afterwards. Keys by time then have ranks of the times,
    one for each edge, from which the numbers follow. Edges with equal ends and times keep their order.

    Args:
        memory: bytes that weights or times of edges with rows may take.
        source_times: int64 [sources], since when each source exists; None: always. An edge exists from the later of its
            own time and its source's.
    """

    def __init__(self, edges: Edges, memory: int, source_times: np.ndarray | None = None):
        weights, times, features = edges.weights, edges.times, edges.features
        self._is_timed = times is not None or source_times is not None
        if weights and self._is_timed:
            place = times.place if times else f"{edges.place}: weights, and times of the source's nodes"
            raise CohortError(place, "weights or times of edges", "both", "leave one of the two out")
        self._edges, self._features, self._memory, self._count = edges, features, memory, 0
        self._source_times = source_times
        self._block_bytes = block_bytes_of(memory)
        self._reader: WeightReader | None = None
        self._weights: np.ndarray | None = None
        self._times: np.ndarray | None = None
        self._order: np.ndarray | None = None
        self._rank: np.ndarray | None = None
        self._sorter_options: dict[str, Any] = {"weighted": weights is not None, "timed": self._is_timed}
        if features is None:
            if numbers := weights or times:
                self._reader = WeightReader(numbers, self._block_bytes)
            return
        self._sorter_options = {"timed": True} if self._is_timed else {"numbered": True}
        if weights:
            self._weights = self._in_memory(weights)
        if self._is_timed:
            own = times or Weights(edges.place, lambda size: iter(()), are_times=True)
            self._times = self._in_memory(own if source_times is None else replace(own, chunks=self._all_times))
            self._order = np.argsort(self._times, kind="stable")
            self._rank = np.empty_like(self._order)
            self._rank[self._order] = np.arange(len(self._order))

    def _in_memory(self, numbers: Weights) -> np.ndarray:
        """float32 or int64 [E]"""
        parts, bytes_each = [], BYTES_BESIDE["times" if numbers.are_times else "weights"]
        for part in numbers.chunks(self._block_bytes):
            parts.append(numbers.converted(part))
            if bytes_each * sum(map(len, parts)) > self._memory:
                what = "times" if numbers.are_times else "weights"
                expected = f"memory for the {what} of all edges, {bytes_each} bytes for each edge with features"
                raise CohortError("--memory", expected, format_bytes(self._memory), "give more")
        return np.concatenate(parts) if parts else numbers.converted(np.empty(0, np.int64))

    def _all_times(self, block_bytes: int) -> Iterator[np.ndarray]:
        """int64 [n] at a time: since when each edge exists."""
        own = None if self._edges.times is None else WeightReader(self._edges.times, block_bytes)
        for src, _, _ in self._edges.chunks(block_bytes):
            yield self._since(src, None if own is None else own.take(len(src)))
        if own is not None:
            own.finish()

    def _since(self, src: np.ndarray, own: np.ndarray | None) -> np.ndarray:
        """int64 [n]: since when edges from these nodes exist, which have times of their `own`, or not. The sorter
        refuses nodes that there are not."""
        if self._source_times is None:
            assert own is not None
            return own
        source_times = self._source_times[src.clip(0, len(self._source_times) - 1)]
        return source_times if own is None else np.maximum(own, source_times)

    def sort(
        self,
        folder: Path,
        progress: ProgressCall = lambda what, done: None,
        ids: _native.IdMap | None = None,
        prefix: str = "",
        **options: Any,
    ) -> tuple[int, dict[str, Any]]:
        """Writes the edges with their weights, times and features, in order; returns the number of target nodes, and
        the entry of meta.json for the edges: count and files.

        Args:
            progress: called with "reading" and "writing".
            ids: maps the endpoints of edges to nodes, if they are ids.
            prefix: of the names of the files, such as "author.writes.paper.".
            options: of the sorter.

        Raises:
            CohortError: weights, times or features are not one for each edge; or edges with features would be merged,
                or edges without features added.
        """
        if self._features is not None and options.get("dedupe"):
            hint = "leave --dedupe out, and in place of --undirected use --reverse-edges"
            expected = "equal edges side by side, for edges with features"
            raise CohortError(self._features.place, expected, "--dedupe or --undirected", hint)
        if self._features is not None and options.get("self_loops") == "add":
            hint = "a loop that is added has no features"
            raise CohortError(self._features.place, "self loops kept or removed", "--self-loops add", hint)
        sorter = _native.EdgeSorter(
            folder=os.fspath(folder), place=self._edges.place, **options, **self._sorter_options
        )
        self._add_all(sorter, ids, progress)
        if self._reader is not None:
            self._reader.finish()
        self._demand_count(self._weights, "weights")
        self._demand_count(self._times, "times")
        expected_edges = max(1, sorter.edges_read * (2 if options.get("reverse") else 1))
        sorter.write(os.fspath(folder), lambda written: progress("writing", min(1.0, written / expected_edges)))
        described = {"count": sorter.edges_written} | self._write(folder, prefix)
        return sorter.num_nodes, described

    def _add_all(self, sorter: _native.EdgeSorter, ids: _native.IdMap | None, progress: ProgressCall) -> None:
        """Hands all edges to the sorter, which takes some in a thread of its own while the next ones are read."""
        with ThreadPoolExecutor(1) as thread:
            added: Future[None] = thread.submit(lambda: None)
            try:
                for src, dst, fraction in self._edges.chunks(self._block_bytes):
                    beside = self._take(src)
                    added.result()
                    added = thread.submit(sorter.add, src, dst, ids, *beside)
                    progress("reading", fraction)
                added.result()
            except CohortError:
                added.result()  # raises what is wrong with the edges before
                raise
            except BaseException:
                sorter.stop()
                raise

    def _take(self, src: np.ndarray) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Weights and times of the next edges, from these nodes, as the sorter takes them."""
        first, self._count = self._count, self._count + len(src)
        if self._rank is None:
            numbers = None if self._reader is None else self._reader.take(len(src))
            return (None, self._since(src, numbers)) if self._is_timed else (numbers, None)
        self._demand_count(self._times, "times", at_least=True)
        return None, self._rank[first : self._count]

    def _demand_count(self, numbers: np.ndarray | None, what: str, at_least: bool = False) -> None:
        if numbers is not None and (len(numbers) < self._count if at_least else len(numbers) != self._count):
            actual = f"{len(numbers)} for {'more' if at_least else self._count} edges"
            raise CohortError(f"the {what} of edges", f"one of the {what} for each edge", actual)

    def _write(self, folder: Path, prefix: str) -> dict[str, Any]:
        """Writes what the sorter did not, gives all files their names, and returns what meta.json says of them."""
        described = {}
        if self._features is not None:
            file = f"{prefix}features.npy" if prefix else FEATURES
            dim = self._write_beside(self._features, folder, file)
            described["features"] = {"file": file, "dim": dim, "dtype": self._features.dtype}
        beside = {"edge_weights": self._edges.weights is not None, "edge_times": self._is_timed}
        names = ("indptr", "indices", *(name for name, is_there in beside.items() if is_there))
        for name in names:
            (folder / f"{name}.npy").rename(folder / f"{prefix}{name}.npy")
        return {name: f"{prefix}{name}.npy" for name in names} | described

    def _write_beside(self, features: Rows, folder: Path, file: str) -> int:
        """Writes the rows of edges, and the weights or times of edges that have rows; returns how many columns rows
        have."""
        numbers = np.load(folder / (TIMES if self._rank is not None else NUMBERS))
        if self._order is not None and self._times is not None:
            numbers = self._order[numbers]
            np.save(folder / TIMES, self._times[numbers])
        if self._weights is not None:
            np.save(folder / WEIGHTS, self._weights[numbers])
        dim = self._write_rows(features, folder, file, numbers)
        (folder / NUMBERS).unlink(missing_ok=True)
        return dim

    def _write_rows(self, features: Rows, folder: Path, file: str, numbers: np.ndarray) -> int:
        """Writes the rows of the edges with these numbers; returns how many columns they have."""
        rows, block_bytes = features.matrix, self._block_bytes
        if not isinstance(rows, np.ndarray):
            shape = write_rows(folder / UNSORTED, features.chunks(block_bytes))
            rows = np.load(folder / UNSORTED, mmap_mode="r") if 0 not in shape else features.none()
        if len(rows) != self._count or rows.shape[1] == 0:
            expected = f"{self._count} rows of at least one column, one row per edge"
            raise CohortError(features.place, expected, f"shape {list(rows.shape)}")
        row_bytes = np.ascontiguousarray(rows).view(np.uint8)
        at_once = max(1, block_bytes // row_bytes.shape[1])
        pieces = (
            take_rows(row_bytes, numbers[first : first + at_once]).view(rows.dtype)
            for first in range(0, len(numbers), at_once)
        )
        if len(numbers):
            write_rows(folder / file, pieces)
        else:  # of loops that were removed
            np.save(folder / file, rows[:0])
        (folder / UNSORTED).unlink(missing_ok=True)
        return rows.shape[1]
