"""bench/start.py: which files a run reads, what the kernel keeps of them, and a small measurement on the CPU."""

import json

import pytest
from documents import ROOT, module

from cohort_gnn.launch.main import main as cohort

start = module(ROOT / "bench/start.py")
SMALL = ["--device", "cpu", "--fanout", "3,2", "--batch-size", "100", "--hidden", "8"]


@pytest.fixture(scope="module")
def encoded(tmp_path_factory):
    """A data set with encoded rows alone, and with weights of edges."""
    folder = tmp_path_factory.mktemp("data") / "g"
    sizes = ["--nodes", "5000", "--edges", "20000", "--dim", "8", "--classes", "3"]
    assert cohort(["dataset", "generate", str(folder), *sizes, "--random-edge-weights", "--prepared"]) == 0
    return folder


def test_the_files_are_those_that_a_run_reads(cora, encoded):
    names = [path.name for path in start.Files.of(cora, "none", False).paths]
    assert sorted(names) == sorted(
        ["indptr.npy", "indices.npy", "labels.npy", "train_ids.npy", "val_ids.npy", "test_ids.npy", "features.npy"]
    )
    with_weights = start.Files.of(encoded, "auto", True)
    assert with_weights.paths[-1] == encoded / "prepared/features.ibp"
    assert encoded / "edge_weights.npy" in with_weights.paths
    assert encoded / "edge_weights.npy" not in start.Files.of(encoded, "auto", False).paths
    assert with_weights.num_bytes == sum(path.stat().st_size for path in with_weights.paths)


def test_what_was_read_is_in_the_page_cache(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(3 * start.PIECE_BYTES + 5))
    files = start.Files([path])
    assert [first for _, first in files.pieces] == [i * start.PIECE_BYTES for i in range(4)]
    files.forget()
    assert files.read() > 0
    assert files.cached_share() == 1


def test_a_line_for_each_state_of_the_files(encoded, tmp_path, shm, capsys):
    assert start.main([str(encoded), *SMALL, "--out", str(tmp_path)]) == 0
    lines = [json.loads(line) for line in (tmp_path / "start.jsonl").read_text().splitlines()]
    told = [line for line in lines if "read_seconds" in line]
    said = capsys.readouterr()
    states = ["on disk"] * ("keeps" not in said.err) + ["in the page cache"]
    assert [line["files"] for line in told] == states
    for line in told:
        assert line["seconds"] >= line["packages_seconds"] > 0 and line["read_seconds"] > 0
        assert (line["pinned_bytes"], line["pin_seconds"]) == (0, 0), "the CPU pins nothing"
        assert line["bytes"] == start.Files.of(encoded, "auto", False).num_bytes
    assert "in the page cache" in said.out


def test_a_run_that_fails_says_why(cora, tmp_path, shm, capsys):
    assert start.main([str(cora), *SMALL, "--compress", "host", "--out", str(tmp_path)]) == 1
    assert "encoded rows" in capsys.readouterr().err
