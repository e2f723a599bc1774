"""Random frames that pandas, polars, DuckDB and pyarrow write: an import gives their values, or refuses the file.

One number stands for one import, and

    python tests/dataset/round_trip/round_trip_test.py 1234

runs that of a number again, says what it does, and keeps its files.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import re
import shutil
import sys
import tempfile
import traceback
from pathlib import Path

import pytest

sys.path += [str(folder) for folder in Path(__file__).parents[1:3]]

pytest.importorskip("pandas")
pytest.importorskip("polars")
pytest.importorskip("duckdb")
pytest.importorskip("yaml")

from cases import Case, make  # noqa: E402
from processes import ALL_TESTS, cohort  # noqa: E402

from cohort_gnn.launch import main as launch  # noqa: E402

FRAMES, AT_ONCE = (100_000, 500) if ALL_TESTS else (400, 50)
IN_A_PROCESS = 50  # one of so many also runs as a program, whose exit status is looked at
OTHERS_WORDS = re.compile(r"Traceback|Arrow|CSV (parse|conversion) error|Invalid( |:)|In CSV column|out of bounds")
REFUSED = "cohort: "


def imported(case: Case, out: Path) -> tuple[int, str]:
    """Exit code and standard error of the command, in this process."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        code = launch.main(["dataset", "import", case.argv[0], str(out), *case.argv[1:]])
    return code, said.getvalue()


def fault(case: Case, code: int, said: str, out: Path) -> str:
    """What is wrong with the end of an import; "" if it is right."""
    if code == 0:
        return case.wrong(out)
    if code != 1 or REFUSED not in said:
        return f"exit code {code}\n"
    if not case.traps:
        return "refused, although nothing is hard to read\n"
    found = OTHERS_WORDS.search(said)
    return f"words of a library: {found[0]}\n" if found else ""


def tried(seed: int, folder: Path) -> str:
    """What is wrong with an import, and how to run it again; "" if it is right."""
    folder.mkdir()
    case = make(seed, folder)
    out, said = folder / "out", ""
    try:
        code, said = imported(case, out)
        wrong = fault(case, code, said, out)
        if seed % IN_A_PROCESS == 0 and not wrong:
            shutil.rmtree(out, ignore_errors=True)
            ended = cohort("dataset", "import", case.argv[0], out, *case.argv[1:])
            said = ended.stderr
            wrong = fault(case, ended.returncode, said, out)
            wrong += "" if ended.returncode == code else f"exit code {ended.returncode} of the program\n"
    except BaseException:  # a fault, whatever it is: panics of Rust are no Exceptions
        wrong = traceback.format_exc()
    if not wrong:
        shutil.rmtree(folder)
        return ""
    again = f"python {Path(__file__)} {seed}"
    told = "\n".join([*case.written, " ".join(case.argv), said.strip(), wrong.strip()])
    return f"--- frame {seed} ({', '.join(case.traps) or 'plain'}); again: {again}\n{told}\n"


@pytest.fixture
def folder(monkeypatch):
    """Of files that need no disk; and one parser for all imports, which costs more than most of them."""
    monkeypatch.setattr(launch, "build_parser", functools.cache(launch.build_parser))
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="round-trip-", dir=memory) as path:
        yield Path(path)


@pytest.mark.parametrize("first", range(0, FRAMES, AT_ONCE))
def test_values_come_back_or_the_file_is_refused(folder, first):
    wrong = [tried(seed, folder / str(seed)) for seed in range(first, first + AT_ONCE)]
    found = [text for text in wrong if text]
    assert not found, f"{len(found)} of {AT_ONCE} frames\n" + "\n".join(found[:5])


def _run_again(seeds: list[int]) -> None:
    """What the imports of some numbers do, in folders that stay."""
    for seed in seeds:
        folder = Path(tempfile.mkdtemp(prefix=f"round-trip-{seed}-"))
        case = make(seed, folder)
        print(*case.written, f"cohort dataset import {case.argv[0]} {folder}/out {' '.join(case.argv[1:])}", sep="\n")
        code, said = imported(case, folder / "out")
        print(said.strip(), fault(case, code, said, folder / "out").strip() or "right", sep="\n")


if __name__ == "__main__":
    _run_again([int(word) for word in sys.argv[1:]])
