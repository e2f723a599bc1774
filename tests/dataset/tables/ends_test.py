"""Commands that read tables end by themselves: Arrow's threads, which may outlive them, hold nothing of Python."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from processes import ALL_TESTS

REPEATS = int(os.environ.get("COHORT_FAULT_REPEATS", 4 if ALL_TESTS else 2))
IMPORT = "import sys; from cohort_gnn.launch.main import main; sys.exit(main(['dataset', 'import', *sys.argv[1:]]))"
INTERRUPTED = """
import sys
from cohort_gnn.dataset.tables.text_file import TextFile
for _ in TextFile(sys.argv[1]).blocks(None, 1 << 20):
    raise {}
"""


def write(folder) -> None:
    (folder / "e.csv").write_text("src,dst\n0,1\n1,2\n2,0\n")
    np.save(folder / "y.npy", np.array([0, 1, 0]))
    for name, node in (("train", 0), ("val", 1), ("test", 9)):
        (folder / f"{name}.csv").write_text(f"id\n{node}\n")


@pytest.mark.fresh
def test_a_refusal_ends_with_exit_code_1(tmp_path):
    write(tmp_path)
    splits = ["--splits", "train.csv", "val.csv", "test.csv"]
    command = [sys.executable, "-c", IMPORT, "e.csv", "out", "--features", "ones", "--labels", "y.npy", *splits]
    assert codes(command, tmp_path) == {1}


@pytest.mark.fresh
@pytest.mark.parametrize(("raised", "code"), [("KeyboardInterrupt", -2), ("SystemExit(3)", 3)])
def test_reading_may_end_anywhere(tmp_path, raised, code):
    write(tmp_path)
    assert codes([sys.executable, "-c", INTERRUPTED.format(raised), "e.csv"], tmp_path) == {code}


def codes(command: list[str], folder) -> set[int]:
    """Exit codes of a command that is run again and again, two at a time."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    found = set()
    for _ in range(REPEATS // 2):
        pair = [subprocess.Popen(command, cwd=folder, **quiet) for _ in range(2)]
        found |= {each.wait(300) for each in pair}
    return found
