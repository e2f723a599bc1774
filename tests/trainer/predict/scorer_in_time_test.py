"""`cohort.Scorer` of models that read features of edges, edges in time and ages of nodes: what `cohort predict` writes
after an append of the same nodes and edges."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import HeteroData

import cohort_gnn as cohort
from cohort_gnn.base.errors import CohortError
from cohort_gnn.spec.models import ONE_TYPE
from cohort_gnn.trainer.models.sampled import SampledGNN
from cohort_gnn.trainer.models.targets import Classes
from cohort_gnn.trainer.models.typed import TypedGNN
from cohort_gnn.trainer.predict import scorer
from cohort_gnn.trainer.predict.layerwise import KeptIn, Layerwise, MemoryPlan, keep_scores
from cohort_gnn.trainer.predict.program import spans_at

NODES, NEW, AUTHORS, NEW_AUTHORS = 300, 6, 50, 4
DIM, EDGE_DIM, CLASSES, LATEST = 8, 3, 4, 30
CITES, WRITES, WRITTEN = ("paper", "cites", "paper"), ("author", "writes", "paper"), ("paper", "written", "author")
NOW, WINDOW = 21, 12


def ends_of(generator, sources: tuple[int, int], targets: tuple[int, int], old: int, came: int) -> torch.Tensor:
    """int64 [2, old + came]: edges between stored nodes, and then ones with a new node at one end at least.

    Args:
        sources, targets: how many there were, and how many came.
    """
    stored = torch.stack([torch.randint(count[0], (old,), generator=generator) for count in (sources, targets)])
    new = torch.stack([torch.randint(sum(count), (came,), generator=generator) for count in (sources, targets)])
    inside = ((new[0] < sources[0]) & (new[1] < targets[0])).nonzero().view(-1)
    new[0, inside[::2]] = sources[0] + torch.randint(sources[1], (len(inside[::2]),), generator=generator)
    new[1, inside[1::2]] = targets[0] + torch.randint(targets[1], (len(inside[1::2]),), generator=generator)
    return torch.cat((stored, new), dim=1)


class Grown:
    """A graph before and after nodes and edges came, and what came, as a request has it.

    Args:
        several: node types.
        has_times, has_features: of edges; with times some types of nodes have times, too.
    """

    def __init__(self, folder: Path, several: bool, has_times: bool, has_features: bool):
        self.generator = generator = torch.Generator().manual_seed(3 * several + 2 * has_times + has_features)
        papers, authors = (NODES, NEW), (AUTHORS, NEW_AUTHORS)
        kinds = {CITES: (papers, papers, 1800, 70)}
        kinds |= {WRITES: (authors, papers, 700, 40), WRITTEN: (papers, authors, 700, 40)} if several else {}
        x = torch.randn(NODES + NEW, DIM, generator=generator)
        y = torch.randint(CLASSES, (NODES + NEW,), generator=generator)
        born = torch.randint(LATEST, (AUTHORS + NEW_AUTHORS,), generator=generator)
        self.new_edges, edges = {}, {}
        for relation, (sources, targets, old, came) in kinds.items():
            ends = ends_of(generator, sources, targets, old, came)
            beside = {}
            if has_times:  # few different ones, so that many are equal
                beside["time"] = torch.randint(LATEST, (old + came,), generator=generator)
                if relation == WRITES:
                    beside["time"] = torch.maximum(beside["time"], born[ends[0]])
            if has_features and relation != WRITTEN:
                beside["edge_attr"] = torch.randn(old + came, EDGE_DIM, generator=generator)
            edges[relation] = (old, {"edge_index": ends} | beside)
            new = {"source": ends[0, old:].tolist(), "target": ends[1, old:].tolist()}
            self.new_edges[relation] = new | {name: values[old:].tolist() for name, values in beside.items()}
        self.new_nodes = {"paper": {"x": x[NODES:].tolist()}}
        if several:
            of_authors = {"id": list(range(AUTHORS, AUTHORS + NEW_AUTHORS))}
            self.new_nodes["author"] = of_authors | ({"time": born[AUTHORS:].tolist()} if has_times else {})
        for name, is_after in (("before", False), ("after", True)):
            data = HeteroData()
            data["paper"].x, data["paper"].y = (values[: NODES + NEW * is_after] for values in (x, y))
            if several:
                data["author"].num_nodes = AUTHORS + NEW_AUTHORS * is_after
                if has_times:
                    data["author"].time = born[: AUTHORS + NEW_AUTHORS * is_after]
            for relation, (old, values) in edges.items():
                for what, value in values.items():
                    data[relation][what] = (
                        value
                        if is_after
                        else value[..., :old]
                        if value.dim() < 2
                        else (value[:, :old] if what == "edge_index" else value[:old])
                    )
            setattr(self, name, cohort.dataset.open(self._written(folder / name, data, several)))
        if not several:
            self.new_nodes, self.new_edges = self.new_nodes["paper"], self.new_edges[CITES]

    def _written(self, folder: Path, data: HeteroData, several: bool) -> Path:
        if several:
            return cohort.from_pyg(data, folder, reverse_edges=False)
        edges = data[CITES]
        of_edges = {"edge_time": edges.get("time"), "edge_attr": edges.get("edge_attr")}
        return cohort.from_tensors(
            folder, x=data["paper"].x, y=data["paper"].y, edge_index=edges.edge_index, **of_edges
        )


CASES = [  # model, whether edges have times, and features
    ("gat", False, True),
    ("gat", True, True),
    ("sage", True, False),
    ("gcn", True, False),
    ("rgat", False, True),
    ("rgat", True, True),
    ("rsage", True, False),
    ("hgt", True, False),
]


@pytest.fixture(scope="module")
def graphs(tmp_path_factory) -> dict[tuple[bool, bool, bool], Grown]:
    wanted = {(kind not in ONE_TYPE, times, features) for kind, times, features in CASES}
    return {case: Grown(tmp_path_factory.mktemp("grown"), *case) for case in sorted(wanted)}


def model_on(kind: str, data, has_times: bool) -> torch.nn.Module:
    torch.manual_seed(7)
    dims = [0 if edges.edge_table is None else edges.edge_table.feature_dim for edges in data.edge_types.values()]
    if kind in ONE_TYPE:
        return SampledGNN(kind, DIM, 16, CLASSES, 2, 0.5, heads=2, edge_dim=dims[0]).eval()
    spans = {"author": LATEST} if has_times and kind != "rgat" else {}
    types = replace(data.types, edge_dims=dims if any(dims) else [], age_spans=spans)
    return TypedGNN(kind, types, 16, CLASSES, 2, 0.5, heads=2).eval()


def scorer_of(monkeypatch, model, data, windows, **options) -> scorer.Scorer:
    monkeypatch.setattr(scorer, "model_of_run", lambda run, data: (model, Classes(CLASSES)))
    monkeypatch.setattr(scorer, "class_names", lambda job: [])
    monkeypatch.setattr(scorer, "windows_of", lambda run, data: windows)
    return scorer.Scorer("run", data, **options)


def predicted(model, data, scratch: Path, windows, at_time: int | None, device: str) -> torch.Tensor:
    """float32 [papers, classes], as `cohort predict` computes them."""
    name = data.target
    out = np.empty((data.node_types[name].num_nodes, CLASSES), np.float32)
    spans = None if windows is None else spans_at(windows, at_time)
    layers = Layerwise(
        model, data, MemoryPlan(1 << 30, [KeptIn.WHOLE] * 2), scratch, torch.device(device), name, spans, at_time
    )
    layers.run(keep_scores(out), lambda done: None)
    return torch.from_numpy(out)


def windows_on(data, has_times: bool) -> dict | None:
    """Of the first edge type a window, of the others any age."""
    windows = {relation: -1 for relation in data.edge_types}
    windows[next(iter(windows))] = WINDOW
    return windows if has_times else None


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize(("kind", "has_times", "has_features"), CASES)
def test_scores_are_those_of_predict(graphs, monkeypatch, tmp_path, kind, has_times, has_features, device):
    grown = graphs[kind not in ONE_TYPE, has_times, has_features]
    model, windows = model_on(kind, grown.before, has_times), windows_on(grown.before, has_times)
    answers = scorer_of(monkeypatch, model, grown.before, windows, device=device)
    new = {"new_nodes": grown.new_nodes, "new_edges": grown.new_edges}
    at_times = (NOW, LATEST) if has_times else (None,)
    seen = []
    for at_time in at_times:
        before, after = (
            predicted(model, data, tmp_path, windows, at_time, device) for data in (grown.before, grown.after)
        )
        assert torch.equal(answers.score(range(NODES), at_time=at_time), before)
        assert torch.equal(answers.score(range(NODES + NEW), at_time=at_time, **new), after)
        assert not torch.equal(after[:NODES], before), "edges into nodes that were there count"
        seen.append(after)
    assert len(seen) == 1 or not torch.equal(*seen)


@pytest.mark.parametrize(("kind", "has_times", "has_features"), [case for case in CASES if case[0] != "gcn"])
def test_drawn_lists_and_requests_together(graphs, monkeypatch, kind, has_times, has_features):
    grown = graphs[kind not in ONE_TYPE, has_times, has_features]
    model, windows = model_on(kind, grown.before, has_times), windows_on(grown.before, has_times)
    options = {"num_neighbors": [5, 3], "seed": 2}
    answers, later = (scorer_of(monkeypatch, model, data, windows, **options) for data in (grown.before, grown.after))
    new = {"new_nodes": grown.new_nodes, "new_edges": grown.new_edges}
    at_time = {"at_time": NOW} if has_times else {}
    everyone = later.score(range(NODES + NEW), **at_time)
    assert torch.equal(answers.score(range(NODES + NEW), **new, **at_time), everyone)
    into_new = {"new_nodes": grown.new_nodes, "new_edges": only_into_new(grown.new_edges)}
    requests = [{"nodes": [NODES + number, 3, number], **into_new, **at_time} for number in range(NEW)]
    requests += [{"nodes": [5, 9], **at_time}, {"nodes": [NODES], **new, **at_time}]
    requests += [{"nodes": [NODES + 1, 4], **into_new, "at_time": LATEST}] if has_times else []
    alone = [answers.score_together([request])[0] for request in requests]
    assert all(map(torch.equal, answers.score_together(requests), alone))


def only_into_new(edges: dict) -> dict:
    """Those edges of a request that lead into new nodes."""
    if "source" not in edges:
        return {relation: only_into_new(some) for relation, some in edges.items()}
    first = AUTHORS if min(edges["target"]) < AUTHORS + NEW_AUTHORS and max(edges["target"]) < NODES else NODES
    kept = [number for number, target in enumerate(edges["target"]) if target >= first]
    return {name: [values[number] for number in kept] for name, values in edges.items()}


@pytest.mark.parametrize("has_times", [(False, False), (True, False), (True, True), (False, True)])
@pytest.mark.parametrize("have_own", [True, False])
def test_reverses_of_edges_with_times_and_features_are_those_of_an_append(monkeypatch, tmp_path, has_times, have_own):
    """Many edges have equal times; attention reads their features in both directions."""
    if not have_own and not has_times[0]:
        return  # no edge has a time
    generator = np.random.default_rng(6)
    ends, times = generator.integers(12, size=(2, 400)), generator.integers(3, size=400)
    ends[:, 320:] = np.where(generator.random((2, 80)) < 0.5, generator.integers(12, 16, (2, 80)), ends[:, 320:])
    ends[0, 320:] = np.where((ends[:, 320:] < 12).all(axis=0), 12, ends[0, 320:])  # a new node at one end at least
    rows, born = generator.normal(size=(400, EDGE_DIM)).astype(np.float32), generator.integers(5, size=(2, 16))
    x = generator.normal(size=(2, 16, DIM)).astype(np.float32)

    def described(name: str, edges: slice, nodes: slice) -> Path:
        (tmp_path / name).mkdir()
        for array, values in {"to": ends[:, edges], "times": times[edges], "rows": rows[edges]}.items():
            np.save(tmp_path / name / f"{array}.npy", values)
        types = []
        for number, end in enumerate("ab"):
            np.save(tmp_path / name / f"born-{end}.npy", born[number, nodes])
            np.save(tmp_path / name / f"x-{end}.npy", x[number, nodes])
            time = f", time: born-{end}.npy" if has_times[number] else ""
            types.append(f"{end}: {{features: x-{end}.npy{time}}}")
        own = ", time: times.npy" if have_own else ""
        edge = f"{{type: [a, to, b], file: to.npy, features: rows.npy{own}}}"
        text = f"name: same\ntarget: b\nnodes: {{{', '.join(types)}}}\nedges: [{edge}]\n"
        (tmp_path / name / "graph.yaml").write_text(text)
        return tmp_path / name / "graph.yaml"

    cohort.dataset.import_graph(described("first", slice(320), slice(12)), tmp_path / "data", reverse=True)
    data, later = cohort.dataset.open(tmp_path / "data"), described("later", slice(320, 400), slice(12, 16))
    windows = {name: -1 for name, edges in data.edge_types.items() if edges.edge_times is not None}
    model = model_on("rgat", data, True)
    answers = scorer_of(monkeypatch, model, data, windows)
    new = {end: {"id": list(range(12, 16)), "x": x[number, 12:]} | ({"time": born[number, 12:]} if has else {})
           for number, (end, has) in enumerate(zip("ab", has_times, strict=True))}  # fmt: skip
    edges = {"source": ends[0, 320:], "target": ends[1, 320:], "edge_attr": rows[320:]}
    edges |= {"time": times[320:]} if have_own else {}
    request = {"new_nodes": new, "new_edges": {("a", "to", "b"): edges}, "at_time": 4}
    if have_own and has_times == (False, True):
        for do in (lambda: answers.score(range(16), **request), lambda: cohort.dataset.append(data.path, edges=later)):
            with pytest.raises(CohortError, match="where b has times and each edge a reverse, found both"):
                do()
        return
    found = answers.score(range(16), **request)
    cohort.dataset.append(data.path, edges=later)
    assert torch.equal(found, predicted(model, cohort.dataset.open(data.path), tmp_path, windows, 4, "cpu"))
    request["new_edges"] = {("b", "rev_to", "a"): edges | {"source": edges["target"], "target": edges["source"]}}
    with pytest.raises(CohortError, match="found those of its reverse"):
        answers.score(range(12), **request)


def test_declared_columns_of_edges_are_encoded_as_the_data_set_was(monkeypatch, tmp_path):
    import pandas as pd

    count = 40
    users = pd.DataFrame({"id": range(count), "x": np.linspace(0, 1, count), "label": [i % 2 for i in range(count)]})
    users["part"] = ["train" if i < 30 else "test" for i in range(count)]
    pays = pd.DataFrame({"a": [i % count for i in range(200)], "b": [7 * i % count for i in range(200)]})
    pays["amount"], pays["way"] = np.arange(200) / 3, [["card", "cash", "wire"][i % 3] for i in range(200)]
    features = [{"column": "amount", "standardize": True}, {"column": "way", "kind": "category", "nulls": "unknown"}]
    edges = {"table": pays, "source": "a", "target": "b", "features": features}
    nodes = {"user": {"table": users, "features": ["x"], "label": "label", "split": "part", "id": "id"}}
    cohort.from_tables(tmp_path / "out", nodes=nodes, edges={("user", "pays", "user"): edges})
    data = cohort.dataset.open(tmp_path / "out")
    rows = next(iter(data.edge_types.values())).edge_table.x
    torch.manual_seed(1)
    model = SampledGNN("gat", 1, 16, CLASSES, 2, 0.5, heads=2, edge_dim=rows.shape[1]).eval()
    answers = scorer_of(monkeypatch, model, data, None)
    ends = {"source": [3, 5], "target": [count, count]}
    relation = next(iter(data.edge_types.values()))
    first = [
        next(e for e in range(200) if (relation.indices[e], target_of(relation, e)) == pair)
        for pair in ((0, 0), (1, 7))
    ]
    new = {"id": [count], "x": [[0.5]]}
    told = answers.score(
        [count], new_nodes=new, new_edges=ends | {"columns": {"amount": [0.0, 1 / 3], "way": ["card", "cash"]}}
    )
    given = answers.score([count], new_nodes=new, new_edges=ends | {"edge_attr": rows[first]})
    assert torch.equal(told, given)


def target_of(relation, edge: int) -> int:
    return int(np.searchsorted(relation.indptr, edge, side="right")) - 1


ENDS = {"source": [NODES], "target": [0]}
ROW = {"edge_attr": [[0.0] * EDGE_DIM]}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "at_time: expected a time, found none"),
        ({"at_time": 1.5}, "at_time: expected integers from -2^63 to 2^63 - 1"),
        ({"at_time": 2**63}, "at_time: expected integers from -2^63"),
        ({"at_time": NOW, "new_edges": ENDS | ROW}, "time: expected one for each edge, as the data set's edges have"),
        (
            {"at_time": NOW, "new_edges": ENDS | {"time": [1]}},
            "edge_attr: expected [1, 3], 3 features a edge, found none",
        ),
        ({"at_time": NOW, "new_edges": ENDS | ROW | {"time": [1, 2]}}, "time: expected integers [1], found [2]"),
        ({"at_time": NOW, "new_edges": ENDS | ROW | {"time": [True]}}, "time: expected integers"),
        ({"at_time": NOW, "new_edges": ENDS | ROW | {"time": ["a"]}}, "time: expected integers"),
        ({"at_time": NOW, "new_edges": ENDS | {"edge_attr": [[0.0]], "time": [1]}}, "features a edge, found [1, 1]"),
        (
            {"at_time": NOW, "new_edges": ENDS | {"edge_attr": [[float("inf")] * EDGE_DIM], "time": [1]}},
            "edge_attr: expected finite numbers",
        ),
        (
            {"at_time": NOW, "new_edges": ENDS | ROW | {"time": [1], "weight": [1]}},
            "expected no others than source, target",
        ),
        ({"at_time": NOW, "new_edges": ENDS | ROW | {"time": [1], "columns": {}}}, "expected edge_attr or columns"),
        ({"at_time": NOW, "new_edges": ENDS | {"time": [1], "columns": {"a": [1]}}}, "features were declared"),
    ],
)
def test_wrong_times_and_features_are_refused(graphs, monkeypatch, options, words):
    grown = graphs[False, True, True]
    answers = scorer_of(monkeypatch, model_on("gat", grown.before, True), grown.before, windows_on(grown.before, True))
    new = {"new_nodes": {"x": [[0.0] * DIM]}} if "new_edges" in options else {}
    with pytest.raises(CohortError) as refused:
        answers.score([0], **new, **options)
    assert words in str(refused.value)


def test_what_the_data_set_lacks_is_refused(graphs, monkeypatch):
    grown = graphs[True, True, False]
    answers = scorer_of(
        monkeypatch, model_on("rsage", grown.before, True), grown.before, windows_on(grown.before, True)
    )
    for new, words in (
        ({"author": {"id": [AUTHORS]}}, "new_nodes author: time: expected one for each node"),
        ({"paper": {"x": [[0.0] * DIM], "time": [3]}}, "time: expected none: nodes of this type have no times"),
    ):
        with pytest.raises(CohortError) as refused:
            answers.score([0], at_time=NOW, new_nodes=new)
        assert words in str(refused.value)
    plain = graphs[False, False, True]
    answers = scorer_of(monkeypatch, model_on("gat", plain.before, False), plain.before, None)
    with pytest.raises(CohortError, match="at_time: expected none, found one for a run that did not use times"):
        answers.score([0], at_time=1)
    new = {"new_nodes": {"x": [[0.0] * DIM]}, "new_edges": ENDS | ROW | {"time": [1]}}
    with pytest.raises(CohortError, match="time: expected none: edges of this type have no times"):
        answers.score([0], **new)
