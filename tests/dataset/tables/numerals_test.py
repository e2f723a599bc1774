"""Numbers in texts are decimal, whatever they stand for; texts that only look like numbers are never taken for one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from import_helpers import edge_pairs, imported, refusal

from cohort_gnn.dataset.importing.beside import SourceOptions

SAME = ("16", "+16", "016", " 16", '" 16 "')
NO_INTEGERS = ("0x10", "0X1F", "-0x1", "1_000", "1e3", "16.0", "nan", "inf", " ", "++1", "\u0663", "\u00a016")


@pytest.fixture
def ring(tmp_path) -> Path:
    np.save(tmp_path / "ring.npy", np.stack([np.arange(20), (np.arange(20) + 1) % 20]))
    return tmp_path / "ring.npy"


def integers_as(role: str, text: str, ring: Path) -> tuple[Path, SourceOptions]:
    """A source, and its options, where this text is an integer of a role, behind others."""
    folder = ring.parent
    given: dict = {"features": Path("ones"), "nodes": 20}
    (folder / "t.csv").write_text(f"src,dst,at\n1,2,3\n{text},2,3\n" if role == "edges" else f"node\n1\n{text}\n")
    if role == "edges":
        return folder / "t.csv", SourceOptions(**given)
    if role == "times":
        (folder / "e.csv").write_text(f"src,dst,at\n1,2,3\n3,2,{text}\n")
        return folder / "e.csv", SourceOptions(**given, time_column="at")
    if role == "splits":
        np.save(folder / "y.npy", np.zeros(20, int))
        np.save(folder / "none.npy", np.array([5]))
        np.save(folder / "other.npy", np.array([6]))
        splits = (folder / "t.csv", folder / "none.npy", folder / "other.npy")
        return ring, SourceOptions(**given, labels=folder / "y.npy", splits=splits)
    if role == "labels":
        (folder / "t.csv").write_text(f"node,y\n1,0\n{text},1\n")
        options = {"id_column": {"labels": "node"}, "label_columns": ["y"]}
        return ring, SourceOptions(**given, labels=folder / "t.csv", **options)
    np.save(folder / "e.npy", np.array([[1], [16]]))
    del given["nodes"]
    return folder / "e.npy", SourceOptions(**given, node_ids=folder / "t.csv")


ROLES = ("edges", "times", "splits", "labels", "node ids")


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("text", SAME)
def test_an_integer_has_a_sign_zeros_and_blanks_in_every_role(tmp_path, ring, role, text):
    source, options = integers_as(role, text, ring)
    data = imported(source, inputs=options)
    found = {
        "edges": lambda: edge_pairs(data) == [(1, 2), (16, 2)],
        "times": lambda: sorted(data.edge_times.tolist()) == [3, 16],
        "splits": lambda: sorted(data.train_ids.tolist()) == [1, 16],
        "labels": lambda: data.y[16] == 1,
        "node ids": lambda: np.load(data.path / "id_of_node.npy").tolist() == [1, 16],
    }
    assert found[role]()


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("text", NO_INTEGERS)
def test_no_other_text_is_an_integer_in_any_role(tmp_path, ring, role, text):
    source, options = integers_as(role, text, ring)
    error = refusal(source, inputs=options)
    assert (error.expected, error.found) == ("an integer", f'"{text}"') and "line 3" in error.place
    if text in ("0x10", "0X1F", "-0x1", "1_000") and role != "times":
        assert "decimal: 16, not 0x10" in error.hint


@pytest.mark.parametrize("text", ["0x10", "1_000", "1,5", "\u0663", "1e400", "inf"])
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_labels_and_features_are_decimal_and_finite(tmp_path, ring, text, task):
    (tmp_path / "t.csv").write_text("f\n0\n" + f'"{text}"\n' * 19)
    refusal(ring, features="ones", nodes=20, labels=tmp_path / "t.csv", task=task)
    refusal(ring, features=tmp_path / "t.csv")


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
