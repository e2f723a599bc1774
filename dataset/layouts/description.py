"""The keys of a description of a graph, which names its tables and arrays: graph.yaml, or arguments of from_tables."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset.columns import Column
from cohort_gnn.dataset.layouts import tables
from cohort_gnn.dataset.layouts.tensor_files import ARRAYS
from cohort_gnn.dataset.tables.text_options import SEPARATORS, TextOptions
from cohort_gnn.spec.graph import EdgeType
from cohort_gnn.spec.metrics import MetricName

DESCRIPTION = "graph.yaml"
HINT = "dataset/FORMAT.md lists the keys, under graph.yaml; docs/how-to/types.md has an example"


class Text(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """How a file is read, where its name and its first line leave it open: as the options of these names."""

    format: str | None = None
    separator: str | None = None
    header: bool | str = "auto"
    comment: str | None = None
    null: str | None = None

    def options(self, place: str) -> TextOptions:
        separator = self.separator if self.separator is None else SEPARATORS.get(self.separator, self.separator)
        header = self.header if isinstance(self.header, str) else "yes" if self.header else "no"
        for key, value, fits, expected in (
            (
                "format",
                self.format,
                self.format in (None, *ARRAYS, *tables.TABLES),
                "csv, parquet, arrow, npy, safetensors or pt",
            ),
            ("separator", separator, separator is None or len(separator) == 1, "one character, or its name"),
            ("header", header, header in ("auto", "yes", "no"), "yes or no"),
        ):
            if not fits:
                raise CohortError(f"{place}.{key}", expected, repr(value), HINT)
        return TextOptions(separator, header, self.comment, self.null, in_yaml=True)


class FileOf(Text, forbid_unknown_fields=True, kw_only=True):
    """A file of rows, of labels, of ids or of numbers of edges, and how it is read.

    Attributes:
        columns: of a table, those that are read; default: all.
        dtype: of a .npy file of uint16: "bfloat16" or "float32".
        id: "none": no column of the table has ids.
    """

    file: str
    columns: list[str] | None = None
    dtype: str | None = None
    id: str | None = None


class ByTime(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Splits by a column of integers, timestamps or dates: the earliest labelled rows are for training, the latest for
    the test, by the shares of --split-ratio. Rows of equal times are in one split."""

    by_time: str


class KeyOf(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A foreign key of a table: a relation from each row to the node that the key names.

    Attributes:
        column: the column, or several that make one key.
        to: the node type whose ids it has.
        name: of the relation; default: that of the columns.
        nulls: of rows without a key: "skip": they have no edge.
        unknown_ids: of keys that no node has: "skip": the row has no edge.
    """

    column: str | list[str]
    to: str
    name: str | None = None
    nulls: Literal["refuse", "skip"] = "skip"
    unknown_ids: Literal["refuse", "skip"] = "refuse"

    @property
    def columns(self) -> list[str]:
        return [self.column] if isinstance(self.column, str) else self.column

    def relation(self, type_: str) -> EdgeType:
        """The relation of a key of this node type; signs that names may not have become "_"."""
        return type_, self.name or re.sub(r"[^A-Za-z0-9_-]", "_", "_".join(self.columns)), self.to


class NodesOf(Text, forbid_unknown_fields=True, kw_only=True):
    """A node type.

    Attributes:
        file: table with a row for each node.
        id: its column of ids, integers or texts, or several that make one; without it, or with "none", row i is node i.
        keys: foreign keys of the table.
        count: the number of nodes, where neither a table nor features say it.
        features: columns of the table, by name or with what features are made of them; or a file of rows; or "ones":
            one column of ones.
        fit: the rows that decide means, deviations and categories: "train" (those of the training split; of a node type
            without a split, all) or "all".
        label: column (or columns) of the table, or a file.
        classes: the texts of the label column, in the order of the classes.
        split: column of the table with train, val, test or nothing; or three files of ids; or a column of times, by
            which the rows are divided.
        time: column of the table, or a .npy file: since when each node exists.
        time_unit, time_zone: of times that are timestamps, as of a relation.
        null_time: "always": a node without a time is always there.
    """

    file: str | None = None
    id: str | list[str] | None = None
    keys: list[KeyOf] = []
    count: Annotated[int, msgspec.Meta(ge=1, le=2**32)] | None = None
    features: str | list[str | Column] | FileOf | None = None
    fit: Literal["train", "all"] = "train"
    label: str | list[str] | FileOf | None = None
    classes: list[str] | None = None
    split: str | list[str | FileOf] | ByTime | None = None
    time: str | FileOf | None = None
    time_unit: str | None = None
    time_zone: str | None = None
    null_time: Literal["refuse", "always"] = "refuse"


class EdgesOf(Text, forbid_unknown_fields=True, kw_only=True):
    """A relation: its type, its table or .npy file, the columns of sources and targets, its weights or times: a column
    of the table, or a file; the features of its edges: columns of the table, or a file of rows; the type of the
    relation that it is the reverse of, or "none"; of times that are timestamps, the unit that they are kept in, and the
    zone of clocks without one; what becomes of edges whose ids no node has; and, of a table that has the edges of
    several relations, the column of their names: the name in ``type`` is then ``*``."""

    type: tuple[str, str, str]
    file: str
    source: str | None = None
    target: str | None = None
    weight: str | FileOf | None = None
    time: str | FileOf | None = None
    features: str | list[str | Column] | FileOf | None = None
    reverse_of: tuple[str, str, str] | Literal["none"] | None = None
    relation: str | None = None
    time_unit: str | None = None
    time_zone: str | None = None
    unknown_ids: Literal["refuse", "skip"] = "refuse"


class TaskOf(Text, forbid_unknown_fields=True, kw_only=True):
    """A task: three tables of rows, each a node, a time and what there is to learn of the node then.

    Attributes:
        nodes: the node type; of links, that of the sources.
        train, val, test: the tables, with the same columns; that of the test may lack the label.
        id: column of the nodes' ids; of a type without ids, of row numbers.
        time: column of the times; without it the task has none.
        label: column to learn, or several for several labels. Of links, the column of the targets' ids, or of lists of
            them.
        targets: what there is to learn of nodes.
        classes: as of a node type.
        to: of links, the node type of their targets.
        metric: by which models are compared.
        overlapping_times: "allow": validation and test need not be later than training.
        rows_until: a timestamp, or an integer where times are: nothing later than it is seen, whatever the time of the
            task's row.
    """

    nodes: str
    train: str
    val: str | None = None
    test: str | None = None
    id: str | list[str]
    time: str | None = None
    label: str | list[str]
    targets: Literal["classification", "regression", "multilabel"] | None = None
    classes: list[str] | None = None
    to: str | None = None
    metric: MetricName | None = None
    time_unit: str | None = None
    time_zone: str | None = None
    overlapping_times: Literal["refuse", "allow"] = "refuse"
    rows_until: str | int | None = None


class Description(msgspec.Struct, forbid_unknown_fields=True):
    """The file; `target` is the node type to learn, where none or more than one has labels."""

    nodes: dict[str, NodesOf]
    edges: list[EdgesOf] = []
    tasks: dict[str, TaskOf] = {}
    name: str | None = None
    target: str | None = None
