"""NeighborLoader over graphs of one type and of several: equal to a slow sampler in Python, and to PyG's meaning."""

from pathlib import Path

import numpy as np
import pytest
import torch
from batches import expect_same, expect_same_passes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from processes import ALL_TESTS
from sets import schemas, times_for, write
from slow_sampler import expect_batch
from torch_geometric.nn import HeteroConv, SAGEConv

import cohort_gnn as cohort
from cohort_gnn import CohortError, NeighborLoader
from cohort_gnn.dataset import open as open_dataset

pytestmark = pytest.mark.usefixtures("shm")
EXAMPLES = 400 if ALL_TESTS else 30


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(schemas(), st.sampled_from(["none", "labor", "disjoint", "uniform", "last"]), st.integers(0, 2**32), st.data())
def test_batches_are_those_of_a_slow_sampler(tmp_path_factory, schema, trees, seed, data):
    counts, dims, lists, fanouts = schema
    if trees == "labor":  # parallel edges side by side
        lists = {name: [sorted(each, key=each.index) for each in of_name] for name, of_name in lists.items()}
    folder = write(tmp_path_factory.mktemp("typed") / "set", counts, dims, lists, times=times_for(lists, seed))
    graph, random = open_dataset(folder), np.random.default_rng(seed)
    input_type, replace = data.draw(st.sampled_from(list(counts))), trees != "last" and data.draw(st.booleans())
    seeds, times = random.permutation(counts[input_type]), None
    size = int(random.integers(1, 15))
    how = {"batch_size": size, "shuffle": data.draw(st.booleans()), "replace": replace}
    dependency, layers = data.draw(st.sampled_from([1, 2, 9])) if trees == "labor" else 0, {}
    if dependency:
        trees, how["replace"] = "none", False
        layers = {name: data.draw(st.booleans()) for name in ("layer_dependency", "importance_sampling")}
        how |= {"sampling": "labor", "batch_dependency": dependency, **layers}
    if trees != "none":
        seeds = random.integers(counts[input_type], size=20)  # which repeat
        how["disjoint"] = True
    if trees in ("uniform", "last"):
        times = random.integers(-8, 22, len(seeds))
        window = data.draw(st.sampled_from([None, 0, 3, 12]))  # one for all edge types, or for some of them
        timed = [name for name, relation in graph.edge_types.items() if relation.edge_times is not None]
        some = dict.fromkeys([name for name in timed if random.integers(2)], window)
        window = some if window is not None and data.draw(st.booleans()) else window
        how |= {"time_attr": "time", "temporal_strategy": trees, "input_time": times, "time_window": window}
    with NeighborLoader(graph, fanouts, (input_type, seeds), device="cpu", seed=seed, edge_ids=True, **how) as loader:
        for epoch in range(2):
            for step, batch in enumerate(loader):
                store = batch.store_of(input_type)
                of_batch = store.input_id.numpy()
                of_seeds = None if times is None else times[of_batch].tolist()
                assert store.batch_size == len(of_batch) and (how["shuffle"] or of_batch[0] == step * size)
                assert (store.seed_time.tolist() if "seed_time" in store else None) == of_seeds
                drawn = {"times": of_seeds, "latest": trees == "last", "replace": how["replace"]}
                drawn |= {"dependency": dependency, **layers}
                if times is not None:
                    drawn["windows"] = dict.fromkeys(lists, window) if isinstance(window, int) else window
                if trees != "none":
                    drawn["trees"] = {input_type: range(len(of_batch))}
                expect_batch(graph, batch, fanouts, {input_type: seeds[of_batch]}, (seed, epoch, step), **drawn)
            assert step == -(-len(seeds) // size) - 1


@pytest.fixture(scope="module")
def papers(tmp_path_factory) -> Path:
    """Papers, their authors (without features) and fields; relations go both ways."""
    random = np.random.default_rng(3)
    counts = {"author": 150, "field": 20, "paper": 200}
    lists: dict = {}
    for other, name, most in (("author", "writes", 5), ("field", "topic_of", 3)):
        of_paper = [random.permutation(counts[other])[: random.integers(1, most)].tolist() for _ in range(200)]
        lists[other, name, "paper"] = of_paper
        reverse: list = [[] for _ in range(counts[other])]
        for paper, others in enumerate(of_paper):
            for each in others:
                reverse[each].append(paper)
        lists["paper", f"rev_{name}", other] = reverse
    lists["paper", "cites", "paper"] = [sorted(random.integers(200, size=6).tolist()) for _ in range(200)]
    dims = {"author": 0, "field": 4, "paper": 8}
    return write(tmp_path_factory.mktemp("papers") / "set", counts, dims, lists)


def loader_of(papers, fanout=(4, 3), nodes="paper", device="cpu", **options) -> NeighborLoader:
    return NeighborLoader(papers, fanout if isinstance(fanout, dict) else list(fanout), nodes, device=device, **options)


@pytest.mark.gpu
@pytest.mark.parametrize("topology", ["gpu", "host"])
@pytest.mark.parametrize("reuse", [False, True])
def test_batches_are_the_same_on_a_gpu(papers, topology, reuse):
    how = {"batch_size": 30, "shuffle": True, "seed": 4, "edge_ids": True}
    for fanout, nodes in (((4, 3), "paper"), ((-1, 2, 1), "author"), ((3,), "field")):
        if nodes == "author":
            how |= {"sampling": "labor", "batch_dependency": 3, "layer_dependency": reuse}
            how |= {"importance_sampling": topology == "host"}
        with (
            loader_of(papers, fanout, nodes, **how) as host,
            loader_of(papers, fanout, nodes, "cuda", topology=topology, reuse=reuse, **how) as gpu,
        ):
            for _ in range(2):
                for expected, batch in zip(host, gpu, strict=True):
                    assert batch["paper"].x.is_cuda
                    expect_same(batch, expected)


def test_pygs_modules_take_the_batches(papers):
    """The output of the seeds is that of the whole graph, where all neighbours are drawn; also trimmed, accelerated."""
    whole = open_dataset(papers).to_pyg()
    whole["author"].x = torch.ones(150, 2)
    torch.manual_seed(0)
    convs = [HeteroConv({name: SAGEConv((-1, -1), 6) for name in whole.edge_types}, aggr="sum") for _ in range(2)]

    def run(batch):
        x = dict(batch.x_dict)
        for conv in convs:
            x = {name: each.relu() for name, each in conv(x, batch.edge_index_dict).items()}
        return x["paper"]

    expected = run(whole)
    seeds = torch.randperm(200)[:50]
    for accelerated in (False, True):
        for conv in convs if accelerated else ():
            cohort.nn.accelerate(conv)
        with loader_of(papers, (-1, -1), ("paper", seeds), batch_size=20) as loader:
            for batch in loader:
                batch["author"].x = torch.ones(len(batch["author"].n_id), 2)
                rows = seeds[batch["paper"].input_id]
                assert torch.equal(rows, batch["paper"].n_id[: batch["paper"].batch_size])
                assert torch.allclose(run(batch)[: len(rows)], expected[rows], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("options", [{"cache_ratio": 0.5}, {"cache_bytes": 5000, "cache_policy": "degree"}], ids=str)
def test_a_cache_changes_no_batch(papers, device, options):
    fanouts = {name: [3, number] for number, name in enumerate(open_dataset(papers).edge_types)}
    how = {"batch_size": 32, "shuffle": True, "device": device, "topology": "host"}
    with loader_of(papers, fanouts, **how) as plain, loader_of(papers, fanouts, **how, **options) as cached:
        expect_same_passes(cached, plain)


def test_a_state_goes_on_and_knows_the_type_of_its_seeds(papers):
    how = {"batch_size": 32, "shuffle": True, "seed": 3}
    with loader_of(papers, **how) as loader, loader_of(papers, **how) as again:
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
        again.load_state_dict(state)
        expect_same(next(iter(again)), next(batches))
        assert state["input_type"] == "paper"
        with loader_of(papers, nodes="author", **how) as other, pytest.raises(CohortError, match="^load_state_dict: "):
            other.load_state_dict(state)
        assert sum(batch["field"].batch_size for batch in loader.with_nodes("field")) == 20


ONE_HOP = {("author", "writes", "paper"): [1], ("paper", "rev_writes", "author"): [1], ("paper", "cites", "paper"): [1]}
ONE_HOP |= {("field", "topic_of", "paper"): [1], ("paper", "rev_topic_of", "field"): [1]}


@pytest.mark.parametrize(
    ("options", "place", "found"),
    [
        ({"nodes": None}, "input_nodes", "None"),
        ({"nodes": "authors"}, "input_nodes", "'authors'"),
        ({"nodes": ("paper", [200])}, "input_nodes", "200 .. 200"),
        ({"nodes": ("paper", [1, 1])}, "input_nodes", "1 duplicates"),
        ({"fanout": {("author", "writes", "paper"): [1]}}, "num_neighbors", "none for ('field', 'topic_of', 'paper')"),
        ({"fanout": ONE_HOP | {("a", "b", "c"): [1]}}, "num_neighbors", "one for ('a', 'b', 'c')"),
        ({"fanout": ONE_HOP | {("paper", "cites", "paper"): [1, 1]}}, "num_neighbors", "lists of 1, 1, 1, 1, 2 hops"),
        ({"edge_weights": True}, "edge_weights", "without"),
        ({"weight_attr": "edge_weight"}, "weight_attr", "without"),
        ({"time_attr": "time", "input_time": np.zeros(200, int)}, "time_attr", "without"),
        ({"node_tensors": {"year": torch.zeros(200)}}, "node_tensors['year']", "Tensor"),
        ({"node_tensors": {"paper": {"year": torch.zeros(2)}}}, "node_tensors['paper']['year']", "shape [2]"),
        ({"compress": "host"}, "the sampler", "--compress host"),
        ({"compress": "both"}, "the sampler", "compress"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_is_not_offered_is_named(papers, options, place, found):
    with pytest.raises(CohortError) as error, loader_of(papers, **options):
        pass
    assert error.value.place == place and found in error.value.found
