"""`cohort dataset prepare` and `generate --prepared`: encoded rows are the rows, or an error."""

import os
from pathlib import Path

import numpy as np
import pytest
from processes import cohort, ran

from cohort_gnn import ibp
from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.units import format_bytes
from cohort_gnn.dataset import generate
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.launch.data import prepare, stored_rows
from cohort_gnn.launch.main import main

pytestmark = pytest.mark.usefixtures("shm")

DTYPES = ["float32", "float16", "bfloat16", "uint8"]
SIZES = {"kind": "powerlaw", "nodes": 3000, "edges": 20000, "dim": 33, "classes": 4, "seed": 5}


def command(*arguments) -> int:
    return main(["dataset", *map(str, arguments)])


@pytest.fixture
def data(tmp_path) -> Path:
    generate(tmp_path / "data", **SIZES)
    return tmp_path / "data"


def raw_bytes(folder: Path) -> np.ndarray:
    """uint8 [V, row bytes] of features.npy, in memory."""
    return np.array(open_dataset(folder, prefer_raw=True).x).view(np.uint8)


def decoded_bytes(folder: Path, ids=None) -> np.ndarray:
    """uint8 [n, row bytes] of the encoded rows of a data set."""
    encoded = ibp.load(open_dataset(folder).encoded_rows)
    rows = ibp.fetch(encoded, np.arange(len(encoded)) if ids is None else ids)
    return stored_rows.bytes_of(rows)


def digests(folder: Path, *options) -> list[str]:
    result = ran("digest", folder, "--device", "cpu", "--fanout", "5,3", "--batch-size", 900, "--batches", 3, *options)
    assert len(result.stdout.splitlines()) == 3
    return result.stdout.splitlines()


@pytest.mark.parametrize("dtype", DTYPES)
def test_digests_do_not_depend_on_how_rows_are_kept(tmp_path, dtype):
    folder = tmp_path / "data"
    generate(folder, **SIZES, dtype=dtype)
    lines = digests(folder)
    assert command("prepare", folder, "--drop-raw", *["--codec", "raw"] * (dtype == "uint8")) == 0
    assert not (folder / "features.npy").exists()
    assert digests(folder) == lines


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("codec", ["auto", "invariant", "exponent", "sparse", "dictionary", "raw"])
def test_rows_come_back_bit_for_bit(tmp_path, dtype, codec, capsys, monkeypatch):
    monkeypatch.setattr(prepare, "BATCH_BYTES", 1 << 14)  # many batches
    folder = tmp_path / "data"
    generate(folder, **SIZES, dtype=dtype)
    if (dtype, codec) == ("uint8", "exponent"):
        assert command("prepare", folder, "--codec", codec) == 1
        assert "codec exponent: expected float32, float16 or bfloat16" in capsys.readouterr().err
        assert not list(folder.glob("prepared*"))
        return
    if codec == "dictionary" and dtype != "uint8":
        assert command("prepare", folder, "--codec", codec) == 1
        expected = "fit: codec dictionary: expected rows with at most 256 different elements, found more than 256"
        assert expected in capsys.readouterr().err
        return
    if (dtype, codec) == ("uint8", "auto"):
        codec = "raw"  # which auto takes, and does not write
    assert command("prepare", folder, "--codec", codec) == 0
    said = capsys.readouterr().err
    written, raw = (folder / "prepared/features.ibp").stat().st_size, raw_bytes(folder).nbytes
    assert "on 3000 sampled rows" in said and "GB/s" in said
    assert (f"{100 * (written / raw - 1):.1f} % larger than raw;" if written > raw else "% saved;") in said
    np.testing.assert_array_equal(decoded_bytes(folder), raw_bytes(folder))


def test_codec_planes_has_as_many_mantissa_bits_as_asked_for(tmp_path, capsys):
    folder = tmp_path / "data"
    generate(folder, **SIZES)
    assert command("prepare", folder, "--codec", "planes", "--mantissa-bits", 5) == 0
    encoded = ibp.load(open_dataset(folder).encoded_rows)
    assert (encoded.profile.codec, encoded.profile.mantissa_bits) == ("planes", 5)
    np.testing.assert_array_equal(decoded_bytes(folder), raw_bytes(folder))
    lines = digests(folder)
    assert digests(folder, "--compress", "none") == lines
    assert command("prepare", folder, "--drop-raw", "--codec", "planes") == 0
    assert ibp.load(open_dataset(folder).encoded_rows).profile.mantissa_bits == 3
    assert command("check", folder) == 0 and digests(folder) == lines
    capsys.readouterr()
    for options, text in [
        (["--mantissa-bits", 5], "--mantissa-bits: expected --codec planes beside it, found --codec auto"),
        (["--codec", "planes", "--mantissa-bits", 23], "expected 0 to 22, found 23"),
    ]:
        assert command("prepare", folder, *options) == 1
        assert text in capsys.readouterr().err


def test_rows_that_encoding_makes_larger_are_written_by_name_alone(tmp_path, capsys):
    folder = tmp_path / "data"
    generate(folder, **SIZES | {"dim": 4})
    assert command("prepare", folder) == 0
    said = capsys.readouterr().err
    assert f"{folder}/prepared: not written, because it would be 50.0 % larger than raw (72.00 KB for 48.00 KB)" in said
    assert "runs read the raw rows; --codec raw writes it" in said and not (folder / "prepared").exists()
    assert command("prepare", folder, "--drop-raw") == 1
    said = capsys.readouterr().err
    assert "--drop-raw" in said and "expected rows that are smaller encoded, found 50.0 % larger than raw" in said
    assert (folder / "features.npy").exists() and open_dataset(folder).encoded_rows is None
    assert command("prepare", folder, "--codec", "raw") == 0
    assert "50.7 % larger than raw;" in capsys.readouterr().err and open_dataset(folder).encoded_rows
    assert command("prepare", folder) == 0
    assert "prepared is unchanged;" in capsys.readouterr().err and open_dataset(folder).encoded_rows
    assert command("prepare", folder, "--reorder", "degree") == 0  # the data set in DIR/prepared has no other rows
    assert open_dataset(folder / "prepared").encoded_rows


def test_rows_that_encoding_makes_hardly_larger_are_written_as_the_help_says(tmp_path, capsys):
    folder = tmp_path / "data"
    generate(folder, **SIZES | {"dim": 4, "nodes": 1000})
    assert command("prepare", folder) == 0
    assert "larger than raw;" in capsys.readouterr().err and open_dataset(folder).encoded_rows
    with pytest.raises(SystemExit):
        command("prepare", "--help")
    assert "need over 16 KiB more than raw rows" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("dtype", DTYPES)
def test_generate_prepared_writes_what_prepare_would(tmp_path, dtype):
    argv = ["--kind", "powerlaw", "--nodes", 3000, "--edges", 20000, "--dim", 33, "--dtype", dtype, "--seed", 5]
    assert command("generate", tmp_path / "raw", *argv) == 0
    assert command("prepare", tmp_path / "raw", "--seed", 5, "--codec", "sparse") == 0
    assert command("generate", tmp_path / "encoded", *argv, "--prepared", "--codec", "sparse") == 0
    for name in ("indptr.npy", "indices.npy", "labels.npy", "train_ids.npy", "prepared/features.ibp"):
        assert (tmp_path / "raw" / name).read_bytes() == (tmp_path / "encoded" / name).read_bytes(), name
    assert not (tmp_path / "encoded/features.npy").exists()
    assert command("check", tmp_path / "encoded") == command("info", tmp_path / "encoded") == 0
    np.testing.assert_array_equal(decoded_bytes(tmp_path / "encoded"), raw_bytes(tmp_path / "raw"))


def test_generate_prepared_leaves_nothing_when_it_fails(tmp_path, capsys):
    argv = ["--nodes", 100, "--edges", 100]
    assert command("generate", tmp_path / "g", *argv, "--dtype", "uint8", "--prepared", "--codec", "exponent") == 1
    assert command("generate", tmp_path / "g", *argv, "--codec", "sparse") == 1
    assert "--codec: expected --prepared beside it" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_rows_of_a_changed_file_are_refused_until_they_are_prepared_again(data, capsys):
    assert command("prepare", data) == 0
    x = np.load(data / "features.npy")
    x[7] += 1
    np.save(data / "features.npy", x)
    os.utime(data / "features.npy", (1, 1))
    with pytest.raises(CohortError, match="found a file that has changed since"):
        open_dataset(data)
    assert command("check", data) == 1
    assert "run cohort dataset prepare on the data set again" in capsys.readouterr().err
    assert command("prepare", data) == 0
    assert command("check", data) == 0
    np.testing.assert_array_equal(decoded_bytes(data)[7], x[7].view(np.uint8))


def test_raw_rows_stay_when_the_encoded_ones_differ(data, monkeypatch):
    """What would happen after a fault of the encoder: the file is sound and holds other rows."""
    fetch = ibp.fetch

    def other_rows(encoded, index):
        rows = fetch(encoded, index)
        rows[-1, -1] += 1
        return rows

    monkeypatch.setattr(prepare.ibp, "fetch", other_rows)
    before = raw_bytes(data)
    assert command("prepare", data, "--drop-raw") == 1
    np.testing.assert_array_equal(raw_bytes(data), before)


def test_raw_rows_that_change_meanwhile_are_an_error(data, monkeypatch, capsys):
    fit = ibp.fit

    def fit_and_touch(*args, **options):
        os.utime(data / "features.npy", (1, 1))
        return fit(*args, **options)

    monkeypatch.setattr(prepare.ibp, "fit", fit_and_touch)
    assert command("prepare", data) == 1
    assert "expected features that do not change, found a file that changes" in capsys.readouterr().err
    assert not list(data.glob("prepared*"))


def test_prepared_again_from_encoded_rows(data):
    before = raw_bytes(data)
    assert command("prepare", data, "--drop-raw", "--codec", "raw") == 0
    assert command("prepare", data, "--codec", "exponent") == 0
    assert ibp.load(data / "prepared/features.ibp").profile.codec == "exponent"
    np.testing.assert_array_equal(decoded_bytes(data), before)


def edges_of(folder: Path, names: np.ndarray) -> np.ndarray:
    """The edges under other names, as sorted pairs."""
    data = open_dataset(folder)
    target = np.repeat(np.arange(data.num_nodes), np.diff(data.indptr))
    pairs = np.stack([names[data.indices], names[target]], axis=1)
    return pairs[np.lexsort(pairs.T)]


@pytest.mark.parametrize("dropped", [False, True])
def test_reorder_is_the_same_graph_under_its_map(data, dropped, capsys):
    rows, identity = raw_bytes(data), np.arange(SIZES["nodes"])
    edges, old = edges_of(data, identity), open_dataset(data)
    if dropped:
        assert command("prepare", data, "--drop-raw") == 0
        assert command("prepare", data, "--reorder", "degree") == 1
        assert "pass --drop-raw as well" in capsys.readouterr().err
        assert command("prepare", data, "--reorder", "degree", "--drop-raw") == 0
        assert command("check", data) == 1
        assert f"use the data set {data}/prepared" in capsys.readouterr().err
    else:
        assert command("prepare", data, "--reorder", "degree") == 0
        assert open_dataset(data).encoded_rows is None  # those rows are in another order
    new = open_dataset(data / "prepared")
    old_of_new = np.load(data / "prepared/old_of_new.npy")
    degrees = np.diff(new.indptr)
    assert (degrees[:-1] >= degrees[1:]).all() and degrees[0] > degrees[-1]
    assert (np.diff(old_of_new)[degrees[:-1] == degrees[1:]] > 0).all()
    np.testing.assert_array_equal(np.sort(old_of_new), identity)
    np.testing.assert_array_equal(edges_of(data / "prepared", old_of_new), edges)
    np.testing.assert_array_equal(decoded_bytes(data / "prepared"), rows[old_of_new])
    np.testing.assert_array_equal(new.y, old.y[old_of_new])
    for split in ("train_ids", "val_ids", "test_ids"):
        np.testing.assert_array_equal(np.sort(old_of_new[getattr(new, split)]), getattr(old, split))


def test_a_renumbered_data_set_makes_batches_and_knows_its_origin(data):
    assert command("prepare", data, "--reorder", "degree") == 0
    assert digests(data / "prepared") != digests(data)
    assert command("prepare", data / "prepared") == 1  # it is prepared
    os.utime(data / "features.npy", (1, 1))
    with pytest.raises(CohortError, match="found a file that has changed since"):
        open_dataset(data / "prepared")


def test_the_size_of_a_data_set_is_that_of_its_files_encoded_rows_and_links_too(data, tmp_path, capsys):
    assert command("split-links", data, tmp_path / "links") == 0
    assert command("prepare", data, "--codec", "exponent", "--drop-raw") == 0
    for folder in (data, tmp_path / "links"):
        capsys.readouterr()
        assert command("info", folder) == 0
        num_bytes = sum(os.path.getsize(Path(at) / name) for at, _, names in os.walk(folder) for name in names)
        assert num_bytes > 400_000 and f"size              {format_bytes(num_bytes)}\n" in capsys.readouterr().out


def test_data_without_raw_rows_says_how_to_get_them(data):
    before = raw_bytes(data)
    assert command("prepare", data, "--drop-raw") == 0
    folder = open_dataset(data)
    assert folder.x is None
    with pytest.raises(CohortError, match="cohort ibp decode"):
        folder.x_float32()
    assert main(["ibp", "decode", str(folder.encoded_rows), str(data / "features.npy")]) == 0
    np.testing.assert_array_equal(raw_bytes(data), before)


def test_encoded_rows_that_are_asked_for_must_be_there(data):
    result = cohort("digest", data, "--device", "cpu", "--compress", "host")
    assert result.returncode == 1
    assert "--compress host: expected a data set with encoded rows" in result.stderr
    assert f"cohort dataset prepare {data}" in result.stderr
