"""What comes before the first batch: the sampler's parts, as it writes them down and as a summary tells them."""

import json
import shutil

import numpy as np
import pytest
from processes import ALL_TESTS, beginning_with, ran

from cohort_gnn.base.files import write_whole
from cohort_gnn.launch.report.tables import describe_start
from cohort_gnn.trainer.report.start import start_parts, start_summary

# As sitecustomize: a trainer writes what it has imported.
AT_EXIT = """
import atexit, os, sys

@atexit.register
def _():
    if "cohort_gnn.trainer.loop.trainer" in sys.modules:
        with open(os.environ["IMPORTED"], "w") as file:
            file.write(" ".join(sys.modules))
"""
EDGES, ROWS = "checking the edges", "checking the encoded rows"


def written(folder, *lines: tuple[str, int, float], rest: str = "") -> None:
    """What the sampler writes: (part, bytes, at), and the beginning of another line."""
    texts = [json.dumps({"part": part, "bytes": count, "at": at}) + "\n" for part, count, at in lines]
    write_whole(folder / "start.jsonl", "".join(texts) + rest)


def test_a_part_ends_where_the_next_begins(tmp_path):
    assert start_parts(tmp_path) == []
    written(tmp_path, (EDGES, 1_000, 10.0), rest='{"part": "che')
    (edges,) = start_parts(tmp_path)
    assert edges == {"part": EDGES, "bytes": 1_000, "seconds": None}
    written(tmp_path, (EDGES, 1_000, 10.0), (ROWS, 0, 10.5), ("", 0, 13.0))
    assert [(part["part"], part["seconds"]) for part in start_parts(tmp_path)] == [(EDGES, 0.5), (ROWS, 2.5)]


def test_the_longest_parts_are_told_first(tmp_path):
    written(tmp_path, (EDGES, 2_000_000, 10.0), (ROWS, 0, 10.5), ("planning the cache", 0, 13.0), ("", 0, 13.01))
    start = start_summary(tmp_path, began=8.0, loaded_at=10.0, first_batch_at=14.25)
    assert start["seconds"] == 6.25 and start["packages_seconds"] == 2
    assert start["parts"][0] == {"part": EDGES, "bytes": 2_000_000, "seconds": 0.5}
    parts = "; in parallel: checking the encoded rows 2.5, checking the edges (2.00 MB) 0.5"
    line = "after 6.2 s: the trainer's packages 2.0"
    assert describe_start(start) == line + parts, "what takes no time is left out"
    assert describe_start(start | {"parts": start["parts"][2:]}) == line


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.usefixtures("shm")
def test_a_run_tells_its_start(cora, tmp_path, device):
    prepared = shutil.copytree(cora, tmp_path / "cora")
    ran("dataset", "prepare", prepared)
    arguments = ["--device", device, "--fanout", "4,3", "--hidden", 8, "--epochs", 1, "--compress", "both"]
    arguments += ["--cache-ratio", 0.1, "--out", tmp_path / "run"]
    result = ran("train", prepared, *arguments)
    assert "first batch" in result.stdout
    start = json.loads((tmp_path / "run/summary.json").read_text())["start"]
    names = [part["part"] for part in start["parts"]]
    on_gpu = ["copying to host memory", "preparing the GPUs", "planning the cache", "filling the cache"]
    assert names == [EDGES, *(on_gpu if device == "cuda" else ["planning the cache"]), ROWS]
    arrays = [np.load(prepared / f"{name}.npy", mmap_mode="r") for name in ("indptr", "indices")]
    assert start["parts"][0]["bytes"] == sum(array.nbytes for array in arrays)
    assert 0 < sum(part["seconds"] for part in start["parts"]) < start["seconds"]
    assert 0 < start["packages_seconds"] < start["seconds"]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("kind", ["sage", *["gcn", "gat"] * ALL_TESTS])
@pytest.mark.usefixtures("shm")
@pytest.mark.fresh
def test_a_run_imports_neither_pyg_nor_torchs_compiler(cora, tmp_path, kind, device):
    """They take longer than all else that comes before a small data set's first batch."""
    site, listed = tmp_path / "site", tmp_path / "imported"
    site.mkdir()
    arguments = ["--device", device, "--fanout", "4,3", "--hidden", 8, "--epochs", 2, "--model", kind]
    environment = beginning_with(AT_EXIT, site) | {"IMPORTED": str(listed)}
    ran("train", cora, *arguments, "--out", tmp_path / "run", env=environment)
    imported = set(listed.read_text().split())
    assert "torch" in imported
    assert not imported & {"torch_geometric", "torch._dynamo", "torch._inductor", "torch._decomp", "scipy.sparse"}
