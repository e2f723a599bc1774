"""cohort.from_pyg of a HeteroData: what is kept, in both directions, and what is refused with a way out."""

import re

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data, HeteroData

from cohort_gnn import CohortError, from_pyg
from cohort_gnn.dataset import check
from cohort_gnn.dataset import open as open_dataset

pytestmark = pytest.mark.filterwarnings("error::UserWarning")

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.uint8)


def graph_of(**paper) -> HeteroData:
    """4 papers and 3 authors; members of the papers may be replaced, or left out by None."""
    data = HeteroData()
    members = {"x": torch.rand(4, 2), "y": torch.tensor([0, 2, -1, 1])} | paper
    for name, value in members.items():
        if value is not None:
            data["paper"][name] = value
    data["author"].num_nodes = 3
    data["author", "writes", "paper"].edge_index = torch.tensor([[0, 1, 2, 0], [0, 0, 1, 3]])
    data["paper", "cites", "paper"].edge_index = torch.tensor([[3, 0], [1, 2]])
    return data


@st.composite
def schemas(draw) -> HeteroData:
    """A HeteroData of up to 4 types and 6 relations, with nodes without edges and relations without any."""
    data = HeteroData()
    counts = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    names = [f"type-{i}" for i in range(len(counts))]
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    for name, count in zip(names, counts, strict=True):
        dim = draw(st.integers(0, 3))
        if dim:
            x = torch.randint(0, 100, (count, dim), generator=generator)
            data[name].x = x.to(draw(st.sampled_from(DTYPES)))
        else:
            data[name].num_nodes = count
    ends = st.integers(0, len(counts) - 1)
    pairs = draw(st.lists(st.tuples(ends, st.sampled_from(["a", "b_2"]), ends), min_size=1, max_size=6, unique=True))
    for source, relation, target in pairs:
        num_edges = draw(st.integers(0, 8))
        data[names[source], relation, names[target]].edge_index = torch.stack(
            [torch.randint(0, counts[end], (num_edges,), generator=generator) for end in (source, target)]
        )
    target = draw(ends)
    data[names[target]].y = torch.randint(-1, 3, (counts[target],), generator=generator)
    return data


def sorted_edges(edge_index: torch.Tensor) -> list[list[int]]:
    return sorted(edge_index.T.tolist())


@given(data=schemas(), reverse_edges=st.booleans())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_from_pyg_writes_to_pyg_gives_back(tmp_path, data, reverse_edges):
    written = open_dataset(from_pyg(data, tmp_path / "out", reverse_edges=reverse_edges, overwrite=True))
    assert check(written.path) == []
    back = written.to_pyg()
    assert back.node_types == data.node_types
    for name in data.node_types:
        assert back[name].num_nodes == data[name].num_nodes
        if "x" in data[name]:
            assert written.node_types[name].feature_dtype == str(data[name].x.dtype).removeprefix("torch.")
            assert torch.equal(back[name].x, data[name].x.float())
        else:
            assert "x" not in back[name] and written.node_types[name].x is None
    for relation in data.edge_types:
        assert sorted_edges(back[relation].edge_index) == sorted_edges(data[relation].edge_index)
    assert back.edge_types[: len(data.edge_types)] == data.edge_types
    sources = [back.node_types.index(source) for source, _, _ in written.edge_types]
    assert sources == sorted(sources) and back.metadata() == written.metadata()
    assert torch.equal(back[written.target].y, data[written.target].y)
    reversed_edges = {name: sorted_edges(back[name].edge_index.flip(0)) for name in back.edge_types}
    for name, relation in written.edge_types.items():
        if relation.reverse_of is not None:
            assert sorted_edges(back[name].edge_index) == reversed_edges[relation.reverse_of]
    if not reverse_edges:
        assert set(back.edge_types) == set(data.edge_types)
        return
    for source, name, target in data.edge_types:  # another relation may be its reverse by chance
        opposite = [relation for relation in back.edge_types if relation[::2] == (target, source)]
        assert any(
            reversed_edges[relation] == sorted_edges(back[source, name, target].edge_index) for relation in opposite
        )


def test_weights_of_a_relation_are_kept_and_its_reverse_has_them(tmp_path):
    data = graph_of()
    data["author", "writes", "paper"].edge_weight = torch.tensor([0.5, 2, 0, 8])
    data["paper", "cites", "paper"].edge_attr = torch.tensor([[3.0], [4.0]])
    folder = from_pyg(data, tmp_path / "out", reverse_edges=True)
    assert check(folder) == []
    back = open_dataset(folder).to_pyg()
    for relation in (("author", "writes", "paper"), ("paper", "rev_writes", "author")):
        ends = back[relation].edge_index if relation[0] == "author" else back[relation].edge_index.flip(0)
        found = dict(zip(map(tuple, ends.T.tolist()), back[relation].edge_weight.tolist(), strict=True))
        assert found == {(0, 0): 0.5, (1, 0): 2, (2, 1): 0, (0, 3): 8}
    assert back["paper", "cites", "paper"].edge_attr.tolist() == [[3], [4]]
    assert "edge_weight" not in back["paper", "cites", "paper"]
    np.save(folder / "author.writes.paper.edge_weights.npy", np.array([1, np.nan, 2, 3], np.float32))
    assert ["author.writes.paper.edge_weights.npy" in problem.place for problem in check(folder)] == [True]


def test_reverse_edges_are_added_where_there_are_none(tmp_path):
    data = graph_of()
    data["paper", "rev_writes", "author"].edge_index = torch.tensor([[0], [2]])
    with pytest.raises(CohortError, match="author, writes, paper in the other direction") as error:
        from_pyg(data, tmp_path / "out", reverse_edges=True)
    assert "--reverse-of paper:rev_writes:author=author:writes:paper" in error.value.hint
    told = {("paper", "rev_writes", "author"): ("author", "writes", "paper")}
    written = open_dataset(from_pyg(data, tmp_path / "out", reverse_edges=True, reverse_of=told))
    assert {type_: relation.reverse_of for type_, relation in written.edge_types.items()} == {
        ("paper", "cites", "paper"): None,
        ("paper", "rev_writes", "author"): ("author", "writes", "paper"),
        ("paper", "rev_cites", "paper"): ("paper", "cites", "paper"),
        ("author", "writes", "paper"): None,
    }
    assert written.edge_types["paper", "rev_writes", "author"].edge_index().tolist() == [[0], [2]], "not replaced"


def test_masks_become_splits_and_options_are_kept(tmp_path):
    mask = torch.tensor([True, False, True, True])
    data = graph_of(train_mask=mask, val_mask=~mask)
    written = open_dataset(from_pyg(data, tmp_path / "out", name="mine", num_classes=7))
    assert written.train_ids.tolist() == [0, 3], "paper 2 has no label"
    assert written.val_ids.tolist() == [1] and len(written.test_ids) == 0
    assert (written.name, written.num_classes) == ("mine", 7)


def test_what_would_be_kept_under_another_name_says_so(tmp_path):
    data = graph_of()
    cites = data["paper", "cites", "paper"]
    cites.weight, data["author"].feat = torch.ones(cites.num_edges), torch.ones(data["author"].num_nodes, 2)
    with pytest.warns(UserWarning, match="left out") as said:
        from_pyg(data, tmp_path / "out")
    text = str(said[0].message)
    assert "data['author'].x = data['author'].feat keeps it" in text
    assert "data[('paper', 'cites', 'paper')].weight keeps it" in text


def test_target_chooses_among_types_with_y(tmp_path):
    data = graph_of()
    data["author"].y = torch.tensor([0, 1, 1])
    with pytest.raises(CohortError, match="one node type has y, found y of paper, author.*\n.*target='paper'"):
        from_pyg(data, tmp_path / "out")
    with pytest.warns(UserWarning, match="y of paper is left out"):
        written = open_dataset(from_pyg(data, tmp_path / "out", target="author"))
    assert written.target == "author" and written.y.tolist() == [0, 1, 1]
    assert open_dataset(from_pyg(graph_of(y=None), tmp_path / "none", target="author")).num_classes == 0


def with_edges(edge_index) -> HeteroData:
    data = graph_of()
    data["author", "writes", "paper"].edge_index = edge_index
    return data


def with_times(edge_index) -> HeteroData:
    data = with_edges(edge_index)
    data["author"].time = torch.arange(3)
    return data


def with_adj_t() -> HeteroData:
    data = with_edges(None)
    data["author", "writes", "paper"].adj_t = torch.ones(4, 3).to_sparse()
    return data


def renamed(name: str) -> HeteroData:
    data = graph_of()
    data["paper", name, "author"].edge_index = torch.tensor([[0], [0]])
    return data


def without_sizes() -> HeteroData:
    data = graph_of()
    del data["author"].num_nodes
    return data


@pytest.mark.parametrize(
    ("data", "options", "words"),
    [
        (
            with_edges(torch.tensor([[0, 3, 3], [0, 0, 0]])),
            {},
            "edge_index of author, writes, paper: source of edge 1: expected a node of type author in .0, 3., found 3",
        ),
        (
            with_edges(torch.tensor([[0], [-1]])),
            {},
            "author, writes, paper: destination of edge 0: expected a node of type paper",
        ),
        (with_edges(torch.rand(2, 3)), {}, "edge_index of author, writes, paper: src: expected integers, found dtype"),
        (
            with_times(torch.tensor([[0, 3], [0, 0]])),
            {},
            r"of author, writes, paper: source of edge 1: expected a node of type author in \[0, 3\), found 3",
        ),
        (with_edges(torch.zeros(5, 2).long()), {}, "edge_index of author, writes, paper: .*\n.*pass edge_index.T"),
        (with_adj_t(), {}, r"of author, writes, paper: .*none\n.*to_edge_index\(.*flip\(0\)"),
        (renamed("reviewed by"), {}, "expected names of 1 to 64 letters, digits, _ and -, found 'reviewed by'"),
        (renamed("../x"), {}, "expected names of 1 to 64 letters, digits, _ and -, found '../x'"),
        (without_sizes(), {}, r"author: expected x, or a num_nodes of at least 1.*\n.*data\['author'\].num_nodes = "),
        (graph_of(x=torch.rand(5)), {}, r"paper.x: expected shape \[any, any\], found shape \[5\]"),
        (graph_of(x=torch.full((4, 2), torch.inf)), {}, r"out: paper.features.npy\[0, 0\]: expected a finite number"),
        (graph_of(num_nodes=5), {}, "paper.x: expected num_nodes = 5 rows, found 4"),
        (graph_of(y=torch.arange(3)), {}, r"y: expected shape \[4\], found shape \[3\]"),
        (graph_of(y=torch.rand(4)), {}, 'y: expected integers .*\n.*task="regression"'),
        (graph_of(y=None), {}, "a HeteroData in which one node type has y, found no y"),
        (HeteroData(), {}, "one node type has y, found no y\n.*it has no nodes yet"),
        (graph_of(x=torch.eye(4).to_sparse()), {}, r"paper.x: .*found torch.float32, torch.sparse_coo\n.*to_dense\(\)"),
        (graph_of(x=torch.eye(4).to(torch.float8_e4m3fn)), {}, r"paper.x: .*float8_e4m3fn, .*\n.*tensor.float\(\)"),
        (graph_of(train_mask=torch.ones(4, 2).bool()), {}, r"train_mask: expected a mask \[V\]"),
        (graph_of(), {"target": "venue"}, "target: expected one of the node types paper, author, found 'venue'"),
        (graph_of(), {"split": (2, 0, 0)}, "--split-ratio: expected three parts"),
        (HeteroData(paper={"x": torch.rand(2, 2), "y": torch.zeros(2).long()}), {}, "with edges, found none"),
        (Data(x=torch.rand(2, 2), edge_index=torch.zeros(2, 1).long()), {"target": "x"}, "a HeteroData with target"),
    ],
)
def test_bad_tensors_are_refused(tmp_path, data, options, words):
    with pytest.raises(CohortError) as error:
        from_pyg(data, tmp_path / "out", **options)
    assert re.search(words, str(error.value)), error.value
    assert list(tmp_path.iterdir()) == [], "nothing is written"
