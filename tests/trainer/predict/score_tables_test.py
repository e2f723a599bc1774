"""`cohort predict --out scores.parquet`: tables of predictions with the source's ids and the names of classes."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.special
import torch
from processes import cohort as run_cohort
from processes import ran

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import from_tables, import_graph, open_task
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.dataset.columns import read_columns
from cohort_gnn.dataset.importing.beside import SourceOptions
from cohort_gnn.dataset.importing.renumber import renumber
from cohort_gnn.dataset.treatment import read_treatment
from cohort_gnn.trainer.models.targets import Classes, LinkTargets, MultiLabel, Numbers, targets_of
from cohort_gnn.trainer.predict.program import choice_of
from cohort_gnn.trainer.predict.score_tables import (
    NamedNodes,
    columns_of_scores,
    score_blocks,
    target_blocks,
    wanted_nodes,
    write_table,
)
from cohort_gnn.trainer.predict.task_scores import write_task_scores

V = 90
DAYS = pd.date_range("2024-03-29", periods=6, freq="D")  # clocks are put forward in between
TIMES = {  # of a task's rows, and the zone that the description names
    "clocks": (DAYS + pd.Timedelta(hours=9), "Europe/Berlin"),
    "clocks of UTC": (DAYS, "UTC"),
    "instants": (DAYS.tz_localize("Asia/Tokyo"), None),
    "dates": (DAYS.date, None),
    "dates of a zone": (DAYS.date, "Europe/Berlin"),
}
IDS = np.array([f"u{i * 37 % V:02d}" for i in range(V)])
FEATURES = [{"column": "income", "nulls": "mean"}, {"column": "country", "kind": "category"}]


def payments(out: Path, countries: list[str], label: str | None = "fraud", **options) -> Path:
    rng = np.random.default_rng(1)
    fraud = np.where(np.arange(V) % 3 == 0, "yes", "no")
    users = pd.DataFrame({"id": IDS, "income": rng.normal(size=V), "country": rng.choice(countries, V), "fraud": fraud})
    pays = pd.DataFrame({"a": rng.choice(IDS, 400), "b": rng.choice(IDS, 400)})
    node = {"table": users, "id": "id", "features": FEATURES, "label": label}
    edges = {("user", "pays", "user"): {"table": pays, "source": "a", "target": "b"}}
    return from_tables(out, nodes={"user": node}, edges=edges, **options)


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> tuple[Path, Path, np.ndarray]:
    """A data set, a run on it, and the scores of its model, float32 [V, 2]."""
    folder = tmp_path_factory.mktemp("trained")
    data = payments(folder / "data", ["de", "fr"])
    ran("train", data, "--epochs", 1, "--batch-size", 32, "--out", folder / "run", "--device", "cpu", "--quiet")
    ran("predict", folder / "run", data, "--out", folder / "scores.npy", "--device", "cpu", "--quiet")
    return data, folder / "run", np.load(folder / "scores.npy")


def predicted(trained, out: Path, *options) -> pd.DataFrame:
    ran("predict", trained[1], trained[0], "--out", out, "--device", "cpu", "--quiet", *options)
    return pd.read_csv(out) if out.suffix == ".csv" else pd.read_parquet(out)


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_a_table_has_ids_names_and_probabilities(trained, tmp_path, suffix):
    probabilities = scipy.special.softmax(trained[2], axis=1)
    table = predicted(trained, tmp_path / f"scores{suffix}")
    assert list(table.columns) == ["id", "prediction", "p_no", "p_yes"]
    assert (table["id"] == IDS).all()
    assert (table["prediction"] == np.array(["no", "yes"])[probabilities.argmax(axis=1)]).all()
    np.testing.assert_allclose(table[["p_no", "p_yes"]], probabilities, rtol=1e-5)


def test_chosen_nodes_are_written_in_the_order_of_the_file(trained, tmp_path):
    chosen = [7, 80, 3]
    pd.DataFrame({"who": IDS[chosen]}).to_csv(tmp_path / "ids.csv", index=False)
    threshold = float(np.median(scipy.special.softmax(trained[2], axis=1)[chosen, 1]))
    options = ["--nodes", tmp_path / "ids.csv"]
    table = predicted(trained, tmp_path / "s.parquet", *options, "--classes", "--threshold", threshold - 1e-6)
    probability = scipy.special.softmax(trained[2], axis=1)[chosen, 1]
    assert list(table.columns) == ["id", "prediction", "probability"]
    assert (table["id"] == IDS[chosen]).all()
    assert (table["prediction"] == np.where(probability >= threshold - 1e-6, "yes", "no")).all()
    assert {"yes", "no"} == set(table["prediction"])
    scores = tmp_path / "scores.npy"
    ran("predict", trained[1], trained[0], "--out", scores, *options, "--device", "cpu", "--quiet")
    assert np.array_equal(np.load(scores), trained[2][chosen])


def test_a_data_set_that_was_encoded_otherwise_is_refused(trained, tmp_path):
    assert read_columns(trained[1]) == read_columns(trained[0])
    assert read_treatment(trained[1]) == read_treatment(trained[0])
    other = payments(tmp_path / "other", ["de", "it"])
    problem = run_cohort("predict", trained[1], other, "--out", tmp_path / "s.csv", "--device", "cpu", "--quiet")
    assert problem.returncode == 1 and "--columns-from" in problem.stderr
    same = payments(tmp_path / "same", ["de", "it"], columns_from=trained[0], label=None)
    ran("predict", trained[1], same, "--out", tmp_path / "s.csv", "--device", "cpu", "--quiet")
    assert list(pd.read_csv(tmp_path / "s.csv").columns) == ["id", "prediction", "p_no", "p_yes"]


def test_a_renumbered_data_set_keeps_ids_and_names(trained, tmp_path):
    data = Path(shutil.copytree(trained[0], tmp_path / "data"))
    ran("dataset", "prepare", data, "--reorder", "degree", "--codec", "planes")
    old_of_new = np.load(data / "prepared" / "old_of_new.npy")
    assert not np.array_equal(old_of_new, np.arange(V))
    assert read_columns(data / "prepared") == read_columns(data)
    before = predicted(trained, tmp_path / "before.csv").set_index("id")
    after = predicted((data / "prepared", trained[1]), tmp_path / "after.csv")
    assert (after["id"] == IDS[old_of_new]).all()
    before = before.loc[after["id"]].reset_index()
    assert (after["prediction"] == before["prediction"]).all()
    np.testing.assert_allclose(after[["p_no", "p_yes"]], before[["p_no", "p_yes"]], rtol=1e-4)


@pytest.mark.parametrize("kept", [True, False])
def test_renumbering_takes_integer_ids_along(tmp_path, kept):
    edges = np.array([[10, 500, -3, -3], [500, -3, 10, 500]])
    np.save(tmp_path / "edges.npy", edges)
    inputs = SourceOptions(features=Path("ones"))
    import_graph(tmp_path / "edges.npy", tmp_path / "data", inputs=inputs, rename=True, ids=kept)
    (tmp_path / "new").mkdir()
    old_of_new = renumber(tmp_path / "data", tmp_path / "new")
    assert old_of_new.tolist() == [2, 0, 1]
    assert (tmp_path / "new" / "id_of_node.npy").exists() == kept
    if kept:
        assert np.load(tmp_path / "new" / "id_of_node.npy").tolist() == [500, -3, 10]


def written(tmp_path, suffix, blocks) -> pd.DataFrame:
    path = tmp_path / f"table{suffix}"
    write_table(path, suffix, blocks)
    return pd.read_csv(path) if suffix == ".csv" else pd.read_parquet(path)


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_other_tasks_have_columns_of_their_own(tmp_path, suffix):
    scores = np.random.default_rng(0).normal(size=(70_000, 3)).astype(np.float32)
    nodes = NamedNodes(None, None, len(scores))
    labels = columns_of_scores(MultiLabel(), ["a", "b", "c"], False, None)
    table = written(tmp_path, suffix, score_blocks(scores, nodes, labels))
    assert list(table.columns) == ["id", "p_a", "p_b", "p_c"] and (table["id"] == np.arange(len(scores))).all()
    np.testing.assert_allclose(table[["p_a", "p_b", "p_c"]], scipy.special.expit(scores), rtol=1e-5)
    chosen = columns_of_scores(MultiLabel(), [], True, 0.75)
    table = written(tmp_path, suffix, score_blocks(scores, nodes, chosen))
    assert np.array_equal(table[["0", "1", "2"]], scipy.special.expit(scores) >= 0.75)
    values = columns_of_scores(Numbers(), [], False, None)
    table = written(tmp_path, suffix, score_blocks(scores[:, :1], nodes, values))
    np.testing.assert_allclose(table["prediction"], scores[:, 0], rtol=1e-6)


def test_labels_called_as_the_ids_have_columns_beside_them(tmp_path):
    scores = np.array([[1, -1, 1], [-1, 1, 1]], np.float32)
    chosen = columns_of_scores(MultiLabel(), ["id", "id_", "b"], True, None)
    table = written(tmp_path, ".csv", score_blocks(scores, NamedNodes(None, None, 2), chosen))
    assert list(table.columns) == ["id", "id__", "id_", "b"] and table["id"].tolist() == [0, 1]
    assert np.array_equal(table[["id__", "id_", "b"]], scores > 0)


def test_labels_are_predicted_as_by_classes(tmp_path):
    """Also where the probability is rounded to 0.5."""
    scores = np.array([[0.0], [-1e-9], [1e-9]], np.float32)
    chosen = columns_of_scores(MultiLabel(), ["a"], True, None)
    table = written(tmp_path, ".csv", score_blocks(scores, NamedNodes(None, None, 3), chosen))
    assert table["a"].tolist() == MultiLabel().best(torch.from_numpy(scores))[:, 0].tolist() == [0, 0, 1]


def test_classes_are_not_chosen_by_what_are_no_numbers():
    scores = torch.tensor([[0.5, 2.0], [1.0, float("nan")]])
    for targets in (Classes(), MultiLabel()):
        assert torch.equal(choice_of(targets)(scores[:1]), targets.best(scores[:1]))
        with pytest.raises(CohortError, match="scores: expected finite numbers, to choose the best by, found NaN"):
            choice_of(targets)(scores)
    assert choice_of(Numbers())(scores[:, 1:])[1].isnan(), "the number itself is written"


def test_rows_of_links_are_lists_and_best_targets_have_both_ids(tmp_path):
    import pyarrow as pa

    rows = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    vectors = columns_of_scores(LinkTargets(), [], False, None)
    table = written(tmp_path, ".parquet", score_blocks(rows, NamedNodes(None, None, 4), vectors))
    assert np.array_equal(np.stack(table["row"]), rows)
    best, scores = np.array([[2, 0], [1, -1], [-1, -1]]), np.array([[3.0, 2.0], [1.0, 0.0], [0.0, 0.0]], np.float32)
    sources = NamedNodes(pa.array(["x", "y", "z"]), np.array([1, 0, 2]), 3)
    targets = NamedNodes(pa.array([10, 11, 12]), None, 3)
    table = written(tmp_path, ".parquet", target_blocks(best, scores, sources, targets))
    assert table.to_dict("list") == {
        "source": ["y", "x", "x"],
        "target": [11, 12, 10],
        "rank": [1, 1, 2],
        "score": [1.0, 3.0, 2.0],
    }


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("id\nu01\nnobody\n", "the id of a node, found 'nobody'\n.*leave it out; cohort dataset append"),
        ("id\n u01\n", "the id of a node, found ' u01'"),
        ("id\nu01\nu01\n", "each node once, found u01"),
        ("id,name\nu01,a\n", "a table of one column, of ids, found 2: id, name\n.*keep the column of ids alone"),
        ("u01\nu02\n", "line 1: expected the name of the column, found .u01., which may be an id"),
        ("12\nu02\n", "line 1: expected the name of the column, found .12., which may be an id"),
        ("id\n", ""),
    ],
)
def test_files_of_ids_are_checked(tmp_path, lines, message):
    import pyarrow as pa

    (tmp_path / "ids.csv").write_text(lines)
    if message:
        with pytest.raises(CohortError, match=message):
            wanted_nodes(tmp_path / "ids.csv", pa.array(IDS), V)
    else:
        assert len(wanted_nodes(tmp_path / "ids.csv", pa.array(IDS), V)) == 0


@pytest.mark.parametrize("ids", [[5, -7, 16], ["a", "007", "0x10"]])
def test_ids_of_any_type_name_their_nodes(ids, tmp_path):
    import pyarrow as pa

    known = pa.array(ids, pa.large_string() if isinstance(ids[0], str) else pa.int64())
    np.save(tmp_path / "ids.npy", ids[::-1])
    pd.DataFrame({"id": ids[::-1]}).astype("category").to_parquet(tmp_path / "ids.parquet")
    pd.DataFrame({"id": ids[::-1]}).astype(str).to_csv(tmp_path / "ids.csv", index=False)
    for name in ("ids.npy", "ids.parquet", "ids.csv"):
        assert wanted_nodes(tmp_path / name, known, 3).tolist() == [2, 1, 0]
    pq.write_table(pa.table({"id": ["0x10"]}), tmp_path / "hex.parquet")
    np.save(tmp_path / "swapped.npy", np.array(ids[::-1]).astype(">U6" if isinstance(ids[0], str) else ">i4"))
    assert wanted_nodes(tmp_path / "swapped.npy", known, 3).tolist() == [2, 1, 0]
    np.save(tmp_path / "mask.npy", np.array([True, False]))
    np.save(tmp_path / "floats.npy", np.array([2.0**53 + 2]))
    for name, message in (("mask.npy", "dtype bool"), ("floats.npy", "dtype float64"), ("ids.csv.npy", "No such file")):
        with pytest.raises(CohortError, match=message):
            wanted_nodes(tmp_path / name, known, 3)
    if isinstance(ids[0], str):
        assert wanted_nodes(tmp_path / "hex.parquet", known, 3).tolist() == [2]
    else:
        with pytest.raises(CohortError, match="ids like those of the nodes, int64"):
            wanted_nodes(tmp_path / "hex.parquet", known, 3)
        (tmp_path / "none.csv").write_text("id\n")
        assert len(wanted_nodes(tmp_path / "none.csv", known, 3)) == 0


def test_a_threshold_needs_two_classes_and_a_table(trained, tmp_path):
    problem = run_cohort("predict", trained[1], trained[0], "--out", tmp_path / "s.npy", "--threshold", 0.3)
    assert problem.returncode != 0 and "--out NAME.parquet" in problem.stderr


@pytest.mark.parametrize("case", TIMES)
def test_predictions_have_times_as_the_task_has_them(tmp_path, case):
    """Joined by time, they meet the rows of the source."""
    times, zone = TIMES[case]
    rows = [pd.DataFrame({"id": [1, 0], "at": times[2 * i : 2 * i + 2], "label": [0, 1]}) for i in range(3)]
    keys = {"nodes": "user", "id": "id", "time": "at", "time_unit": "s", "time_zone": zone, "label": "label"}
    users = {"user": {"id": "id", "table": pd.DataFrame({"id": [0, 1]}), "features": "ones"}}
    edges = {("user", "of", "user"): {"source": "a", "target": "b", "table": pd.DataFrame({"a": [0], "b": [1]})}}
    splits = dict(zip(("train", "val", "test"), rows, strict=True))
    data = open_dataset(from_tables(tmp_path / "set", nodes=users, edges=edges, tasks={"t": keys | splits}))
    task, targets = open_task(data.path, "t"), targets_of("classification")
    write_task_scores(tmp_path / "out.parquet", data, task, "test", np.zeros((2, 2), np.float32), targets)
    found, source = pq.read_table(tmp_path / "out.parquet")["at"], pa.Table.from_pandas(rows[2])["at"]
    assert found.type.equals(source.type) or found.type.tz == source.type.tz
    assert found.to_pylist() == source.to_pylist()
