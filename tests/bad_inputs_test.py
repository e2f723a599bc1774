"""docs/bad-inputs.md is true: each input is made, its command run, and what is printed compared with the page."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from bad_inputs import BAD, make_good
from processes import give_up_rights

PAGE = Path(__file__).parents[1] / "docs/bad-inputs.md"

pytestmark = pytest.mark.usefixtures("shm")


class Row(NamedTuple):
    """A bad input, the command that meets it, and the error without its hint; "…": any text."""

    name: str
    command: str
    said: str
    hint: str


def rows() -> list[Row]:
    """The page's tables."""
    found = []
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 4 and cells[1].startswith("`"):
            found.append(Row(cells[0], *(cell.strip("`") for cell in cells[1:])))
    return found


def cohort(here: Path, command: str) -> subprocess.CompletedProcess:
    """Runs a row's command in a folder, without the right of the superuser to read everything."""
    words = shlex.split(command)
    settings = [words.pop(0) for word in list(words) if "=" in word and word == words[0]]
    env = os.environ | {name: str(here / value) for name, _, value in (text.partition("=") for text in settings)}
    assert words[0] in ("cohort", "cohort-sampler"), command
    if words[0] == "cohort":
        start = [sys.executable, "-W", "ignore", "-m", "cohort_gnn"]
    else:
        from cohort_gnn.base.programs import program

        start = [program("cohort-sampler")]
    return subprocess.run(
        [*start, *words[1:]],
        cwd=here,
        env=env | {"PYTHONWARNINGS": "ignore"},
        preexec_fn=give_up_rights,
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
    )


@pytest.fixture(scope="module")
def good(tmp_path_factory, shm) -> Path:
    here = tmp_path_factory.mktemp("good")

    def run(*arguments) -> None:
        result = cohort(here, shlex.join(["cohort", *map(str, arguments)]))
        assert result.returncode == 0, result.stderr

    make_good(here, run)
    return here


class Outcome(NamedTuple):
    """What a row's command did."""

    result: subprocess.CompletedProcess
    here: Path
    ran_a_pickle: bool


def meet(row: Row, good: Path, scratch: Path) -> Outcome:
    """Makes a row's input in a folder of its own, and runs its command there."""
    here = scratch / "here"
    shutil.copytree(good, here)
    try:
        BAD[row.name](here)
        return Outcome(cohort(here, row.command), here, (here / "it-ran").exists())
    finally:
        if (here / "small").is_mount():
            subprocess.run(["umount", "--lazy", here / "small"], check=True)


def lines_of(text: str, here: Path) -> list[str]:
    """Lines as the page has them: paths from the folder, no names of processes before them."""
    text = text.replace(f"{here}/", "").replace(f"{here.resolve()}/", "")
    return [re.sub(r"^(\s*it said: |cohort(-sampler)?: |CohortError: |\s)+", "", line) for line in text.splitlines()]


def matches(pattern: str, line: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, pattern.split("…"))), line) is not None


def test_the_page_has_every_bad_input_once():
    names = [row.name for row in rows()]
    assert sorted(names) == sorted(BAD) and len(names) > 50


@pytest.mark.parametrize("row", rows(), ids=lambda row: re.sub(r"\W+", "-", row.name))
def test_it_gets_the_error_of_the_page(row, good, tmp_path):
    result, here, ran_a_pickle = meet(row, good, tmp_path)
    assert result.returncode in (1, 2), f"exit code {result.returncode}: {result.stderr}"
    assert "Traceback" not in result.stderr and "SIG" not in result.stderr
    assert not ran_a_pickle
    said = lines_of(result.stderr, here)
    places = [i for i, line in enumerate(said) if matches(row.said, line)]
    assert places, f"expected {row.said}\nfound {result.stderr}"
    hint = f"hint: {row.hint}" if row.hint else None
    following = said[places[0] + 1] if places[0] + 1 < len(said) else ""
    assert following == hint if hint else not following.startswith("hint:"), f"{row.hint!r}, found {following!r}"


def test_the_comparison_sees_a_wrong_line():
    assert matches("a: expected … bytes, found 3", "a: expected 12 bytes, found 3")
    assert not matches("a: expected … bytes, found 3", "a: expected 12 bytes, found 30")
