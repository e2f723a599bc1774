"""`cohort dataset partition` on graphs of several node types, numbered through."""

import numpy as np
import pytest

from cohort_gnn.dataset import generate_typed
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.dataset.partitioning.partition import load_parts, partition
from cohort_gnn.launch.options.partition import clique_seeds

METHODS = ["metis", "streaming", "random"]


@pytest.fixture(scope="module")
def typed(tmp_path_factory):
    """Papers with authors and fields, in 5 groups that few edges leave."""
    out = tmp_path_factory.mktemp("typed-parts") / "data"
    generate_typed(out, nodes=3000, edges=20_000, dim=4, classes=2, all_features=True, seed=3)
    return out


def flat_edges(data) -> np.ndarray:
    """int64 [2, E]: of all relations, nodes being numbered through."""
    return np.concatenate(
        [
            relation.edge_index() + np.array([[data.first_node[source]], [data.first_node[target]]])
            for (source, _, target), relation in data.edge_types.items()
        ],
        axis=1,
    )


@pytest.mark.parametrize("method", METHODS)
def test_the_cut_is_that_of_all_relations(typed, method):
    found, data = partition(typed, 2, method), open_dataset(typed)
    assert found.parts.shape == (data.num_nodes,) and found.num_edges == data.num_edges
    source, target = flat_edges(data)
    assert found.cut_edges == np.count_nonzero(found.parts[source] != found.parts[target])
    assert found.nodes == np.bincount(found.parts).tolist()
    papers = found.parts[data.first_node["paper"] :][data.train_ids]
    assert found.train_nodes == np.bincount(papers).tolist()
    assert np.array_equal(load_parts(typed, 2), found.parts)


def test_few_edges_join_two_parts(typed):
    cut = {method: partition(typed, 2, method).cut_edges for method in METHODS}
    assert cut["streaming"] < 0.8 * cut["random"] and cut["metis"] < 0.8 * cut["random"]


def test_cliques_train_on_the_papers_of_their_parts(typed):
    parts, data = partition(typed, 2, "streaming").parts, open_dataset(typed)
    first, second = clique_seeds(typed, [[0], [1]])
    assert sorted([*first, *second]) == (data.train_ids + data.first_node["paper"]).tolist()
    assert set(parts[first]) == {0} and set(parts[second]) == {1}
