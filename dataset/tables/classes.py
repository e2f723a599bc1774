"""Texts that name something: the classes of labels, the relations of edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.spelling import did_you_mean
from cohort_gnn.dataset.tables import values
from cohort_gnn.dataset.tables.first_line import NULL_WORDS
from cohort_gnn.dataset.tables.table import READ_AT_ONCE, TableFile, shortened
from cohort_gnn.dataset.tables.text_options import NONE

if TYPE_CHECKING:
    import pyarrow as pa

MOST_CLASSES = 1_000_000
MOST_RELATIONS = 128
MERGE_HINT = (
    "merge some; or make one relation of all, whose edges have them as features: type: [A, to, B], "
    "features: [{column: RELATION, kind: category, at_most: 1000}]"
)


def named_classes(table: TableFile, column: int, classes: Sequence[str] | None) -> tuple[np.ndarray, list[str]] | None:
    """float64 [n]: the class of each row, NaN for none, and the names of the classes; None: the column has numbers.

    Args:
        classes: their names in order; None: the texts of the column, ascending, or false and true.

    Raises:
        CohortError: the texts are numbers, which may be meant as such; or a text is not among the names.
    """
    import pyarrow as pa

    if classes is not None and (not classes or len(set(classes)) < len(classes)):
        again = next((name for name in classes if list(classes).count(name) > 1), None)
        actual = "none" if again is None else f"{again} again"
        hint = "name each text of the column once, in the order of the classes; or leave classes out"
        raise CohortError(f"{table.place(column)}: classes", "each class once", actual, hint)
    parts = [array for (array,), _ in table.pieces([column], "texts", READ_AT_ONCE)]
    types = {values.type_of_values(part.type) for part in parts} - {pa.null()}  # of several files, they may differ
    if types == {pa.bool_()} and classes is None:
        classes = ["false", "true"]
    if classes is None and not (types and all(map(values.is_text, types))):
        return None
    named = [table.categories(column, part) for part in parts]
    texts = pa.chunked_array([chunk for part in named for chunk in part.chunks], pa.large_string())
    if classes is None:
        if not _are_names(table, column, texts):
            return None
        demand_no_null_word(table, table.place(column), texts)
        classes = sorted(text for text in texts.unique().to_pylist() if text is not None)
    return _codes(table.place(column), texts, classes), list(classes)


def demand_no_null_word(table: TableFile, place: str, texts: pa.ChunkedArray) -> None:
    """Raises CohortError for a text that may be a null, such as NA, unless an option settles it."""
    said = table.said
    if said.null is not None:
        return
    for text in texts.unique().to_pylist():
        if text is not None and text.strip().lower() in NULL_WORDS:
            cure = f"{said.says('null', text)}: it is a null; {said.says('null', NONE)}: it is a text like others"
            raise CohortError(place, "texts, or nulls", f'"{text}", which may be either', cure)


def _are_names(table: TableFile, column: int, texts: pa.ChunkedArray) -> bool:
    """Whether texts name classes, not numbers. In a text file a number among them decides for numbers, and what is none
    is refused where they are read."""
    present = texts.drop_null()
    if table.options is not None:
        names = [text for text in _distinct(present) if text[0].as_py().strip().lower() not in NULL_WORDS]
        return len(names) > 0 and not any(values.first_bad(text, "numbers") is None for text in names)
    if len(present) and values.first_bad(present, "numbers") is None:
        hint = "classes: [a, b] names them in order; or convert the column to integers"
        raise CohortError(table.place(column), "names of classes, or numbers", "texts of numbers", hint)
    return True


def _distinct(texts: pa.ChunkedArray) -> list[pa.ChunkedArray]:
    """Each text once, in an array of its own."""
    import pyarrow as pa

    unique = texts.unique()
    if len(unique) > MOST_CLASSES:
        return []
    return [pa.chunked_array([unique.slice(i, 1)]) for i in range(len(unique))]


def _codes(place: str, texts: pa.ChunkedArray, classes: Sequence[str]) -> np.ndarray:
    import pyarrow as pa
    import pyarrow.compute as pc

    codes = pc.index_in(texts, value_set=pa.array(classes, pa.large_string()))
    unknown = np.asarray(codes.is_null()) & ~np.asarray(texts.is_null())
    if unknown.any():
        row = int(unknown.argmax())
        text = texts[row].as_py()
        hint = did_you_mean(text, classes) or "classes: names all classes"
        raise CohortError(
            f"{place}, row {row}", f"one of the classes {shortened(list(classes))}", f'"{text[:40]}"', hint
        )
    return codes.cast(pa.float64()).fill_null(float("nan")).to_numpy()


@dataclass(frozen=True)
class EqualTo:
    """bool [n], made when it is read: where codes, integers [n], have a value."""

    codes: np.ndarray
    value: int

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: slice) -> np.ndarray:
        return self.codes[rows] == self.value


def relation_codes(table: TableFile, column: int) -> tuple[list[str], np.ndarray]:
    """The names of the relations in a column, ascending, and uint8 [n]: the number of each row's name.

    Raises:
        CohortError: there are too many, or a row has none.
    """
    import pyarrow.compute as pc

    numbers: dict[str, int] = {}
    parts = []
    for (texts,), _ in table.texts([column], READ_AT_ONCE):
        texts = values.categories(table.place(column), table.titles[column], texts)
        for name in texts.unique().to_pylist():
            numbers.setdefault(name, len(numbers))
        if len(numbers) > MOST_RELATIONS:
            expected = f"at most {MOST_RELATIONS} relations"
            raise CohortError(table.place(column), expected, f"more: {shortened(list(numbers))}", MERGE_HINT)
        parts.append(pc.index_in(texts, value_set=_texts_of(list(numbers))).to_numpy().astype(np.uint8))
    names = sorted(numbers)
    order = np.array([names.index(name) for name in numbers], np.uint8)
    return names, order[np.concatenate(parts)] if parts else np.empty(0, np.uint8)


def _texts_of(names: list[str]) -> pa.Array:
    import pyarrow as pa

    return pa.array(names, pa.large_string())
