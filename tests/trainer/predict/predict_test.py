"""`cohort predict`: equal to the model on the whole graph, whatever the pieces, the memory and the form of the rows."""

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from processes import ALL_TESTS, SECONDS_TO_START, beginning_with, hear_hangups, ran, wait_until
from processes import cohort as run_cohort

import cohort_gnn as cohort
from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.files import replacing
from cohort_gnn.dataset import import_graph
from cohort_gnn.dataset.components import copy_components
from cohort_gnn.dataset.importing.beside import SourceOptions
from cohort_gnn.dataset.treatment import copy_treatment
from cohort_gnn.launch.main import main
from cohort_gnn.spec.files import MODEL
from cohort_gnn.spec.graph import EDGE_TYPE, NODE_TYPE
from cohort_gnn.trainer.models.sampled import SampledGNN
from cohort_gnn.trainer.models.weights import load_weights, save_model
from cohort_gnn.trainer.predict import layerwise
from cohort_gnn.trainer.predict import program as predict
from cohort_gnn.trainer.predict.full_blocks import FullBlocks
from cohort_gnn.trainer.predict.layerwise import LEAST_WORK_BYTES, KeptIn, Layerwise, MemoryPlan, keep_scores

NUM_NODES, NUM_EDGES, DIM, EDGE_DIM, HIDDEN, CLASSES = 700, 6000, 12, 3, 16, 5
FEW_NODES = 105  # where each is a piece of its own
MODELS = ["sage", "gcn", "gat", "graphconv"]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def write_graph(folder: Path, num_nodes: int, edge_dim: int = 0) -> Path:
    """A directed graph with a hub, self-loops, edges that stand twice, and nodes without edges."""
    generator = torch.Generator().manual_seed(5)
    num_edges, num_loops = NUM_EDGES * num_nodes // NUM_NODES, 2 * num_nodes // 7
    edges = torch.randint(num_nodes * 13 // 14, (2, num_edges), generator=generator)
    edges[1, : num_edges // 7] = 3
    loops = torch.arange(num_loops).repeat(2, 1)
    edge_index = torch.cat((edges, edges[:, num_edges // 6 : num_edges // 4], loops, loops[:, : num_loops // 5]), dim=1)
    ids = torch.randperm(num_nodes, generator=generator)
    edge_attr = torch.randn(edge_index.shape[1], edge_dim, generator=generator) if edge_dim else None
    return cohort.from_tensors(
        folder,
        edge_attr=edge_attr,
        x=torch.randn(num_nodes, DIM, generator=generator),
        y=torch.randint(CLASSES, (num_nodes,), generator=generator),
        edge_index=edge_index,
        train_ids=ids[: num_nodes * 4 // 7],
        val_ids=ids[num_nodes * 4 // 7 : num_nodes * 5 // 7],
        test_ids=ids[num_nodes * 5 // 7 : num_nodes * 6 // 7],
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return write_graph(tmp_path_factory.mktemp("predict") / "data", NUM_NODES)


@pytest.fixture(scope="module")
def few_nodes(tmp_path_factory) -> Path:
    return write_graph(tmp_path_factory.mktemp("predict") / "few", FEW_NODES)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, None),
        ({"undirected": True}, "with other --reverse-edges, --dedupe than .*run-data, which the run learned"),
        ({"self_loops": "add", "row_normalize": True}, "with other --self-loops, --row-normalize than"),
        ({"pca": 2}, "with other --pca than"),
        (
            {"pca": 3},
            "of its own rows; .* are of .*run-data: import it with --columns-from .*run-data",
        ),
        ({"pca": 3, "columns_from": "run-data"}, None),
    ],
)
def test_warns_of_another_treatment_by_the_import(tmp_path, caplog, options, told):
    np.save(tmp_path / "edges.npy", np.array([[0, 1, 2], [1, 2, 3]]))
    run = tmp_path / "run"
    run.mkdir()
    if "columns_from" in options:
        options = options | {"columns_from": tmp_path / "run-data"}
    for seed, (name, given) in enumerate({"run-data": {"pca": 3} if "pca" in options else {}, "data": options}.items()):
        np.save(tmp_path / "x.npy", np.random.default_rng(seed).random((4, 4), np.float32))
        import_graph(
            tmp_path / "edges.npy", tmp_path / name, inputs=SourceOptions(features=tmp_path / "x.npy"), **given
        )
    (run / "run.json").write_text(json.dumps({"sampler": {"dataset": str(tmp_path / "run-data")}}))
    copy_treatment(tmp_path / "run-data", run)
    copy_components(tmp_path / "run-data", run)
    predict._warn_of_other_import(run, cohort.dataset.open(tmp_path / "data"))
    assert re.search(told, caplog.text) if told else not caplog.text
    caplog.clear()
    predict._warn_of_other_import(run, cohort.dataset.open(tmp_path / "run-data"))
    (run / "import.json").unlink()  # as of runs before
    predict._warn_of_other_import(run, cohort.dataset.open(tmp_path / "data"))
    assert not caplog.text


def pyg_scores(kind: str, weights: dict, folder: Path, num_layers: int = 2, **shape) -> torch.Tensor:
    """float32 [V, classes]: PyG's layers on the whole graph."""
    model = SampledGNN(kind, DIM, HIDDEN, CLASSES, num_layers, dropout=0.5, layers="pyg", **shape).eval()
    model.load_state_dict(weights)
    graph = cohort.dataset.open(folder).to_pyg()
    with torch.no_grad():
        of_edges = {"edge_attr": graph.edge_attr} if model.edge_dim else {}
        return model(graph.x, graph.edge_index, **of_edges)


def layerwise_scores(
    kind: str, folder: Path, work_bytes: int, places: list[KeptIn], scratch: Path, device: str = "cpu", **shape
) -> tuple[torch.Tensor, dict, int]:
    """(scores, weights of a new model with a layer a place, pieces that were made)"""
    torch.manual_seed(8)
    model = SampledGNN(kind, DIM, HIDDEN, CLASSES, len(places), dropout=0.5, **shape)
    memory = MemoryPlan(work_bytes, places)
    graph = cohort.dataset.open(folder)
    layers = Layerwise(model, graph, memory, scratch, torch.device(device), NODE_TYPE)
    out, done = np.full((graph.num_nodes, CLASSES), np.nan, np.float32), []
    if device != "cpu":  # in pieces, too, though a GPU has memory of its own
        layers._limit_bytes = lambda: work_bytes  # type: ignore[method-assign]
    layers.run(keep_scores(out), done.append)
    assert sum(done) == layers.work
    return torch.from_numpy(out), model.cpu().state_dict(), len(done)


PLACES = [
    [KeptIn.FILES],
    [KeptIn.WHOLE],
    [KeptIn.FILES, KeptIn.FILES, KeptIn.FILES],
    [KeptIn.WHOLE, KeptIn.WHOLE, KeptIn.WHOLE],
    [KeptIn.FILES, KeptIn.HOST, KeptIn.WHOLE],
]


WORK_BYTES = [1, 40_000, 1 << 30]
# By day each two of the values are together once; by night all three are.
CASES = [
    (MODELS[a], WORK_BYTES[b], PLACES[c])
    for a, b, c in itertools.product(range(3), range(3), range(len(PLACES)))
    if ALL_TESTS or b == (a + c) % 3
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("kind", "work_bytes", "places"), CASES, ids=str)
def test_equals_pygs_layers_on_the_whole_graph(data, few_nodes, tmp_path, device, kind, work_bytes, places):
    data = few_nodes if work_bytes == 1 else data
    shape = {"norm": "layer", "residual": True, "heads": 2} if len(places) > 2 and work_bytes == 40_000 else {}
    found, weights, pieces = layerwise_scores(kind, data, work_bytes, places, tmp_path / "scratch", device, **shape)
    fewest, most = {1: (FEW_NODES, FEW_NODES), 40_000: (7, 200), 1 << 30: (1, 1)}[work_bytes]
    assert device != "cpu" or fewest * len(places) <= pieces <= most * len(places)
    torch.testing.assert_close(found, pyg_scores(kind, weights, data, len(places), **shape), rtol=1e-4, atol=1e-5)
    if work_bytes < 1 << 30:
        memory = 1 << 30, [KeptIn.WHOLE] * len(places)
        whole, *_ = layerwise_scores(kind, data, *memory, tmp_path / "scratch", device, **shape)
        assert torch.equal(found, whole), "scores of a node, whichever are computed beside it"
    assert list(tmp_path.iterdir()) == []


OF_EDGES = [
    (form, work_bytes, PLACES[2 + number])
    for form, work_bytes, number in itertools.product(["raw", "encoded"], WORK_BYTES[1:], range(2))
    if ALL_TESTS or number == (form == "raw") ^ (work_bytes == 40_000)
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("form", "work_bytes", "places"), OF_EDGES, ids=str)
def test_edge_features_count_as_in_pygs_layers(tmp_path, device, form, work_bytes, places):
    data = write_graph(tmp_path / "data", NUM_NODES, EDGE_DIM)
    shape = {"heads": 2, "edge_dim": EDGE_DIM}
    arguments = (data, work_bytes, places, tmp_path / "scratch", device)
    if form == "encoded":
        raw = pyg_scores("gat", layerwise_scores("gat", *arguments, **shape)[1], data, len(places), **shape)
        assert main(["dataset", "prepare", str(data), "--drop-raw"]) == 0
    found, weights, _ = layerwise_scores("gat", *arguments, **shape)
    expected = raw if form == "encoded" else pyg_scores("gat", weights, data, len(places), **shape)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("few", [1, 10**9])
def test_blocks_hold_every_edge_once(data, monkeypatch, few):
    monkeypatch.setattr("cohort_gnn.trainer.predict.full_blocks.FEW", few)
    monkeypatch.setattr("cohort_gnn.trainer.predict.full_blocks.READ_AT_ONCE", 7)
    graph = cohort.dataset.open(data)
    blocks = FullBlocks({NODE_TYPE: NUM_NODES}, {EDGE_TYPE: graph}, with_degrees=True, device=torch.device("cpu"))
    edges = []
    for first, last in blocks.pieces([EDGE_TYPE], range(NUM_NODES), 100, 50, 5000):
        (block,), (ids,) = (each.values() for each in blocks.blocks(NODE_TYPE, [EDGE_TYPE], range(first, last)))
        assert ids[: last - first].tolist() == list(range(first, last)) and len(ids.unique()) == len(ids)
        targets = torch.repeat_interleave(ids[: last - first], block.indptr.diff())
        (of_all,) = blocks.blocks_of_all([EDGE_TYPE], range(first, last)).values()
        assert torch.equal(of_all.source, ids[block.source]) and torch.equal(of_all.indptr, block.indptr)
        assert torch.equal(of_all.own_row_index, ids[: last - first])
        edges.append(torch.stack((ids[block.source], targets)))
    edges = torch.cat(edges, dim=1)
    assert torch.equal(edges, graph.to_pyg().edge_index)
    no_loops = edges[:, edges[0] != edges[1]]
    assert torch.equal(blocks._degrees[EDGE_TYPE].long(), torch.bincount(no_loops[1], minlength=NUM_NODES))
    times, span = np.arange(graph.num_edges) % 7, (2, 4)
    timed = {EDGE_TYPE: SimpleNamespace(indptr=graph.indptr, indices=graph.indices, edge_times=times)}
    blocks = FullBlocks({NODE_TYPE: NUM_NODES}, timed, True, torch.device("cpu"), {EDGE_TYPE: span})
    then = edges[1, (edges[0] != edges[1]) & torch.from_numpy((times >= span[0]) & (times <= span[1]))]
    assert torch.equal(blocks._degrees[EDGE_TYPE].long(), torch.bincount(then, minlength=NUM_NODES))


DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.uint8]
FORMS = [
    (DTYPES[number], drop_raw, place)
    for number, drop_raw, place in itertools.product(range(4), [False, True], [KeptIn.FILES, KeptIn.WHOLE])
    if ALL_TESTS or (place == KeptIn.WHOLE) == (number % 2 == drop_raw)
]


@pytest.mark.parametrize(("dtype", "drop_raw", "place"), FORMS, ids=str)
@pytest.mark.parametrize("device", DEVICES)
def test_rows_of_every_form(tmp_path, data, dtype, drop_raw, place, device):
    graph = cohort.dataset.open(data)
    x = (torch.randn(NUM_NODES, DIM, generator=torch.Generator().manual_seed(1)) * 40 + 100).to(dtype)
    folder = cohort.from_tensors(
        tmp_path / "data",
        x=x,
        y=torch.from_numpy(np.array(graph.y)),
        edge_index=graph.to_pyg().edge_index,
        train_ids=torch.arange(4),
        val_ids=torch.empty(0, dtype=torch.int64),
        test_ids=torch.empty(0, dtype=torch.int64),
    )
    places = [place, KeptIn.WHOLE]
    expected = pyg_scores("sage", layerwise_scores("sage", folder, 40_000, places, tmp_path)[1], folder)
    if drop_raw:
        assert main(["dataset", "prepare", str(folder), "--drop-raw"]) == 0
        assert cohort.dataset.open(folder).x is None
    found, _, _ = layerwise_scores("sage", folder, 40_000, places, tmp_path / "scratch", device)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-3)


def train(data: Path, out: Path, *arguments) -> Path:
    """The folder of a run."""
    options = ["--hidden", HIDDEN, "--device", "cpu", "--fanout", "4,3", "--batch-size", 100, "--out", out]
    ran("train", data, *options, *arguments)
    return out


@pytest.fixture(scope="module")
def run(data, tmp_path_factory, shm):
    """The folder of a run of GraphSAGE that ended with its best epoch or went on after it."""
    return train(data, tmp_path_factory.mktemp("runs") / "sage", "--epochs", 8, "--seed", 3)


@pytest.mark.parametrize(
    ("kind", "layers"), [("gcn", "pyg"), ("gat", "cohort"), *[("sage", "pyg"), ("graphconv", "pyg")] * ALL_TESTS]
)
def test_the_command_applies_what_a_run_kept(data, tmp_path_factory, tmp_path, shm, kind, layers):
    run = train(data, tmp_path_factory.mktemp("run"), "--model", kind, "--layers", layers, "--epochs", 2)
    weights = torch.load(run / MODEL, weights_only=True)
    expected = pyg_scores(kind, weights, data)
    result = ran("predict", run, data, "--out", tmp_path / "scores.npy", "--device", "cpu")
    assert "float32 [700, 5]" in result.stdout and "hidden layers in memory" in result.stdout
    scores = np.load(tmp_path / "scores.npy")
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, expected.numpy(), rtol=1e-4, atol=1e-5)
    least = NUM_NODES * (5 + 4 * (kind == "gcn")) + LEAST_WORK_BYTES
    options = ["--classes", "--memory", least, "--device", "cpu"]
    result = ran("predict", run, data, "--out", tmp_path / "classes.npy", *options)
    assert "hidden layers in files" in result.stdout, result.stderr
    classes = np.load(tmp_path / "classes.npy")
    assert classes.dtype == np.int64 and (classes == scores.argmax(axis=1)).all()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["classes.npy", "scores.npy"]


def test_the_weights_kept_are_those_of_the_best_epoch(data, run, tmp_path, shm):
    best_epoch = json.loads((run / "summary.json").read_text())["best_epoch"]
    best = train(data, tmp_path / "best", "--epochs", best_epoch + 1, "--seed", 3)
    kept, expected = (torch.load(folder / MODEL, weights_only=True) for folder in (run, best))
    assert all(torch.equal(kept[name], expected[name]) for name in expected)


def test_a_run_that_is_none_is_refused_by_the_command(data, tmp_path, capfd):
    arguments = ["predict", str(tmp_path), str(data), "--device", "cpu", "--out"]
    assert main([*arguments, str(tmp_path / "pred.npy")]) == 1
    assert "expected the folder of a run, found no run.json in it" in capfd.readouterr().err
    assert main([*arguments, str(tmp_path / "nowhere/pred.npy")]) == 1
    assert "expected an existing folder, found none" in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("no model", "expected the weights of a run, found none"),
        ("damaged", "expected the weights of a run, a dict of tensors"),
        ("other data", "expected 12 features per node, as the run had, found 1433\n  hint: the run's data set: "),
    ],
)
def test_bad_input_says_what_is_wrong(data, cora, run, tmp_path, case, words):
    model = tmp_path / MODEL
    (tmp_path / "run.json").write_text((run / "run.json").read_text())
    if case != "no model":
        model.write_bytes((run / MODEL).read_bytes()[: 900 if case == "damaged" else None])
    folder = cora if case == "other data" else data
    with pytest.raises(CohortError, match=words):
        predict.predict_nodes(job_of(tmp_path, folder, tmp_path / "pred.npy"))
    assert not list(tmp_path.glob("pred*"))


def job_of(run: Path, data: Path, out: Path) -> dict:
    paths = {"run": str(run), "dataset": str(data), "out": str(out)}
    no_options = dict.fromkeys(["node_type", "top_k", "nodes", "threshold", "at_time", "keep", "update"])
    return (
        paths
        | no_options
        | {"classes": False, "exclude_seen": True}
        | {"memory_bytes": 10**9, "device": "cpu", "quiet": True}
    )


NO_MEMORY = [RuntimeError("can't allocate memory\nmore"), torch.OutOfMemoryError("CUDA"), MemoryError()]


@pytest.mark.parametrize("error", NO_MEMORY, ids=lambda error: type(error).__name__)
def test_memory_that_cannot_be_had_is_told(data, run, tmp_path, monkeypatch, error):
    def fail(*_):
        raise error

    monkeypatch.setattr(Layerwise, "run", fail)
    place = "--device cuda: expected memory" if error.args == ("CUDA",) else "--memory: expected 1.00 GB that"
    with pytest.raises(CohortError, match=f"{place}.* found {(error.args or ('too',))[0][:4]}"):
        predict.predict_nodes(job_of(run, data, tmp_path / "pred.npy"))
    error = RuntimeError("another")
    with pytest.raises(RuntimeError, match="another"):
        predict.predict_nodes(job_of(run, data, tmp_path / "pred.npy"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mapped", [False, True])
def test_a_full_disk_is_reported_and_leaves_nothing(data, run, tmp_path, monkeypatch, mapped):
    def full(shape, file, dtype=np.float32):
        if file and mapped == file.name.startswith("hidden-0"):
            raise OSError(28, "No space left on device", str(file))
        return np.empty(shape, dtype)

    monkeypatch.setattr(layerwise, "new_rows", full)
    monkeypatch.setattr(predict, "new_rows", full)
    places = [KeptIn.FILES, KeptIn.FILES if mapped else KeptIn.HOST]
    monkeypatch.setattr(predict, "plan_memory", lambda *_: MemoryPlan(1 << 20, places))
    with pytest.raises(CohortError, match="No space left on device"):
        predict.predict_nodes(job_of(run, data, tmp_path / "pred.npy"))
    assert list(tmp_path.iterdir()) == []


def with_layers_that(first: str, call: str, folder: Path) -> dict[str, str]:
    """An environment in which a prediction begins with a statement, and each layer is a call."""
    folder.mkdir()
    return beginning_with(
        "import sys, time\n"
        "if 'cohort_gnn.trainer.predict' in sys.orig_argv:\n"
        f"    {first}\n"
        "    import cohort_gnn.trainer.predict.layerwise as layerwise\n"
        f"    layerwise.Layerwise.run_layer = lambda *_: {call}\n",
        folder,
    )


STOPS = [(signal.SIGTERM, False), (signal.SIGHUP, False), (signal.SIGINT, True), (signal.SIGHUP, True)]


@pytest.mark.parametrize(("number", "to_all"), STOPS)
@pytest.mark.parametrize("moment", ["its first second", "the first layer"])
def test_a_stopped_prediction_leaves_nothing(data, run, tmp_path, number, to_all, moment):
    """The command, or all of its terminal's processes, get a signal as its program starts or its first layer waits."""
    slow = tmp_path / "slow"
    wait = "time.sleep(60)" if moment == "its first second" else "None"
    env = with_layers_that(f"open({str(slow / 'started')!r}, 'w').close(); {wait}", "time.sleep(60)", slow)
    out = tmp_path / "pred.npy"
    least = NUM_NODES * 9 + LEAST_WORK_BYTES
    command = [sys.executable, "-m", "cohort_gnn", "predict", run, data, "--out", out, "--memory", least]
    command = [*map(str, command), "--device", "cpu"]
    told = {"stderr": subprocess.PIPE, "text": True, "preexec_fn": hear_hangups}
    process = subprocess.Popen(command, env=env, start_new_session=True, **told)
    sign = "slow/started" if moment == "its first second" else "pred.npy.*.tmp/*.npy"
    wait_until(lambda: list(tmp_path.glob(sign)), SECONDS_TO_START, moment)
    os.killpg(process.pid, number) if to_all else process.send_signal(number)
    _, said = process.communicate(timeout=30)
    codes = {128 + number} | ({-number} if moment == "its first second" else set())  # before the command has begun
    assert process.returncode in codes and "Traceback" not in said, said
    assert not list(tmp_path.glob("pred*"))


def test_a_killed_prediction_is_told_and_leaves_nothing(data, run, tmp_path):
    out = tmp_path / "pred.npy"
    env = with_layers_that("import os, signal", "os.kill(os.getpid(), signal.SIGKILL)", tmp_path / "killed")
    (tmp_path / "pred.npy.1-01234567.tmp").mkdir()  # of a process that was killed
    with replacing(out) as of_another:
        result = run_cohort("predict", run, data, "--out", out, "--device", "cpu", env=env)
        assert [*tmp_path.glob("pred*")] == [of_another]
    assert result.returncode == 128 + signal.SIGKILL
    assert "the prediction was ended by signal 9; if memory ran out, --memory has it take less" in result.stderr


def test_what_is_read_is_not_written(data, run, tmp_path, capfd):
    copy = tmp_path / "copy"
    shutil.copytree(data, copy)
    for out in (copy / "features.npy", copy / "meta.json", run / "model.pt"):
        before = out.read_bytes()
        assert main(["predict", str(run), str(copy), "--out", str(out), "--device", "cpu"]) == 1
        assert "expected another file to write than to read" in capfd.readouterr().err
        assert out.read_bytes() == before
    assert main(["predict", str(run), str(copy), "--out", str(tmp_path), "--device", "cpu"]) == 1
    assert f"{tmp_path}: expected a file to write, found a folder" in capfd.readouterr().err


def test_weights_are_written_whole(tmp_path):
    model = SampledGNN("sage", 3, 4, 2, 2, 0.0)
    save_model(tmp_path, model.state_dict())
    load_weights(tmp_path, other := SampledGNN("sage", 3, 4, 2, 2, 0.0))
    assert all(map(torch.equal, model.state_dict().values(), other.state_dict().values()))
    assert [path.name for path in tmp_path.iterdir()] == [MODEL]


@pytest.mark.parametrize("kind", MODELS)
def test_a_loaded_model_scores_the_whole_graph_and_batches(data, tmp_path, kind):
    trainer = {"model": kind, "feature_dim": DIM, "hidden": HIDDEN, "num_classes": CLASSES, "fanout": [4, 3]}
    (tmp_path / "run.json").write_text(json.dumps({"trainer": trainer}))
    save_model(tmp_path, SampledGNN(kind, DIM, HIDDEN, CLASSES, 2, 0.5).state_dict())
    model = cohort.load_model(tmp_path)
    assert isinstance(model, torch.nn.Module) and not model.training
    expected = pyg_scores(kind, model.state_dict(), data)
    graph = cohort.dataset.open(data).to_pyg()
    scores = torch.full((NUM_NODES, CLASSES), float("nan"))
    with torch.no_grad():
        torch.testing.assert_close(model(graph.x, graph.edge_index), expected, rtol=1e-4, atol=1e-5)
        of_pyg = cohort.load_model(tmp_path, layers="pyg")
        assert any(layer.__module__.startswith("torch_geometric") for layer in of_pyg.modules())
        torch.testing.assert_close(of_pyg(graph.x, graph.edge_index), expected, rtol=1e-5, atol=1e-6)
        for batch in cohort.NeighborLoader(data, [-1, -1], batch_size=100, device="cpu"):
            rows = batch.n_id[: batch.batch_size]
            scores[rows] = model(batch.x, batch.edge_index)[: batch.batch_size]
    if kind == "gcn":  # the outermost nodes of a batch are without their degrees
        assert torch.isfinite(scores).all()
    else:
        torch.testing.assert_close(scores, expected, rtol=1e-4, atol=1e-5)


def test_a_model_that_is_none_is_not_loaded(tmp_path):
    with pytest.raises(CohortError, match="the folder of a run, found no run.json in it\n  hint: name the folder"):
        cohort.load_model(tmp_path)
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(CohortError, match="run.json: expected a run of cohort train"):
        cohort.load_model(tmp_path)


def test_scores_go_into_a_file_of_numpy(data, run, tmp_path, capfd):
    assert main(["predict", str(run), str(data), "--device", "cpu", "--out", str(tmp_path / "scores.tsv")]) == 1
    said = capfd.readouterr().err
    assert "--out: expected a name that ends in .npy" in said and f"hint: --out {tmp_path / 'scores.npy'}" in said
    assert list(tmp_path.iterdir()) == []
