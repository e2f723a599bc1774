"""`.mtx` files of MatrixMarket, as SciPy writes them and SuiteSparse has them: entries of a sparse adjacency matrix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import arrays
from cohort_gnn.dataset.layouts.graph import Graph
from cohort_gnn.dataset.layouts.streams import EdgeChunk, Edges, Weights
from cohort_gnn.dataset.tables.known_files import known_file
from cohort_gnn.dataset.tables.table import ColumnKind
from cohort_gnn.dataset.tables.text_file import LONGEST_LINE, TextFile
from cohort_gnn.dataset.tables.text_options import NONE, TextOptions

if TYPE_CHECKING:
    import pyarrow as pa

BANNER = "%%MatrixMarket matrix coordinate FIELD SYMMETRY"
FIELDS = {"pattern": None, "integer": np.int64, "unsigned-integer": np.int64, "real": np.float32, "double": np.float32}
SYMMETRIES = ("general", "symmetric", "skew-symmetric")
AS_COORDINATES = "scipy.io.mmwrite('coordinates.mtx', scipy.sparse.coo_array(scipy.io.mmread('{}')))"
AS_REAL = "keep one number of each value: scipy.io.mmwrite('real.mtx', scipy.io.mmread('{}').real)"
NO_BANNER_HINT = "scipy.io.mmwrite writes such a file; an edge list has a name that ends in .txt or .csv"
ENTRIES_HINT = "an entry is ROW COLUMN VALUE, in a pattern ROW COLUMN; comments come before the entries"


class MatrixFile(TextFile):
    """The entries of a MatrixMarket file, a row each: row, column and, unless the field is pattern, value.

    Attributes:
        field, symmetry: words of the first line, in small letters.
        num_nodes: rows of the matrix, which has as many columns.
        entries: how many the file says it has.
    """

    def __init__(self, path: Path):
        options = TextOptions(separator=" ", header="no", comment=NONE)
        super().__init__(path, options)
        fields = 2 if self.field == "pattern" else 3
        if self.width not in (0, fields):
            place, expected = f"{path}: line {self.lines_before + 1}", f"{fields} fields, as the field is {self.field}"
            raise CohortError(place, expected, str(self.width), ENTRIES_HINT)

    def _start(self) -> int:
        with self._open() as (file, _):
            lines = iter(lambda: self._guarded(lambda: file.readline(LONGEST_LINE)), b"")
            self._read_banner(line := next(lines, b""))
            start = len(line)
            for line in lines:
                start += len(line)
                if line.strip() and not line.startswith(b"%"):
                    break
            self._read_size(line)
            return start

    def _read_banner(self, line: bytes) -> None:
        place, words = f"{self.path}: line 1", line[:200].decode("utf-8", "replace").lower().split()
        if len(words) != 5 or words[0] != "%%matrixmarket" or words[1] != "matrix":
            known = None if line.startswith(b"%") else known_file(self.path, line[:200])
            actual, hint = known or (repr(line[:60])[1:], NO_BANNER_HINT)
            raise CohortError(place, BANNER, actual, hint)
        form, self.field, self.symmetry = words[2:]
        if form != "coordinate":
            raise CohortError(place, "coordinate: the entries of a sparse matrix", form, self._cure(AS_COORDINATES))
        if self.field not in FIELDS:
            hint = self._cure(AS_REAL) if self.field == "complex" else ""
            raise CohortError(place, f"a field {', '.join(FIELDS)}", self.field, hint)
        if self.symmetry not in SYMMETRIES or (self.field, self.symmetry) == ("pattern", "skew-symmetric"):
            supported = SYMMETRIES[:2] if self.field == "pattern" else SYMMETRIES
            hint = "scipy.io.mmwrite(FILE, MATRIX, symmetry='general') writes every entry"
            raise CohortError(place, f"a symmetry of {self.field}: {', '.join(supported)}", self.symmetry, hint)

    def _read_size(self, line: bytes) -> None:
        """The line behind the comments: rows, columns, entries."""
        parts = line[:200].split()
        if len(parts) != 3 or not all(part.isdigit() for part in parts):
            hint = "scipy.io.mmwrite writes this line behind the comments"
            raise CohortError(str(self.path), "a line ROWS COLUMNS ENTRIES", repr(line[:60])[1:], hint)
        rows, columns, self.entries = map(int, parts)
        if rows != columns:
            hint = "edges between two node types are tables of a graph.yaml; feature rows are a .npy file"
            actual = f"{rows} rows, {columns} columns"
            raise CohortError(str(self.path), "a row and a column for each node", actual, hint)
        arrays.demand_plausible(str(self.path), rows, self.entries)
        self.num_nodes = rows

    def _cure(self, text: str) -> str:
        return text.format(self.path.name)

    def pieces(
        self, columns: Sequence[int], kind: ColumnKind, block_bytes: int
    ) -> Iterator[tuple[list[pa.Array | pa.ChunkedArray], float]]:
        try:
            yield from super().pieces(columns, kind, block_bytes)
        except CohortError as error:
            if ": line " not in error.place:
                raise
            raise CohortError(error.place, error.expected, error.found, ENTRIES_HINT) from error

    # --- entries as edges -------------------------------------------------------------------------------------------

    def edges(self, block_bytes: int) -> Iterator[EdgeChunk]:
        """Entry (i, j) is the edge i -> j; with a symmetry, j -> i comes next unless j is i."""
        done, sides = 0, [False, False]
        for entries, fraction in self.blocks([0, 1], block_bytes, np.int64):
            self._demand_nodes(entries, done)
            if self.symmetry != "general":
                self._demand_one_triangle(entries, done, sides)
            done += len(entries)
            yield *self._both_directions(entries - 1), fraction
        if done != self.entries:
            actual = f"{done}" if done > self.entries else f"{done}, then the end of the file"
            raise CohortError(str(self.path), f"{self.entries} entries", actual, "copy or write the file again")

    def weights(self, block_bytes: int) -> Iterator[np.ndarray]:
        """The values, in the order of the edges; of a mirror in a skew-symmetric matrix the negative."""
        values = (rows[:, 0] for rows, _ in self.blocks([2], block_bytes, FIELDS[self.field]))
        if self.symmetry == "general":
            yield from values
            return
        all_entries = (entries for entries, _ in self.blocks([0, 1], block_bytes, np.int64))
        for entries, numbers in zip(all_entries, values, strict=True):
            copies, mirrored = _copies(entries)
            out = np.repeat(numbers, copies)
            if self.symmetry == "skew-symmetric":
                out[mirrored] *= -1
            yield out

    def _both_directions(self, entries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sources and targets of the edges that entries [n, 2] are."""
        if self.symmetry == "general":
            return entries[:, 0], entries[:, 1]
        copies, mirrored = _copies(entries)
        out = np.repeat(entries, copies, axis=0)
        out[mirrored] = out[mirrored, ::-1]
        return out[:, 0], out[:, 1]

    def _demand_nodes(self, entries: np.ndarray, done: int) -> None:
        bad = np.argwhere((entries < 1) | (entries > self.num_nodes))
        if len(bad):
            entry, column = bad[0].tolist()
            place, what = f"{self.path}: entry {done + entry + 1}", "a column" if column else "a row"
            hint = "MatrixMarket counts rows and columns from 1"
            raise CohortError(place, f"{what} in [1, {self.num_nodes}]", str(entries[entry, column]), hint)

    def _demand_one_triangle(self, entries: np.ndarray, done: int, sides: list[bool]) -> None:
        """Refuses entries on both sides of the diagonal, of which some might be the mirrors of others, and a diagonal
        that is its own negative."""
        hint = "scipy.io.mmwrite writes a symmetric matrix so; with general in the first line each entry is one edge"
        for side, there in enumerate((entries[:, 0] > entries[:, 1], entries[:, 0] < entries[:, 1])):
            sides[side] |= bool(there.any())
            if all(sides):
                place = f"{self.path}: entry {done + int(np.argmax(there)) + 1}"
                raise CohortError(place, f"one triangle of the {self.symmetry} matrix", "an entry of the other", hint)
        loops = np.flatnonzero(entries[:, 0] == entries[:, 1])
        if self.symmetry == "skew-symmetric" and len(loops):
            place = f"{self.path}: entry {done + loops[0] + 1}"
            raise CohortError(place, "no diagonal in a skew-symmetric matrix", f"node {entries[loops[0], 0]}", hint)


def _copies(entries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How many edges each entry [n, 2] of a symmetric matrix is, and where among them those are that mirror it."""
    copies = 1 + (entries[:, 0] != entries[:, 1])
    return copies, np.cumsum(copies)[copies == 2] - 1


def read_matrix_market(path: Path) -> Graph:
    """The graph whose adjacency matrix is in a .mtx file, plain or compressed by gzip; values are edge weights."""
    file = MatrixFile(path)
    edges = Edges(str(path), file.edges)
    note = f"{path.name}: {file.entries:,} entries, {file.symmetry}"
    if file.field != "pattern":
        edges = edges.with_column(Weights(f"{path}: values", file.weights))
        note += "; their values are edge weights"
    return Graph.homogeneous(edges, num_nodes=file.num_nodes, name=path.name.split(".")[0], notes=[note])
