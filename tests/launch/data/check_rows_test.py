"""`cohort dataset check` also checks encoded rows, whether raw ones exist beside them or not."""

import numpy as np
import pytest
from damages import cut

from cohort_gnn import ibp
from cohort_gnn.dataset import generate
from cohort_gnn.launch.data.prepare import encoded_rows_writer
from cohort_gnn.launch.main import main

FILE = "prepared/features.ibp"


def flip(folder):
    data = bytearray((folder / FILE).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / FILE).write_bytes(data)


def rows_of(edit):
    def damage(folder):
        rows = np.array(ibp.fetch(ibp.load(folder / FILE), np.arange(60)))
        rows = edit(rows)
        ibp.encode(rows, ibp.fit(rows, "raw"), out=folder / FILE)

    return damage


def poke(value):
    def edit(rows):
        rows[7, 3] = value
        return rows

    return rows_of(edit)


DAMAGES = {
    "empty": (cut(FILE, 0), "", "a header", "an empty file"),
    "truncated": (cut(FILE, 1000), "", "all sections", "an end after 1000 bytes"),
    "flipped": (flip, "", "checksum", ""),
    "fewer": (rows_of(lambda rows: rows[:-1]), "", "float32 [60, 5]", "float32 [59, 5]"),
    "half": (rows_of(lambda rows: rows.astype(np.float16)), "", "float32 [60, 5]", "float16 [60, 5]"),
}
WITHOUT_RAW = {"nan": (poke(np.nan), "[7, 3]", "a finite number", "NaN"), "inf": (poke(-np.inf), "[7, 3]", "", "Inf")}
WITH_RAW = {"other": (poke(2), ": row 7", "the row of", "another row")}
CASES = [(True, *each) for each in (DAMAGES | WITH_RAW).values()]
CASES += [(False, *each) for each in (DAMAGES | WITHOUT_RAW).values()]


@pytest.mark.parametrize(("has_raw", "damage", "place", "expected", "found"), CASES)
def test_damage_of_encoded_rows_is_named(tmp_path, capsys, has_raw, damage, place, expected, found):
    folder = tmp_path / "data"
    write_rows = None if has_raw else encoded_rows_writer("raw", 0)
    generate(folder, kind="sbm", nodes=60, edges=500, dim=5, classes=3, seed=3, write_rows=write_rows)
    if has_raw:
        assert main(["dataset", "prepare", str(folder), "--codec", "raw"]) == 0
    assert main(["dataset", "check", str(folder)]) == 0
    damage(folder)
    capsys.readouterr()
    assert main(["dataset", "check", str(folder)]) == 1
    said = capsys.readouterr().err
    assert f"{folder / FILE}{place}: expected" in said
    assert expected in said.partition("expected")[2] and found in said.partition("found")[2]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "uint8"])
def test_rows_of_other_types_and_orders_have_no_problem(tmp_path, dtype):
    folder = tmp_path / "data"
    generate(folder, kind="powerlaw", nodes=600, edges=5000, dim=33, dtype=dtype, classes=3, edge_dim=2)
    for options in (["--codec", "raw"], ["--codec", "raw", "--reorder", "degree"]):
        assert main(["dataset", "prepare", str(folder), *options]) == 0
        assert main(["dataset", "check", str(folder)]) == 0
    assert main(["dataset", "check", str(folder / "prepared")]) == 0
