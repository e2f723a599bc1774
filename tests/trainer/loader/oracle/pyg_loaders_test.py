"""With all neighbours, batches have what batches of PyG's own loaders have."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from processes import ALL_TESTS
from pyg_batches import ROWS, Graph, allowed, differences, unlike_its_edges
from pyg_cases import graphs, has_reverse_by_its_edges, node_options, pair_options, without_pairs
from pyg_draws import pygs_sampler
from torch import Tensor
from torch_geometric import loader as pygs
from torch_geometric.data import HeteroData
from torch_geometric.sampler import neighbor_sampler

from cohort_gnn import LinkNeighborLoader, NeighborLoader
from cohort_gnn.dataset import open as open_dataset

pytestmark = [pytest.mark.usefixtures("shm"), pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(3000)]
EXAMPLES = 560 if ALL_TESTS else 8
KINDS = ["directional", "bidirectional", "induced", "disjoint"]
TIMED = [None, "time", "edge_time"]
cases = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))


def test_the_page_has_a_row_for_each_difference_that_is_allowed():
    assert allowed(*ROWS) == tuple(ROWS)


@pytest.mark.parametrize("typed", [False, True], ids=["one type", "several types"])
@pytest.mark.parametrize("kind", KINDS)
@cases
@given(draws=st.data())
def test_nodes(draws, kind, typed):
    timed = draws.draw(st.sampled_from(TIMED)) if kind == "disjoint" else None
    data = draws.draw(graphs(typed, timed))
    options = draws.draw(node_options(data, kind, timed))
    with NeighborLoader(data, device="cpu", **options) as loader, pygs_sampler():
        for batch, expected in zip(loader, pygs.NeighborLoader(data, **options), strict=True):
            expect_same(batch, expected, data, None, kind)


@pytest.mark.parametrize("typed", [False, True], ids=["one type", "several types"])
@pytest.mark.parametrize("kind", KINDS)
@cases
@given(draws=st.data())
def test_links(draws, kind, typed):
    timed = draws.draw(st.sampled_from(TIMED)) if kind == "disjoint" else None
    data = draws.draw(graphs(typed, timed))
    options = draws.draw(pair_options(data, kind, timed))
    pairs = options["edge_label_index"][0][::2] if typed else (None, None)
    allowed("pairs among edges")  # so exclude="none"
    with (
        LinkNeighborLoader(data, device="cpu", exclude="none", **options) as loader,
        pygs_sampler(),
        same_negatives() as negatives,
    ):
        of_pyg = iter(pygs.LinkNeighborLoader(data, **options))
        for batch in loader:
            negatives |= negatives_of(batch, options)
            if timed == "time":
                expect_existing(negatives, batch, data, options)
            expect_same(batch, next(of_pyg), data, pairs, kind)
        assert next(of_pyg, None) is None


@pytest.mark.parametrize("typed", [False, True], ids=["one type", "several types"])
@cases
@given(draws=st.data())
def test_links_without_the_edges_that_they_are(draws, typed):
    """By default, a batch of pairs is that of PyG's loader on a graph without these edges and their reverses."""
    data = draws.draw(graphs(typed, None))
    options = draws.draw(pair_options(data, "directional", None))
    typed_pairs = options["edge_label_index"] if typed else (None, options["edge_label_index"])
    with LinkNeighborLoader(data, device="cpu", **options) as loader, pygs_sampler(), same_negatives() as negatives:
        for batch in loader:
            negatives |= negatives_of(batch, options)
            rest, one_batch = without_pairs(data, options, batch)
            if not typed and rest.num_edges == rest.num_nodes:
                continue  # PyG then takes arrays of edges for those of nodes
            (expected,) = pygs.LinkNeighborLoader(rest, **one_batch)
            for store in expected.edge_stores:
                if "edge_column" in store:
                    store.e_id = store.pop("edge_column")
            expect_same(batch, expected, data, typed_pairs[0][::2] if typed else (None, None), "directional")


@pytest.mark.parametrize("kind", KINDS[:3])
def test_a_data_set_on_disk(cora, kind):
    """Its batches have no masks."""
    graph = open_dataset(cora)
    data, how = graph.to_pyg(), {"subgraph_type": kind, "batch_size": 30, "num_neighbors": [-1, -1]}
    seeds = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(1))[:60]
    with NeighborLoader(cora, input_nodes=seeds, device="cpu", edge_ids=True, **how) as loader, pygs_sampler():
        for batch, expected in zip(loader, pygs.NeighborLoader(data, input_nodes=seeds, **how), strict=True):
            other = differences(batch, expected, data, None, kind != "bidirectional")
            assert {name for _, name in other} == {"train_mask", "val_mask", "test_mask"}
            allowed("masks of a data set")


def expect_same(batch: Graph, expected: Graph, data: Graph, pairs, kind: str) -> None:
    """Where a batch of one type has reverses of drawn edges, PyG says at random which edge gives a pair of nodes."""
    same_edges = kind != "bidirectional" or isinstance(data, HeteroData)
    other = differences(batch, expected, data, pairs, same_edges)
    if kind == "bidirectional" and isinstance(data, HeteroData) and has_reverse_by_its_edges(data):
        allowed("another reverse")
        other = {name: both for name, both in other.items() if not isinstance(name[0], tuple)}
    assert not other
    if not same_edges:
        allowed("one of several edges")
        assert not unlike_its_edges(batch, data)


@pytest.mark.skipif(
    find_spec("torch_sparse") is None, reason="torch-sparse is not installed (bench/accuracy_scripts.py)"
)
@pytest.mark.parametrize("typed", [False, True], ids=["one type", "several types"])
@pytest.mark.parametrize("kind", KINDS)
@cases
@given(draws=st.data())
def test_pygs_loaders_are_those_over_torch_sparse(draws, kind, typed):
    """Which this file has in place of pyg-lib: pyg_draws.py. A disjoint batch of one seed is an ordinary one there."""
    data = draws.draw(graphs(typed))
    options = draws.draw(node_options(data, kind, None)) | ({"batch_size": 1} if kind == "disjoint" else {})
    options.pop("weight_attr", None)
    plain = {name: value for name, value in options.items() if name != "disjoint"}
    with pygs_sampler():
        found = [*pygs.NeighborLoader(data, **options)]
    for batch, expected in zip(found, pygs.NeighborLoader(data, **plain), strict=True):
        other = differences(batch, expected, data, None, kind != "bidirectional")
        assert {name for _, name in other} <= {"num_sampled_nodes", "num_sampled_edges", "batch"}


@contextmanager
def same_negatives() -> Iterator[dict]:
    """Inside, PyG's loaders have the negatives, "src" and "dst", that are in this dict."""
    found: dict = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neighbor_sampler, "neg_sample", lambda *_, endpoint: found[endpoint])
        yield found


def negatives_of(batch: Graph, options: dict) -> dict[str, Tensor]:
    """Nodes that a batch has as negatives, as PyG's sampler orders them."""
    how = options.get("neg_sampling")
    if how is None:
        return {}
    source, of_pairs, target = stores_of_pairs(batch, options)
    if how.is_triplet():
        negatives = target.dst_neg_index.view(len(source.src_index), -1)
        return {"dst": target.n_id[(negatives.T if options.get("disjoint") else negatives).flatten()]}
    negatives = of_pairs.edge_label_index[:, len(of_pairs.input_id) :]
    return {"src": source.n_id[negatives[0]], "dst": target.n_id[negatives[1]]}


def stores_of_pairs(graph: Graph, options: dict) -> tuple[Any, Any, Any]:
    """Of sources, pairs and targets."""
    name = options["edge_label_index"][0] if isinstance(options["edge_label_index"], tuple) else None
    return (graph[name[0]], graph[name], graph[name[2]]) if name else (graph, graph, graph)


def expect_existing(negatives: dict[str, Tensor], batch: Graph, data: Graph, options: dict) -> None:
    """Negatives are no later than their pairs, where there are such nodes."""
    source, _, target = stores_of_pairs(data, options)
    input_id = stores_of_pairs(batch, options)[1].input_id
    of_pairs = options["edge_label_time"][input_id]
    for end, nodes in negatives.items():
        times = (source if end == "src" else target).time
        allowed("no node exists yet")  # then the earliest nodes are drawn
        limits = of_pairs.repeat(len(nodes) // len(of_pairs) + 1)[: len(nodes)]
        assert (times[nodes] <= limits.maximum(times.min())).all()
