"""Declared columns: numbers with nulls, categories, timestamps and named classes become features, labels and times."""

from __future__ import annotations

import csv
import decimal
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import yaml

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import from_tables, import_graph, original_ids, split_links
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.dataset.columns import read_columns, write_columns
from cohort_gnn.dataset.tables import moments

V, E = 60, 200
ROWS = np.arange(V)
PARTS = np.array(["train", "val", "test"])[ROWS % 3]
USERS = pd.DataFrame(
    {
        "user": [f"u{i}" for i in ROWS],
        "income": pd.array([None if i % 7 == 0 else i * 0.5 for i in ROWS], "Float64"),
        "age": ROWS % 11 + 20,
        "country": [None if i % 13 == 0 else ["it", "de", "fr"][i % 3] for i in ROWS],
        "active": ROWS % 2 == 0,
        "joined": pd.date_range("2024-01-30 22:30:00", periods=V, freq="9h"),
        "part": PARTS,
        "fraud": np.where(ROWS % 10 == 1, "yes", "no"),
    }
)
PAYS = ("user", "pays", "user")
PAYMENTS = pd.DataFrame(
    {
        "payer": [f"u{i * 3 % V}" for i in range(E)],
        "payee": [f"u{i * 7 % V}" for i in range(E)],
        "amount": np.arange(E) + 0.5,
        "at": pd.date_range("2024-03-01", periods=E, freq="1h"),
    }
)
KEYS = {"id": "user", "label": "fraud", "split": "part"}
ENDS = {"source": "payer", "target": "payee"}


def made(out: Path, features: list, users: pd.DataFrame = USERS, edges: dict | None = None, options=None, **keys):
    """The data set of users with these features."""
    node = {"table": users, "features": features} | KEYS | keys
    pays = {"table": PAYMENTS} | ENDS | (edges or {})
    from_tables(out, nodes={"user": node}, edges={PAYS: pays}, **(options or {}))
    return open_dataset(out)


TRAIN = PARTS == "train"


def test_numbers_with_nulls_are_filled_and_standardized_by_the_training_rows(tmp_path):
    income = USERS["income"].to_numpy(float, na_value=np.nan)
    mean, deviation = np.nanmean(income[TRAIN]), np.nanstd(income[TRAIN])
    missing = np.isnan(income)
    for nulls, fill in (("zero", 0.0), ("mean", mean)):
        for standardize in (False, True):
            column = {"column": "income", "nulls": nulls, "standardize": standardize}
            x = made(tmp_path / f"{nulls}-{standardize}", [column, "age"]).x
            expected = np.where(missing, fill, income)
            expected = (expected - mean) / deviation if standardize else expected
            np.testing.assert_allclose(x[:, 0], expected, rtol=1e-6, atol=1e-6)
            assert np.array_equal(x[:, 1], missing)
            assert np.array_equal(x[:, 2], USERS["age"])
    names = [name for column in read_columns(tmp_path / "mean-True").nodes["node"] for name in column.names]
    assert names == ["income", "income is null", "age"]


@pytest.mark.parametrize("at_once", [1, 7])
def test_pieces_of_a_table_change_no_bit_of_means_and_deviations(tmp_path, monkeypatch, at_once):
    """As row groups, parts and formats of files do; of more rows than are added up at once."""
    monkeypatch.setattr(moments, "BLOCK", 16)
    table = pa.Table.from_pandas(USERS.assign(age=1.7e9 + ROWS**2), preserve_index=False)
    cut = pa.Table.from_batches(table.to_batches(at_once))
    features = [{"column": "income", "nulls": "mean"}, {"column": "age", "standardize": True}]
    whole, pieces = made(tmp_path / "whole", features, table), made(tmp_path / "pieces", features, cut)
    assert read_columns(whole.path) == read_columns(pieces.path) and np.array_equal(whole.x, pieces.x)
    age = 1.7e9 + ROWS**2
    np.testing.assert_allclose(whole.x[:, 2], (age - age[TRAIN].mean()) / age[TRAIN].std(), rtol=1e-6)


@pytest.mark.parametrize("kind", ["int64", "Int64", "float64", "csv"])
def test_large_numbers_are_standardized_before_float32_rounds_them(tmp_path, kind):
    """Seconds since 1970, of which float32 holds every 128th."""
    seconds = 1_700_000_000 + ROWS * 3
    users = USERS.assign(seconds=pd.array(seconds, "int64" if kind == "csv" else kind))
    users.to_csv(tmp_path / "users.csv", index=False)
    PAYMENTS.to_csv(tmp_path / "pays.csv", index=False)

    def features(column: str | dict) -> np.ndarray:
        if kind != "csv":
            return made(tmp_path / "out", [column], users).x
        edges = [{"type": list(PAYS), "file": "pays.csv"} | ENDS]
        description = {"nodes": {"user": {"file": "users.csv", "features": [column]} | KEYS}, "edges": edges}
        (tmp_path / "graph.yaml").write_text(yaml.safe_dump(description))
        import_graph(tmp_path / "graph.yaml", tmp_path / "out")
        return open_dataset(tmp_path / "out").x

    with pytest.raises(CohortError, match="an integer that float32 holds") as refusal:
        features("seconds")
    assert "standardize: true" in refusal.value.hint
    x = features({"column": "seconds", "standardize": True, "nulls": "zero"})
    expected = (seconds - seconds[TRAIN].mean()) / seconds[TRAIN].std()
    np.testing.assert_allclose(x[:, 0], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("number", [0.1, 1 / 3, 123456.789, 7.0])
def test_a_number_that_all_training_rows_have_is_standardized_to_0(number, tmp_path):
    """Sums of such numbers are rounded: the deviation was 1e-17, by which other rows were divided."""
    users = USERS.assign(same=np.where(PARTS == "test", number + 2, number))
    data = made(tmp_path / "out", [{"column": "same", "standardize": True}], users)
    (column,) = read_columns(data.path).nodes["node"]
    assert (column.mean, column.deviation) == ([number], [0.0])
    np.testing.assert_array_equal(data.x[:, 0], np.float32(np.where(PARTS == "test", 2, 0)))


def test_numbers_whose_squares_float64_does_not_hold_are_refused(tmp_path):
    """Their deviation was infinity, which columns.json cannot have: nothing read the data set again."""
    users = USERS.assign(large=np.where(PARTS == "train", 3e180, -1.0) * np.arange(len(USERS)))
    with pytest.raises(CohortError, match="column large: expected numbers below 1e154, .*found larger ones") as refusal:
        made(tmp_path / "out", [{"column": "large", "standardize": True}], users)
    assert "divide all of them" in refusal.value.hint and not (tmp_path / "out").exists()


def test_categories_are_those_of_the_training_rows(tmp_path):
    users = USERS.assign(country=np.where(TRAIN, USERS["country"].fillna("de"), "xx"))
    data = made(tmp_path / "out", [{"column": "country", "kind": "category"}], users)
    (column,) = read_columns(data.path).nodes["node"]
    assert column.vocabulary == sorted(set(users["country"][TRAIN]))
    assert column.names == ["country=unknown", *(f"country={text}" for text in column.vocabulary)]
    expected = np.array(
        [[text not in column.vocabulary, *(text == name for name in column.vocabulary)] for text in users["country"]]
    )
    assert np.array_equal(data.x, expected)
    codes = made(tmp_path / "codes", [{"column": "country", "kind": "code"}], users).x
    assert np.array_equal(codes[:, 0], expected.argmax(axis=1))


@pytest.mark.parametrize("fit", ["train", "all"])
def test_rows_of_validation_and_test_say_nothing_unless_asked_for(fit, tmp_path):
    features = [
        {"column": "income", "nulls": "mean", "standardize": True},
        {"column": "country", "kind": "category", "nulls": "unknown"},
        {"column": "age", "standardize": True},
    ]
    others = USERS.assign(
        income=USERS["income"].where(TRAIN, 1e6),
        country=USERS["country"].where(TRAIN, "elsewhere"),
        age=USERS["age"].where(TRAIN, 999),
    )
    before, after = (made(tmp_path / name, features, users, fit=fit) for name, users in (("a", USERS), ("b", others)))
    same = (before.path / "columns.json").read_bytes() == (after.path / "columns.json").read_bytes()
    assert same == (fit == "train")
    if fit == "train":
        assert np.array_equal(before.x[TRAIN], after.x[TRAIN])


def test_next_month_is_encoded_by_the_columns_of_this_one(tmp_path):
    features = [
        {"column": "income", "nulls": "mean", "standardize": True},
        {"column": "country", "kind": "category", "nulls": "unknown"},
    ]
    before = made(tmp_path / "may", features)
    later = USERS.assign(income=USERS["income"] * 3, country="atlantis", fraud="yes")
    notes: list[str] = []
    after = made(tmp_path / "june", features, later, options={"columns_from": before.path, "note": notes.append})
    unknown = (
        f"nodes.user: column country: rows with a category that {before.path} does not know: {V}, such as 'atlantis'"
    )
    assert unknown in notes
    assert (after.path / "columns.json").read_bytes() == (before.path / "columns.json").read_bytes()
    assert after.num_classes == 2 and (after.y == 1).all()
    mean, deviation = (getattr(read_columns(before.path).nodes["node"][0], name)[0] for name in ("mean", "deviation"))
    income = later["income"].to_numpy(float, na_value=mean)
    np.testing.assert_allclose(after.x[:, 0], (income - mean) / deviation, rtol=1e-5)
    assert (after.x[:, 2] == 1).all() and (after.x[:, 3:] == 0).all()
    columns = read_columns(before.path)
    columns.nodes["node"][0].deviation = [1e-30]  # as of a column in another unit
    write_columns(before.path, columns)
    with pytest.raises(CohortError, match="column income, row 0: expected a number near the mean"):
        made(tmp_path / "far", features, later.assign(income=1e20), options={"columns_from": before.path})


@pytest.mark.parametrize("names", [["a", "b", "c"], None])
def test_numbers_of_classes_of_next_month_are_those_of_this_one(tmp_path, names):
    """A model of this month has an output for each of its classes, whichever of them come again."""
    classes = ROWS % 3 if names is None else np.array(names)[ROWS % 3]
    before = made(tmp_path / "may", ["age"], USERS.assign(fraud=classes))
    options = {"columns_from": before.path}
    after = made(tmp_path / "june", ["age"], USERS.assign(fraud=ROWS % 2), options=options)
    assert after.num_classes == 3 and after.y.tolist() == (ROWS % 2).tolist()
    assert read_columns(after.path).classes == (names or [])
    with pytest.raises(CohortError, match=r"column fraud\[5\]: expected a class in \[0, 3\), those of .*may, found 3"):
        made(tmp_path / "july", ["age"], USERS.assign(fraud=np.where(ROWS == 5, 3, 0)), options=options)


def test_dates_that_have_a_time_of_the_day_show_it(tmp_path):
    """date64 counts milliseconds, and other programs do not round them."""
    moments = pa.array([86_400_000 * 31 + 3_600_000 * 5 + 7] * V, pa.date64())
    users = USERS.assign(joined=pd.arrays.ArrowExtensionArray(moments))
    column = {"column": "joined", "kind": "time", "parts": ["month", "day", "hour"]}
    assert made(tmp_path / "out", [column], users).x.tolist() == [[2, 1, 5]] * V


@pytest.mark.parametrize("zone", [None, "America/New_York"])
def test_parts_of_timestamps_are_those_of_pandas(zone, tmp_path):
    parts = ["year", "month", "day", "weekday", "hour", "minute", "second"]
    joined = USERS["joined"] if zone is None else USERS["joined"].dt.tz_localize("UTC")
    column = {"column": "joined", "kind": "time", "parts": parts} | ({} if zone is None else {"zone": zone})
    data = made(tmp_path / "out", [column], USERS.assign(joined=joined.astype("category") if zone is None else joined))
    clock = joined if zone is None else joined.dt.tz_convert(zone)
    clock_parts = [getattr(clock.dt, part if part != "weekday" else "day_of_week") for part in parts]
    assert np.array_equal(data.x, np.stack(clock_parts, axis=1))


@pytest.mark.parametrize("null", [None, "none", "NA"])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
def test_a_text_that_may_be_a_null_is_settled_by_an_option(null, quoting, tmp_path):
    countries = np.where(ROWS % 4 == 0, "NA", np.array(["de", "fr", "it"])[ROWS % 5 % 3])
    income = USERS["income"].astype(object).where(ROWS % 7 > 0, "NA" if null == "NA" else "")
    users = USERS.assign(country=countries, income=income)
    users.to_csv(tmp_path / "users.csv", index=False, quoting=quoting)
    PAYMENTS.to_csv(tmp_path / "payments.csv", index=False)
    features = [{"column": "country", "kind": "category", "nulls": "unknown"}, {"column": "income", "nulls": "zero"}]
    described = {
        "nodes": {"user": {"file": "users.csv", "features": features} | KEYS | ({"null": null} if null else {})},
        "edges": [{"type": list(PAYS), "file": "payments.csv"} | ENDS],
    }
    (tmp_path / "graph.yaml").write_text(yaml.safe_dump(described))
    if null is None:
        with pytest.raises(CohortError, match='"NA", which may be either\n  hint: null: NA: it is a null'):
            import_graph(tmp_path, tmp_path / "out")
        return
    import_graph(tmp_path, tmp_path / "out")
    names = [name for column in read_columns(tmp_path / "out").nodes["node"] for name in column.names]
    x = open_dataset(tmp_path / "out").x
    assert ("country=NA" in names) == (null == "none")
    assert np.array_equal(x[:, names.index("country=NA" if null == "none" else "country=unknown")], ROWS % 4 == 0)
    assert np.array_equal(x[:, names.index("income is null")], ROWS % 7 == 0)


@pytest.mark.parametrize("null", [None, "NA", "nan", "none", ""])
def test_what_is_no_class_is_told_alike_of_every_kind_of_table(null, tmp_path):
    """A missing label may be an empty text, or "nan", which `astype(str)` of pandas makes of it."""
    labels = np.array(["yes", "no", "NA", "", "nan"])[ROWS % 5]
    users, said = USERS.assign(fraud=labels), {} if null is None else {"null": null}
    users.to_parquet(tmp_path / "users.parquet", index=False)
    users.to_csv(tmp_path / "users.csv", index=False)
    PAYMENTS.to_csv(tmp_path / "payments.csv", index=False)
    found = {}
    for file in ("users.csv", "users.parquet"):
        described = {
            "nodes": {"user": {"file": file, "features": ["age"]} | KEYS | {"split": None} | said},
            "edges": [{"type": list(PAYS), "file": "payments.csv"} | ENDS],
        }
        (tmp_path / "graph.yaml").write_text(yaml.safe_dump(described))
        if null is None:
            with pytest.raises(
                CohortError, match='"NA", which may be either\n  hint: null: NA: it is a null; null: none'
            ):
                import_graph(tmp_path, tmp_path / "out")
            continue
        import_graph(tmp_path, tmp_path / "out", overwrite=True)
        names = np.array([*read_columns(tmp_path / "out").classes, None])
        found[file] = names[open_dataset(tmp_path / "out").y].tolist()
    if null is not None:
        expected = [None if name in ("", null) else name for name in labels.tolist()]
        assert found["users.csv"] == expected
        assert found["users.parquet"] == (labels.tolist() if null == "none" else expected)


@pytest.mark.parametrize("null", ["NA", "none"])
def test_texts_that_are_nulls_are_no_categories_of_tables_with_types(null, tmp_path):
    countries = np.array(["de", "NA", ""])[ROWS % 3]
    column = {"column": "country", "kind": "category", "nulls": "unknown"}
    data = made(tmp_path / "out", [column], USERS.assign(country=countries), null=null, fit="all")
    (fitted,) = read_columns(data.path).nodes["node"]
    assert fitted.vocabulary == (["de"] if null == "NA" else ["", "NA", "de"])
    assert np.array_equal(data.x[:, 0], ROWS % 3 > 0 if null == "NA" else np.zeros(V))


def test_a_number_is_no_null_of_columns_with_types(tmp_path):
    """It would be one in a text file, in columns of numbers, too."""
    with pytest.raises(CohortError, match="null: expected a text, for columns that have types, found -1"):
        made(tmp_path / "out", ["age"], null="-1")


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_timestamps_of_edges_are_kept_in_the_unit_that_is_named(unit, zone, tmp_path):
    keys = {"time": "at", "time_unit": unit, "time_zone": zone}
    data = made(tmp_path / "out", ["age"], edges=keys)
    stamps = PAYMENTS["at"].dt.tz_localize(zone).dt.tz_convert("UTC").dt.tz_localize(None)
    expected = np.sort(stamps.to_numpy().astype(f"datetime64[{unit}]").astype(np.int64))
    assert np.array_equal(np.sort(data.edge_times), expected)


@pytest.mark.parametrize("are_texts", [False, True])
def test_dates_of_edges_are_days(tmp_path, are_texts):
    dates = PAYMENTS["at"].dt.date
    payments = pa.Table.from_pandas(PAYMENTS.assign(at=dates.astype(str) if are_texts else dates))
    node = {"table": USERS, "features": ["age"]} | KEYS
    pays = {"table": payments, "time": "at", "time_unit": "days"} | ENDS
    from_tables(tmp_path / "out", nodes={"user": node}, edges={PAYS: pays})
    times = open_dataset(tmp_path / "out").edge_times
    assert sorted(set(times)) == sorted({(stamp - pd.Timestamp(0)).days for stamp in PAYMENTS["at"]})


@pytest.mark.parametrize(
    ("labels", "names", "classes"),
    [
        (np.where(ROWS % 10 == 1, "yes", "no"), ["no", "yes"], None),
        (ROWS % 10 == 1, ["false", "true"], None),
        (pd.Categorical(np.where(ROWS % 10 == 1, "bad", "good"), ["good", "bad"]), ["bad", "good"], None),
        (np.where(ROWS % 10 == 1, "yes", "no"), ["yes", "no", "maybe"], ["yes", "no", "maybe"]),
        (pd.array([None if i % 4 == 0 else "ab"[i % 2] for i in ROWS], "string"), ["a", "b"], None),
        (ROWS % 10 // 9, [], None),
    ],
)
def test_classes_keep_their_names(labels, names, classes, tmp_path):
    keys = {} if classes is None else {"classes": classes}
    data = made(tmp_path / "out", ["age"], USERS.assign(fraud=labels, part=""), **keys)
    texts = pd.Series(labels).map(lambda value: value if isinstance(value, str) else str(value).lower())
    assert read_columns(data.path).classes == names
    if names:
        assert data.num_classes == len(names)
        expected = [names.index(text) if text in names else -1 for text in texts]
        assert np.array_equal(data.y, expected)
    else:
        assert np.array_equal(data.y, labels)


def test_a_split_by_time_takes_the_earliest_rows_for_training(tmp_path):
    joined = USERS["joined"].sample(frac=1, random_state=0).reset_index(drop=True).dt.floor("2D")
    users = USERS.assign(joined=joined).drop(columns="part")
    data = made(tmp_path / "out", ["age"], users, split={"by_time": "joined"}, options={"split": (0.5, 0.25, 0.25)})
    times = [set(joined.iloc[ids]) for ids in (data.train_ids, data.val_ids, data.test_ids)]
    assert max(times[0]) < min(times[1]) and max(times[1]) < min(times[2])
    assert sum(len(ids) for ids in (data.train_ids, data.val_ids, data.test_ids)) == V
    assert len(data.train_ids) >= V // 2


@pytest.mark.parametrize("features", [None, ["amount"], [{"column": "amount", "standardize": True}]])
def test_edges_of_unknown_ids_are_left_out_with_all_that_they_have(features, tmp_path):
    known = PAYMENTS["payer"].isin(USERS["user"][:40]) & PAYMENTS["payee"].isin(USERS["user"][:40])
    keys = {"time": "at", "time_unit": "s", "time_zone": "UTC"} | ({} if features is None else {"features": features})
    users, notes = USERS[:40], []
    skipped = made(tmp_path / "a", ["age"], users, keys | {"unknown_ids": "skip"}, {"note": notes.append})
    pays = {"table": PAYMENTS[known]} | ENDS | keys
    node = {"table": users, "features": ["age"]} | KEYS
    from_tables(tmp_path / "b", nodes={"user": node}, edges={PAYS: pays})
    expected = open_dataset(tmp_path / "b")
    for array in ("indptr", "indices", "edge_times", "edge_attr"):
        assert np.array_equal(getattr(skipped, array), getattr(expected, array)), array
    assert any(f"{E - known.sum()} of {E} edges left out" in note for note in notes)
    with pytest.raises(CohortError, match="unknown_ids: skip"):
        made(tmp_path / "c", ["age"], users, keys)


@pytest.mark.parametrize("ids", [USERS["user"], ROWS * 7 - 100])
def test_original_ids_are_kept_unless_they_are_unwanted(ids, tmp_path):
    ends = [pd.Series(ids).iloc[np.arange(E) * factor % V].to_numpy() for factor in (3, 7)]
    pays = {"table": pd.DataFrame(dict(zip(("payer", "payee"), ends, strict=True)))} | ENDS
    node = {"table": USERS.assign(user=ids), "features": ["age"]} | KEYS
    for keep in (True, False):
        from_tables(tmp_path / f"{keep}", nodes={"user": node}, edges={PAYS: pays}, ids=keep)
    assert original_ids(tmp_path / "True").to_pylist() == list(ids)
    assert original_ids(tmp_path / "False") is None
    split_links(tmp_path / "True", tmp_path / "links", negatives=2)
    assert original_ids(tmp_path / "links").to_pylist() == list(ids)


WRONG = {
    "text as number": ({"features": ["country"]}, "column country: expected numbers", "kind: category"),
    "null": ({"features": [{"column": "income"}]}, "column income, row 0: expected a value", "nulls: zero or mean"),
    "null category": ({"features": [{"column": "country", "kind": "category"}]}, "a category", "nulls: unknown"),
    "float category": ({"features": [{"column": "income", "kind": "category"}]}, "texts, integers or bools", "astype"),
    "zero category": ({"features": [{"column": "country", "kind": "category", "nulls": "zero"}]}, "nulls", "FORMAT"),
    "no parts": ({"features": [{"column": "joined", "kind": "time"}]}, "parts", "FORMAT"),
    "odd part": ({"features": [{"column": "joined", "kind": "time", "parts": ["week"]}]}, "each once of", "FORMAT"),
    "number as time": ({"features": [{"column": "age", "kind": "time", "parts": ["day"]}]}, "timestamps", "unit='s'"),
    "text as time": ({"features": [{"column": "fraud", "kind": "time", "parts": ["day"]}]}, '"no"', "ISO 8601"),
    "odd kind": ({"features": [{"column": "age", "kind": "numeric"}]}, "kind", ""),
    "odd key": ({"features": [{"column": "age", "scale": True}]}, "keys that are known", ""),
    "twice": ({"features": ["age", {"column": "age", "standardize": True}]}, "each column once", ""),
    "no column": ({"features": [{"column": "incme", "nulls": "zero"}]}, "a column incme", "income"),
    "too many": ({"features": [{"column": "fraud", "kind": "category", "at_most": 1}]}, "at most 1", "kind: code"),
    "no zone": ({"features": [{"column": "joined", "kind": "time", "parts": ["day"], "zone": "X"}]}, "zone", "IANA"),
    "classes": ({"features": ["age"], "classes": ["no", "maybe"]}, 'of the classes no, maybe, found "yes"', "classes"),
    "a class twice": ({"features": ["age"], "classes": ["no", "yes", "no"]}, "each class once, found no again", "once"),
    "no classes": ({"features": ["age"], "classes": []}, "each class once, found none", "leave classes out"),
    "odd splits": ({"features": ["age"], "split": "digits"}, "train, val, test or nothing, found '0'", "replace("),
    "numbers as texts": ({"features": ["age"], "label": "digits"}, "names of classes, or numbers", "classes:"),
    "null time of a split": ({"features": ["age"], "split": {"by_time": "late"}}, "a time", "fill it in"),
    "text time of a split": ({"features": ["age"], "split": {"by_time": "user"}}, "a timestamp", "ISO 8601"),
    "far time": ({"features": [{"column": "far", "kind": "time", "parts": ["year"]}]}, "row 1: expected a year", ""),
    "empty lists": ({"features": ["empty"]}, "lists of at least one number", "leave the column out"),
    "large numbers": ({"features": ["vast"]}, "found 1 number beyond float32 in vast", "leave out"),
    "large number": ({"features": [{"column": "vast", "nulls": "mean"}]}, "row 3: expected a number that", "fill it"),
    "infinity in lists": ({"features": ["lists"]}, "found 1 NaN or infinity in lists", "leave out"),
    "decimals": ({"features": [{"column": "price", "nulls": "mean"}]}, "found decimal128", "CAST(price AS DOUBLE)"),
    "durations": ({"features": ["span"]}, "found duration", "epoch(span)"),
    "other bytes": ({"features": [{"column": "bytes", "kind": "time", "parts": ["day"]}]}, "texts in UTF-8", "UTF-8"),
    "no list in lists": ({"features": [{"column": "tiles"}]}, "tiles: expected a list, found none", "fill it in"),
    "ids": ({"features": [{"column": "serial", "standardize": True}]}, "float64 tells apart", "kind: category"),
    "a label of lists": ({"features": ["age"], "label": "empty"}, "lists of at least one number", ""),
    "a large label": ({"features": ["age"], "label": "vast"}, "column vast[3]: expected the number of", "regression"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_meant_is_refused_with_a_cure(case, tmp_path):
    keys, message, cure = WRONG[case]
    users = USERS.assign(digits=(ROWS % 2).astype(str), late=USERS["joined"].where(ROWS != 5))
    users["far"] = pd.Series(np.where(ROWS == 1, 2**62, 0), dtype="timestamp[us][pyarrow]")
    users["empty"], users["lists"] = [[]] * V, [[float(row != 3)] * 2 if row else [0.0, float("inf")] for row in ROWS]
    users["vast"], users["price"] = np.where(ROWS == 3, 1e300, 0.5 * (ROWS > 3)), [decimal.Decimal(1)] * V
    tiles = pa.array([[[1, 2], None], [None, [3, 4]]] * (V // 2), pa.list_(pa.list_(pa.float64(), 2), 2))
    users["tiles"], users["serial"] = pd.arrays.ArrowExtensionArray(tiles), 2**62 + ROWS
    users["span"], users["bytes"] = pd.to_timedelta(ROWS, "s"), [b"\xff"] * V
    if "zone" in str(keys):
        users["joined"] = users["joined"].dt.tz_localize("UTC")
    with pytest.raises(CohortError) as error:
        made(tmp_path / "out", users=users, **keys)
    assert message in str(error.value) and cure in str(error.value)
    assert not list(tmp_path.iterdir())


WRONG_TIMES = {
    "no unit": ({"time": "at"}, "integers"),
    "no zone": ({"time": "at", "time_unit": "s"}, "timestamps whose time zone is known"),
    "days of hours": ({"time": "at", "time_unit": "days", "time_zone": "UTC"}, "a whole number of days"),
    "odd unit": ({"time": "at", "time_unit": "hours"}, "one of the units"),
    "zone alone": ({"time": "at", "time_zone": "UTC"}, "the unit of the times"),
    "unit alone": ({"time_unit": "s"}, "times of edges"),
    "twice": ({"time": "autumn", "time_unit": "s", "time_zone": "Europe/Berlin"}, "which they show twice"),
    "zone of instants": (
        {"time": "instants", "time_unit": "s", "time_zone": "UTC"},
        "timestamps without a zone.*\n.*leave time_zone .--time-zone. out",
    ),
    "days of a zone": (
        {"time": "dates", "time_unit": "days", "time_zone": "Europe/Berlin"},
        "a whole number of days, found 2024-03-01\n.*a shorter unit: s,.*; or leave time_zone .--time-zone. out",
    ),
    "infinity of DuckDB": ({"time": "never", "time_unit": "us", "time_zone": "UTC"}, "row 3: expected a year from"),
    "dates with a zone": (
        {"time": "zoned", "time_unit": "days"},
        'a timestamp, found "2024-03-01Z"\n.*a date has no zone.*strptime',
    ),
}


@pytest.mark.parametrize("case", WRONG_TIMES)
def test_times_that_may_be_read_in_two_ways_are_refused(case, tmp_path):
    keys, message = WRONG_TIMES[case]
    payments = PAYMENTS.assign(
        autumn=pd.date_range("2024-10-27 02:30", periods=E, freq="1h"),
        instants=PAYMENTS["at"].dt.tz_localize("UTC"),
        dates=PAYMENTS["at"].dt.date,
        zoned=PAYMENTS["at"].dt.strftime("%Y-%m-%dZ"),
        never=pd.Series(np.where(np.arange(E) == 3, 2**63 - 1, 0), dtype="timestamp[us][pyarrow]"),
    )
    node = {"table": USERS, "features": ["age"]} | KEYS
    with pytest.raises(CohortError, match=message):
        from_tables(tmp_path / "out", nodes={"user": node}, edges={PAYS: {"table": payments} | ENDS | keys})
    assert not list(tmp_path.iterdir())


def test_columns_of_another_data_set_are_the_same_ones(tmp_path):
    before = made(tmp_path / "may", [{"column": "age", "standardize": True}])
    plain = made(tmp_path / "plain", ["age"], USERS.assign(fraud=ROWS % 2))
    cases = [
        ([{"column": "age"}], USERS, before.path, "the columns of .*may"),
        ([{"column": "age", "standardize": True}], USERS.assign(fraud="perhaps"), before.path, "the classes of .*may"),
        (["age"], USERS.assign(fraud=ROWS % 2), before.path, "columns of node declared as in .*may"),
        (["height"], USERS.assign(height=1.5), plain.path, "age as column 0, as in .*plain, found height"),
        ([{"column": "age", "standardize": True}], USERS, plain.path, "columns of node in .*plain"),
        ([{"column": "age", "standardize": True}], USERS, tmp_path, "a data set of Cohort"),
    ]
    for number, (features, users, folder, message) in enumerate(cases):
        with pytest.raises(CohortError, match=message):
            made(tmp_path / f"out{number}", features, users, options={"columns_from": folder})


@pytest.mark.parametrize("text", [b"", b"[1]", b'{"nodes": {"a', b'{"classes": ["\xff"]}', b'{"nodes": {"\xff": []}}'])
def test_damaged_columns_of_a_data_set_are_refused(tmp_path, text):
    (tmp_path / "columns.json").write_bytes(text)
    with pytest.raises(CohortError, match=re.escape(str(tmp_path / "columns.json"))) as refusal:
        read_columns(tmp_path)
    assert "import the data set again" in refusal.value.hint


def test_bools_are_the_same_categories_however_they_are_written(tmp_path):
    users = USERS.assign(active=np.arange(len(USERS)) % 2 == 0)
    features, written = [{"column": "active", "kind": "category"}], users["active"].astype(str)  # True, as in CSV
    assert set(written) == {"False", "True"}
    for first, second in ((users, users.assign(active=written)), (users.assign(active=written), users)):
        before = made(tmp_path / "may", features, first, options={"overwrite": True})
        notes: list[str] = []
        options = {"columns_from": before.path, "note": notes.append, "overwrite": True}
        after = made(tmp_path / "june", features, second, options=options)
        assert np.array_equal(after.x, before.x) and before.x[:, 1:].sum() == len(USERS), before.x
        assert not [text for text in notes if "does not know" in text]


def test_classes_that_are_bools_are_the_same_however_they_are_written(tmp_path):
    users = USERS.assign(fraud=USERS["fraud"] == "yes")
    written = users.assign(fraud=users["fraud"].astype(str))
    for first, second in ((users, written), (written, users)):
        before = made(tmp_path / "may", ["age"], first, options={"overwrite": True})
        after = made(tmp_path / "june", ["age"], second, options={"columns_from": before.path, "overwrite": True})
        assert np.array_equal(after.y, before.y) and after.num_classes == 2
        assert read_columns(after.path).classes == read_columns(before.path).classes
