"""Predictions as tables with the ids that nodes had in the source, and names of classes: Parquet or CSV."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from cohort_gnn.base.distinct import has_repeats
from cohort_gnn.base.errors import CohortError, why
from cohort_gnn.dataset.layouts.tables import kind_of, open_table
from cohort_gnn.dataset.tables import values
from cohort_gnn.dataset.tables.first_line import is_number
from cohort_gnn.dataset.tables.table import shortened
from cohort_gnn.dataset.tables.text_options import TextOptions
from cohort_gnn.trainer.models.targets import Classes, MultiLabel, Numbers, Targets

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIXES = (".parquet", ".csv")
ROWS_AT_ONCE = 1 << 16


def is_table(path: Path) -> bool:
    """Whether a file of this name is a table, not an array."""
    return path.suffix in SUFFIXES


@dataclass(frozen=True)
class NamedNodes:
    """The nodes whose predictions are wanted, and what they are called.

    Attributes:
        ids: of all nodes, int64 or texts; None: they are called by their numbers.
        nodes: int64 [n]; None: all, in order.
        count: of all nodes.
    """

    ids: pa.Array | None
    nodes: np.ndarray | None
    count: int

    @property
    def num_rows(self) -> int:
        return self.count if self.nodes is None else len(self.nodes)

    def slice(self, begin: int, end: int) -> tuple[np.ndarray | slice, pa.Array]:
        """Which nodes the rows from begin to end are, and their ids."""
        import pyarrow as pa

        if self.nodes is None:
            chosen: np.ndarray | slice = slice(begin, end)
            return chosen, pa.array(np.arange(begin, end)) if self.ids is None else self.ids[begin:end]
        chosen = self.nodes[begin:end]
        return chosen, pa.array(chosen) if self.ids is None else self.ids.take(pa.array(chosen))

    def named(self, nodes: np.ndarray) -> pa.Array:
        """The ids of nodes, int64 [n]."""
        import pyarrow as pa

        return pa.array(nodes) if self.ids is None else self.ids.take(pa.array(nodes))


def wanted_nodes(file: Path | None, ids: pa.Array | None, count: int) -> np.ndarray | None:
    """int64 [n]: the nodes that a file names by their ids, in its order; by their numbers where nodes have no ids. None
    without a file.

    Raises:
        CohortError: the file has several columns, an id that no node has, or an id twice; or its first line is an id.
    """
    if file is None:
        return None
    import pyarrow as pa
    import pyarrow.compute as pc

    known = pa.array(np.arange(count)) if ids is None else ids
    if kind_of(file) == "npy":
        named = _array_of_ids(file)
    else:
        table = open_table(file, TextOptions(header="yes"))
        if len(table.titles) != 1:
            actual, hint = f"{len(table.titles)}: {shortened(table.titles)}", "keep the column of ids alone"
            raise CohortError(f"--nodes {file}", "a table of one column, of ids", actual, hint)
        title = table.titles[0]
        if kind_of(file) == "csv" and (is_number(title) or pc.index(known.cast(pa.large_string()), title).as_py() >= 0):
            actual, hint = f'"{title}", which may be an id', "write a line with a name, such as id, before the ids"
            raise CohortError(f"--nodes {file}: line 1", "the name of the column", actual, hint)
        chunks = [chunk for (column,), _ in table.texts([0], 1 << 24) for chunk in column.chunks]
        named = pa.chunked_array(chunks or [pa.array([], known.type)])
    if named.type != known.type:
        alike = named.cast(known.type) if known.type != pa.int64() else values.integers_of_texts(named)
        if alike is None:
            actual = f"{named.type} in {file.name}"
            raise CohortError(f"--nodes {file}", f"ids like those of the nodes, {known.type}", actual)
        named = alike
    nodes = pc.index_in(named, value_set=known)
    if nodes.null_count:
        row = int(np.asarray(nodes.is_null()).argmax())
        what = "the id of a node" if ids is not None else f"a node below {count:,}"
        hint = "leave it out; cohort dataset append puts new nodes into a data set"
        raise CohortError(f"--nodes {file}: row {row}", what, repr(named[row].as_py())[:60], hint)
    numbers = nodes.to_numpy().astype(np.int64)
    if has_repeats(numbers):
        again = named[int(np.flatnonzero(np.bincount(numbers)[numbers] > 1)[0])].as_py()
        raise CohortError(f"--nodes {file}", "each node once", f"{again} again", "leave it out the second time")
    return numbers


def _array_of_ids(file: Path) -> pa.ChunkedArray:
    """int64 or large_string: the ids in a .npy file."""
    import pyarrow as pa

    try:
        array = np.load(file, allow_pickle=False).reshape(-1)
    except (OSError, ValueError, EOFError) as error:
        expected, hint = "an array in NumPy's .npy format", "write it with numpy.save; pickled objects are never loaded"
        raise CohortError(f"--nodes {file}", expected, why(error, "another file"), hint) from error
    if array.dtype.kind not in "iuU":
        hint = "convert them: array.astype(numpy.int64), of a mask numpy.flatnonzero(mask)"
        raise CohortError(f"--nodes {file}", "integers or texts", f"dtype {array.dtype}", hint)
    return values.texts(f"--nodes {file}", pa.array(array.astype(array.dtype.newbyteorder("="), copy=False)))


def columns_of_scores(
    targets: Targets, names: Sequence[str], only_best: bool, threshold: float | None
) -> Callable[[np.ndarray], dict[str, Any]]:
    """What makes named columns of scores, float32 [n, outputs].

    Args:
        names: of classes or labels; empty: they are called by their numbers.
        only_best: the predictions without the probabilities of all classes.
        threshold: probability from which a label, or the second of two classes, is predicted; None: 0.5, or the class
            of the highest probability.
    """

    def class_columns(scores: np.ndarray) -> dict[str, Any]:
        called = list(names) or [str(i) for i in range(scores.shape[1])]
        probabilities = torch.softmax(torch.from_numpy(scores), 1).numpy()
        best = scores.argmax(1) if threshold is None else (probabilities[:, 1] >= threshold).astype(np.int64)
        chosen: Any = np.array(called, object)[best] if names else best
        beside = {"probability": np.take_along_axis(probabilities, best[:, None], 1)[:, 0]}
        all_of_them = {f"p_{name}": probabilities[:, i] for i, name in enumerate(called)}
        return {"prediction": chosen} | (beside if only_best else all_of_them)

    def label_columns(scores: np.ndarray) -> dict[str, Any]:
        called = list(names) or [str(i) for i in range(scores.shape[1])]
        probabilities = torch.sigmoid(torch.from_numpy(scores)).numpy()
        if only_best:
            said = scores > 0 if threshold is None else probabilities >= threshold
            return {name: said[:, i] for i, name in enumerate(called)}
        return {f"p_{name}": probabilities[:, i] for i, name in enumerate(called)}

    if isinstance(targets, Classes):
        return class_columns
    if isinstance(targets, MultiLabel):
        return label_columns
    if isinstance(targets, Numbers):
        return lambda scores: {"prediction": scores[:, 0]}
    return lambda rows: {"row": list(rows)}


def beside(columns: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """Both; of the others, those whose name is taken have it with a _ behind it."""
    both = dict(columns)
    for name, column in others.items():
        free = name
        while free in both or free != name and free in others:
            free += "_"
        both[free] = column
    return both


def write_table(path: Path, suffix: str, blocks: Iterator[dict[str, Any]]) -> None:
    """Writes columns, some rows at a time, as a Parquet or a CSV file.

    Args:
        suffix: of the file that `path` is going to be.
    """
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet as pq

    writer: Any = None
    for columns in blocks:
        batch = pa.RecordBatch.from_pydict({name: _array(values) for name, values in columns.items()})
        if writer is None and suffix == ".csv":
            writer = pyarrow.csv.CSVWriter(str(path), batch.schema)
        elif writer is None:
            writer = pq.ParquetWriter(path, batch.schema)
        writer.write_batch(batch)
    writer.close()


def _array(values: Any) -> pa.Array:
    import pyarrow as pa

    if isinstance(values, list):  # rows of numbers
        stacked = np.stack(values) if values else np.empty((0, 1), np.float32)
        return pa.FixedSizeListArray.from_arrays(pa.array(stacked.reshape(-1)), stacked.shape[1])
    return values if isinstance(values, pa.Array) else pa.array(values)


def score_blocks(
    scores: np.ndarray, nodes: NamedNodes, columns: Callable[[np.ndarray], dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Ids and columns of the wanted nodes."""
    for begin in range(0, max(1, nodes.num_rows), ROWS_AT_ONCE):
        chosen, ids = nodes.slice(begin, min(begin + ROWS_AT_ONCE, nodes.num_rows))
        yield beside({"id": ids}, columns(np.ascontiguousarray(scores[chosen])))


def target_blocks(
    best: np.ndarray, scores: np.ndarray, sources: NamedNodes, targets: NamedNodes
) -> Iterator[dict[str, Any]]:
    """A row for each of the best targets of each wanted source: both ids, the rank from 1, and the score."""
    import pyarrow as pa

    step = max(1, ROWS_AT_ONCE // best.shape[1])
    for begin in range(0, max(1, sources.num_rows), step):
        chosen, ids = sources.slice(begin, min(begin + step, sources.num_rows))
        targets_of_block = best[chosen]
        row, rank = np.nonzero(targets_of_block >= 0)
        yield {
            "source": ids.take(pa.array(row)),
            "target": targets.named(targets_of_block[row, rank]),
            "rank": rank + 1,
            "score": scores[chosen][row, rank],
        }
