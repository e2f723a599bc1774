"""Damaged inputs of every reader in Python; the readers in C++ have their own programs, see fuzz.h."""

import subprocess
import sys
from pathlib import Path

import pytest

RUNS = 15  # of each reader; tests/fuzz/read_damaged.py takes other numbers


def test_damaged_inputs_are_refused_or_read(tmp_path):
    """In a process of its own, whose memory is limited."""
    script = Path(__file__).with_name("read_damaged.py")
    command = [sys.executable, "-W", "ignore", str(script), "--runs", str(RUNS), "--keep", str(tmp_path / "failures")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL)
    assert result.returncode == 0, result.stdout + result.stderr
    counts = [line.split() for line in result.stdout.splitlines()]
    assert len(counts) >= 15
    assert all(int(done) == RUNS and int(refused) > 0 for _, done, _, refused, *_ in counts), result.stdout


def test_what_is_no_refusal_is_found(tmp_path, monkeypatch):
    """The driver sees an error of another kind."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    for folder in ("dataset", "dataset/typed"):
        monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / folder))
    import read_damaged
    import readers

    def write(folder: Path) -> None:
        (folder / "number").write_text("7")

    monkeypatch.setitem(readers.READERS, "planted", readers.Reader(write, lambda f: int((f / "number").read_text())))
    done, refused, failures = read_damaged.fuzz("planted", 50, 60.0, 1, tmp_path)
    assert done == 50 and refused == 0 and any("ValueError" in line for line in failures)
    assert list(tmp_path.glob("planted-*/error.txt"))


@pytest.mark.parametrize("seed", [1, 2])
def test_the_same_seed_does_the_same_damage(seed, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    from random import Random

    from damage import damage

    data = bytes(range(256)) * 4
    texts = [[damage(random, data) for _ in range(20)] for random in (Random(seed), Random(seed))]
    assert texts[0] == texts[1] and any(text != data for text in texts[0])
