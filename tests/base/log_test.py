"""What Cohort logs: nothing is shown in a script that has not asked, its programs show it."""

import errno
import io
import logging
import shutil
import subprocess
import sys

import pytest

from cohort_gnn.base.log import shown

LOG = logging.getLogger("cohort_gnn.room")
CACHED = """
import logging, sys
from cohort_gnn import NeighborLoader
if sys.argv[2:]:
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
with NeighborLoader(sys.argv[1], [3], batch_size=64, cache_ratio=0.1, device="cpu") as loader:
    next(iter(loader))
"""


@pytest.mark.parametrize("asks", [False, True])
def test_a_script_is_told_what_it_asks_for(cora, shm, tmp_path, asks):
    shutil.copytree(cora, tmp_path / "data", ignore=shutil.ignore_patterns("hotness-*"))
    command = [sys.executable, "-W", "ignore", "-c", CACHED, str(tmp_path / "data"), *["asks"] * asks]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (result.returncode, result.stdout) == (0, ""), result.stderr
    assert (result.stderr == "") == (not asks)
    assert ("cohort_gnn.cache.options: counted what" in result.stderr) == asks


def test_a_program_shows_lines_on_the_stream_that_is_there_then(capsys, monkeypatch):
    with shown("stderr"):
        LOG.info("one")
        LOG.warning("two %s", "parts")
        LOG.error("three")
        LOG.debug("nothing")
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", bar := io.StringIO())
            LOG.info("four")
    LOG.info("nothing")
    assert capsys.readouterr().err == "cohort: one\ncohort: warning: two parts\ncohort: three\n"
    assert bar.getvalue() == "cohort: four\n"


class Full(io.StringIO):
    def write(self, text):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_stream_that_cannot_be_written_ends_nothing(monkeypatch):
    monkeypatch.setattr(sys, "stdout", Full())
    with shown("stdout"):
        LOG.info("one")
