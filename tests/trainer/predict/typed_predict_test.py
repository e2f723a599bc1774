"""`cohort predict` of graphs of several types: equal to the model on the whole graph, whatever pieces and memory."""

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from processes import ALL_TESTS, ran
from processes import cohort as run_cohort
from torch_geometric.data import HeteroData

import cohort_gnn as cohort
from cohort_gnn.trainer.models.typed import TypedGNN
from cohort_gnn.trainer.predict.layerwise import KeptIn, Layerwise, MemoryPlan

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(scope="module")
def graph(tmp_path_factory) -> Path:
    """Papers that cite papers, their authors without features, and fields; some nodes have no edges. Authors and fields
    have times."""
    generator = torch.Generator().manual_seed(5)
    data = HeteroData()
    data["author"].num_nodes = 90
    data["field"].x = torch.randn(20, 5, generator=generator)
    data["author"].time, data["field"].time = torch.arange(90), torch.arange(20)
    data["paper"].x = torch.randn(200, 8, generator=generator)
    data["paper"].y = torch.randint(3, (200,), generator=generator)
    for source, name, target, edges in (
        ("author", "writes", "paper", 400), ("field", "topic_of", "paper", 150), ("paper", "cites", "paper", 600),
    ):  # fmt: skip
        used = [data[each].num_nodes * 9 // 10 for each in (source, target)]
        ends = [torch.randint(count, (edges,), generator=generator) for count in used]
        data[source, name, target].edge_index = torch.stack(ends)
        if name != "writes":
            data[source, name, target].edge_attr = torch.randn(edges, len(name), generator=generator)
    return cohort.from_pyg(data, tmp_path_factory.mktemp("typed") / "papers", reverse_edges=True)


def whole_scores(model: torch.nn.Module, data) -> torch.Tensor:
    """Of the target type, by the model on the whole graph."""
    whole = data.to_pyg()
    embedded = set() if model.embeddings is None else set(model.embeddings.keys())
    x = {
        name: whole[name].x if table.feature_dim else torch.arange(table.num_nodes) if name in embedded
        else torch.empty(table.num_nodes, 0)
        for name, table in data.node_types.items()
    }  # fmt: skip
    with torch.no_grad():
        ages = {name: NOW - whole[name].time for name in model.ages.spans} if model.ages else None
        return model.eval()(x, whole.edge_index_dict, edge_attr=whole.collect("edge_attr"), ages=ages)


NOW = 70  # some authors come later
MODELS = [
    ("rsage", {"norm": "layer", "residual": True}),
    ("rsage", {"ages": {"author": 90, "field": 20}}),
    ("hgt", {"ages": {"author": 90}}),
    ("rsage", {"featureless": "embed"}),
    ("rgcn", {"norm": "batch"}),
    ("rgat", {"heads": 2}),
    ("rgat", {"heads": 2, "edge features": True}),
    ("hgt", {"heads": 2}),
    ("hgt", {"heads": 2, "featureless": "embed"}),
]
MEMORY = [
    (1 << 30, [KeptIn.WHOLE] * 3),
    (120_000, [KeptIn.FILES] * 3),
    (250_000, [KeptIn.WHOLE, KeptIn.HOST, KeptIn.FILES]),
]
# By day each model has all the memory and, in turn, one of the others.
CASES = [
    (*MODELS[a], *MEMORY[b])
    for a, b in itertools.product(range(len(MODELS)), range(3))
    if ALL_TESTS or b in (0, 1 + a % 2)
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("kind", "options", "work_bytes", "places"), CASES, ids=str)
def test_scores_are_those_of_the_model(graph, tmp_path, kind, options, work_bytes, places, device):
    data = cohort.dataset.open(graph)
    torch.manual_seed(3)
    tables = [each.edge_table for each in data.edge_types.values()]
    dims = [0 if table is None else table.feature_dim for table in tables]
    types = replace(data.types, edge_dims=dims) if "edge features" in options else data.types
    types = replace(types, age_spans=options.get("ages", {}))
    options = {name: value for name, value in options.items() if name not in ("edge features", "ages")}
    model = TypedGNN(kind, types, 16, 3, 3, 0.5, **options)
    expected = whole_scores(model, data)
    found, num_pieces = layerwise_scores(model, data, MemoryPlan(work_bytes, places), tmp_path, device)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert list(tmp_path.iterdir()) == [] and (num_pieces > 1) == (work_bytes < 1 << 30)
    if work_bytes < 1 << 30:
        whole, _ = layerwise_scores(model, data, MemoryPlan(*MEMORY[0]), tmp_path, device)
        assert torch.equal(found, whole), "scores of a node, whichever are computed beside it"


def layerwise_scores(model, data, memory: MemoryPlan, scratch: Path, device: str) -> tuple[torch.Tensor, int]:
    """Of all papers; in how many pieces."""
    layers = Layerwise(model, data, memory, scratch / "out.npy", torch.device(device), "paper", at_time=NOW)
    if device != "cpu":  # in pieces, too, though a GPU has memory of its own
        layers._limit_bytes = lambda: memory.work_bytes  # type: ignore[method-assign]
    found, done, pieces = torch.full((200, 3), torch.nan), [], {}
    layers.run(pieces.__setitem__, done.append)
    for first, scores in pieces.items():
        found[first : first + len(scores)] = scores.cpu()
    assert sum(done) == layers.work
    return found, len(pieces)


@pytest.fixture(scope="module")
def run(graph, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    options = ["--model", "rsage", "--device", "cpu", "--fanout", "4,4", "--hidden", 16, "--epochs", 1, "--quiet"]
    ran("train", graph, *options, "--out", out)
    return out


@pytest.mark.parametrize("device", DEVICES)
def test_a_run_scores_all_nodes_of_the_target_type(graph, run, tmp_path, device):
    data = cohort.dataset.open(graph)
    expected = whole_scores(cohort.load_model(run), data).numpy()
    of_pyg = whole_scores(cohort.load_model(run, layers="pyg"), data).numpy()
    np.testing.assert_allclose(of_pyg, expected, rtol=1e-4, atol=1e-5)
    for name, options in (("scores", []), ("classes", ["--classes", "--memory", "20MB"])):
        told = ran("predict", run, graph, "--out", tmp_path / f"{name}.npy", "--device", device, *options)
        assert f"[200{', 3' if name == 'scores' else ''}]" in told.stdout
    np.testing.assert_allclose(np.load(tmp_path / "scores.npy"), expected, rtol=1e-3, atol=1e-4)
    assert (np.load(tmp_path / "classes.npy") == expected.argmax(1)).mean() > 0.98


def test_other_types_and_data_sets_are_refused(graph, run, cora, tmp_path):
    def refusal(data: Path, out: Path = tmp_path / "scores.npy") -> str:
        told = run_cohort("predict", run, data, "--out", out, "--device", "cpu")
        assert told.returncode == 1
        return told.stderr

    assert "expected the node types of the run: ['author', 'field', 'paper'], found ['node']" in refusal(cora)
    meta = json.loads((graph / "meta.json").read_text())
    other = tmp_path / "other"
    other.mkdir()
    for file in graph.iterdir():
        (other / file.name).symlink_to(file)
    (other / "meta.json").unlink()
    meta["edges"][0]["type"][1] = "likes"
    (other / "meta.json").write_text(json.dumps(meta))
    assert "expected the edge types of the run: [('author', 'writes', 'paper'), " in refusal(other)
    features = graph / meta["nodes"][-1]["features"]["file"]
    assert f"{features}: expected another file to write than to read" in refusal(graph, features)
