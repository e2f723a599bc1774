"""`cohort digest` of a graph of several node types: batches are those of a file, on every device."""

from pathlib import Path

import pytest
from processes import ran

pytestmark = pytest.mark.usefixtures("shm")
GOLDEN = Path(__file__).parents[2] / "data" / "digests" / "typed.txt"


@pytest.fixture(scope="module")
def graph(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("typed") / "set"
    sizes = ["--nodes", "20K", "--edges", "120K", "--dim", 9, "--classes", 3, "--all-features", "--seed", 5]
    ran("dataset", "generate", folder, "--kind", "typed", *sizes)
    return folder


def lines_of(graph: Path, *options) -> list[str]:
    done = ran("digest", graph, "--fanout", "4,-1", "--batch-size", 100, "--batches", 7, "--seed", 2, *options)
    return done.stdout.splitlines()


@pytest.mark.parametrize("options", [[], ["--ranks", 3], ["--slots", 2]], ids=str)
def test_batches_are_those_of_before(graph, options):
    assert lines_of(graph, "--device", "cpu", *options) == GOLDEN.read_text().splitlines()


@pytest.fixture(scope="module")
def prepared(graph) -> Path:
    """With encoded rows beside the raw ones."""
    ran("dataset", "prepare", graph, "--codec", "exponent")
    return graph


def test_encoded_rows_change_no_batch(prepared):
    assert lines_of(prepared, "--device", "cpu") == GOLDEN.read_text().splitlines()


CACHED = [
    ["--cache-ratio", "0.1"],
    ["--cache-ratio", "0.5", "--topology", "host"],
    ["--cache-ratio", "1.1", "--topology", "gpu"],
    ["--cache-ratio", "3", "--topology", "host", "--no-reuse"],
    ["--cache-bytes", "40KB", "--topology", "host"],
    ["--cache-ratio", "0.2", "--cache-policy", "degree", "--topology", "host"],
    ["--cache-ratio", "0.2", "--cache-policy", "random", "--compress", "cache"],
    ["--cache-ratio", "0.5", "--compress", "none", "--topology", "host"],
    ["--cache-ratio", "0.5", "--compress", "both", "--topology", "host"],
    ["--cache-ratio", "0.5", "--compress", "host"],
]
ON_TWO = [
    ["--gpus", "0,1"],
    ["--gpus", "0,1", "--cache-ratio", "0.2", "--cliques", "all", "--topology", "host"],
    ["--gpus", "0,1", "--cache-ratio", "0.1,0.5", "--cliques", "none"],
]


@pytest.mark.parametrize("options", CACHED, ids=" ".join)
def test_a_planned_cache_changes_no_batch(prepared, options):
    assert lines_of(prepared, "--device", "cpu", *options) == GOLDEN.read_text().splitlines()


@pytest.mark.gpu
@pytest.mark.parametrize("options", [[], ["--topology", "host"], ["--no-reuse"], *CACHED, *ON_TWO], ids=" ".join)
def test_gpus_make_the_same_batches(prepared, options):
    import torch

    if "--gpus" in options and torch.cuda.device_count() < 2:
        pytest.skip(f"needs 2 GPUs; {torch.cuda.device_count()} here")
    assert lines_of(prepared, "--device", "cuda", *options) == GOLDEN.read_text().splitlines()
