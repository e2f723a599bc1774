"""`cohort train` on graphs of several node types."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from processes import ALL_TESTS, cohort, here, ran
from torch_geometric.data import HeteroData

import cohort_gnn as package

OPTIONS = ["--model", "rsage", "--device", "cpu", "--fanout", "4,4", "--batch-size", 64, "--hidden", 16, "--quiet"]
OPTIONS += ["--lr", 0.03]
EPOCHS = 6
OTHERS = [
    ["--model", "rgcn", "--norm", "batch"],
    ["--model", "rgat", "--heads", "2"],
    ["--model", "hgt", "--norm", "layer", "--fanout", "8,8", "--lr", "0.01"],
]


@pytest.fixture(scope="module")
def graph(tmp_path_factory) -> Path:
    """Papers of 4 classes, which their authors tell, and the authors' other papers."""
    generator = torch.Generator().manual_seed(5)
    data = HeteroData()
    label = torch.randint(4, (600,), generator=generator)
    data["author"].num_nodes = 150
    data["paper"].x = torch.nn.functional.one_hot(label, 8) + torch.randn(600, 8, generator=generator)
    data["paper"].y = label
    author = 4 * torch.randint(37, (1800,), generator=generator) + label.repeat(3)
    data["author", "writes", "paper"].edge_index = torch.stack([author, torch.arange(600).repeat(3)])
    masks = torch.rand(600, generator=generator)
    data["paper"].train_mask, data["paper"].val_mask = masks < 0.5, (masks >= 0.5) & (masks < 0.75)
    data["paper"].test_mask = masks >= 0.75
    return package.from_pyg(data, tmp_path_factory.mktemp("typed") / "papers", reverse_edges=True)


def train(graph: Path, out: Path, *options, code: int = 0):
    run = cohort("train", graph, *OPTIONS, "--out", out, *options)
    assert run.returncode == code, run.stderr
    return run


def losses(out: Path) -> list[float]:
    return [epoch["loss"] for epoch in json.loads((out / "summary.json").read_text())["epochs"]]


def accuracy_of(model: torch.nn.Module, data) -> float:
    """Of the test nodes, by the scores on the whole graph."""
    whole = data.to_pyg()
    x = {
        name: whole[name].x if "x" in whole[name] else torch.empty(whole[name].num_nodes, 0) for name in data.node_types
    }
    with torch.no_grad():
        found = model(x, whole.edge_index_dict).argmax(1).numpy()
    return float((found[data.test_ids] == data.y[data.test_ids]).mean())


@pytest.fixture(scope="module")
def run(graph, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    train(graph, out, "--epochs", EPOCHS)
    return out


def test_authors_tell_the_class(graph, run):
    data = package.dataset.open(graph)
    own = data.node_types["paper"].x[data.test_ids].argmax(1) == data.y[data.test_ids]
    summary = json.loads((run / "summary.json").read_text())
    assert summary["test_accuracy"] > 0.9 > 0.7 > own.mean()  # by the paper's features alone, without its authors
    assert losses(run)[-1] < losses(run)[0] / 2


@pytest.mark.parametrize("options", OTHERS if ALL_TESTS else OTHERS[:1], ids=lambda options: " ".join(options)[8:])
def test_other_models_go_on_as_if_not_stopped_on_two_ranks(graph, tmp_path, options):
    several = ["--ranks", 2, "--amp", *options]
    train(graph, tmp_path / "whole", "--epochs", EPOCHS, *several)
    train(graph, tmp_path / "part", "--epochs", EPOCHS - 2, *several)
    ran("train", "--resume", tmp_path / "part", "--epochs", EPOCHS)
    assert losses(tmp_path / "part") == losses(tmp_path / "whole")
    summary = json.loads((tmp_path / "part" / "summary.json").read_text())
    assert summary["test_accuracy"] > 0.8  # a paper's own features give less than 0.7
    assert accuracy_of(package.load_model(tmp_path / "part"), package.dataset.open(graph)) > 0.8


def planned_and_measured(out: Path) -> tuple[dict, dict, dict]:
    """(what is told of the first rank's cache, what was expected, what was read)"""
    cache = json.loads((out / "summary.json").read_text())["cache"]
    return json.loads((out / "plan.json").read_text())["ranks"][0], cache["predicted"][0], cache["measured"][0]


def test_a_run_counts_and_plans_for_all_types(graph, run, tmp_path):
    train(graph, tmp_path / "cached", "--epochs", EPOCHS, "--cache-ratio", 0.5)
    assert losses(tmp_path / "cached") == losses(run)
    rank, predicted, measured = planned_and_measured(tmp_path / "cached")
    types = list(package.dataset.open(graph).node_types)
    rows = {name: of_type["rows"] for name, of_type in zip(types, rank["features"]["types"], strict=True)}
    assert 0 < rows["paper"] <= 600 and rows["author"] == 0, "authors have no features"
    assert rank["budget_bytes"] == 0.5 * 600 * 8 * 4 >= rank["used_bytes"] > 0
    relations = rank["topology"]["relations"]
    assert len(relations) == 2 and sum(each["lists"] for each in relations) == rank["topology"]["lists"] > 0
    assert 0.05 < predicted["hit_rate"]["local"] < 1 and measured["hit_rate"]["host"] == 1
    summary = json.loads((tmp_path / "cached" / "summary.json").read_text())
    reads = sum(read["reads"] for read in rank["features"]["expected"].values())
    batches = summary["epochs"][1]["num_batches"]
    assert summary["epochs"][1]["row_tiers"]["host"]["rows"] / batches == pytest.approx(reads, rel=0.1)
    lists = sum(read["reads"] for read in rank["topology"]["expected"].values())
    assert summary["epochs"][1]["list_tiers"]["host"]["lists"] / batches == pytest.approx(lists, rel=0.2)
    report = ran("report", tmp_path / "cached")
    told = [line.split() for line in report.stdout.splitlines()]
    assert ["paper", "600", f"{rows['paper']:,}"] in [line[:3] for line in told]
    assert ["author", "writes", "paper", "600", f"{relations[0]['lists']:,}"] in [line[:5] for line in told]


@pytest.fixture(scope="module")
def without_cache(graph, tmp_path_factory) -> list[float]:
    """Losses of a run on a GPU."""
    out = tmp_path_factory.mktemp("runs") / "without"
    train(graph, out, "--epochs", 3, "--device", "cuda")
    return losses(out)


@pytest.mark.gpu
@pytest.mark.parametrize("ratio", [0.1, 0.5, 1.1, pytest.param("auto", marks=pytest.mark.alone)])
@pytest.mark.parametrize("topology", ["gpu", "host"])
def test_a_cache_on_a_gpu_changes_no_loss(graph, without_cache, tmp_path, ratio, topology):
    options = ["--epochs", 3, "--device", "cuda", "--topology", topology]
    train(graph, tmp_path / "with", *options, "--cache-ratio", ratio)
    assert losses(tmp_path / "with") == without_cache
    rank, _, measured = planned_and_measured(tmp_path / "with")
    assert rank["features"]["rows"] + rank["topology"]["lists"] > 0  # with few bytes only lists are worth them
    summary = json.loads((tmp_path / "with" / "summary.json").read_text())
    first = summary["epochs"][0]["row_tiers"]  # later ones may find all rows where earlier batches left them
    assert (rank["features"]["rows"] > 0) == (first["local"]["rows"] > 0), (rank["features"], first)
    if ratio == "auto":
        assert rank["features"]["rows"] == 600 and measured["hit_rate"]["host"] == 0
    if topology == "host":
        assert (rank["topology"]["lists"] > 0) == (measured["list_hit_rate"]["local"] > 0)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "options",
    [["--layers", "pyg"], [], ["--featureless", "embed"], ["--compress", "host"], *OTHERS],
    ids=lambda options: " ".join(options)[2:],
)
def test_a_gpu_trains_the_same(graph, tmp_path, options):
    data = graph
    if "--compress" in options:
        data = shutil.copytree(graph, tmp_path / "encoded")
        ran("dataset", "prepare", data)
    for device in ("cpu", "cuda"):
        given = options if device == "cuda" or "--compress" not in options else []
        out = tmp_path / ("gpu" if device == "cuda" else "host")
        train(data, out, "--epochs", 2, "--dropout", 0, "--device", device, *given)
    assert json.loads((tmp_path / "gpu" / "run.json").read_text())["sampler"]["device"] == "cuda"
    np.testing.assert_allclose(losses(tmp_path / "gpu"), losses(tmp_path / "host"), rtol=2e-2)


@pytest.mark.gpu
def test_a_run_on_a_gpu_goes_on(graph, tmp_path):
    train(graph, tmp_path / "run", "--epochs", 2, "--device", "cuda")
    again = ran("train", "--resume", tmp_path / "run", "--epochs", 3)
    assert len(losses(tmp_path / "run")) == 3, again.stderr


def test_learned_rows_are_those_of_one_rank_also_when_the_run_goes_on(graph, tmp_path):
    options = ["--featureless", "embed", "--fanout", "-1,-1", "--dropout", 0, "--clip-norm", 0.5]
    options += ["--weight-decay", 0.01]
    train(graph, tmp_path / "one", *options, "--epochs", 3)
    train(graph, tmp_path / "two", *options, "--epochs", 2, "--ranks", 2, "--batch-size", 32)
    ran("train", "--resume", tmp_path / "two", "--epochs", 3)
    np.testing.assert_allclose(losses(tmp_path / "two"), losses(tmp_path / "one"), rtol=1e-4)
    one, two = (torch.load(tmp_path / name / "checkpoint.pt") for name in ("one", "two"))
    table = "embeddings.author.weight"
    torch.testing.assert_close(two["model"][table], one["model"][table], rtol=1e-4, atol=1e-4)
    assert one["rows"]["steps"] == two["rows"]["steps"] > [0] and one["model"][table].abs().max() > 0.2  # learned
    model = package.load_model(tmp_path / "two")
    whole = package.dataset.open(graph).to_pyg()
    x = {"author": torch.arange(150), "paper": whole["paper"].x}
    others = x | {"author": torch.arange(150).flip(0)}
    with torch.no_grad():
        assert not torch.equal(model(x, whole.edge_index_dict), model(others, whole.edge_index_dict))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--model", "sage"], "--model: expected rsage, rgcn, rgat or hgt, for the types of"),
        (["--heads", "2"], "--heads: expected --model rgat or hgt, found --model rsage"),
        (
            ["--model", "hgt", "--fanout", "4,4,4", "--residual"],
            "--residual: expected another model, found --model hgt",
        ),
        (["--model", "rgat", "--heads", "3"], "--hidden: expected a multiple of 3, the --heads of rgat, found 16"),
        (["--featureless", "embed", "--hidden", "2000000000"], "TB: 150 nodes (author) x 2000000000 of --hidden x 12"),
        (["--fanout", "4", "--eval-fanout", "4,4"], "--eval-fanout: expected 1 hops"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_is_not_offered_is_named(graph, tmp_path, options, said):
    run = here("train", graph, *OPTIONS, *options, "--out", tmp_path / "run")
    assert run.returncode == 1 and said in run.stderr, run.stderr
    assert not (tmp_path / "run" / "run.json").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "--model: expected sage, gcn, gat or graphconv, for the types of"),
        (["--model", "sage", "--featureless", "embed"], "--featureless: expected --model rsage, rgcn, rgat"),
        (["--model", "sage", "--norm", "batch"], "--norm: expected none or layer, for --model sage"),
    ],
)
def test_some_options_need_several_types(cora, tmp_path, options, said):
    run = here("train", cora, *OPTIONS, *options, "--out", tmp_path / "run")
    assert run.returncode == 1 and said in run.stderr, run.stderr
