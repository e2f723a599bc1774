"""Feature columns of unlike types on their way into a data set: fitted to the training rows, or encoded as before."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset.columns import Columns, RelationColumns, read_columns, write_columns
from cohort_gnn.dataset.components import Components, read_components
from cohort_gnn.dataset.layouts.streams import Rows
from cohort_gnn.dataset.reader import is_dataset
from cohort_gnn.dataset.reader import open as open_dataset
from cohort_gnn.dataset.tables.encoding import DeclaredColumns, are_bools
from cohort_gnn.spec.graph import EdgeType


class Fitting:
    """The columns of a data set that is being written.

    Args:
        before: a data set whose means, deviations, categories and classes are taken; None: they are found.
    """

    def __init__(self, before: str | os.PathLike | None):
        self._where, self._new = str(before), Columns(nodes={}, edges=[])
        self._before: Columns | None = None
        self._components: Components | None = None
        self._encoded: list[DeclaredColumns] = []  # as those of the data set before were
        if before is not None:
            if not is_dataset(Path(before)):
                raise CohortError("--columns-from", "a data set of Cohort", str(before), "check the path")
            self._before, self._components = read_columns(before), read_components(Path(before))

    def components(self, count: int | None) -> Components | None:
        """Those of the data set before, if there is one; raises CohortError where --pca has another number of them."""
        there = None if self._components is None else self._components.directions.shape[1]
        if self._before is not None and count != there:
            hint = "leave --pca out" if there is None else f"--pca {there}"
            expected = f"{there or 'no'} components, as {self._where} has"
            raise CohortError("--pca", expected, str(count or "none"), hint)
        return self._components

    def node_rows(self, type_: str, rows: Rows | None, training: Callable[[], np.ndarray | None]) -> Rows | None:
        """The feature rows of a node type.

        Args:
            training: gives the rows of the training split, bool [V]; None: all count.
        """
        before = None if self._before is None else self._before.nodes.get(type_)
        if rows is None or not self._are_declared(rows, before, type_):
            return rows
        fits_all = before is not None or rows.declared is not None and rows.declared.fit_all
        fitted = rows.fit(None if fits_all else training(), before, self._where)
        self._new.nodes[type_] = list(fitted.fitted)
        return fitted

    def edge_rows(self, relation: EdgeType, rows: Rows | None, kept: np.ndarray | None) -> Rows | None:
        """The feature rows of a relation's edges, which have no splits.

        Args:
            kept: bool [E], those that are not left out; None: all.
        """
        known = [] if self._before is None else self._before.edges
        before = next((edges.columns for edges in known if edges.type == relation), None)
        if rows is None or not self._are_declared(rows, before, ".".join(relation)):
            return rows
        fitted = rows.fit(kept, before, self._where)
        self._new.edges.append(RelationColumns(type=relation, columns=list(fitted.fitted)))
        return fitted

    def classes(self, place: str, codes: np.ndarray, names: list[str]) -> np.ndarray:
        """The classes of labels with names, float64 [V], NaN for none, in the order of the data set before."""
        known = names if self._before is None else self._before.classes
        if are_bools(known) and are_bools(names):
            by_lowered = {name.lower(): name for name in known}
            names = [by_lowered.get(name.lower(), name) for name in names]
        if unknown := [name for name in names if name not in known]:
            hint = "its model has no output for others: leave those rows without a label"
            raise CohortError(place, f"the classes of {self._where}: {', '.join(known) or 'none'}", unknown[0], hint)
        self.name_outputs(place, known)
        number_of = np.array([known.index(name) for name in names] or [0], np.float64)
        there = ~np.isnan(codes)
        out = np.full(len(codes), np.nan)
        out[there] = number_of[codes[there].astype(np.int64)]
        return out

    def demand_numbered_classes(self, place: str) -> None:
        """Raises CohortError where numbers in a table may be names of the classes that the data set before has."""
        names = [] if self._before is None else self._before.classes
        if any(name.lstrip("+-").isdecimal() for name in names):
            hint = "classes: [...] in graph.yaml says these names; a .npy file has numbers of classes"
            raise CohortError(place, f"names of the classes of {self._where}: {', '.join(names)}", "numbers", hint)

    def name_outputs(self, place: str, names: list[str]) -> None:
        """Keeps the names of classes, or of several labels; raises CohortError where they are not those of the data
        set before."""
        before = [] if self._before is None else self._before.classes
        if before and names and before != names:
            hint = "its model's outputs stand in this order: name the columns so"
            raise CohortError(place, f"the labels of {self._where}: {', '.join(before)}", ", ".join(names), hint)
        self._new.classes = list(names or before)  # of numbers of classes, too

    def num_classes(self, place: str, labels: np.ndarray) -> int | None:
        """The number of classes that have names, or that the data set before has, which has all of `labels`; None: it
        is open."""
        known = len(self._new.classes)
        if self._before is not None and not known:
            before = open_dataset(self._where)
            known = before.num_classes if before.task == "classification" else 0
        if known and len(bad := np.flatnonzero(labels >= known)):
            hint = "its models have no output for others: leave the row without a label (-1)"
            expected = f"a class in [0, {known})" + ("" if self._before is None else f", those of {self._where}")
            raise CohortError(f"{place}[{bad[0]}]", expected, str(labels[bad[0]]), hint)
        return known or None

    def unknown_told(self) -> list[str]:
        """Lines about the rows, once all were read, whose categories the data set before does not know."""
        return [line for declared in self._encoded for line in declared.unknown_told(self._where)]

    def write(self, folder: Path) -> None:
        """Writes columns.json, where columns or classes are known."""
        new = self._new
        if self._before is not None and self._components is None and new == Columns():
            hint = "leave it out: features that are taken as they are need nothing of another data set"
            raise CohortError("--columns-from", "columns or classes with names", "none", hint)
        write_columns(folder, self._new)

    def _are_declared(self, rows: Rows, before: object, what: str) -> bool:
        """Whether rows are made of declared columns; takes note of them.

        Args:
            before: the declared columns of the data set before; None: there are none.
            what: the node type, or "source.name.target".

        Raises:
            CohortError: those of the data set before were not, or the other way round, or were columns of other names.
        """
        if self._before is not None and before is None and rows.declared is not None:
            hint = "import both from tables with the same columns"
            raise CohortError(rows.place, f"columns of {what} in {self._where}", "none there", hint)
        if before is not None and rows.declared is None:
            hint = "declare the columns in graph.yaml as they were there: their means and categories are used again"
            raise CohortError(rows.place, f"columns of {what} declared as in {self._where}", "rows as they are", hint)
        if self._before is not None:
            self._demand_same_names(rows, self._before.plain.get(what, rows.titles), what)
        if rows.declared is None and rows.titles:
            self._new.plain[what] = list(rows.titles)
        if self._before is not None and rows.declared is not None:
            self._encoded.append(rows.declared)
        return rows.declared is not None

    def _demand_same_names(self, rows: Rows, before: Sequence[str], what: str) -> None:
        pairs = itertools.zip_longest(before, rows.titles, fillvalue="no column")
        if rows.titles and (odd := next((pair for pair in enumerate(pairs) if len(set(pair[1])) > 1), None)):
            number, (name, actual) = odd
            hint = "name them in that order: --feature-columns, --edge-feature-columns or features: [A, B]"
            expected = f"{name} as column {number}, as in {self._where}"
            raise CohortError(f"{rows.place}: features of {what}", expected, actual, hint)
