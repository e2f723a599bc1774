"""bench/ibp --paper: what it measures without a GPU, and what it draws from measurements."""

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from cohort_gnn.base.errors import CohortError

ROOT = Path(__file__).resolve().parents[2]


def bench(name: str):
    """A module of bench/ibp."""
    sys.path.insert(0, str(ROOT / "bench/ibp"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.pop(0)


paper, paper_cpu, paper_rows, paper_report = map(bench, ("paper", "paper_cpu", "paper_rows", "paper_report"))


def table(data: np.ndarray, name="rows") -> "paper_rows.Rows":
    return paper_rows.Rows(name, data, str(data.dtype))


def test_chunks_of_equal_rows_cost_their_participation_bits():
    """128 columns of float32 are 512 B: 128 chunks of 4 B take 16 B of bits, 64 of 8 B take 8, and nothing else."""
    measured = list(paper_cpu.chunks_and_thresholds(table(np.full((50, 128), 1.5, np.float32))))
    assert [(m["chunk_bytes"], m["threshold_percent"]) for m in measured] == [
        (size, percent) for size in (4, 8) for percent in (70, 75, 80, 85, 90, 95)
    ]
    for m in measured:
        assert m["saved_percent"] == pytest.approx(100 * (1 - {4: 16, 8: 8}[m["chunk_bytes"]] / 512))


def test_the_threshold_decides_which_bits_count():
    """All bits of a column are 0 in 80 % of the rows: at 70 % a mask of them all, at 95 % of none."""
    data = np.zeros((100, 32), np.uint32)
    data[:20] = 0xFFFFFFFF
    measured = list(paper_cpu.chunks_and_thresholds(table(data.view(np.float32))))
    saved = {m["threshold_percent"]: m["saved_percent"] for m in measured if m["chunk_bytes"] == 4}
    assert saved[70] == pytest.approx(0.8 * 100 * (1 - 4 / 128))  # 4 B of participation bits in rows of 128 B
    assert saved[95] == 0


def test_samples_are_scored_on_rows_held_out():
    rng = np.random.default_rng(0)
    data = np.zeros((500, 64), np.uint32)
    rows = table(data.view(np.float32))
    assert {(m["codec"], m["ratio"]) for m in paper_cpu.sample_fractions(rows)} >= {("invariant", 256 / 8)}
    fitted, held_out = paper_cpu.split(len(data))
    assert sorted([*fitted, *held_out]) == list(range(500)) and len(held_out) == 100
    data[held_out] = rng.integers(1 << 31, 1 << 32, (100, 64), dtype=np.uint32)
    measured = list(paper_cpu.sample_fractions(rows))
    assert {m["ratio"] for m in measured if m["codec"] == "invariant"} == {1.0}
    counts = [m["sample_rows"] for m in measured if m["codec"] == "invariant"]
    assert counts == [4, 8, 20, 40, 100, 200, 400]


def test_bfloat16_is_rounded_as_torch_does():
    torch = pytest.importorskip("torch")
    bits = np.random.default_rng(1).integers(0, 0x7F000000, 5000, dtype=np.uint32)
    values = np.concatenate([bits, bits | 0x80000000, (bits & 0xFFFF0000) | 0x8000]).view(np.float32)
    expected = torch.from_numpy(values).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
    assert (paper_rows.bfloat16_bits(values) == expected).all()
    rows = paper_rows.Rows("b", paper_rows.bfloat16_bits(values).reshape(-1, 10), "bfloat16")
    assert (rows.for_ibp(np.array([3, 1])).float().numpy() == values_as_bfloat16(expected)[[3, 1]]).all()


def values_as_bfloat16(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32).reshape(-1, 10)


def test_a_folder_of_rows(tmp_path):
    (tmp_path / "cora.npz").symlink_to(ROOT / "tests/data/cora.npz")
    np.save(tmp_path / "halves.npy", np.ones((3, 5), np.float16))
    cora, halves = paper_rows.from_folder(tmp_path)
    assert (cora.name, cora.data.shape, cora.row_bytes) == ("cora", (2708, 1433), 5732)
    sums = cora.data.sum(1)
    assert np.isin(np.round(sums, 5), [0, 1]).all() and (sums > 0.5).mean() > 0.9
    assert (halves.name, halves.dtype, halves.data.shape) == ("halves", "float16", (3, 5))
    np.save(tmp_path / "bad.npy", np.ones(4, np.float32))
    with pytest.raises(CohortError, match="bad.npy.*found float32"):
        paper_rows.from_folder(tmp_path)
    with pytest.raises(CohortError, match="found none"):
        paper_rows.from_folder(tmp_path / "absent")


def some_measurements() -> list[dict]:
    """A few lines as the GPU program writes them, and one of each CPU part."""
    lines = [{"figure": "hardware", "gpu": "GPU X", "sms": 132, "cuda_runtime": 13000, "cuda_driver": 13000}]
    lines[0] |= {"cpu_threads": 16, "scale": 1.0, "memcpy_gb_per_s": 55.5}
    rates = {"memcpy_each_row": 0.5, "cpu_gather": 8.0, "zero_copy": 20.0, "zero_copy_aligned": 26.0, "gather": 52.0}
    for method, rate in rates.items():
        sms = (4, 132) if method in ("zero_copy", "zero_copy_aligned", "gather") else (132,)
        for count in sms:
            for row_bytes in (260, 1028):
                line = {"method": method, "row_bytes": row_bytes, "rows": 100000, "sms": count}
                lines.append({"figure": "copy", **line, "gb_per_s": rate if count == 132 else rate / 2})
    for row_bytes, ideal in ((256, 200.0), (1024, 400.0)):
        for saved, share in ((0.0, 1.0), (50.0, 0.95), (89.8, 0.8)):
            line = {"row_bytes": row_bytes, "saved_percent": saved, "sms": 132, "ideal_gb_per_s": ideal}
            lines.append({"figure": "decode", **line, "gb_per_s": ideal * share})
    line = {"figure": "codec", "rows": "citeseer", "num_rows": 1000, "row_bytes": 14812}
    lines.append({**line, "algorithm": "raw", "saved_percent": 0.0, "gb_per_s": 50.0, "compress_ms": 3.0})
    invariant = {"algorithm": "cohort invariant", "saved_percent": 96.0, "gb_per_s": 700.0, "compress_ms": 12.0}
    lines.append({**line, **invariant})
    lz4 = {"algorithm": "LZ4", "saved_percent": 90.0, "gb_per_s": 60.0, "copy_first_gb_per_s": 75.0}
    lines.append({**line, **lz4, "compress_ms": 99.0})
    lines.append({"figure": "codec", "rows": "citeseer", "algorithm": "nvcomp", "missing": "nvcomp not installed"})
    for percent, ratio in ((1, 24.0), (100, 25.0)):
        line = {"codec": "invariant", "sample_percent": percent, "sample_rows": 27, "saved_percent": 96.0}
        lines.append({"figure": "sample", "rows": "citeseer", **line, "ratio": ratio})
    for percent, saved in ((70, 11.0), (85, 12.5)):
        line = {"rows": "dense", "chunk_bytes": 8, "threshold_percent": percent}
        lines.append({"figure": "chunk", **line, "saved_percent": saved})
    return lines


def write_lines(path: Path, lines: list[dict]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_page_and_pictures_of_measurements(tmp_path, capsys):
    lines = some_measurements()
    gpu = [line for line in lines if line["figure"] not in ("sample", "chunk")]
    sources = [write_lines(tmp_path / "gpu.jsonl", gpu), write_lines(tmp_path / "cpu.jsonl", lines[len(gpu) :])]
    assert paper.main(["--from", *map(str, sources), "--docs", str(tmp_path)]) == 0, capsys.readouterr().err
    page = (tmp_path / "ibp-figures.md").read_text()
    assert "GPU X (132 SMs), CUDA 13.0" in page and "55.5 GB/s" in page
    assert "| Gather | 132 | 52.0 | 52.0 |" in page and "| CPU gather, one cudaMemcpy | - | 8.0 | 8.0 |" in page
    assert "aligned over GPU, zero-copy, 132 SMs: +30 to +30 % (the paper: 25 %)" in page
    assert "| 256 | 89.8 | 160.0 | 200.0 | 80 % |" in page
    assert "| 256 | 89.8 | 80 | 50 | +30 |" in page and "| 1024 | 89.8 | 80 | 78 | +2 |" in page
    assert "at least 100 % of the ideal" in page
    assert "| cohort invariant | 700.0 | 14.00 | 9.7 | 96.00 | 92.9 | 12.0 | 151.5 |" in page
    assert "| LZ4 | 60.0 / 75.0 | 1.50 | 2.3 | 90.00 | 89.7 | 99.0 | 135.1 |" in page
    assert "nvcomp not installed" in page and "Not measured" not in page
    assert "| citeseer | 4.00 | 0.00 | -0.4 % |" in page
    assert "| dense | 8 B | 85 % | 12.50 |" in page
    for name in ("copy", "decode", "sample", "chunk"):
        assert f"figures/ibp-{name}.png" in page
        assert (tmp_path / f"figures/ibp-{name}.png").read_bytes().startswith(b"\x89PNG")


def test_what_was_not_measured_is_said(tmp_path):
    lines = [line for line in some_measurements() if line["figure"] == "sample"]
    source = write_lines(tmp_path / "cpu.jsonl", lines)
    assert paper.main(["--from", str(source), "--docs", str(tmp_path)]) == 0
    page = (tmp_path / "ibp-figures.md").read_text()
    assert page.count(paper_report.NOT_MEASURED) == 4 and "No GPU took part" in page
    assert [path.name for path in (tmp_path / "figures").iterdir()] == ["ibp-sample.png"]


@pytest.mark.parametrize("text", ["{", '{"figure": "other"}', "[]"])
def test_a_bad_line_is_named(tmp_path, capsys, text):
    source = write_lines(tmp_path / "bad.jsonl", some_measurements()[:1])
    source.write_text(source.read_text() + text + "\n")
    assert paper.main(["--from", str(source), "--docs", str(tmp_path)]) == 1
    assert f"{source}:2" in capsys.readouterr().err and not (tmp_path / "ibp-figures.md").exists()


def test_the_cpu_part_runs_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(paper_rows, "made_up", lambda: [table(np.ones((40, 8), np.float32), "ones")])
    out = tmp_path / "deep" / "cpu.jsonl"
    assert paper.main(["--only", "cpu", "--out", str(out), "--docs", str(tmp_path)]) == 0, capsys.readouterr().err
    figures = [line["figure"] for line in paper.read([out])]
    assert figures.count("chunk") == 12 and figures.count("sample") % 7 == 0 and len(figures) > 12
    assert not (tmp_path / "ibp-figures.md").exists()


FAKE_PROGRAM = """#!{python}
import json, os, sys
out, rows = sys.argv[1], [word.split(":") for word in sys.argv[2:] if word.endswith(".bin")]
assert sys.argv[2:4] == ["--scale", "0.5"]
with open(out, "a") as file:
    for name, dtype, columns, path in rows:
        line = {{"figure": "codec", "rows": name, "dtype": dtype, "columns": columns, "bytes": os.path.getsize(path)}}
        file.write(json.dumps(line) + "\\n")
sys.exit(sys.argv.count("--rows") - 2 and "two tables are too few")
"""


def test_the_gpu_program_gets_the_rows(tmp_path, monkeypatch, capsys):
    two = [table(np.ones((7, 3), np.float16), "halves"), table(np.ones((5, 2), np.float32), "floats")]
    monkeypatch.setattr(paper_rows, "made_up", lambda: two)
    program, out = tmp_path / "program", tmp_path / "gpu.jsonl"
    program.write_text(FAKE_PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
    arguments = ["--only", "gpu", "--program", str(program), "--out", str(out), "--scale", "0.5"]
    assert paper.main(arguments) == 0, capsys.readouterr().err
    found = [(line["rows"], line["dtype"], line["columns"], line["bytes"]) for line in paper.read([out])]
    assert found == [("halves", "float16", "3", 42), ("floats", "float32", "2", 40)]
    two.pop()
    assert paper.main(arguments) == 1
    assert "ibp_paper: expected exit status 0, found 1: two tables are too few" in capsys.readouterr().err


@pytest.mark.gpu
def test_the_gpu_part(tmp_path, monkeypatch, capsys):
    """Small tables; the program itself compares every method's rows with their source."""
    rows = np.random.default_rng(2).standard_normal((3000, 100), dtype=np.float32)
    monkeypatch.setattr(paper_rows, "made_up", lambda: [table(rows, "dense")])
    out = tmp_path / "gpu.jsonl"
    arguments = ["--only", "gpu", "--out", str(out), "--scale", "0.02"]
    assert paper.main(arguments) == 0, capsys.readouterr().err
    lines = paper.read([out])
    assert {line["figure"] for line in lines} == {"hardware", "copy", "decode", "codec"}
    assert len([line for line in lines if line["figure"] == "decode"]) == 3 * 10 * 2
    assert {line.get("method") for line in lines if line["figure"] == "copy"} == set(bench("paper_draw").METHODS)
    assert paper.main(["--from", str(out), "--docs", str(tmp_path)]) == 0
