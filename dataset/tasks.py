"""Tasks of a data set: nodes at some times, and what there is to learn of them then; FORMAT.md describes the files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal
from zoneinfo import ZoneInfo

import msgspec
import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.files import demand_regular
from cohort_gnn.base.spelling import did_you_mean
from cohort_gnn.dataset import arrays
from cohort_gnn.dataset.array_file import map_array
from cohort_gnn.dataset.meta import META
from cohort_gnn.dataset.structured import read_structured
from cohort_gnn.spec.graph import NO_TIME
from cohort_gnn.spec.meta import read_meta
from cohort_gnn.spec.metrics import is_of, names_of

FOLDER, FILE = "tasks", "task.json"
SPLITS = ("train", "val", "test")
NS_OF_UNIT = {
    "days": 86_400 * 10**9,
    "h": 3600 * 10**9,
    "min": 60 * 10**9,
    "s": 10**9,
    "ms": 10**6,
    "us": 1000,
    "ns": 1,
}
AGAIN = "import the data set again"
OVERLAP_CURE = "overlapping_times: allow"  # of a graph.yaml


@dataclass(frozen=True, eq=False)
class TaskRows:
    """Rows of a task of nodes; a node may be in several, at other times.

    Examples:
        >>> import numpy as np
        >>> rows = cohort.dataset.TaskRows(nodes=np.array([3, 3]), times=np.array([10, 20]), labels=np.array([0, 1]))
        >>> rows.num_rows
        2

    Attributes:
        nodes: int64 [n], of the task's node type.
        times: int64 [n], in the unit of the data set's times; None: the task has none.
        labels: as of a data set: int64 [n] classes, float32 [n] numbers, or uint8 or float32 [n, labels] of 0 and 1,
            255 or NaN for unknown; None: not known, of the test alone.
    """

    nodes: np.ndarray
    times: np.ndarray | None
    labels: np.ndarray | None

    @property
    def num_rows(self) -> int:
        return len(self.nodes)


@dataclass(frozen=True, eq=False)
class LinkRows:
    """Rows of a task of links.

    Examples:
        >>> import numpy as np
        >>> links = cohort.dataset.LinkRows(sources=np.array([3, 3]), times=None, targets=np.array([0, 7]))
        >>> links.num_rows
        2

    Attributes:
        sources: int64 [n], of the task's node type.
        times: as of TaskRows.
        targets: int64 [n], of the type of the targets: a source with several at a time has as many rows; None: not
            known, of the test alone, which has a row for each source at a time.
    """

    sources: np.ndarray
    times: np.ndarray | None
    targets: np.ndarray | None

    @property
    def num_rows(self) -> int:
        return len(self.sources)


@dataclass(frozen=True, eq=False)
class Task:
    """A task of a data set.

    Examples:
        >>> import numpy as np
        >>> train, val, test = (
        ...     cohort.dataset.TaskRows(nodes=np.array([3, 5]), times=np.array([day, day]), labels=np.array([0, 1]))
        ...     for day in (10, 20, 30)
        ... )
        >>> splits = {"train": train, "val": val, "test": test}
        >>> task = cohort.dataset.Task("cited", "node", "paper", splits, targets="classification", num_classes=2)
        >>> cohort.dataset.write_task("data/types", task)
        >>> cohort.dataset.tasks_of("data/types")
        ['cited']

    Attributes:
        kind: "node": a label is to be learned; "link": the targets that a source has links to.
        node_type: of the nodes, or of the sources of links.
        target_type: of the targets of links; None of nodes.
        targets: of nodes, "classification", "regression" or "multilabel"; None of links.
        num_classes: classes, or labels that a node may have; of numbers 1, of links 0.
        class_names: of each class or label, or None.
        metric: a name of spec/metrics.py by which models are compared, or None.
        time_unit: "days", "s", "ms", "us" or "ns" since 1970-01-01 UTC; None: other integers, or no times.
        id_column, time_column, label_column: in the source; None where it had none.
        time_form: what the source's column of times has: "clocks" that show time_zone, without a zone of their own,
            "instants", which it shows in time_zone, or "dates" of time_zone; None: as clocks of UTC.
        time_zone: of these; None: UTC.
        splits: "train", "val" and "test"; of no rows where the source had none.
        overlapping_times: validation and test need not be later than training.
        rows_until: what is later is not seen, whatever the time of a row; None: the row's time alone counts.
    """

    name: str
    kind: Literal["node", "link"]
    node_type: str
    splits: Mapping[str, TaskRows] | Mapping[str, LinkRows]
    target_type: str | None = None
    targets: str | None = None
    num_classes: int = 0
    class_names: list[str] | None = None
    metric: str | None = None
    time_unit: str | None = None
    id_column: str | None = None
    time_column: str | None = None
    label_column: str | None = None
    time_form: Literal["clocks", "instants", "dates"] | None = None
    time_zone: str | None = None
    overlapping_times: bool = False
    rows_until: int | None = None


class _File(msgspec.Struct, kw_only=True, omit_defaults=True):
    """task.json. Unknown keys are of later versions."""

    format: Literal["cohort-task"]
    version: Literal[1]
    kind: Literal["node", "link"]
    node_type: str
    target_type: str | None = None
    targets: Literal["classification", "regression", "multilabel"] | None = None
    num_classes: int = 0
    class_names: list[str] | None = None
    metric: str | None = None
    time_unit: str | None = None
    id_column: str | None = None
    time_column: str | None = None
    label_column: str | None = None
    time_form: Literal["clocks", "instants", "dates"] | None = None
    time_zone: str | None = None
    overlapping_times: bool = False
    rows_until: int | None = None


def instant_of(task: Task | None, text: str, place: str) -> int:
    """A timestamp or a date as an integer in the unit of a task's times, rounded down.

    Args:
        task: without a zone in the text, it is of the clocks by which the task's own table shows times; None: there is
            no task that says the unit.
        text: as ISO 8601 has it, such as "2024-07-01 12:00" or "2024-07-01T12:00+02:00".
        place: for messages.

    Raises:
        CohortError: it is none; the unit is not known; or the clocks show it twice.

    Example:
        >>> instant_of(open_task("data/shop", "churn"), "2024-07-01", "at")
        19905
    """
    if task is None or task.time_unit is None:
        raise CohortError(place, "an integer: no task says the unit of the data set's times", text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise CohortError(place, "an integer, or a timestamp such as 2024-07-01 12:00", text) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=ZoneInfo(task.time_zone or "UTC"))
        if moment.replace(fold=1).utcoffset() != moment.utcoffset():
            expected, hint = f"a time that the clocks of {task.time_zone} show once", "add the offset: +02:00"
            raise CohortError(place, expected, text, hint)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    microseconds = (since.days * 86_400 + since.seconds) * 10**6 + since.microseconds
    return 1000 * microseconds // NS_OF_UNIT[task.time_unit]


def tasks_of(path: str | os.PathLike) -> list[str]:
    """The names of a data set's tasks, ascending.

    Example:
        >>> tasks_of("data/shop")
        ['churn', 'next-products']
    """
    return sorted(file.parent.name for file in (Path(path) / FOLDER).glob(f"*/{FILE}"))


def open_task(path: str | os.PathLike, name: str) -> Task:
    """A task of a data set, its arrays mapped from disk, after all of them were checked.

    Args:
        path: folder of the data set.

    Raises:
        CohortError: there is no such task, or something is wrong with a file.

    Example:
        >>> task = open_task("data/shop", "churn")
        >>> task.targets, task.metric, task.splits["train"].nodes.shape
        ('classification', 'auroc', (12000,))
    """
    path, known = Path(path), tasks_of(path)
    if name not in known:
        demand_regular(path / META)  # it may be no data set
        hint = did_you_mean(name, known) or "cohort dataset import reads tasks of a database or a graph.yaml"
        raise CohortError(f"{path}: task", f"one of {', '.join(known) or 'none'}", name, hint)
    folder = path / FOLDER / name
    file = read_structured(folder / FILE, "JSON", _File, "the description of a task", AGAIN)
    parts = _parts_of(file.kind)
    rows: Any = LinkRows if file.kind == "link" else TaskRows

    def array(split: str, part: str) -> np.ndarray | None:
        may_lack = part == "times" or part == parts[-1] and split == "test"
        place = folder / f"{split}-{part}.npy"
        return None if may_lack and not place.exists() else map_array(place)

    described = {key: value for key, value in msgspec.structs.asdict(file).items() if key not in ("format", "version")}
    splits = {split: rows(**{part: array(split, part) for part in parts}) for split in SPLITS}
    task = Task(name=name, splits=splits, **described)
    demand_sound(task, str(folder), {nodes["type"]: nodes["count"] for nodes in read_meta(path)["nodes"]})
    return task


def write_task(path: str | os.PathLike, task: Task) -> None:
    """Writes a task into a data set whose meta.json is written; one of its name is replaced.

    Raises:
        CohortError: it does not fit the data set, or itself.
    """
    path = Path(path)
    demand_sound(task, f"tasks.{task.name}", {nodes["type"]: nodes["count"] for nodes in read_meta(path)["nodes"]})
    folder = path / FOLDER / task.name
    folder.mkdir(parents=True, exist_ok=True)
    for split, rows in task.splits.items():
        for part in _parts_of(task.kind):
            (folder / f"{split}-{part}.npy").unlink(missing_ok=True)
            if (array := getattr(rows, part)) is not None:
                np.save(folder / f"{split}-{part}.npy", array)
    described = {
        field.name: getattr(task, field.name) for field in fields(task) if field.name not in ("name", "splits")
    }
    file = _File(format="cohort-task", version=1, **described)
    text = {"format": file.format, "version": file.version} | msgspec.to_builtins(file)
    (folder / FILE).write_bytes(msgspec.json.format(msgspec.json.encode(text), indent=1) + b"\n")


def _parts_of(kind: str) -> tuple[str, ...]:
    """The arrays of a split; the last may be unknown."""
    return ("sources", "times", "targets") if kind == "link" else ("nodes", "times", "labels")


def demand_sound(task: Task, place: str, counts: Mapping[str, int]) -> None:
    """Raises CohortError unless a task fits itself and a data set.

    Args:
        place: for messages.
        counts: nodes of each type.
    """
    demand_types(place, task.node_type, task.target_type, counts)
    if (task.kind == "link") != (task.target_type is not None):
        expected = "a node type of links, and of them alone"
        raise CohortError(f"{place}: target_type", expected, str(task.target_type), AGAIN)
    if (task.kind == "node") != (task.targets is not None):
        expected = f"one of {', '.join(arrays.TASKS)}" if task.kind == "node" else "none, of links"
        raise CohortError(f"{place}: targets", expected, str(task.targets), AGAIN)
    if task.rows_until is not None and task.splits["train"].times is None:
        raise CohortError(f"{place}: rows_until", "none, but of rows with times", str(task.rows_until), AGAIN)
    learned = task.targets or "link"
    if task.metric is not None and not is_of(learned, task.metric):
        expected = f"a metric of {learned}: {', '.join(names_of(learned))}"
        raise CohortError(f"{place}: metric", expected, task.metric, did_you_mean(task.metric, names_of(learned)))
    if task.class_names is not None and len(task.class_names) != task.num_classes:
        actual = f"{len(task.class_names)}"
        raise CohortError(f"{place}: class_names", f"{task.num_classes} names, one per class", actual, AGAIN)
    if not task.splits["train"].num_rows:
        raise CohortError(f"{place}: train", "at least one row", "none", "the rows of training are those to learn from")
    for split, rows in task.splits.items():
        _demand_rows(task, f"{place}: {split}", rows, split == "test", counts)
    if not task.overlapping_times:
        demand_later({split: rows.times for split, rows in task.splits.items()}, place)


def demand_types(place: str, node_type: str, target_type: str | None, known: Iterable[str]) -> None:
    """Raises CohortError unless a task's node types are known."""
    for type_ in (node_type, *([] if target_type is None else [target_type])):
        if type_ not in known:
            hint = did_you_mean(type_, known)
            raise CohortError(place, f"one of the node types {', '.join(known)}", type_, hint)


def _demand_rows(task: Task, place: str, rows: TaskRows | LinkRows, may_lack: bool, counts: Mapping[str, int]) -> None:
    """Raises CohortError unless the arrays of a split are of one length, of their types and in range."""
    first, times, last = (getattr(rows, part) for part in _parts_of(task.kind))
    _, _, name = _parts_of(task.kind)
    _demand_ids(f"{place}, {'sources' if task.kind == 'link' else 'nodes'}", first, counts[task.node_type])
    if (times is not None) != (task.splits["train"].times is not None):
        raise CohortError(f"{place}, times", "times in all splits, or in none", "some without", AGAIN)
    if times is not None:
        _demand_array(f"{place}, times", times, ("int64",), (len(first),))
        if len(times) and times.min() == NO_TIME:
            raise CohortError(f"{place}, times[{times.argmin()}]", "a time", "-2^63, which stands for none", AGAIN)
    if last is None:
        if not may_lack:
            raise CohortError(f"{place}, {name}", f"{name} in train and val", "none", AGAIN)
    elif task.kind == "link":
        arrays.demand_shape(f"{place}, {name}", last, (len(first),))
        _demand_ids(f"{place}, {name}", last, counts[str(task.target_type)])
    else:
        _demand_labels(task, f"{place}, labels", last, len(first))


def _demand_labels(task: Task, place: str, labels: np.ndarray, count: int) -> None:
    """Raises CohortError unless labels are those of the task, one in each row."""
    dtypes = {"classification": ("int64",), "regression": ("float32",), "multilabel": ("uint8", "float32")}
    several = task.targets == "multilabel"
    _demand_array(place, labels, dtypes[str(task.targets)], (count, task.num_classes) if several else (count,))
    bad = np.flatnonzero(~arrays.labelled(labels))
    if len(bad):
        raise CohortError(f"{place}[{bad[0]}]", "a label", "none", "leave rows without a label out")
    if task.targets == "classification":
        bad = np.flatnonzero(labels >= task.num_classes)
        expected = f"a class in [0, {task.num_classes})"
    elif several:
        known = (labels == 0) | (labels == 1) | (labels == 255 if labels.dtype == np.uint8 else np.isnan(labels))
        bad, expected = np.flatnonzero(~known.all(axis=1)), "0, 1, or unknown"
    else:
        bad, expected = np.flatnonzero(~np.isfinite(labels)), "a finite number"
    if len(bad):
        raise CohortError(f"{place}[{bad[0]}]", expected, str(labels[bad[0]]), AGAIN)


def _demand_ids(place: str, ids: np.ndarray, count: int) -> None:
    _demand_array(place, ids, ("int64",), (None,))
    arrays.demand_nodes(place, ids, count)


def _demand_array(place: str, array: np.ndarray, dtypes: tuple[str, ...], shape: tuple[int | None, ...]) -> None:
    if array.dtype.name not in dtypes:
        raise CohortError(place, f"dtype {' or '.join(dtypes)}", f"dtype {array.dtype.name}", AGAIN)
    arrays.demand_shape(place, array, shape)


def demand_later(times: Mapping[str, np.ndarray | None], place: str, cure: str = OVERLAP_CURE) -> None:
    """Raises CohortError unless each split is strictly later than those before it.

    Args:
        times: int64 [n] of each split, in their order.
        cure: what allows others.
    """
    before: tuple[str, int] | None = None
    for split, own in times.items():
        if own is None or not len(own):
            continue
        if before is not None and own.min() <= before[1]:
            expected = f"times after {before[1]}, the last of {before[0]}"
            hint = f"a model that saw later rows knows the future; {cure} takes them nevertheless"
            raise CohortError(f"{place}: {split}, times[{own.argmin()}]", expected, str(own.min()), hint)
        before = split, int(own.max())
