"""`cohort plan` of a data set with held-out links: for the batches that `cohort train` makes of it."""

import json
from pathlib import Path

import pytest
from processes import cohort, here, refused

from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.launch.main import main
from cohort_gnn.spec import files

SMALL = ["--fanout", "5,3", "--batch-size", "64", "--cache-ratio", "0.2"]
PLANNED = [*SMALL, "--num-gpus", "1", "--machines", "2", "--json"]


@pytest.fixture(scope="module")
def links(tmp_path_factory) -> Path:
    """1,000 nodes and 6,000 edges, some of which are held out."""
    folder = tmp_path_factory.mktemp("links")
    made = ["--kind", "sbm", "--nodes", "1K", "--edges", "6K", "--dim", "16", "--classes", "4"]
    assert main(["dataset", "generate", str(folder / "whole"), *made]) == 0
    assert main(["dataset", "split-links", str(folder / "whole"), str(folder / "data")]) == 0
    return folder / "data"


def planned(capsys, *options) -> dict:
    capsys.readouterr()
    assert main(["plan", *map(str, options), *PLANNED]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.usefixtures("shm")
def test_a_plan_is_for_the_batches_of_a_run(links, capsys, tmp_path):
    found = planned(capsys, links)
    assert found["epochs"][0]["steps"] == -(-open_dataset(links).num_edges // 64)
    ran = cohort("train", links, *SMALL, "--epochs", 1, "--device", "cpu", "--out", tmp_path / "run")
    assert ran.returncode == 0, ran.stderr
    of_run = json.loads((tmp_path / "run" / files.PLAN).read_text())
    assert Path(of_run["counts"]["file"]).name == Path(found["counts"]["file"]).name, "the same counts"
    more = planned(capsys, links, "--negatives", 7)
    assert more["counts"]["max_batch_nodes"] > found["counts"]["max_batch_nodes"]
    as_nodes = planned(capsys, links, "--task", "node")
    assert as_nodes["epochs"][0]["steps"] == -(-len(open_dataset(links).train_ids) // 64)
    assert as_nodes["counts"]["max_batch_nodes"] < found["counts"]["max_batch_nodes"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--task", "node", "--negatives", "2"], "--negatives: expected --task link, found --task node"),
        (["--split", "val"], "--split: expected train, with --task link, found val"),
        (["--partition"], "--task link"),
        (["--relation", "a:b:c"], "--relation: expected the name of one relation, or source:name:target: node:to:node"),
    ],
)
def test_what_does_not_go_with_links_is_refused(links, options, words):
    refused(here("plan", links, *SMALL, "--num-gpus", "1", *options), 1, words)
