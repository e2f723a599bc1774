"""Recognises files of other kinds by their first bytes, and says how to convert them."""

from __future__ import annotations

import re
from pathlib import Path

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.files import demand_regular

MATRIX_CURE = (
    "of edges: give it a name that ends in .mtx; of feature rows: "
    "numpy.save('x.npy', scipy.sparse.coo_array(scipy.io.mmread('{}')).toarray())"
)
ZIP_CURE = "write an array with numpy.save, or a table as .csv; a file of torch.save: give it a name that ends in .pt"
SQLITE_CURE = (
    "pandas.read_sql('SELECT * FROM TABLE', sqlite3.connect('{}')).to_parquet('TABLE.parquet') writes a table;"
    " cohort dataset describe FOLDER proposes a description of all"
)
# First bytes, what the file is, and the cure; {} is its name.
KNOWN = [
    (b"\x93NUMPY", "an array of NumPy", "give it a name that ends in .npy"),
    (b"PAR1", "a Parquet file", "give it a name that ends in .parquet"),
    (b"PK\x03\x04", "a zip archive (.npz, .pt, .xlsx)", ZIP_CURE),
    (b"\x89HDF\r\n", "an HDF5 file", "numpy.save('x.npy', h5py.File('{}')[NAME][:])"),
    (b"ARROW1", "an Arrow (Feather) file", "give it a name that ends in .feather"),
    (b"FEA1", "a Feather file of version 1", "pandas.read_feather('{}').to_parquet('table.parquet')"),
    (b"ORC", "an ORC file", "pandas.read_orc('{}').to_parquet('table.parquet')"),
    (b"\x1f\x8b", "data compressed by gzip", "give it a name that ends in .csv.gz, or run gunzip on it"),
    (b"BZh", "data compressed by bzip2", "give it a name that ends in .csv.bz2, or run bunzip2 -k {}"),
    (b"\xfd7zXZ\x00", "data compressed by xz", "give it a name that ends in .csv.xz, or run unxz -k {}"),
    (b"\x28\xb5\x2f\xfd", "data compressed by zstd", "give it a name that ends in .csv.zst, or run unzstd {}"),
    (b"%%MatrixMarket", "a MatrixMarket file", MATRIX_CURE),
    (b"\x80\x02", "a pickle", "write its array with numpy.save"),
    (b"\x80\x03", "a pickle", "write its array with numpy.save"),
    (b"\x80\x04", "a pickle", "write its array with numpy.save"),
    (b"\x80\x05", "a pickle", "write its array with numpy.save"),
    (b"Obj\x01", "an Avro file", "pandas.DataFrame(fastavro.reader(open('{}', 'rb'))).to_parquet('table.parquet')"),
    (b"sep=", "a text whose first line is for Excel", "tail -n +2 {} > table.csv leaves the line out"),
    (b"SQLite format 3\x00", "a database of SQLite", SQLITE_CURE),
]
PLACEHOLDERS = [  # what is there in place of a file
    (b"version https://git-lfs", "a pointer of Git LFS", "git lfs pull fetches the file that it stands for"),
    (b"<!doctype html", "a page of HTML", "download the file again: the server sent a page in its place"),
    (b"<html", "a page of HTML", "download the file again: the server sent a page in its place"),
    (b"<?xml version='1.0'?><error", "a refusal of a server", "download the file again, with the right to read it"),
]
SAFETENSORS = ("a safetensors file", "give it a name that ends in .safetensors")
DUCKDB = ("a database of DuckDB", "cohort dataset describe {} > graph.yaml proposes a description of its tables")
TEXT = ("a text", "give it a name that ends in .csv, .tsv or .txt")
NUMBERS_IN_TEXT = re.compile(rb"[-+.\w \t,;|\"]{1,4096}\r?\n[-+.\w \t,;|\"]")


def known_file(path: Path, head: bytes | None = None) -> tuple[str, str] | None:
    """What a file is, and the cure; None: its first bytes, which `head` has if they are read already, say nothing."""
    if head is None:
        try:
            demand_regular(path)
            with open(path, "rb") as file:
                head = file.read(8192)
        except OSError:
            return None
    known = next(((what, cure) for begin, what, cure in KNOWN if head.startswith(begin)), None)
    if known is None and head[8:9] == b"{" and int.from_bytes(head[:8], "little") < path.stat().st_size:
        known = SAFETENSORS
    if known is None and head[8:12] == b"DUCK":
        known = DUCKDB
    if known is None and head.isascii() and NUMBERS_IN_TEXT.match(head):
        known = TEXT
    return known and (known[0], known[1].format(path.name))


def demand_fetched(path: Path) -> None:
    """Raises CohortError for what stands in the place of a file that was not fetched."""
    if not path.is_file():
        return
    with open(path, "rb") as file:
        head = file.read(64).replace(b'"', b"'").lower()
    for begin, what, cure in PLACEHOLDERS:
        if head.startswith(begin):
            raise CohortError(str(path), "a file of data", what, cure)


def demand_unknown(path: Path, expected: str) -> None:
    """Raises CohortError for a file that is known to be no file of bare numbers, or no text."""
    if known := known_file(path):
        raise CohortError(str(path), expected, *known)
