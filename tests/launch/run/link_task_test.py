"""`cohort train` of tasks of links: sources, at some times, and the targets that they have then."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from processes import cohort, here, ran, refused
from torch_geometric.data import HeteroData

import cohort_gnn as package
from cohort_gnn import NeighborLoader
from cohort_gnn.dataset import LinkRows, Task, from_pyg, from_tensors, held_out, split_links, write_task
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.launch.main import build_parser
from cohort_gnn.launch.options.parser import spec_of
from cohort_gnn.launch.tune.space import Room
from cohort_gnn.spec.meta import read_meta
from cohort_gnn.spec.run import RunSpec

pytestmark = pytest.mark.usefixtures("shm")
CUSTOMERS, PRODUCTS, GROUPS, STEPS, STEP = 120, 48, 8, 18, 100
LATE = 8  # products, the last ones, that come with the test
SPLITS = {"train": range(6, 13), "val": range(13, 14), "test": range(16, 18)}
OPTIONS = ["--fanout", "6", "--hidden", "16", "--batch-size", "128", "--device", "cpu", "--quiet", "--model", "rsage"]
OPTIONS += ["--task", "next", "--lr", "0.01", "--dropout", "0", "--loss", "softmax"]
OPTIONS += ["--negatives", "3", "--seed", "3"]
IN_TIME = ["--time-window", str(STEP)]
K, UNTIL = 5, 1650  # between the two times of the test: the second sees no more than this


def bought() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Customers, products and times: who buys of a group goes on with it for five steps, then with the next group."""
    rng = np.random.default_rng(5)
    customer, step = np.meshgrid(np.arange(CUSTOMERS), np.arange(STEPS))
    customer, step = (np.repeat(array.ravel(), 2) for array in (customer, step))
    last = np.where(step >= 16, PRODUCTS, PRODUCTS - LATE) // GROUPS
    product = (customer + step // 5) % GROUPS + GROUPS * (rng.random(len(step)) * last).astype(np.int64)
    return customer, product, step * STEP + 1 + rng.integers(STEP - 1, size=len(step))


def task_of() -> Task:
    """What each customer buys in the step that begins."""
    customer, product, time = bought()
    splits = {}
    for split, steps in SPLITS.items():
        chosen = np.flatnonzero(np.isin(time // STEP, list(steps)))
        splits[split] = LinkRows(customer[chosen], time[chosen] // STEP * STEP, product[chosen])
    return Task("next", "link", "customer", splits, "product", metric=f"map@{K}", time_unit="s", label_column="items",
                id_column="who", time_column="at", rows_until=UNTIL)  # fmt: skip


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> Path:
    customer, product, time = bought()
    data = HeteroData()
    generator = torch.Generator().manual_seed(1)
    data["customer"].x = torch.randn(CUSTOMERS, 2, generator=generator)
    of_group = torch.eye(GROUPS).repeat(PRODUCTS // GROUPS, 1)
    data["product"].x = of_group + 0.05 * torch.randn(PRODUCTS, GROUPS, generator=generator)
    data["product"].time = torch.where(torch.arange(PRODUCTS) < PRODUCTS - LATE, 0, 16 * STEP)
    data["customer", "buys", "product"].edge_index = torch.from_numpy(np.stack([customer, product]))
    data["customer", "buys", "product"].edge_time = torch.from_numpy(time)
    folder = tmp_path_factory.mktemp("link-task") / "set"
    from_pyg(data, folder, target="product", reverse_edges=True)
    write_task(folder, task_of())
    return folder


@pytest.fixture(scope="module")
def run(shop, tmp_path_factory, shm) -> Path:
    out = tmp_path_factory.mktemp("link-task") / "run"
    more = ["--eval-fanout=-1", "--epochs", "6", "--metrics", "recall@5,ndcg@3"]
    ran("train", shop, *OPTIONS, *IN_TIME, *more, "--out", out)
    return out


def test_metrics_of(out: Path) -> dict:
    return json.loads((out / "summary.json").read_text())["test_metrics"]


test_metrics_of.__test__ = False


def mean_average_precision(found: list[list[int]], right: list[set[int]]) -> float:
    values = []
    for best, wanted in zip(found, right, strict=True):
        hits = np.array([target in wanted for target in best])
        precision = np.cumsum(hits) / (1 + np.arange(len(hits)))
        values.append((hits * precision).sum() / min(len(wanted), K))
    return float(np.mean(values))


def right_targets(rows: LinkRows) -> dict[tuple[int, int], set[int]]:
    """By time and source, in the order of the rows."""
    right: dict[tuple[int, int], set[int]] = {}
    for source, time, target in zip(rows.sources.tolist(), rows.times.tolist(), rows.targets.tolist(), strict=True):
        right.setdefault((time, source), set()).add(target)
    return right


def test_the_table_has_the_best_targets_and_the_metric(run):
    table, right = pq.read_table(run / "test.parquet"), right_targets(task_of().splits["test"])
    assert table.column_names == ["who", "at", "items"]
    at = table["at"].to_numpy().astype("datetime64[s]").astype(np.int64)
    assert list(zip(at.tolist(), table["who"].to_pylist(), strict=True)) == list(right)
    best, metrics = table["items"].to_pylist(), test_metrics_of(run)
    assert {len(ids) for ids in best} == {K}
    assert mean_average_precision(best, list(right.values())) == pytest.approx(metrics[f"map@{K}"], abs=1e-6)
    hits = [len(wanted & set(ids)) / len(wanted) for ids, wanted in zip(best, right.values(), strict=True)]
    assert np.mean(hits) == pytest.approx(metrics["recall@5"], abs=1e-6)
    assert metrics["recall@5"] > 0.6 and "mrr" not in metrics and "ndcg@3" in metrics


def rows_of_nodes(shop: Path, run: Path, node_type: str, ids, time: int) -> torch.Tensor:
    """What the run's model makes of nodes at a time, from the loader's batches."""
    model, ids = package.load_model(run).eval(), torch.as_tensor(ids)
    how = {"time_attr": "edge_time", "time_window": STEP, "batch_size": 64, "device": "cpu"}
    seeds = (node_type, ids), torch.full((len(ids),), time)
    rows = []
    with NeighborLoader(shop, [-1], seeds[0], input_time=seeds[1], **how) as loader, torch.no_grad():
        for batch in loader:
            ages = {"product": batch[node_type].seed_time[batch["product"].batch] - batch["product"].time}
            out = model(batch.x_dict, batch.edge_index_dict, ages=ages)[node_type]
            rows.append(out[: batch[node_type].batch_size])
    return torch.cat(rows)


def best_at(shop: Path, run: Path, customers, time: int, k: int) -> list[list[int]]:
    there = np.flatnonzero(open_dataset(shop).node_types["product"].node_times <= time)
    scores = rows_of_nodes(shop, run, "customer", customers, time) @ rows_of_nodes(shop, run, "product", there, time).T
    return there[scores.topk(k).indices.numpy()].tolist()


def test_targets_are_ranked_by_the_rows_of_their_time(shop, run):
    table = pq.read_table(run / "test.parquet")
    at, who = table["at"].to_numpy().astype("datetime64[s]").astype(np.int64), table["who"].to_numpy()
    for time in np.unique(at).tolist():
        own = np.flatnonzero(at == time)
        found = [table["items"][row].as_py() for row in own.tolist()]
        assert found == best_at(shop, run, who[own], min(time, UNTIL), K)


def test_predict_ranks_the_targets_of_a_time(shop, run, tmp_path):
    time = 13 * STEP
    ran(
        "predict", run, shop, "--top-k", 3, "--at-time", time, "--device", "cpu", "--quiet", "--out", tmp_path / "b.npy"
    )
    how = ["--top-k", 3, "--at-time", time, "--device", "cpu", "--out", tmp_path / "c.npy", "--exclude-seen"]
    refused(cohort("predict", run, shop, *how), 1, "--exclude-seen: expected a run that learned links of the graph")
    found = np.load(tmp_path / "b.npy")
    assert found.max() < PRODUCTS - LATE, "products that there are not yet"
    assert found.tolist() == best_at(shop, run, np.arange(CUSTOMERS), time, 3)
    scorer = package.Scorer(run, shop)
    assert scorer.best_targets(range(CUSTOMERS), 3, at_time=time)[0] == found.tolist(), "a task's targets come again"
    later, _ = scorer.best_targets(range(CUSTOMERS), 3, at_time=UNTIL)
    assert later == best_at(shop, run, np.arange(CUSTOMERS), UNTIL, 3) and max(map(max, later)) >= PRODUCTS - LATE


def test_several_ranks_fill_one_table(shop, tmp_path):
    ran("train", shop, *OPTIONS, *IN_TIME, "--epochs", "1", "--ranks", "2", "--out", tmp_path / "run")
    right = right_targets(task_of().splits["test"])
    best = pq.read_table(tmp_path / "run/test.parquet")["items"].to_pylist()
    found = mean_average_precision(best, list(right.values()))
    assert found == pytest.approx(test_metrics_of(tmp_path / "run")[f"map@{K}"], abs=1e-6)


def test_negatives_exist_and_links_to_predict_are_not_among_the_edges(shop):
    """The sampler draws the pairs of a task, which are of no relation."""
    rows = task_of().splits["train"]
    pairs = torch.from_numpy(np.stack([rows.sources, rows.targets]))
    wanted = ("customer", "next", "product")
    how = {"edge_label_time": torch.from_numpy(rows.times), "time_attr": "time", "batch_size": 64, "device": "cpu"}
    times = torch.from_numpy(np.array(open_dataset(shop).node_types["product"].node_times))
    how |= {"node_tensors": {"product": {"time": times}}, "neg_sampling": "triplet", "exclude": "none"}
    with package.LinkNeighborLoader(shop, [4], (wanted, pairs), **how) as loader:
        for batch in loader:
            product = batch["product"]
            assert (product.n_id[product.dst_neg_index] < PRODUCTS - LATE).all()
            assert (product.n_id[product.dst_pos_index] == pairs[1, batch[wanted].input_id]).all()
            assert (batch["customer"].n_id[batch["customer"].src_index] == pairs[0, batch[wanted].input_id]).all()


def test_a_test_whose_targets_are_not_known(shop, tmp_path):
    shutil.copytree(shop, tmp_path / "set")
    task = task_of()
    asked = LinkRows(np.array([7, 3]), np.array([1600, 1700]), None)
    write_task(tmp_path / "set", replace(task, splits=dict(task.splits) | {"test": asked}, metric=None))
    options = [*OPTIONS, "--time-attr", "none", "--negatives-from", "degree", "--epochs", "1"]
    ran("train", tmp_path / "set", *options, "--out", tmp_path / "run")
    table = pq.read_table(tmp_path / "run/test.parquet")
    assert table["who"].to_pylist() == [7, 3] and {len(ids) for ids in table["items"].to_pylist()} == {10}
    assert test_metrics_of(tmp_path / "run") == {}


def test_a_task_within_one_node_type(tmp_path):
    rng = np.random.default_rng(0)
    ends, times = rng.integers(60, size=(2, 900)), rng.integers(100, size=900)
    from_tensors(tmp_path / "set", x=np.eye(60, dtype=np.float32), edge_index=ends, edge_time=times)
    splits = {
        name: LinkRows(*ends[:1, :50], np.full(50, 110 + 10 * number), ends[1, :50])
        for number, name in enumerate(SPLITS)
    }
    write_task(tmp_path / "set", Task("more", "link", "node", splits, "node", metric="map@10"))
    options = ["--fanout", "4", "--hidden", "8", "--device", "cpu", "--quiet", "--task", "more", "--epochs", "2"]
    ran("train", tmp_path / "set", *options, "--negatives-from", "batch", "--out", tmp_path / "run")
    assert len(pq.read_table(tmp_path / "run/test.parquet")) == len(np.unique(ends[0, :50]))


def test_held_out_links_rank_among_all_targets_of_their_time(tmp_path):
    rng = np.random.default_rng(0)
    ends, times = rng.integers(60, size=(2, 900)), rng.integers(100, size=900)
    x = rng.standard_normal((60, 8)).astype(np.float32)
    from_tensors(tmp_path / "all", x=x, edge_index=ends, edge_time=times)
    split_links(tmp_path / "all", tmp_path / "set", shares=(0.05, 0.1), by_time=True)
    options = ["--fanout", "4", "--eval-fanout=-1", "--hidden", "8", "--device", "cpu", "--quiet", "--task", "link"]
    options += ["--time-attr", "edge_time", "--overlapping-times", "allow", "--epochs", "1", "--metrics", "recall@5"]
    ran("train", tmp_path / "set", *options, "--out", tmp_path / "run")
    held, data, model = (
        held_out(tmp_path / "set")["test"],
        open_dataset(tmp_path / "set"),
        package.load_model(tmp_path / "run"),
    )
    seen = np.eye(60, dtype=bool)
    targets = np.repeat(np.arange(60), np.diff(data.indptr))
    seen[data.indices, targets] = seen[targets, data.indices] = True
    recalls, moments, nodes = [], np.unique(held.times), np.arange(60)
    times = np.repeat(moments, 60)
    how = {"input_time": times, "time_attr": "edge_time", "batch_size": 60, "device": "cpu"}
    with NeighborLoader(data, [-1], np.tile(nodes, len(moments)), **how) as loader, torch.no_grad():
        by_time = [model(batch.x, batch.edge_index)[:60] for batch in loader]
    for time, rows in zip(moments, by_time, strict=True):
        scores = (rows @ rows.T).masked_fill(torch.from_numpy(seen), -torch.inf)
        pairs = held.pairs[held.times == time]
        for source in np.unique(pairs[:, 0]):
            right = set(pairs[pairs[:, 0] == source, 1].tolist())
            recalls.append(len(right & set(scores[source].topk(5).indices.tolist())) / len(right))
    how = ["--top-k", "5", "--at-time", int(time), "--device", "cpu", "--quiet", "--out", tmp_path / "best.npy"]
    ran("predict", tmp_path / "run", tmp_path / "set", *how)
    assert np.load(tmp_path / "best.npy").tolist() == scores.topk(5).indices.tolist()
    assert len(recalls) > len(np.unique(held.pairs[:, 0])), "sources come at several times"
    assert test_metrics_of(tmp_path / "run")["recall@5"] == pytest.approx(np.mean(recalls), abs=1e-6)


def test_a_cache_is_planned_for_the_pairs_of_a_task(shop):
    how = ["plan", shop, "--task", "next", "--fanout", "6", "--batch-size", "128", "--num-gpus", "1"]
    counted = json.loads(ran(*how, "--cache-ratio", "0.2", "--json").stdout)
    assert counted["counts"]["batches"] == 2 * -(-task_of().splits["train"].num_rows // 128)


def test_tune_counts_the_batches_of_a_task(shop):
    how = [shop, "--task", "next", "--fanout", "5", "--batch-size", "64", "--gpu-memory", "1GB"]
    spec = spec_of(build_parser().parse_args(["tune", *map(str, how)]), RunSpec)
    point = {"cache_ratio": 0.5, "sampler_sms": 0, "slots": 4, "reuse": True, "compress": "auto"}
    assert Room(spec, read_meta(shop), open_dataset(shop)).fits(point)
    planned = json.loads(ran("plan", *how, "--num-gpus", "1", "--cache-ratio", "0.2", "--json").stdout)
    assert planned["counts"]["reused"], "what a plan counts, too"


@pytest.mark.gpu
@pytest.mark.parametrize("how", [[], ["--cache-ratio", "0.2", "--topology", "host"]], ids=str)
def test_a_gpu_learns_the_same(shop, run, tmp_path, how):
    options = [*OPTIONS, *IN_TIME, "--eval-fanout=-1", "--epochs", "6", "--metrics", "recall@5,ndcg@3"]
    options[options.index("cpu")] = "cuda"
    ran("train", shop, *options, *how, "--out", tmp_path / "run")
    on_cpu, on_gpu = (pq.read_table(out / "test.parquet") for out in (run, tmp_path / "run"))
    assert on_gpu.select(["who", "at"]).equals(on_cpu.select(["who", "at"]))
    expected = test_metrics_of(run)
    assert test_metrics_of(tmp_path / "run")["recall@5"] == pytest.approx(expected["recall@5"], abs=0.05)


WRONG = [
    (["--monitor", "mrr"], "--monitor: expected recall@K, ndcg@K, map@K, found mrr"),
    (["--metrics", "auroc"], "--metrics: expected metrics of link"),
    (["--decoder", "mlp"], "--decoder dot or distmult"),
    (["--relation", "buys"], "--relation: expected --task link, found --task next"),
    (["--partition"], "--partition"),
    (["--class-weights", "balanced"], "--class-weights: expected classes to learn, found link"),
    (["--hidden", "1000000000"], "metrics among all targets, in time: expected", "48 targets at each of 2 times"),
]


@pytest.mark.parametrize(("options", "words"), [(options, words) for options, *words in WRONG])
def test_what_does_not_fit_is_refused(shop, tmp_path, options, words):
    result = here("train", shop, *OPTIONS, *options, "--out", tmp_path / "run")
    assert result.returncode != 0
    for word in words:
        assert word in result.stderr
    assert not (tmp_path / "run").exists()
