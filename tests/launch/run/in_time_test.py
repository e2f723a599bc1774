"""`cohort train` in time: seeds get edges up to their own times, and what they learn from these."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from processes import cohort, here, ran, refused, summary_of
from sklearn.metrics import roc_auc_score
from torch_geometric.data import Data, HeteroData

import cohort_gnn as package
from cohort_gnn import NeighborLoader
from cohort_gnn.dataset import Task, TaskRows, from_pyg, from_tensors, held_out, split_links, write_task
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.launch.run.resume import resumed
from cohort_gnn.trainer.models.own import model_described

pytestmark = pytest.mark.usefixtures("shm")
NODES, EDGES, WINDOW, PERIOD = 800, 16_000, 100, 1000
SPANS = {"train": (100, 700, 2000), "val": (700, 800, 400), "test": (800, PERIOD, 500)}
OPTIONS = ["--fanout", "12", "--hidden", "16", "--batch-size", "128", "--device", "cpu", "--quiet", "--seed", "3"]
IN_TIME = ["--task", "signal", "--time-window", f"{WINDOW}days"]


def graph(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sources and targets, times, and features of which the first says what an event is worth."""
    rng = np.random.default_rng(seed)
    return rng.integers(NODES, size=(2, EDGES)), rng.integers(PERIOD, size=EDGES), rng.standard_normal((NODES, 4))


def task_of(ends: np.ndarray, time: np.ndarray, x: np.ndarray, node_type: str = "node", **about) -> Task:
    """Whether the events of the last WINDOW before a row's time are worth more than nothing; nodes come repeatedly."""
    rng = np.random.default_rng(1)
    splits = {}
    for split, (first, last, count) in SPANS.items():
        nodes, times = rng.integers(NODES, size=count), rng.integers(first, last, count)
        worth = [
            x[ends[0, (ends[1] == node) & (time <= now) & (time >= now - WINDOW)], 0].sum()
            for node, now in zip(nodes, times, strict=True)
        ]
        splits[split] = TaskRows(nodes, times, (np.array(worth) > 0).astype(np.int64))
    how = {"targets": "classification", "num_classes": 2, "class_names": ["loss", "gain"], "metric": "auroc"}
    how |= {"id_column": "shop", "time_column": "day", "time_unit": "days"}
    return Task(name="signal", kind="node", node_type=node_type, splits=splits, **how | about)


@pytest.fixture(scope="module")
def events(tmp_path_factory) -> Path:
    ends, time, x = graph()
    folder = tmp_path_factory.mktemp("in-time") / "set"
    from_tensors(folder, x=x.astype(np.float32), edge_index=ends, edge_time=time)
    write_task(folder, task_of(ends, time, x))
    return folder


@pytest.fixture(scope="module")
def run(events, tmp_path_factory, shm) -> Path:
    out = tmp_path_factory.mktemp("in-time") / "run"
    ran("train", events, *OPTIONS, *IN_TIME, "--epochs", "10", "--out", out)
    return out


def test_only_a_run_in_time_learns_what_the_past_says(events, run, tmp_path):
    in_time = summary_of(run)
    assert in_time["test_metrics"]["auroc"] > 0.93
    result = ran(
        "train", events, *OPTIONS, "--task", "signal", "--time-attr", "none", "--epochs", "4", "--out", tmp_path / "run"
    )
    assert "edge times are not used" in result.stdout + result.stderr
    assert summary_of(tmp_path / "run")["test_metrics"]["auroc"] < 0.75


def test_the_table_of_the_test_has_its_rows_and_metric(events, run):
    table = pq.read_table(run / "test.parquet").to_pandas()
    rows = package.dataset.open_task(events, "signal").splits["test"]
    assert list(table.columns) == ["shop", "day", "prediction", "p_loss", "p_gain"]
    assert table["shop"].tolist() == rows.nodes.tolist()
    assert (table["day"].astype("datetime64[s]").astype(np.int64) // 86_400).tolist() == rows.times.tolist()
    assert roc_auc_score(rows.labels, table["p_gain"]) == pytest.approx(
        summary_of(run)["test_metrics"]["auroc"], abs=1e-6
    )
    assert (table["prediction"] == np.where(table["p_gain"] > table["p_loss"], "gain", "loss")).all()


def scores_in_batches(folder: Path, run: Path, nodes, times, fanout: list[int], **how) -> torch.Tensor:
    """What the run's model says of these nodes at these times, from the loader's batches."""
    model = package.load_model(run).eval()
    options = {"batch_size": 128, "seed": 3, "device": "cpu", "time_attr": "edge_time", "time_window": WINDOW} | how
    with NeighborLoader(folder, fanout, nodes, input_time=times, **options) as loader, torch.no_grad():
        return torch.cat([model(batch.x, batch.edge_index)[: batch.batch_size].softmax(1)[:, 1] for batch in loader])


def test_its_batches_are_those_of_the_loader(events, run):
    rows = package.dataset.open_task(events, "signal").splits["test"]
    expected = pq.read_table(run / "test.parquet")["p_gain"].to_numpy()
    found = scores_in_batches(events, run, rows.nodes, rows.times, [12])
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_predict_takes_the_edges_of_a_time(events, run, tmp_path):
    where = ["--out", tmp_path / "scores.parquet", "--device", "cpu", "--quiet"]
    ran("predict", run, events, "--at-time", "1971-09-13", *where)
    found = pq.read_table(tmp_path / "scores.parquet")["p_gain"].to_numpy()
    expected = scores_in_batches(events, run, np.arange(NODES), np.full(NODES, 620), [-1])
    np.testing.assert_allclose(found, expected, atol=1e-5)
    refused(cohort("predict", run, events, "--out", tmp_path / "s.npy"), 1, "--at-time: expected a time", "found none")


@pytest.mark.parametrize(("windows", "words"), [([1, 2], "1 integers, one for each relation"), ("x", "an integer")])
def test_windows_that_are_damaged_are_told(events, run, tmp_path, windows, words):
    shutil.copytree(run, tmp_path / "run")
    options = json.loads((run / "run.json").read_text())
    options["trainer"]["trees"]["time_window"] = windows
    (tmp_path / "run/run.json").write_text(json.dumps(options))
    with pytest.raises(package.CohortError, match=f"run.json: trainer.trees.time_window: expected .*{words}"):
        package.Scorer(tmp_path / "run", events)


def test_times_in_other_units_are_told(events, run, tmp_path):
    """Days beside seconds: no edge is there, or none that a window leaves."""
    ends, time, x = graph()
    folder = from_tensors(tmp_path / "set", x=x.astype(np.float32), edge_index=ends, edge_time=86_400 * (time + 20_000))
    write_task(folder, task_of(ends, time, x))
    said = ran("train", folder, *OPTIONS, "--task", "signal", "--epochs", "1", "--out", tmp_path / "run").stderr
    assert "training, whose times are 100 to 699, sees none of the edges that have times, 1,728" in said
    where = ["--out", tmp_path / "scores.npy", "--device", "cpu", "--quiet"]
    missed = "none of the edges that have times, 0 to 999, counts then: is it in their unit?"
    for at_time, is_missed in ((-1, True), (0, False), (620, False), (999 + WINDOW, False), (10**9, True)):
        said = ran("predict", run, events, "--at-time", at_time, *where).stdout
        assert (f"--at-time {at_time}: {missed}" in said) == is_missed
    told = cohort("predict", run, events, "--at-time", "20240701", *where)
    words = "--at-time 20240701: after the year 9999, as times of --task signal are days since 1970"
    assert told.returncode == 0 and words in told.stdout + told.stderr


def test_a_run_goes_on_as_it_would_have(events, run, tmp_path):
    short = ["train", events, *OPTIONS, *IN_TIME, "--out", tmp_path / "run"]
    ran(*short, "--epochs", "2")
    ran("train", "--resume", tmp_path / "run", "--epochs", "10")
    assert summary_of(tmp_path / "run")["test_metrics"] == summary_of(run)["test_metrics"]
    shutil.copytree(events, tmp_path / "set")
    labels = np.load(tmp_path / "set/tasks/signal/train-labels.npy")
    np.save(tmp_path / "set/tasks/signal/train-labels.npy", labels[::-1])
    refused(here("train", "--resume", tmp_path / "run", tmp_path / "set"), 1, "one with other task")


def test_several_ranks_fill_one_table(events, tmp_path):
    ran("train", events, *OPTIONS, *IN_TIME, "--epochs", "2", "--ranks", "2", "--out", tmp_path / "run")
    table = pq.read_table(tmp_path / "run/test.parquet").to_pandas()
    np.testing.assert_allclose(table["p_gain"] + table["p_loss"], 1, atol=1e-5)
    rows = package.dataset.open_task(events, "signal").splits["test"]
    assert roc_auc_score(rows.labels, table["p_gain"]) == pytest.approx(
        summary_of(tmp_path / "run")["test_metrics"]["auroc"], abs=1e-6
    )


@pytest.fixture(scope="module")
def shops(tmp_path_factory) -> Path:
    """Shops and customers of a graph whose labels are of shops at times; shops have no features, customers times."""
    ends, time, x = graph(2)
    data = HeteroData()
    data["customer"].x = torch.from_numpy(x).float()
    data["customer"].time = torch.arange(-NODES, 0)
    data["shop"].num_nodes = NODES
    data["customer", "buys_at", "shop"].edge_index = torch.from_numpy(ends)
    data["customer", "buys_at", "shop"].edge_time = torch.from_numpy(time)
    data["shop", "near", "shop"].edge_index = torch.from_numpy(ends[::-1].copy())
    folder = tmp_path_factory.mktemp("in-time") / "typed"
    from_pyg(data, folder, target="customer")
    write_task(folder, task_of(ends, time, x, "shop"))
    return folder


@pytest.fixture(scope="module")
def typed_run(shops, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("in-time") / "typed-run"
    options = [*OPTIONS, "--model", "rsage", "--task", "signal", "--epochs", "6", "--out"]
    ran("train", shops, *options, out, "--time-window", f"buys_at={WINDOW}")
    return out


def test_a_task_of_one_of_several_node_types(typed_run):
    assert summary_of(typed_run)["test_metrics"]["auroc"] > 0.9
    assert len(pq.read_table(typed_run / "test.parquet")) == SPANS["test"][2]


def typed_scores(folder: Path, run: Path, nodes, times, fanout: list[int]) -> torch.Tensor:
    """As `scores_in_batches`, of shops, of a model that reads how old customers are."""
    model, window = package.load_model(run), {("customer", "buys_at", "shop"): WINDOW}
    options = {"batch_size": 128, "seed": 3, "device": "cpu", "time_attr": "edge_time", "time_window": window}
    rows = []
    with NeighborLoader(folder, fanout, ("shop", nodes), input_time=times, **options) as loader, torch.no_grad():
        for batch in loader:
            customers, shops = batch["customer"], batch["shop"]
            assert torch.equal(customers.time, customers.n_id - NODES)
            x = {"customer": customers.x, "shop": shops.n_id}
            with pytest.raises(package.CohortError, match="ages: expected ages of nodes, of customer, found none"):
                model(x, batch.edge_index_dict)
            ages = {"customer": shops.seed_time[customers.batch] - customers.time}
            scores = model(x, batch.edge_index_dict, ages=ages)
            rows.append(scores[: shops.batch_size].softmax(1)[:, 1])
    return torch.cat(rows)


def test_a_model_reads_how_old_nodes_are(shops, typed_run, tmp_path):
    """In training, in the loader's batches and in `cohort predict`."""
    task = package.dataset.open_task(shops, "signal")
    run = json.loads((typed_run / "run.json").read_text())
    assert run["trainer"]["types"]["age_spans"] == {"customer": task.splits["train"].times.max() + NODES}
    rows = task.splits["test"]
    expected = pq.read_table(typed_run / "test.parquet")["p_gain"].to_numpy()
    np.testing.assert_allclose(typed_scores(shops, typed_run, rows.nodes, rows.times, [12]), expected, atol=1e-5)
    where = ["--out", tmp_path / "scores.parquet", "--device", "cpu", "--quiet"]
    ran("predict", typed_run, shops, "--at-time", 620, *where)
    found = pq.read_table(tmp_path / "scores.parquet")["p_gain"].to_numpy()
    expected = typed_scores(shops, typed_run, np.arange(NODES), np.full(NODES, 620), [-1])
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert resumed(typed_run, {})[1].time_encoding == "relative"


def test_a_run_from_before_models_read_times_goes_on_without(typed_run, tmp_path):
    run = json.loads((typed_run / "run.json").read_text())
    del run["trainer"]["time_encoding"], run["trainer"]["types"]["age_spans"]
    (tmp_path / "run.json").write_text(json.dumps(run))
    assert resumed(tmp_path, {})[1].time_encoding == "none"
    assert model_described(tmp_path)[0].ages is None


def test_a_task_sees_no_row_later_than_it_says(events, run, tmp_path):
    shutil.copytree(events, tmp_path / "set")
    task = package.dataset.open_task(events, "signal")
    none = TaskRows(*(array[:0] for array in vars(task.splits["val"]).values()))
    write_task(tmp_path / "set", replace(task, rows_until=850, splits={**task.splits, "val": none}))
    wrong = [*OPTIONS, *IN_TIME, "--monitor", "f1"]
    refused(here("train", tmp_path / "set", *wrong), 1, "--monitor: expected validation nodes", "leave it out")
    ran("train", tmp_path / "set", *OPTIONS, *IN_TIME, "--epochs", "1", "--out", tmp_path / "run")
    measured = summary_of(tmp_path / "run")["test_metrics"]["auroc"]
    table, rows = pq.read_table(tmp_path / "run/test.parquet"), task.splits["test"]
    assert measured == pytest.approx(roc_auc_score(rows.labels, table["p_gain"]), abs=1e-6), "without validation, too"
    assert table["shop"].to_pylist() == rows.nodes.tolist()
    assert (table["day"].to_numpy().astype("datetime64[s]").astype(np.int64) // 86_400).tolist() == rows.times.tolist()
    until = np.minimum(rows.times, 850)
    assert (until < rows.times).any()
    found = scores_in_batches(tmp_path / "set", tmp_path / "run", rows.nodes, until, [12])
    np.testing.assert_allclose(found, table["p_gain"].to_numpy(), atol=1e-5)


WRONG = [
    (["--task", "signals"], "task: expected one of signal, found signals"),
    (["--task", "node"], "train_ids.npy: expected at least one node to train on", "--task signal"),
    (["--task", "signal", "--time-window", "near=3"], "--time-window: expected the name of one relation", "near"),
    (["--task", "signal", "--time-window", "-3"], "--time-window", "a whole number"),
    (["--task", "signal", "--time-window", "36h"], "--time-window 36h: expected a whole number of days"),
    (["--task", "link", "--time-attr", "edge_time", "--time-window", "3s"], "3s: expected a number in the unit"),
    (["--task", "signal", "--weight-attr", "edge_weight"], "--weight-attr"),
    (["--task", "signal", "--sampling", "labor"], "--sampling labor: expected a run that does not use times"),
    (
        ["--task", "signal", "--sampling", "labor", "--time-attr", "none"],
        "--sampling labor: expected seeds that share nodes",
    ),
    (
        ["--task", "signal", "--time-attr", "none", "--time-window", "3"],
        "--time-window: expected --time-attr edge_time",
    ),
    (["--task", "signal", "--time-encoding", "relative"], "--time-encoding relative: expected --model rsage, rgcn,"),
    (["--task", "signal", "--cache-ratio", "auto"], "--cache-ratio: expected a number, for draws in time"),
    (["--task", "signal", "--metrics", "mae"], "--metrics: expected metrics of classification"),
]


@pytest.mark.parametrize(("options", "words"), [(options, words) for options, *words in WRONG])
def test_what_does_not_fit_is_refused(events, tmp_path, options, words):
    result = here("train", events, *OPTIONS, *options, "--out", tmp_path / "run")
    assert result.returncode != 0
    for word in words:
        assert word in result.stderr
    assert not (tmp_path / "run").exists()


def test_validation_that_is_not_later_is_refused_until_allowed(tmp_path):
    """Splits of nodes with times, without a task."""
    ends, time, x = graph()
    folder, ids = tmp_path / "set", np.arange(NODES)
    splits = {"train_mask": ids < 500, "val_mask": (ids >= 500) & (ids < 600), "test_mask": ids >= 600}
    of_nodes = torch.from_numpy(np.where(ids < 500, ids, 1000 + ids)).long()
    graph_data = Data(
        x=torch.from_numpy(x).float(),
        y=torch.from_numpy((x[:, 0] > 0).astype(np.int64)),
        edge_index=torch.from_numpy(ends),
        time=of_nodes,
        **{name: torch.from_numpy(mask) for name, mask in splits.items()},
    )
    from_pyg(graph_data, folder)
    assert open_dataset(folder).node_times.tolist() == of_nodes.tolist()
    ran("train", folder, *OPTIONS, "--epochs", "1", "--out", tmp_path / "run")
    trainer = json.loads((tmp_path / "run/run.json").read_text())["trainer"]
    assert trainer["in_time"] and trainer["trees"]["disjoint"]
    graph_data.time[550] = 3
    from_pyg(graph_data, tmp_path / "overlapping")
    again = ["train", tmp_path / "overlapping", *OPTIONS, "--epochs", "1", "--out", tmp_path / "again"]
    refused(here(*again), 1, "val, times", "expected times after 499", "found 3", "--overlapping-times allow")
    refused(here(*again, "--overlapping-times", "allow", "--metrics", "mae"), 1, "--metrics: expected")  # which is next
    graph_data.time[7] = -(2**63)  # always there: no time at which it could be a seed
    from_pyg(graph_data, tmp_path / "timeless")
    result = here("train", tmp_path / "timeless", *OPTIONS, "--epochs", "1", "--out", tmp_path / "none")
    refused(result, 1, "train, times[7]: expected a time, found a node without one", "--time-attr none")


def test_a_cache_is_planned_for_the_batches_of_the_run(events):
    """Rows of trees count once in each: a batch reads more than one whose seeds share nodes."""
    how = ["plan", events, "--fanout", "12", "--batch-size", "128", "--num-gpus", "1", "--cache-ratio", "0.2", "--json"]
    reads = {}
    for name, options in {"in time": IN_TIME, "at any time": ["--task", "signal", "--time-attr", "none"]}.items():
        counted = json.loads(ran(*how, *options).stdout)["counts"]
        reads[name] = counted["max_batch_edges"]
        assert counted["batches"] == 2 * -(-SPANS["train"][2] // 128) and not counted["reused"]
    assert json.loads(ran(*how, *IN_TIME).stdout)["counts"]["reused"]
    assert 0 < reads["in time"] < 0.3 * reads["at any time"], (
        "a window of a tenth of the time has few of a node's edges"
    )


GPU = ["--device", "cuda", "--gpus", "0"]


@pytest.mark.gpu
@pytest.mark.parametrize(
    "how", [[], ["--cache-ratio", "0.2", "--topology", "host"], ["--no-cuda-graphs", "--no-reuse"]], ids=str
)
def test_a_gpu_learns_the_same(events, run, tmp_path, how):
    options = [*OPTIONS[: OPTIONS.index("--device")], *GPU, "--quiet", "--seed", "3", *IN_TIME, "--epochs", "10"]
    ran("train", events, *options, *how, "--out", tmp_path / "run")
    assert summary_of(tmp_path / "run")["test_metrics"]["auroc"] == pytest.approx(
        summary_of(run)["test_metrics"]["auroc"], abs=0.02
    )
    on_cpu, on_gpu = (pq.read_table(out / "test.parquet").to_pandas() for out in (run, tmp_path / "run"))
    assert on_cpu[["shop", "day"]].equals(on_gpu[["shop", "day"]])


@pytest.fixture(scope="module")
def follows(tmp_path_factory) -> Path:
    """Whoever follows a node of a group goes on with nodes of the same group for a while, then with another group's."""
    rng = np.random.default_rng(5)
    count, groups, steps = 60, 4, 15
    sources, targets, times = [], [], []
    for step in range(steps):
        group_of = (np.arange(count) + step // 5) % groups  # whom a source follows
        for _ in range(4):
            sources.append(np.arange(count))
            targets.append(group_of + groups * rng.integers(count // groups, size=count))
            times.append(step * 100 + rng.integers(100, size=count))
    data = Data(x=torch.eye(groups).repeat(count // groups, 1))
    one_way = torch.from_numpy(np.stack([np.concatenate(sources), np.concatenate(targets)]))
    data.edge_index = torch.cat([one_way, one_way.flip(0)], 1)
    data.edge_time = torch.from_numpy(np.concatenate(times)).repeat(2)
    folder = tmp_path_factory.mktemp("in-time") / "follows"
    from_pyg(data, folder / "all")
    split_links(folder / "all", folder / "set", shares=(0.05, 0.1), negatives=20, by_time=True)
    return folder / "set"


def test_links_are_learned_in_time(follows, tmp_path):
    held = held_out(follows)
    assert held["val"].times.max() < held["test"].times.min()
    options = [*OPTIONS, "--batch-size", "512", "--fanout", "8", "--epochs", "3", "--lr", "0.02"]
    options += ["--decoder", "mlp", "--out"]
    in_time_options = ["--time-attr", "edge_time", "--temporal-strategy", "last"]
    ran("train", follows, *options, tmp_path / "run", *in_time_options)
    in_time = summary_of(tmp_path / "run")["test_metrics"]["mrr"]
    members = json.loads((tmp_path / "run/run.json").read_text())["trainer"]
    assert members["in_time"] and members["trees"]["draw"] == "last"
    result = ran("train", follows, *options, tmp_path / "other")
    assert "--time-attr edge_time learns links at their times" in result.stdout + result.stderr
    assert in_time > summary_of(tmp_path / "other")["test_metrics"]["mrr"] + 0.2


def test_times_of_held_out_links_are_checked(follows, tmp_path):
    shutil.copytree(follows, tmp_path / "set")
    np.save(tmp_path / "set/val_link_times.npy", np.zeros(3, np.int64))
    result = here("train", tmp_path / "set", *OPTIONS, "--out", tmp_path / "run")
    refused(result, 1, "val_link_times.npy: expected int64 [", "the time of each link, found int64 [3]")
    for split in ("val", "test"):
        (tmp_path / f"set/{split}_link_times.npy").unlink()
    result = here("train", tmp_path / "set", *OPTIONS, "--time-attr", "edge_time", "--out", tmp_path / "run")
    refused(result, 1, "expected times of the links to learn", "split-links --by-time")


def test_links_that_come_later_were_not_seen_yet(follows, tmp_path):
    """The best targets at a time are those of the data set without what is later."""
    options = [*OPTIONS, "--epochs", "1", "--time-attr", "edge_time", "--out", tmp_path / "run"]
    ran("train", follows, *options)
    data, now = open_dataset(follows), 700
    is_there = torch.from_numpy(data.edge_times <= now)
    before = Data(x=data.to_pyg().x, edge_index=data.to_pyg().edge_index[:, is_there])
    before.edge_time = torch.from_numpy(np.array(data.edge_times))[is_there]
    from_pyg(before, tmp_path / "before")
    best = []
    for number, folder in enumerate((follows, tmp_path / "before")):
        where = ["--device", "cpu", "--top-k", 20, "--at-time", now, "--out", tmp_path / f"{number}.npy"]
        ran("predict", tmp_path / "run", folder, *where)
        best.append(np.load(tmp_path / f"{number}.npy"))
    source, target = data.edge_types[next(iter(data.edge_types))].edge_index()[:, ~is_there.numpy()]
    assert np.array_equal(*best) and (best[0][source] == target[:, None]).any()
    scorer = package.Scorer(tmp_path / "run", follows)
    for at_time in (now, 1500, now):
        found, _ = scorer.best_targets(range(60), 20, at_time=at_time)
        assert (found == [[node for node in row if node >= 0] for row in best[0].tolist()]) == (at_time == now)
