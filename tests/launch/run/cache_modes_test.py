"""Batches are the same bits whatever is cached, compressed, read from a peer, or ordered: `cohort digest`."""

from pathlib import Path

import pytest
import torch
from processes import ran, two_ranks

pytestmark = pytest.mark.usefixtures("shm")

CACHE = ["--cache-ratio", "0.2"]
EVERYWHERE = [
    ["--ranks", "3"],
    ["--slots", "2"],
    ["--compress", "none"],
    ["--compress", "host"],
    ["--compress", "cache", *CACHE],
    ["--compress", "both", *CACHE, "--order", "asis"],
    ["--compress", "none", *CACHE, "--cache-policy", "random"],
    ["--compress", "both", *CACHE, "--cache-policy", "degree", "--topology", "host"],
    ["--compress", "both", "--cache-bytes", "40KB", "--topology", "host"],
    ["--cache-ratio", "1.1", "--topology", "gpu"],
    ["--cache-ratio", "3", "--topology", "host", "--no-reuse"],
]
ON_GPUS = [
    [],
    ["--topology", "host"],
    ["--no-reuse"],
    ["--compress", "both"],
    ["--compress", "none", *CACHE],
    ["--compress", "host", *CACHE],
    ["--compress", "both", *CACHE],
    ["--compress", "both", *CACHE, "--cache-policy", "none"],
    ["--compress", "none", "--order", "asis"],
    ["--compress", "none", *CACHE, "--topology", "host"],
    ["--compress", "both", "--cache-ratio", "0.5", "--topology", "host", "--fetch-sms", "5"],
    ["--compress", "both", "--cache-ratio", "3", "--topology", "host"],
    ["--compress", "both", *CACHE, "--no-reuse"],
    ["--compress", "none", "--slots", "10"],
    ["--compress", "both", *CACHE, "--slots", "2"],
]
ON_TWO = [
    [],
    [*CACHE, "--cliques", "all"],
    [*CACHE, "--cliques", "none"],
    [*CACHE, "--cliques", "all", "--compress", "none", "--topology", "host"],
    ["--cache-ratio", "0.1,0.5", "--cliques", "none", "--topology", "host"],
    ["--cache-ratio", "0.05", "--topology", "host", "--cache-policy", "random"],
]
ON_FOUR = [
    [*CACHE, "--cliques", "all", "--topology", "host"],
    [*CACHE, "--cliques", "2x2"],
    ["--cache-ratio", "0.05,0.1,0.2,0", "--cliques", "3+1", "--topology", "host"],
]
# How a graph is made, and which batches of it.
GRAPHS = {
    "one type": (
        "--kind powerlaw --nodes 5000 --edges 60000 --dim 64 --classes 7 --seed 1 --split-ratio 0.5,0.1,0.1",
        "--fanout 5,4 --batch-size 300 --batches 6 --seed 3",
    ),
    "several types": (
        "--kind typed --nodes 20K --edges 120K --dim 9 --classes 3 --all-features --seed 5",
        "--fanout 4,-1 --batch-size 100 --batches 7 --seed 2",
    ),
}


@pytest.fixture(scope="module", params=GRAPHS)
def graph(request, tmp_path_factory) -> tuple[Path, str]:
    """A prepared data set, with raw rows and encoded ones, and its key in GRAPHS."""
    folder = tmp_path_factory.mktemp("modes") / "graph"
    ran("dataset", "generate", folder, *GRAPHS[request.param][0].split())
    ran("dataset", "prepare", folder, "--codec", "exponent")
    return folder, request.param


def digest(graph: tuple[Path, str], *arguments) -> list[str]:
    """The lines of `cohort digest`, one a batch."""
    folder, name = graph
    lines = ran("digest", folder, *GRAPHS[name][1].split(), *arguments).stdout.splitlines()
    assert len(lines) == (6 if name == "one type" else 7)
    return lines


@pytest.fixture(scope="module")
def expected(graph) -> list[str]:
    """The batches of several types are those of a file, which no change of the code changes; see golden_test.py."""
    lines = digest(graph, "--device", "cpu")
    golden = Path(__file__).parents[2] / "data/digests/typed.txt"
    assert graph[1] == "one type" or lines == golden.read_text().splitlines()
    return lines


@pytest.mark.parametrize("mode", EVERYWHERE, ids=" ".join)
def test_on_the_cpu(graph, expected, mode):
    assert digest(graph, "--device", "cpu", *mode) == expected


@pytest.mark.gpu
@pytest.mark.parametrize("mode", EVERYWHERE[2:] + ON_GPUS, ids=" ".join)
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
