"""`cohort ibp ...` on files."""

import numpy as np
import pytest

from cohort.ibp import cli, picture


@pytest.fixture
def rows_file(tmp_path):
    rows = np.random.default_rng(3).standard_normal((300, 40)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    return tmp_path / "rows.npy"


def test_encode_verify_decode(rows_file, tmp_path, capsys):
    encoded, back = str(tmp_path / "rows.ibp"), str(tmp_path / "back.npy")
    assert cli.main(["ibp", "encode", str(rows_file), encoded, "--save-profile", str(tmp_path / "p")]) == 0
    assert cli.main(["ibp", "verify", encoded, "--against", str(rows_file)]) == 0
    assert "sound; 300 rows x 40 float32" in capsys.readouterr().out
    assert cli.main(["ibp", "decode", encoded, back, "--batch-rows", "64"]) == 0
    assert np.load(back).tobytes() == np.load(rows_file).tobytes()
    assert cli.main(["ibp", "encode", str(rows_file), encoded, "--profile", str(tmp_path / "p")]) == 0


def test_bfloat16(tmp_path):
    bits = np.random.default_rng(3).integers(0x3F00, 0x4100, (200, 33)).astype(np.uint16)
    np.save(tmp_path / "rows.npy", bits)
    names = [str(tmp_path / name) for name in ("rows.npy", "rows.ibp", "back.npy")]
    assert cli.main(["ibp", "encode", *names[:2], "--bfloat16", "--codec", "exponent"]) == 0
    assert cli.main(["ibp", "decode", *names[1:]]) == 0
    assert (np.load(names[2]) == bits).all()


def test_analyze_prints_a_table_and_draws(rows_file, tmp_path, capsys):
    png = tmp_path / "bits.png"
    assert cli.main(["ibp", "analyze", str(rows_file), "--group", "32", "--png", str(png)]) == 0
    out = capsys.readouterr().out
    assert "0-31" in out and "32-39" in out and "exponent*" in out
    assert png.read_bytes().startswith(b"\x89PNG")
    assert cli.main(["ibp", "analyze", str(tmp_path), "--row-normalize", "--pca", "4", "--png", str(png)]) == 0
    assert "300 rows x 4 float32" in capsys.readouterr().out


def test_agreement_counts_bits():
    rows = np.array([[1.0, 0.0], [1.0, -0.0], [1.0, 0.0], [1.0, 2.0]], np.float32)
    shares = picture.agreement(rows)
    assert shares.shape == (2, 32) and (shares[0] == 1).all()
    assert shares[1, 0] == 0.75 and shares[1, 1] == 0.75 and shares[1, 31] == 1


@pytest.mark.parametrize("position", [0, 9, 70, 130, -1])
def test_damage_is_an_error(rows_file, tmp_path, capsys, position):
    encoded = tmp_path / "rows.ibp"
    assert cli.main(["ibp", "encode", str(rows_file), str(encoded)]) == 0
    image = bytearray(encoded.read_bytes())
    image[position] ^= 4
    encoded.write_bytes(image)
    assert cli.main(["ibp", "verify", str(encoded)]) == 1
    assert "expected" in capsys.readouterr().err
    encoded.write_bytes(image[:200])
    assert cli.main(["ibp", "verify", str(encoded)]) == 1


def test_other_rows_are_an_error(rows_file, tmp_path, capsys):
    encoded, other = tmp_path / "rows.ibp", tmp_path / "other.npy"
    cli.main(["ibp", "encode", str(rows_file), str(encoded)])
    rows = np.load(rows_file)
    rows[123, 5] += 1
    np.save(other, rows)
    assert cli.main(["ibp", "verify", str(encoded), "--against", str(other)]) == 1
    assert "row 123" in capsys.readouterr().err
    np.save(other, np.zeros(5, np.float32))
    assert cli.main(["ibp", "encode", str(other), str(encoded)]) == 1
    assert "[rows, columns]" in capsys.readouterr().err
