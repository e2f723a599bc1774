"""`cohort ibp ...` on files."""

import numpy as np
import pytest

from cohort_gnn.ibp import cli, picture
from cohort_gnn.launch.main import main


@pytest.fixture
def rows_file(tmp_path):
    rows = np.random.default_rng(3).standard_normal((300, 40)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    return tmp_path / "rows.npy"


def test_encode_verify_decode(rows_file, tmp_path, capsys):
    encoded, back = str(tmp_path / "rows.ibp"), str(tmp_path / "back.npy")
    assert main(["ibp", "encode", str(rows_file), encoded, "--save-profile", str(tmp_path / "p")]) == 0
    assert main(["ibp", "verify", encoded, "--against", str(rows_file)]) == 0
    assert "correct; 300 rows x 40 float32" in capsys.readouterr().out
    assert main(["ibp", "decode", encoded, back, "--batch-rows", "64"]) == 0
    assert np.load(back).tobytes() == np.load(rows_file).tobytes()
    assert main(["ibp", "encode", str(rows_file), encoded, "--profile", str(tmp_path / "p")]) == 0


def test_bfloat16(tmp_path):
    bits = np.random.default_rng(3).integers(0x3F00, 0x4100, (200, 33)).astype(np.uint16)
    np.save(tmp_path / "rows.npy", bits)
    names = [str(tmp_path / name) for name in ("rows.npy", "rows.ibp", "back.npy")]
    assert main(["ibp", "encode", *names[:2], "--bfloat16", "--codec", "exponent"]) == 0
    assert main(["ibp", "decode", *names[1:]]) == 0
    assert (np.load(names[2]) == bits).all()


def test_analyze_prints_a_table_and_draws(rows_file, tmp_path, capsys):
    png = tmp_path / "bits.png"
    assert main(["ibp", "analyze", str(rows_file), "--group", "32", "--png", str(png)]) == 0
    out = capsys.readouterr().out
    assert "0-31" in out and "32-39" in out and "raw*" in out
    assert png.read_bytes().startswith(b"\x89PNG")
    assert main(["ibp", "analyze", str(tmp_path), "--png", str(png)]) == 0
    assert "300 rows x 40 float32" in capsys.readouterr().out


def test_analyze_writes_no_file_unasked(rows_file, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["ibp", "analyze", "rows.npy"]) == 0
    assert "exponent*" in capsys.readouterr().out and list(tmp_path.iterdir()) == [rows_file]
    np.save("others.npy", np.load(rows_file))
    assert main(["ibp", "analyze", ".", "--png", "bits.png"]) == 0
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"rows.npy", "others.npy", "bits_rows.png", "bits_others.png"}


def test_agreement_counts_bits():
    rows = np.array([[1.0, 0.0], [1.0, -0.0], [1.0, 0.0], [1.0, 2.0]], np.float32)
    shares = picture.agreement(rows)
    assert shares.shape == (2, 32) and (shares[0] == 1).all()
    assert shares[1, 0] == 0.75 and shares[1, 1] == 0.75 and shares[1, 31] == 1


@pytest.mark.parametrize("position", [0, 9, 70, 130, -1])
def test_damage_is_an_error(rows_file, tmp_path, capsys, position):
    encoded = tmp_path / "rows.ibp"
    assert main(["ibp", "encode", str(rows_file), str(encoded)]) == 0
    image = bytearray(encoded.read_bytes())
    image[position] ^= 4
    encoded.write_bytes(image)
    assert main(["ibp", "verify", str(encoded)]) == 1
    assert "expected" in capsys.readouterr().err
    encoded.write_bytes(image[:200])
    assert main(["ibp", "verify", str(encoded)]) == 1


def test_other_rows_are_an_error(rows_file, tmp_path, capsys):
    encoded, other = tmp_path / "rows.ibp", tmp_path / "other.npy"
    main(["ibp", "encode", str(rows_file), str(encoded)])
    rows = np.load(rows_file)
    rows[123, 5] += 1
    np.save(other, rows)
    assert main(["ibp", "verify", str(encoded), "--against", str(other)]) == 1
    assert "row 123" in capsys.readouterr().err
    np.save(other, np.zeros(5, np.float32))
    assert main(["ibp", "encode", str(other), str(encoded)]) == 1
    assert "[rows, columns]" in capsys.readouterr().err


def test_what_is_read_is_not_written(rows_file, tmp_path, capsys):
    encoded, profile = tmp_path / "rows.ibp", tmp_path / "profile"
    assert main(["ibp", "encode", str(rows_file), str(encoded), "--save-profile", str(profile)]) == 0
    link = tmp_path / "link"
    link.symlink_to(encoded)
    before = {path: path.read_bytes() for path in (rows_file, encoded, profile)}
    for arguments in (
        ["decode", encoded, encoded],
        ["decode", encoded, link],
        ["encode", rows_file, rows_file],
        ["encode", rows_file, profile, "--profile", profile],
        ["encode", rows_file, encoded, "--save-profile", rows_file],
        ["encode", rows_file, encoded, "--save-profile", encoded],
        ["analyze", rows_file, "--png", rows_file],
    ):
        assert main(["ibp", *map(str, arguments)]) == 1, arguments
        assert "expected another file to write than to read" in capsys.readouterr().err
    assert before == {path: path.read_bytes() for path in before}


def test_a_folder_that_is_not_there_is_said(rows_file, tmp_path, capsys):
    encoded, nowhere = tmp_path / "rows.ibp", tmp_path / "nowhere" / "file"
    assert main(["ibp", "encode", str(rows_file), str(encoded)]) == 0
    for arguments in (
        ["decode", encoded, nowhere],
        ["encode", rows_file, nowhere],
        ["encode", rows_file, encoded, "--save-profile", nowhere],
        ["analyze", rows_file, "--png", nowhere],
    ):
        assert main(["ibp", *map(str, arguments)]) == 1, arguments
        assert "expected an existing folder" in capsys.readouterr().err
    assert main(["ibp", "decode", str(encoded), str(tmp_path)]) == 1
    assert "expected a file to write, found a folder" in capsys.readouterr().err
    assert main(["ibp", "encode", str(nowhere), str(encoded)]) == 1
    assert capsys.readouterr().err.endswith("found No such file or directory\n")


def test_a_decoding_that_fails_leaves_what_was_there(rows_file, tmp_path, monkeypatch, capsys):
    encoded, out = tmp_path / "rows.ibp", tmp_path / "out.npy"
    assert main(["ibp", "encode", str(rows_file), str(encoded)]) == 0
    out.write_text("precious")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cli, "_batches", full)
    assert main(["ibp", "decode", str(encoded), str(out)]) == 1
    assert "No space left" in capsys.readouterr().err
    assert out.read_text() == "precious" and not list(tmp_path.glob("*.tmp"))


@pytest.mark.parametrize("arguments", ["decode a b --batch-rows 0", "analyze a --group -1", "analyze a --group 0"])
def test_numbers_below_one_are_refused(arguments, capsys):
    with pytest.raises(SystemExit):
        main(["ibp", *arguments.split()])
    assert "at least 1" in capsys.readouterr().err


def test_rows_of_another_type_are_an_error(rows_file, tmp_path, capsys):
    encoded, other = tmp_path / "rows.ibp", tmp_path / "other.npy"
    assert main(["ibp", "encode", str(rows_file), str(encoded)]) == 0
    for dtype in (np.float64, np.float16, np.int32):
        np.save(other, np.load(rows_file).astype(dtype))
        assert main(["ibp", "verify", str(encoded), "--against", str(other)]) == 1
        assert f"expected float32, found {np.dtype(dtype)}" in capsys.readouterr().err


def test_files_of_a_folder_that_have_no_rows_are_left_out(rows_file, tmp_path, capsys):
    np.save(tmp_path / "indices.npy", np.arange(5))
    assert main(["ibp", "analyze", str(tmp_path), "--png", str(tmp_path / "bits.png")]) == 0
    said = capsys.readouterr()
    assert "300 rows x 40 float32" in said.out and "left out:" in said.err and "indices.npy" in said.err
    rows_file.unlink()
    assert main(["ibp", "analyze", str(tmp_path)]) == 1
    assert "expected a folder with .npy files of rows" in capsys.readouterr().err
