"""Batches are the same bits whatever is cached, compressed, read from a peer, or ordered: `cohort digest`."""

import pytest
import torch
from processes import ran, two_ranks

pytestmark = pytest.mark.usefixtures("shm")

CACHE = ["--cache-ratio", "0.2"]
EVERYWHERE = [
    ["--compress", "none"],
    ["--compress", "host"],
    ["--compress", "cache", *CACHE],
    ["--compress", "both", *CACHE, "--order", "asis"],
    ["--compress", "none", *CACHE, "--cache-policy", "random"],
]
ON_GPUS = [
    ["--compress", "both"],
    ["--compress", "none", *CACHE],
    ["--compress", "host", *CACHE],
    ["--compress", "both", *CACHE],
    ["--compress", "both", *CACHE, "--cache-policy", "degree", "--topology", "host"],
    ["--compress", "both", *CACHE, "--cache-policy", "none"],
    ["--compress", "none", "--order", "asis"],
    ["--compress", "none", *CACHE, "--topology", "host"],
    ["--compress", "both", "--cache-ratio", "0.5", "--topology", "host", "--fetch-sms", "5"],
    ["--compress", "both", "--cache-ratio", "3", "--topology", "host"],
    ["--compress", "both", "--cache-bytes", "40KB", "--topology", "host"],
    ["--compress", "both", *CACHE, "--no-reuse"],
    ["--compress", "none", "--slots", "10"],
    ["--compress", "both", *CACHE, "--slots", "2"],
]
ON_TWO = [
    [],
    [*CACHE, "--cliques", "all"],
    [*CACHE, "--cliques", "none"],
    [*CACHE, "--cliques", "all", "--compress", "none", "--topology", "host"],
    ["--cache-ratio", "0.1,0.5", "--topology", "host"],
    ["--cache-ratio", "0.05", "--topology", "host", "--cache-policy", "random"],
]

ON_FOUR = [
    [*CACHE, "--cliques", "all", "--topology", "host"],
    [*CACHE, "--cliques", "2x2"],
    ["--cache-ratio", "0.05,0.1,0.2,0", "--cliques", "3+1", "--topology", "host"],
]


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    """5000 nodes, prepared: raw rows and encoded ones."""
    folder = tmp_path_factory.mktemp("modes") / "graph"
    ran(
        "dataset", "generate", folder, "--kind", "powerlaw", "--nodes", "5000", "--edges", "60000", "--dim", "64",
        "--dtype", "float32", "--classes", "7", "--seed", "1", "--split-ratio", "0.5,0.1,0.1",
    )  # fmt: skip
    ran("dataset", "prepare", folder, "--codec", "exponent")
    return folder


def digest(graph, *arguments):
    """The lines of `cohort digest`, one a batch."""
    result = ran("digest", graph, "--fanout", "5,4", "--batch-size", 300, "--batches", 6, "--seed", 3, *arguments)
    lines = result.stdout.splitlines()
    assert len(lines) == 6
    return lines


@pytest.fixture(scope="module")
def expected(graph):
    return digest(graph, "--device", "cpu")


@pytest.mark.parametrize("mode", EVERYWHERE, ids=" ".join)
def test_on_the_cpu(graph, expected, mode):
    assert digest(graph, "--device", "cpu", *mode) == expected


@pytest.mark.gpu
@pytest.mark.parametrize("mode", EVERYWHERE + ON_GPUS, ids=" ".join)
def test_on_a_gpu(graph, expected, mode):
    assert digest(graph, "--device", "cuda", *mode) == expected


@pytest.mark.gpu
@pytest.mark.parametrize("mode", ON_TWO, ids=" ".join)
def test_on_two_gpus(graph, expected, mode):
    assert digest(graph, "--device", "cuda", *two_ranks("cuda"), *mode) == expected


@pytest.mark.gpu
@pytest.mark.parametrize("mode", ON_FOUR, ids=" ".join)
def test_on_four_gpus(graph, expected, mode):
    if torch.cuda.device_count() < 4:
        pytest.skip(f"needs 4 GPUs; {torch.cuda.device_count()} here")
    assert digest(graph, "--device", "cuda", "--gpus", "0,1,2,3", *mode) == expected
