"""`cohort.Scorer`: what it says of a node is what `cohort predict` writes, also of nodes that the data set lacks."""

import contextlib
import functools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch_geometric.data import HeteroData

import cohort_gnn as cohort
from cohort_gnn.base.errors import CohortError
from cohort_gnn.spec.models import ONE_TYPE, SEVERAL_TYPES
from cohort_gnn.trainer.models.sampled import SampledGNN
from cohort_gnn.trainer.models.targets import Classes
from cohort_gnn.trainer.models.typed import TypedGNN
from cohort_gnn.trainer.predict import program, scorer
from cohort_gnn.trainer.predict.layerwise import KeptIn, Layerwise, MemoryPlan, keep_scores

RELATION = ("node", "to", "node")
NODES, NEW, DIM, CLASSES = 400, 7, 12, 5
AUTHORS, NEW_AUTHORS = 60, 3
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def write(folder: Path, **tensors):
    return cohort.dataset.open(cohort.from_tensors(folder, **tensors))


class Grown:
    """A graph before and after some nodes and edges came: the data sets, and what came, as requests have it."""

    def __init__(self, folder: Path, several_types: bool):
        generator = torch.Generator().manual_seed(int(several_types))
        self.x = torch.randn(NODES + NEW, DIM, generator=generator)
        y = torch.randint(CLASSES, (NODES + NEW,), generator=generator)
        hub = torch.randint(NODES, (2, 300), generator=generator)
        hub[1] = 3  # so many neighbours that they are summed in pieces
        ends = torch.cat((torch.randint(NODES, (2, 3000), generator=generator), hub), dim=1)
        came = torch.randint(NODES, (2, 90), generator=generator)
        came[0, :40] = torch.randint(NODES, NODES + NEW, (40,), generator=generator)
        came[1, 30:] = torch.randint(NODES, NODES + NEW - 1, (60,), generator=generator)  # the last one has none
        self.new_edges = {"source": came[0].tolist(), "target": came[1].tolist()}
        self.new_nodes = {"x": self.x[NODES:].tolist()}
        if not several_types:
            self.before = write(folder / "before", x=self.x[:NODES], y=y[:NODES], edge_index=ends)
            both = torch.cat((ends, came), dim=1)
            self.after = write(folder / "after", x=self.x, y=y, edge_index=both)
            return
        written = torch.stack([torch.randint(count, (900,), generator=generator) for count in (AUTHORS, NODES)])
        writes = torch.stack(
            (
                torch.randint(AUTHORS + NEW_AUTHORS, (50,), generator=generator),
                torch.randint(NODES, NODES + NEW, (50,), generator=generator),
            )
        )
        self.new_nodes = {"paper": self.new_nodes, "author": {"id": list(range(AUTHORS, AUTHORS + NEW_AUTHORS))}}
        self.new_edges = {
            ("paper", "cites", "paper"): self.new_edges,
            ("author", "writes", "paper"): {"source": writes[0].tolist(), "target": writes[1].tolist()},
            ("paper", "rev_writes", "author"): {"source": writes[1].tolist(), "target": writes[0].tolist()},
        }
        later = torch.cat((ends, came), dim=1), torch.cat((written, writes), dim=1)
        for name, nodes, authors, cites, pairs in (
            ("before", NODES, AUTHORS, ends, written),
            ("after", NODES + NEW, AUTHORS + NEW_AUTHORS, *later),
        ):
            data = HeteroData()
            data["paper"].x, data["paper"].y, data["author"].num_nodes = self.x[:nodes], y[:nodes], authors
            data["paper", "cites", "paper"].edge_index = cites
            data["author", "writes", "paper"].edge_index = pairs
            data["paper", "rev_writes", "author"].edge_index = pairs.flip(0)
            setattr(self, name, cohort.dataset.open(cohort.from_pyg(data, folder / name, reverse_edges=False)))


@pytest.fixture(scope="module")
def graphs(tmp_path_factory) -> dict[bool, Grown]:
    return {several: Grown(tmp_path_factory.mktemp("grown"), several) for several in (False, True)}


def model_on(kind: str, data) -> torch.nn.Module:
    torch.manual_seed(4)
    if kind in ONE_TYPE:
        return SampledGNN(kind, DIM, 16, CLASSES, 2, 0.5).eval()
    return TypedGNN(kind, data.types, 16, CLASSES, 2, 0.5, heads=2).eval()


def scorer_of(monkeypatch, model, data, **options) -> scorer.Scorer:
    monkeypatch.setattr(scorer, "model_of_run", lambda run, data: (model, Classes(CLASSES)))
    monkeypatch.setattr(scorer, "class_names", lambda job: [])
    monkeypatch.setattr(scorer, "windows_of", lambda run, data: None)
    return scorer.Scorer("run", data, **options)


def predicted(model, data, scratch: Path, device: str) -> torch.Tensor:
    """float32 [nodes of the target type, classes], as `cohort predict` computes them."""
    name = data.target
    out = np.empty((data.node_types[name].num_nodes, CLASSES), np.float32)
    memory = MemoryPlan(1 << 30, [KeptIn.WHOLE] * 2)
    Layerwise(model, data, memory, scratch, torch.device(device), name).run(keep_scores(out), lambda done: None)
    return torch.from_numpy(out)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", [*ONE_TYPE, *SEVERAL_TYPES])
def test_scores_are_those_of_predict_before_and_after_nodes_come(graphs, monkeypatch, tmp_path, kind, device):
    grown = graphs[kind not in ONE_TYPE]
    model = model_on(kind, grown.before)
    answers = scorer_of(monkeypatch, model, grown.before, device=device)
    before, after = (predicted(model, data, tmp_path, device) for data in (grown.before, grown.after))
    some = [3, 17, 3, 399, 0]
    assert torch.equal(answers.score(some), before[some])
    new = {"new_nodes": grown.new_nodes, "new_edges": grown.new_edges}
    everyone = range(NODES + NEW)
    assert torch.equal(answers.score(everyone, **new), after)
    assert torch.equal(answers.score([NODES, 3, NODES + NEW - 1], **new), after[[NODES, 3, NODES + NEW - 1]])
    assert not torch.equal(before[3], after[3]), "edges into nodes that were there count"
    assert torch.equal(answers.score([3]), before[[3]]), "and are forgotten afterwards"


def described(folder: Path, x: np.ndarray, edges: dict, born: np.ndarray | None) -> Path:
    """graph.yaml of papers and their edges; with authors, who exist since `born`."""
    folder.mkdir()
    np.save(folder / "x.npy", x)
    nodes, lines = "paper: {features: x.npy}", []
    if born is not None:
        np.save(folder / "born.npy", born)
        nodes += f", author: {{count: {len(born)}, time: born.npy}}"
    for name, ends in edges.items():
        np.save(folder / f"{name[1]}.npy", ends)
        lines.append(f"{{type: [{', '.join(name)}], file: {name[1]}.npy}}")
    (folder / "graph.yaml").write_text(f"target: paper\nnodes: {{{nodes}}}\nedges: [{', '.join(lines)}]\n")
    return folder / "graph.yaml"


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("sage", {"undirected": True, "row_normalize": True}),
        ("sage", {"pca": DIM, "row_normalize": True}),
        ("gcn", {"reverse": True, "self_loops": "add"}),
        ("gat", {"transpose": True, "self_loops": "remove"}),
        ("rsage", {"reverse": True}),
    ],
)
def test_what_the_import_did_to_edges_and_rows_is_done_to_those_of_a_request(monkeypatch, tmp_path, kind, options):
    """The scores are those after `cohort dataset append` of the same."""
    generator, several = np.random.default_rng(3), kind not in ONE_TYPE
    names = {"cites": ("paper", "cites", "paper")} | ({"by": ("paper", "by", "author")} if several else {})
    dim = DIM + 5 if "pca" in options else DIM
    x, born = generator.standard_normal((48, dim)).astype(np.float32), generator.integers(0, 9, 13)
    came = [[3, 40, 41, 40, 42, 42], [40, 5, 40, 5, 42, 7]]  # equal edges, loops, both directions
    old = {"cites": generator.integers(0, 40, (2, 200)), "by": generator.integers(0, 10, (2, 90))}
    new = {"cites": np.array(came), "by": np.array([[40, 41, 3], [10, 4, 11]])}
    first, later = (
        described(
            tmp_path / folder, x[rows], {names[key]: ends[key] for key in names}, born[authors] if several else None
        )
        for folder, rows, authors, ends in (
            ("first", slice(40), slice(10), old),
            ("later", slice(40, 48), slice(10, 13), new),
        )
    )
    cohort.dataset.import_graph(first, tmp_path / "data", **options)
    model = model_on(kind, cohort.dataset.open(tmp_path / "data"))
    answers = scorer_of(monkeypatch, model, cohort.dataset.open(tmp_path / "data"))
    nodes, edges = {"x": x[40:]}, {names[key]: dict(zip(("source", "target"), new[key], strict=True)) for key in names}
    if several:
        nodes = {"paper": nodes, "author": {"id": np.arange(10, 13), "time": born[10:]}}
    found = answers.score(range(48), new_nodes=nodes, new_edges=edges if several else edges[names["cites"]])
    if "pca" in options:
        with pytest.raises(CohortError, match=f"{dim} features a node before --pca, found .*{DIM}"):
            answers.score([40], new_nodes={"x": x[40:41, :DIM]})
    cohort.dataset.append(tmp_path / "data", edges=later)
    assert torch.equal(found, predicted(model, cohort.dataset.open(tmp_path / "data"), tmp_path, "cpu"))
    if several:
        with pytest.raises(CohortError, match="rev_by, paper: expected the edges of|give one of the two"):
            others = edges | {("author", "rev_by", "paper"): {"source": [11], "target": [40]}}
            answers.score([0], new_nodes=nodes, new_edges=others)
        for author, words in (({}, "time: expected one for each node"), ({"x": [[1], [1, 2]]}, "x: expected numbers")):
            with pytest.raises(CohortError, match=f"new_nodes author: {words}"):
                answers.score([0], new_nodes={"author": {"id": [10, 11]} | author})


def test_nodes_without_neighbours_whose_own_rows_no_layer_reads(monkeypatch, tmp_path):
    data = HeteroData()
    data["paper"].x, data["paper"].y, data["author"].num_nodes = torch.randn(6, DIM), torch.arange(6) % CLASSES, 4
    data["author", "writes", "paper"].edge_index = torch.tensor([[0, 1, 3], [0, 0, 2]])
    data["paper", "by", "author"].edge_index = torch.tensor([[1, 5], [1, 3]])
    stored = cohort.dataset.open(cohort.from_pyg(data, tmp_path / "out"))
    model = model_on("rsage", stored)
    answers, expected = scorer_of(monkeypatch, model, stored), predicted(model, stored, tmp_path, "cpu")
    assert torch.equal(answers.score([4, 5]), expected[4:]), "isolated ones"
    new = {"paper": {"x": torch.zeros(1, DIM, dtype=torch.bfloat16)}}
    assert torch.equal(answers.score([6], new_nodes=new), expected[5:]) and torch.equal(expected[4:5], expected[5:])
    with pytest.raises(CohortError, match="hidden: expected a run whose last layer reads rows of type paper itself"):
        answers.score([0], hidden=True)


def test_ids_that_were_not_kept_are_told(graphs, monkeypatch, tmp_path, caplog):
    """Node 2 has the id 0: whoever asks for 0 gets the node with the number 0."""
    users = pd.DataFrame({"id": [2, 1, 0], "a": np.arange(3.0)} | {f"c{i}": 1.0 for i in range(DIM - 1)})
    nodes = {"u": {"table": users, "id": "id", "features": list(users.columns[1:])}}
    edges = {("u", "e", "u"): {"table": pd.DataFrame({"src": [2, 1], "dst": [1, 0]})}}
    for ids in (True, False):
        data = cohort.dataset.open(cohort.dataset.from_tables(tmp_path / f"{ids}", nodes=nodes, edges=edges, ids=ids))
        with contextlib.nullcontext() if ids else pytest.warns(UserWarning, match="with --no-ids: .* by their numbers"):
            scorer_of(monkeypatch, model_on("sage", data), data)
        (tmp_path / "nodes.csv").write_text("id\n0\n")
        named = program.named_nodes({"dataset": data.path}, data, data.target, str(tmp_path / "nodes.csv"))
        assert named.nodes.tolist() == [2 if ids else 0]
        assert ("with --no-ids" in caplog.text) == (not ids)


def test_a_gpu_that_is_not_there_is_told(graphs, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(CohortError, match="Scorer: device: expected a GPU that PyTorch can use, found none"):
        scorer_of(monkeypatch, model_on("sage", graphs[False].before), graphs[False].before, device="cuda")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"device": "gpu"}, "Scorer: device: expected cpu, cuda or cuda:N, found 'gpu'"),
        ({"num_neighbors": 5}, "num_neighbors: expected one integer a hop"),
        ({"num_neighbors": [5, 0]}, "num_neighbors: expected 2 numbers above 0, or -1 for all, found"),
        ({"seed": 0.5}, "Scorer: seed: expected an integer of at least 0, found 0.5"),
        ({"max_edges": "many"}, "Scorer: max_edges: expected an integer of at least 0, found 'many'"),
    ],
)
def test_wrong_arguments_are_refused(graphs, monkeypatch, options, words):
    model, data = model_on("sage", graphs[False].before), graphs[False].before
    with pytest.raises(CohortError) as refused:
        scorer_of(monkeypatch, model, data, **options)
    assert words in str(refused.value)
    scorer_of(monkeypatch, model, data, num_neighbors=np.array([5, -1]), seed=np.int64(3))


def test_lists_that_are_cut_depend_on_the_node_and_the_seed_alone(graphs, monkeypatch):
    grown = graphs[False]
    model = model_on("sage", grown.before)
    answers, later = (
        scorer_of(monkeypatch, model, data, num_neighbors=[4, 2], seed=6) for data in (grown.before, grown.after)
    )
    new = {"new_nodes": grown.new_nodes, "new_edges": grown.new_edges}
    together = later.score(range(NODES + NEW))
    assert torch.equal(answers.score(range(NODES + NEW), **new), together)
    assert torch.equal(torch.cat([later.score([node]) for node in (3, 40, NODES)]), together[[3, 40, NODES]])
    other = scorer_of(monkeypatch, model, grown.after, num_neighbors=[4, 2], seed=7)
    assert not torch.equal(other.score([3]), together[[3]])
    whole = scorer_of(monkeypatch, model, grown.after, num_neighbors=[1000, -1])
    assert torch.equal(whole.score([3]), scorer_of(monkeypatch, model, grown.after).score([3]))


@pytest.mark.parametrize("kind", ["sage", "gcn", "rsage"])
def test_requests_that_are_scored_together_do_not_see_each_other(graphs, monkeypatch, kind):
    grown = graphs[kind not in ONE_TYPE]
    options = {} if kind == "gcn" else {"num_neighbors": [4, 2]}
    answers = scorer_of(monkeypatch, model_on(kind, grown.before), grown.before, **options)
    generator = np.random.default_rng(8)

    def request(number: int) -> dict:
        """With new nodes in two of three; in one of six with edges into nodes that were there."""
        nodes = generator.integers(0, NODES, number).tolist()
        if number % 3 == 0:
            return {"nodes": nodes}
        source = generator.integers(0, NODES, 12).tolist()
        edges = {"source": [*source, NODES], "target": [NODES + i % number for i in range(12)] + [NODES + number - 1]}
        if number % 6 == 1:
            edges = {"source": [*edges["source"], NODES], "target": [*edges["target"], nodes[0]]}
        x = generator.standard_normal((number, DIM), np.float32)
        new = {"new_nodes": {"x": x}, "new_edges": edges}
        if kind not in ONE_TYPE:
            new = {"new_nodes": {"paper": {"x": x}}, "new_edges": {("paper", "cites", "paper"): edges}}
        return {"nodes": [*nodes, NODES, NODES + number - 1], **new}

    requests = [request(number) for number in range(14)]
    alone = [
        answers.score(each["nodes"], **{name: each[name] for name in each if name != "nodes"}) for each in requests
    ]
    assert all(map(torch.equal, answers.score_together(requests), alone)) and alone[0].shape == (0, CLASSES)


def test_the_bound_of_edges_is_that_of_a_request(graphs, monkeypatch):
    data = graphs[False].before
    edges, model = data.edge_types[RELATION], model_on("sage", data)
    lists = [edges.indices[edges.indptr[node] : edges.indptr[node + 1]] for node in range(NODES)]
    hops = [sum(len(lists[near]) for near in {node, *lists[node].tolist()}) for node in range(20)]
    unbounded, answers = (scorer_of(monkeypatch, model, data, max_edges=most) for most in (None, max(hops)))
    together = answers.score_together([{"nodes": [node]} for node in range(20)])
    assert all(map(torch.equal, together, (unbounded.score([node]) for node in range(20))))
    with pytest.raises(CohortError, match="in-neighbours of one hop"):
        answers.score(range(20))


def test_each_neighbour_is_drawn_as_often(graphs, monkeypatch):
    """A mean over drawn neighbours is that over all, on average."""
    grown, counts = graphs[False], np.zeros(NODES)
    model, relation = model_on("sage", grown.before), next(iter(grown.before.edge_types))
    for seed in range(600):
        lists = scorer_of(monkeypatch, model, grown.before, seed=seed)._lists
        drawn = lists.lists(relation, np.array([3, 5]), most=20)
        assert list(np.diff(drawn.indptr)) == [20, min(20, len(lists.lists(relation, np.array([5])).sources))]
        counts += np.bincount(drawn.sources[:20], minlength=NODES)
    listed = np.bincount(lists.lists(relation, np.array([3])).sources, minlength=NODES)
    assert (counts[listed == 0] == 0).all()
    expected = 600 * 20 * listed / listed.sum()
    chi_square = ((counts - expected)[listed > 0] ** 2 / expected[listed > 0]).sum()
    kinds = (listed > 0).sum()
    assert abs(chi_square - kinds) < 6 * np.sqrt(2 * kinds)


def test_values_of_declared_columns_are_encoded_as_the_data_set_was(monkeypatch, tmp_path):
    count = 60
    users = pd.DataFrame(
        {
            "id": [f"u{i}" for i in range(count)],
            "income": [None if i % 7 == 0 else 10.0 * i for i in range(count)],
            "country": [["de", "fr", None][i % 3] for i in range(count)],
            "since": [f"2024-0{1 + i % 9}-11T10:30:00" for i in range(count)],
            "label": [i % 2 for i in range(count)],
            "part": ["train" if i < 40 else "test" for i in range(count)],
        }
    )
    features = [
        {"column": "income", "nulls": "mean", "standardize": True},
        {"column": "country", "kind": "category", "nulls": "unknown"},
        {"column": "since", "kind": "time", "parts": ["month", "hour"]},
    ]
    knows = pd.DataFrame({"a": [f"u{i}" for i in range(count)], "b": [f"u{i * 7 % count}" for i in range(count)]})
    nodes = {"user": {"table": users, "id": "id", "features": features, "label": "label", "split": "part"}}
    edges = {("user", "knows", "user"): {"table": knows, "source": "a", "target": "b"}}
    cohort.from_tables(tmp_path / "out", nodes=nodes, edges=edges)
    data = cohort.dataset.open(tmp_path / "out")
    torch.manual_seed(1)
    model = SampledGNN("sage", data.x.shape[1], 16, CLASSES, 2, 0.5).eval()
    answers, rows = scorer_of(monkeypatch, model, data), [0, 7, 50]
    told = {name: [None if pd.isna(value) else value for value in users[name][rows]] for name in users.columns[1:4]}
    new = {"source": ["u3", "u4"], "target": ["new-0", "new-1"]}
    ids = {"id": ["new-0", "new-1", "new-2"]}
    found, expected = (
        answers.score(ids["id"], new_nodes=ids | values, new_edges=new)
        for values in ({"columns": told}, {"x": data.x[rows]})
    )
    assert torch.equal(found, expected)
    numbered = cohort.from_tensors(tmp_path / "numbered", x=data.x, edge_index=data.edge_types[RELATION].edge_index())
    (numbered / "columns.json").write_bytes((tmp_path / "out/columns.json").read_bytes())
    alone = scorer_of(monkeypatch, model, cohort.dataset.open(numbered))
    assert torch.equal(
        alone.score([count], new_nodes={"columns": told}), alone.score([count], new_nodes={"x": data.x[rows]})
    )
    for wrong, words in (
        (told | {"age": [1, 2, 3]}, "expected the columns income, country, since, found income, country, since, age"),
        (told | {"income": ["a", "b", "c"]}, "income"),
        (told | {"income": [1.0]}, "lists of equal length"),
        (told | {"since": ["yesterday"] * 3}, "since"),
        (told | {"income": [functools.reduce(lambda part, _: [part], range(900), 1.0)] * 3}, "lists in lists"),
    ):
        with pytest.raises(CohortError) as refused:
            answers.score(ids["id"], new_nodes=ids | {"columns": wrong})
        assert words in str(refused.value)
    with pytest.raises(CohortError, match="id: expected texts, as the data set has, found 7"):
        answers.score([7], new_nodes={"id": [7, 8, 9], "columns": told})


X = [[0.0] * DIM]


@pytest.mark.parametrize(
    ("nodes", "options", "words"),
    [
        (
            [NODES],
            {},
            f"nodes: 0: expected the id of a node of type node, below {NODES}, or of a new one, found {NODES}",
        ),
        (["a"], {}, "found 'a'"),
        ({17}, {}, "nodes: expected a list of ids, found set"),
        ([0], {"new_nodes": {"x": [["1"] * DIM]}}, "expected numbers"),
        ([True], {}, "found True"),
        ("17", {}, "nodes: expected a list of ids, found str"),
        ([0], {"new_nodes": {"x": [[0.0] * (DIM + 1)]}}, f"[1, {DIM}], {DIM} features a node, found [1, {DIM + 1}]"),
        ([0], {"new_nodes": {"x": [[float("nan")] * DIM]}}, "expected finite numbers"),
        ([0], {"new_nodes": {"x": [[2**24 + 1] * DIM]}}, "an integer that float32 holds, found 16777217"),
        ([0], {"new_nodes": {"x": torch.full((1, DIM), 2**24 + 1)}}, "an integer that float32 holds, found 16777217"),
        ([0], {"new_nodes": {"x": [["a"] * DIM]}}, "expected numbers"),
        ([0], {"new_nodes": {"id": [3], "x": X}}, "expected ids that no other node has, found 3 again"),
        ([0], {"new_nodes": {"id": [900, 901], "x": X}}, "id: expected 1 ids, one for each node, found 2"),
        ([0], {"new_nodes": {"id": ["a"], "x": X}}, "id: expected integers from -2^63 to 2^63 - 1, found 'a'"),
        ([0], {"new_nodes": {"y": X}}, "expected some of id, x, columns and time, found y"),
        ([0], {"new_nodes": {"x": X}, "new_edges": {"source": [1], "target": [2]}}, "a new node at one end at least"),
        ([0], {"new_nodes": {"x": X}, "new_edges": {"source": [1], "target": []}}, "expected 1 targets"),
        ([0], {"new_edges": {"source": [1]}}, "expected source and target, found source"),
        ([0], {"new_edges": {"source": [NODES], "target": [0]}}, "source: 0: expected the id of a node"),
        ([0], {"new_nodes": [1]}, "new_nodes: expected a mapping, found list"),
    ],
)
def test_wrong_requests_are_refused(graphs, monkeypatch, nodes, options, words):
    answers = scorer_of(monkeypatch, model_on("sage", graphs[False].before), graphs[False].before)
    with pytest.raises(CohortError) as refused:
        answers.score(nodes, **options)
    assert words in str(refused.value)
