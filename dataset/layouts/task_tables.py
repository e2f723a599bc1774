"""The tables of a task that a description names: rows of nodes at some times, and what there is to learn of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import arrays
from cohort_gnn.dataset.layouts import tables
from cohort_gnn.dataset.layouts.description import HINT, TaskOf
from cohort_gnn.dataset.layouts.node_ids import NodeIds
from cohort_gnn.dataset.layouts.streams import Labels, Weights
from cohort_gnn.dataset.structured import file_beside
from cohort_gnn.dataset.tables import values
from cohort_gnn.dataset.tables.classes import named_classes
from cohort_gnn.dataset.tables.table import READ_AT_ONCE, TableFile
from cohort_gnn.dataset.tables.text_options import Wanted
from cohort_gnn.dataset.tables.timestamps import Clock, are_dates, as_integers
from cohort_gnn.dataset.tasks import SPLITS, LinkRows, Task, TaskRows, demand_types

if TYPE_CHECKING:
    import pyarrow as pa


def read_task(path: Path, name: str, entry: TaskOf, ids: Mapping[str, NodeIds | None]) -> Task:
    """A task of a description.

    Args:
        path: of the description.
        ids: of the node types; None of those whose ids are row numbers.
    """
    place = f"{path}: tasks.{name}"
    labels = [entry.label] if isinstance(entry.label, str) else entry.label
    demand_types(place, entry.nodes, entry.to, ids)
    _demand_keys(place, entry, labels)
    options = entry.options(place)
    id_columns = [entry.id] if isinstance(entry.id, str) else entry.id
    wanted = Wanted([*id_columns, *([entry.time] if entry.time else []), *labels], numbers=())
    clock = Clock.named(f"{place}.time_unit", entry.time_unit, entry.time_zone, options.says)
    opened = {
        split: tables.open_table(file_beside(f"{place}.{split}", path, file), options, wanted, entry.format)
        for split in SPLITS
        if (file := getattr(entry, split)) is not None
    }
    described: dict[str, Any] = {
        "name": name,
        "node_type": entry.nodes,
        "metric": entry.metric,
        "time_unit": entry.time_unit,
        "id_column": ", ".join(id_columns),
        "time_column": entry.time,
        "label_column": ", ".join(labels),
        "overlapping_times": entry.overlapping_times == "allow",
        "rows_until": _moment(f"{place}.rows_until", entry.rows_until, clock),
    }
    if clock is not None:
        described |= _form_of_times(opened.get("test", opened["train"]), str(entry.time), clock)
    rows = {
        split: (_ids(table, id_columns, ids[entry.nodes]), _times(table, entry.time, clock))
        for split, table in opened.items()
    }
    if entry.to is not None:
        links = {split: _link_rows(opened[split], labels[0], ids[entry.to], *rows[split]) for split in opened}
        return Task(kind="link", target_type=entry.to, splits=_with_empty(links), **described)
    targets = entry.targets or "classification"
    names, learned = _labels(place, entry, labels, opened)
    num_classes = len(names) or max(arrays.num_outputs(array) for array in learned.values())
    arrays.demand_few_classes(f"{place}: label {', '.join(labels)}", num_classes, max(map(len, learned.values())))
    return Task(
        kind="node",
        targets=targets,
        num_classes=num_classes,
        class_names=names or None,
        splits=_with_empty({split: TaskRows(*rows[split], learned.get(split)) for split in opened}),
        **described,
    )


def _demand_keys(place: str, entry: TaskOf, labels: list[str]) -> None:
    """Raises CohortError for keys that do not go together."""
    several = entry.targets == "multilabel"
    for key, fits, expected in (
        ("targets", entry.to is None or entry.targets is None, "nothing, of links"),
        ("classes", entry.classes is None or entry.to is None and not several, "nothing, but for classes"),
        ("label", bool(labels) and (several or len(labels) == 1), "one column; several with targets: multilabel"),
        ("time", entry.time is not None or entry.time_unit is None, "the column that has the unit"),
        ("rows_until", entry.rows_until is None or entry.time is not None, "a task whose rows have times"),
    ):
        if not fits:
            raise CohortError(f"{place}.{key}", expected, str(getattr(entry, key) or "none"), HINT)


def _moment(place: str, value: str | int | None, clock: Clock | None) -> int | None:
    """A time of a description as an integer, rounded down to the unit of the times."""
    import pyarrow as pa

    if value is None or isinstance(value, int) and clock is None:
        return value
    if clock is None or isinstance(value, int):
        expected = "an integer, as the times are" if clock is None else "a timestamp, in quotes"
        raise CohortError(place, expected, str(value), HINT)
    texts = pa.chunked_array([pa.array([value])])
    return int(as_integers(place, texts, clock.unit, clock.zone or "UTC", 0, exact=False)[0])


def _with_empty(rows: dict[str, Any]) -> dict[str, Any]:
    """All splits; those that there are not have no rows."""
    train = rows["train"]
    empty = {part: None if array is None else array[:0] for part, array in vars(train).items()}
    return {split: rows[split] if split in rows else type(train)(**empty) for split in SPLITS}


def _ids(table: TableFile, columns: list[str], ids: NodeIds | None) -> np.ndarray:
    """int64 [n]: the nodes in columns of ids, or in one of row numbers."""
    numbers = table.choose(columns)
    return table.read(numbers, np.int64) if ids is None else ids.read(table, numbers)


def _times(table: TableFile, column: str | None, clock: Clock | None) -> np.ndarray | None:
    """int64 [n]"""
    if column is None:
        return None
    times = Weights.from_table(table, table.choose([column])[0], True, clock)
    parts = [times.converted(part) for part in times.chunks(READ_AT_ONCE)]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _form_of_times(table: TableFile, column: str, clock: Clock) -> dict[str, str]:
    """How the column has its times, for predictions to have them in the same form: members of Task."""
    import pyarrow as pa

    for (array,), _ in table.pieces(table.choose([column]), "texts", READ_AT_ONCE):
        type_, zone = values.plain(array).type, clock.zone
        if pa.types.is_timestamp(type_) and type_.tz is not None:
            return {"time_form": "instants", "time_zone": type_.tz}
        form = "clocks"
        if pa.types.is_date(type_) or zone is None and are_dates(table.place(table.choose([column])[0]), array):
            form = "dates"
        elif values.is_text(type_) and zone is None:
            form = "instants"
        return {"time_form": form, "time_zone": zone or "UTC"}
    return {}


def _labels(
    place: str, entry: TaskOf, columns: list[str], opened: dict[str, TableFile]
) -> tuple[list[str], dict[str, np.ndarray]]:
    """The names of classes or of several labels, and the labels of the splits whose tables have them."""
    targets = entry.targets or "classification"
    having = {split: table for split, table in opened.items() if split != "test" or set(columns) <= set(table.titles)}
    chosen = {split: table.choose(columns) for split, table in having.items()}
    names, named = list(entry.classes or []), {}
    if targets == "classification":
        named = {split: named_classes(table, chosen[split][0], entry.classes) for split, table in having.items()}
        names = names or sorted({name for classes in named.values() if classes for name in classes[1]})
    if names and not all(named.values()):
        raise CohortError(f"{place}.label", "names of classes in all tables, or numbers", "both", HINT)
    out = {}
    for split, table in having.items():
        labels = Labels.from_table(table, chosen[split], targets == "multilabel")
        if classes := named.get(split):
            codes, own = classes
            there = ~np.isnan(codes)
            array = np.full(len(codes), np.nan)
            array[there] = np.array([names.index(name) for name in own] or [0])[codes[there].astype(np.int64)]
        else:
            array = labels.numbers() if targets == "regression" and labels.numbers else labels.read()
        out[split] = arrays.targets(labels.place, array, len(array), targets)
    return names or (columns if len(columns) > 1 else []), out


def _link_rows(
    table: TableFile, column: str, ids: NodeIds | None, sources: np.ndarray, times: np.ndarray | None
) -> LinkRows:
    """A row for each link; the column has one target in each row, or a list of them."""
    import pyarrow.compute as pc

    if column not in table.titles:
        return LinkRows(sources, times, None)
    (number,) = table.choose([column])
    place, targets = table.place(number), []
    lengths: list[np.ndarray] = []
    for (array,), _ in table.pieces([number], "texts", READ_AT_ONCE):
        row, flat = sum(map(len, lengths)), array
        if values.is_list(array.type):
            lengths.append(_lengths(place, array, row))
            flat = pc.list_flatten(array)
        else:
            lengths.append(np.ones(len(array), np.int64))
        if flat.null_count:
            raise CohortError(place, "an id in each place", f"{flat.null_count} nulls", "leave such rows out")
        texts = values.texts(place, flat)
        targets.append(texts.to_numpy() if ids is None else ids.nodes_of_rows(place, texts, row))
    row_of_link = np.repeat(np.arange(len(sources)), np.concatenate(lengths or [np.empty(0, np.int64)]))
    nodes = np.concatenate(targets) if targets else np.empty(0, np.int64)
    return LinkRows(sources[row_of_link], None if times is None else times[row_of_link], nodes)


def _lengths(place: str, lists: pa.Array | pa.ChunkedArray, first: int) -> np.ndarray:
    """int64 [n]: how many values each of some lists has."""
    import pyarrow.compute as pc

    lengths = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    empty = np.flatnonzero(lengths == 0)
    if len(empty):
        hint = "leave rows without a target out"
        raise CohortError(f"{place}, row {first + empty[0]}", "at least one target", "none", hint)
    return lengths
