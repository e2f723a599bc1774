"""Generated data sets as Python sees them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from processes import here, refused

from cohort_gnn import ibp
from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import generate
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.launch.main import main


def make(tmp_path, **options):
    options = dict(kind="sbm", nodes=2000, edges=30000, dim=32, classes=6, seed=5) | options
    out = tmp_path / "-".join(str(value) for name, value in options.items() if name != "rows")
    generate(out, **options)
    return open_dataset(out)


def nearest_centre_accuracy(x, y, train, test):
    centres = np.stack([x[train][y[train] == c].mean(axis=0) for c in range(y.max() + 1)])
    distances = ((x[test][:, None] - centres) ** 2).sum(axis=2)
    return (distances.argmin(axis=1) == y[test]).mean()


@pytest.mark.parametrize("kind", ["powerlaw", "rmat"])
def test_features_alone_tell_the_class_where_edges_do_not(tmp_path, kind):
    data = make(tmp_path, kind=kind)
    assert nearest_centre_accuracy(data.x, data.y, data.train_ids, data.test_ids) > 0.9


def test_neighbours_help_in_communities(tmp_path):
    data = make(tmp_path)
    sums = np.add.reduceat(data.x[data.indices], data.indptr[:-1], axis=0)
    means = sums / np.maximum(np.diff(data.indptr), 1)[:, None]
    alone = nearest_centre_accuracy(data.x, data.y, data.train_ids, data.test_ids)
    together = nearest_centre_accuracy(means, data.y, data.train_ids, data.test_ids)
    assert 0.4 < alone < 0.9
    assert together > 0.95


def test_the_other_dtypes_are_roundings_of_float32(tmp_path):
    exact = make(tmp_path).x
    np.testing.assert_array_equal(make(tmp_path, dtype="float16").x, exact.astype(np.float16))
    bfloat16 = make(tmp_path, dtype="bfloat16")
    assert bfloat16.x.dtype == np.uint16
    np.testing.assert_allclose(bfloat16.x_float32(), exact, rtol=2**-8)
    coarse = make(tmp_path, dtype="uint8").x
    np.testing.assert_array_equal(coarse, np.floor(np.clip(128.5 + 32 * exact.astype(np.float64), 0, 255)))


def test_rows_are_drawn_from_a_table(tmp_path):
    table = np.random.default_rng(0).normal(size=(300, 7)).astype(np.float16)
    data = make(tmp_path, dim=7, dtype="float16", rows=table)
    which = (data.x[:, None, :] == table[None]).all(axis=2)
    assert (which.sum(axis=1) == 1).all(), "each row is one of the table's"
    assert 290 < (which.sum(axis=0) > 0).sum() <= 300, "2000 draws of 300 leave few out"
    np.testing.assert_array_equal(data.x, make(tmp_path / "again", dim=7, dtype="float16", rows=table).x)
    assert (data.x != make(tmp_path / "other", dim=7, dtype="float16", rows=table, seed=6).x).any()


def test_rows_of_a_file_or_a_data_set_come_raw_and_prepared_alike(tmp_path):
    table = np.random.default_rng(0).integers(256, size=(50, 9), dtype=np.uint8)
    np.save(tmp_path / "rows.npy", table)
    common = ["--nodes", "3000", "--edges", "9000", "--seed", "3"]
    assert main(["dataset", "generate", str(tmp_path / "raw"), *common, "--rows", str(tmp_path / "rows.npy")]) == 0
    raw = open_dataset(tmp_path / "raw")
    assert raw.x.shape == (3000, 9) and raw.feature_dtype == "uint8"
    common += ["--prepared", "--codec", "raw", "--rows"]
    assert main(["dataset", "generate", str(tmp_path / "coded"), *common, str(tmp_path / "rows.npy")]) == 0
    index = np.arange(3000)
    coded = ibp.load(tmp_path / "coded/prepared/features.ibp")
    np.testing.assert_array_equal(ibp.fetch(coded, index), raw.x)
    assert main(["dataset", "generate", str(tmp_path / "from"), *common[:6], "--rows", str(tmp_path / "raw")]) == 0
    assert {row.tobytes() for row in open_dataset(tmp_path / "from").x} <= {row.tobytes() for row in table}


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (np.zeros(5, np.float32), "rows [R, D] of float32, float16 or uint8, at least one, found [5] of float32"),
        (np.zeros((0, 4), np.float32), "found [0, 4] of float32"),
        (np.zeros((3, 4), np.float64), "found [3, 4] of float64"),
        (None, "a .npy file or a data set"),
    ],
)
def test_rows_that_cannot_be_drawn_from(tmp_path, rows, words):
    path = tmp_path / "rows.npy"
    path.write_bytes(b"no array") if rows is None else np.save(path, rows)
    command = ["dataset", "generate", str(tmp_path / "out"), "--nodes", "10", "--edges", "20", "--rows", str(path)]
    refused(here(*command), 1, words)
    assert not (tmp_path / "out").exists()


def test_a_name_that_is_too_long_is_an_error_like_others(tmp_path):
    with pytest.raises(CohortError, match="a path that can be used, found File name too long"):
        generate(tmp_path / ("x" * 300), kind="sbm", nodes=20, edges=30, dim=2)


def test_the_command_line_takes_short_numbers(tmp_path, run):
    argv = ["--kind", "rmat", "--nodes", "1.5k", "--edges", "1e4", "--dim", "8", "--dtype", "uint8", "--classes", "3"]
    assert run("generate", tmp_path / "g", *argv, "--seed", "7", "--split-ratio", "0.5,0.1,0.1") == 0
    data = open_dataset(tmp_path / "g")
    assert (data.num_nodes, data.num_edges, data.feature_dtype, data.num_classes) == (1500, 10000, "uint8", 3)
    assert [len(data.train_ids), len(data.val_ids), len(data.test_ids)] == [750, 150, 150]


@pytest.mark.parametrize("text", ["x", "1.5", "", "M", "nan", "inf", "1.2345K", "-5", "1e30"])
def test_numbers_that_are_none_end_with_usage(tmp_path, text, run):
    with pytest.raises(SystemExit) as error:
        run("generate", tmp_path / "g", "--nodes", text, "--edges", "10")
    assert error.value.code == 2


def test_an_existing_folder_is_kept(tmp_path, capsys, run):
    argv = ("generate", tmp_path / "g", "--nodes", "10", "--edges", "10")
    assert run(*argv) == 0
    assert run(*argv) == 1
    assert "expected a new folder, found an existing one" in capsys.readouterr().err
    assert run(*argv, "--overwrite", "--nodes", "20") == 0
    assert open_dataset(tmp_path / "g").num_nodes == 20


@pytest.mark.parametrize(
    ("place", "options"),
    [
        ("--kind", {"kind": "star"}),
        ("--dtype", {"dtype": "int64"}),
        ("--seed", {"seed": -1}),
        ("--nodes", {"nodes": 0}),
        ("--edges", {"edges": -1}),
        ("--dim", {"dim": 0}),
        ("--classes", {"classes": 2001}),
        ("--split-ratio", {"split": (0.9, 0.2, 0.0)}),
        ("--split-ratio", {"split": (-0.1, 0.2, 0.2)}),
    ],
)
def test_options_out_of_range_are_errors(tmp_path, place, options):
    with pytest.raises(CohortError, match=f"^{place}: expected"):
        make(tmp_path, **options)


def test_ctrl_c_ends_it_and_leaves_nothing(tmp_path):
    script = f"from cohort_gnn.dataset import generate; generate({str(tmp_path / 'g')!r}, "
    script += "kind='rmat', nodes=100_000, edges=400_000_000, dim=1)"
    process = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not any(tmp_path.glob("g.*.tmp/indices.npy")):
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", [["--dim", "3"], ["--dtype", "float16"]])
def test_rows_have_a_type_and_columns_of_their_own(tmp_path, option):
    np.save(tmp_path / "rows.npy", np.zeros((5, 9), np.float32))
    command = ["dataset", "generate", tmp_path / "out", "--nodes", 10, "--edges", 20, "--rows", tmp_path / "rows.npy"]
    refused(here(*command, *option), 1, f"{option[0]}: expected one of --rows and it, found both")
    assert not (tmp_path / "out").exists()
