"""base/early.py: a program that begins before it knows what to do."""

import json
import os
import sys

import pytest

from cohort_gnn.base.early import EarlyProgram

PROGRAM = """
import json, os, sys
from cohort_gnn.base import early
from cohort_gnn.base.early import Argument

if os.environ.get("CRASHES"):
    early.socket.recv_fds = lambda launcher, *_: launcher.recv(1) and os._exit(2)  # as a library may while it is loaded
print("loading", file=sys.stderr, flush=True)
argument = Argument(sys.argv[1])
if os.environ.get("FAILS"):
    raise ImportError("no such package")
path = argument.get()
print("working", file=sys.stderr, flush=True)
held = os.listdir("/proc/self/fd")
with open(path, "w") as file:
    json.dump([os.environ["PLACE"], os.read(0, 1).decode(), len(held)], file)
"""


@pytest.fixture
def begin(tmp_path, monkeypatch):
    """Begins a program that waits to be told what to do."""
    (tmp_path / "early_program.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    begun = []

    def begin() -> EarlyProgram:
        begun.append(EarlyProgram("early_program", lambda: None))
        return begun[-1]

    yield begin
    for program in begun:
        program.drop()


def test_a_program_is_told_its_argument(begin, tmp_path):
    log, result = tmp_path / "log", tmp_path / "result"
    log.write_text("before\n")
    with open(os.devnull) as held:
        process = begin().tell(str(result), log, {"PLACE": "here"}, append=True, descriptors=(held.fileno(),))
    assert process.wait(timeout=30) == 0, log.read_text()
    assert log.read_text() == "before\nloading\nworking\n"
    assert json.loads(result.read_text()) == ["here", "", 3 + 1 + 1], "standard ones, the one held, the list's own"


def test_a_program_that_fails_as_it_begins_says_so_in_its_log(begin, tmp_path, monkeypatch):
    monkeypatch.setenv("FAILS", "1")
    process = begin().tell("x", tmp_path / "log", {}, append=False)
    assert process.wait(timeout=30) == 1
    assert (tmp_path / "log").read_text().endswith("ImportError: no such package\n")


def test_what_a_program_says_is_kept_though_it_ends_before_it_has_its_log(begin, tmp_path, monkeypatch):
    monkeypatch.setenv("CRASHES", "1")
    program, log = begin(), tmp_path / "log"
    process = program.tell("x", log, {}, append=False)
    assert process.wait(timeout=30) == 2
    program.save_words(log)
    assert log.read_text() == "loading\n"


def test_a_program_that_has_ended_is_told_nothing(begin, tmp_path):
    program = begin()
    program.drop()
    assert program.tell("x", tmp_path / "log", {}, append=False) is None
