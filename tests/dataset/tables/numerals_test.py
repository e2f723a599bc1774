"""Numbers in texts are decimal, whatever they stand for; texts that only look like numbers are never taken for one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from import_helpers import edge_pairs, imported, refusal

NAN, INFINITE = float("nan"), float("inf")
HEX = ("0x10", "0X1F", "-0x1", "0x0A", "0xFFFFFFFFFFFFFFFF", "1_000")
OTHERS = "0x|0b1|0o7|1h|1,000|1,5|1 000|\u0663|\uff11|\u00a016|1e|e1|+|- 1|++1|+-1".split("|")
# What a text is as an integer and as a float; None: it is refused.
MEANT: dict[str, tuple[int | None, float | None]] = {
    **{
        text: (int(text), float(text))
        for text in ("16", "+16", "016", "-0", "007", "+0", "1", "-1", " 16", "16 ", " +16")
    },
    '" 16 "': (16, 16.0),
    **{text: (None, float(text)) for text in ("1e3", "1E3", "1e+00", "16.0", "2.", ".5", "-.5", "+2.5e-1")},
    **dict.fromkeys(("nan", "NaN", "NAN", "-nan"), (None, NAN)),
    **dict.fromkeys(("inf", "Inf", "Infinity", "+inf"), (None, INFINITE)),
    **dict.fromkeys((*HEX, *OTHERS, "true", "1d0", "1f", "#1", "None", " ", "1e400"), (None, None)),
}
NODES, EDGES = ("edges", "splits", "ids of labels"), "src,dst,w\n1,2,3\n3,2,{}\n"
# Role -> a table with a place for the text in its third line, options, and what of the data set has the number.
INTEGERS = {
    "edges": ("src,dst\n3,5\n{},5\n", {}, lambda data: [source for source, _ in edge_pairs(data)]),
    "times": (EDGES, {"time_column": "w"}, lambda data: data.edge_times),
    "splits": ("node\n3\n{}\n", {}, lambda data: data.train_ids),
    "ids of labels": ("node,y\n3,0\n{},0\n", {"label_columns": ["y"]}, lambda data: np.flatnonzero(data.y == 0)),
    "node ids": ("id\n3\n{}\n", {}, lambda data: np.load(data.path / "id_of_node.npy")),
}
FLOATS = {
    "features": ("f\n3\n{}\n" + "3\n" * 18, {}, lambda data: data.x[:2, 0]),
    "regression": ("f\n3\n{}\n" + "3\n" * 18, {"task": "regression"}, lambda data: data.y[:2]),
    "classification": ("f\n3\n{}\n" + "3\n" * 18, {}, lambda data: data.y[:2]),
    "weights": (EDGES, {"weight_column": "w"}, lambda data: data.edge_weights),
    "edge features": (EDGES, {"edge_feature_columns": ["w"]}, lambda data: data.edge_attr[:, 0]),
}


@pytest.fixture
def ring(tmp_path) -> Path:
    np.save(tmp_path / "ring.npy", np.stack([np.arange(20), (np.arange(20) + 1) % 20]))
    return tmp_path / "ring.npy"


def given(role: str, table: Path, ring: Path) -> tuple[Path, dict]:
    """The source, and the options that name the table."""
    if role in ("edges", "times", "weights", "edge features"):
        return table, {"features": "ones", "nodes": 20}
    if role == "splits":
        paths = [ring.parent / f"{name}.npy" for name in ("val", "test", "y")]
        for path, array in zip(paths, (np.array([5]), np.array([6]), np.zeros(20, int)), strict=True):
            np.save(path, array)
        return ring, {"features": "ones", "labels": paths[2], "splits": [table, *paths[:2]]}
    if role == "node ids":
        np.save(ring.parent / "e.npy", np.array([[3], [3]]))
        return ring.parent / "e.npy", {"features": "ones", "node_ids": table}
    if role == "features":
        return ring, {"features": table, "id_column": "none"}
    ids = {"id_column": {"labels": "node" if role == "ids of labels" else "none"}}
    return ring, {"features": "ones", "nodes": 20, "labels": table, **ids}


def meant(role: str, text: str) -> float | None:
    """The number of a text in a role; None: it is refused."""
    integer, number = MEANT[text]
    if role in INTEGERS:
        return None if integer is not None and integer < 0 and role in NODES else integer
    if number is None or abs(number) == INFINITE:
        return None
    if role == "classification":
        number = -1 if number != number else number
        return number if number == int(number) and number >= -1 else None
    return number if number == number or role == "regression" else None


@pytest.mark.parametrize("role", INTEGERS | FLOATS)
def test_a_text_is_one_number_or_refused(tmp_path, ring, role):
    content, options, numbers = (INTEGERS | FLOATS)[role]
    for text in MEANT:
        quoted = text if text.startswith('"') else f'"{text}"' if "," in text else text
        (tmp_path / "t.csv").write_text(content.format(quoted))
        source, more = given(role, tmp_path / "t.csv", ring)
        how = {"separator": ",", "header": {"": "yes"}, "comment": "none"} | more | options
        wanted = meant(role, text)
        if wanted is not None:
            np.testing.assert_array_equal(np.sort(numbers(imported(source, **how))), np.sort([3, wanted]), text)
            continue
        error = refusal(source, **how)
        if role in INTEGERS and MEANT[text][0] is None:
            assert (error.expected, error.found) == ("an integer", f'"{text}"') and "line 3" in error.place, text
            assert "decimal: 16, not 0x10" in error.hint or text not in HEX or role == "times"


@pytest.mark.parametrize("role", INTEGERS | FLOATS)
def test_a_text_of_parquet_is_no_number(tmp_path, ring, role):
    content, options, _ = (INTEGERS | FLOATS)[role]
    title, *rows = [line.split(",") for line in content.format("16").splitlines()]
    columns = dict(zip(title, zip(*rows, strict=True), strict=True))
    odd = {"edges": "src", "ids of labels": "node"}.get(role, title[-1])
    table = pa.table({name: texts if name == odd else list(map(int, texts)) for name, texts in columns.items()})
    pq.write_table(table, tmp_path / "t.parquet")
    source, more = given(role, tmp_path / "t.parquet", ring)
    assert refusal(source, **more, **options).found in ("string", "texts of numbers")


def test_a_first_line_of_hexadecimal_numbers_may_be_a_row(tmp_path):
    (tmp_path / "e.csv").write_text("0x10,0x11\n0x11,0x10\n")
    error = refusal(tmp_path / "e.csv", features="ones")
    assert "may be either" in error.found and "--header edges=no" in error.hint


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_ids_of_nodes_are_one_only_if_they_are_the_same_number(tmp_path, kind):
    def described(ids: list[str], edges: list[tuple[str, str]]) -> Path:
        nodes = pa.table({"key": ids, "f": np.arange(len(ids)) / 2})
        ends = pa.table({"from": [a for a, _ in edges], "to": [b for _, b in edges]})
        for name, table in (("n", nodes), ("e", ends)):
            if kind == "csv":
                rows = zip(*table.to_pydict().values(), strict=True)
                lines = [",".join(table.column_names), *(",".join(map(str, row)) for row in rows)]
                (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
            else:
                pq.write_table(table, tmp_path / f"{name}.parquet")
        text = {
            "nodes": {"a": {"file": f"n.{kind}", "id": "key", "features": ["f"]}},
            "edges": [{"type": ["a", "to", "a"], "file": f"e.{kind}", "source": "from", "target": "to"}],
        }
        (tmp_path / "graph.yaml").write_text(yaml.safe_dump(text))
        return tmp_path / "graph.yaml"

    assert edge_pairs(imported(described(["0x10", "16"], [("0x10", "16"), ("16", "16")]))) == [(0, 1), (1, 1)]
    data = imported(described(["017", "16", "+18"], [("17", "+16"), (" 18", "16")]))
    assert edge_pairs(data) == [(0, 1), (2, 1)]
    error = refusal(described(["16", "17"], [("0x10", "17")]))
    assert error.found == '"0x10"' and error.expected.startswith(("an integer", "integers"))
    error = refusal(described(["16", "016"], [("16", "16")]))
    assert error.expected == "an id named once"
    assert data.num_nodes == 3


def test_all_columns_of_a_wrong_type_are_named_at_once(tmp_path, ring):
    days = pa.array([0] * 20, pa.date32())
    table = pa.table({"a": ["x"] * 20, "f": [0.5] * 20, "when": days, "b": ["y"] * 20, "price": days.cast(pa.string())})
    pq.write_table(table, tmp_path / "x.parquet")
    error = refusal(ring, features=tmp_path / "x.parquet")
    assert error.place.endswith("x.parquet: 4 columns") and error.expected == "numbers"
    assert error.found == "string in a and b and price, date32[day] in when"
    assert "number them" in error.hint and "times are integers" in error.hint
    pq.write_table(table.select(["f", "a"]), tmp_path / "x.parquet")
    error = refusal(ring, features=tmp_path / "x.parquet")
    assert error.place.endswith("x.parquet: column a") and error.found == "string"
