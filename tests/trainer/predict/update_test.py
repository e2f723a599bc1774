"""`cohort predict --update`: byte for byte what a predict of all writes, whatever has changed."""

import argparse
import json
import os
import shutil
import signal
import tempfile
import threading
import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from processes import ALL_TESTS, ran

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.files import is_in_memory
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.dataset.stored_graph import FeatureTable, NodeTable, Relation, StoredGraph
from cohort_gnn.launch.main import main
from cohort_gnn.launch.run.predict import demand_all_rows
from cohort_gnn.spec.graph import EDGE_TYPE, NODE_TYPE, EdgeType
from cohort_gnn.spec.models import ONE_TYPE, SEVERAL_TYPES
from cohort_gnn.trainer.models.sampled import SampledGNN
from cohort_gnn.trainer.models.typed import TypedGNN
from cohort_gnn.trainer.predict import copies, digests, kept_layers, marks, node_rows, program, update
from cohort_gnn.trainer.predict.copies import Copies
from cohort_gnn.trainer.predict.digests import digests_of
from cohort_gnn.trainer.predict.early import EarlyWork
from cohort_gnn.trainer.predict.kept_layers import Before, Record
from cohort_gnn.trainer.predict.layerwise import KeptIn, Layerwise, MemoryPlan, keep_scores
from cohort_gnn.trainer.predict.row_digests import plain_digests

CASES = int(os.environ.get("COHORT_UPDATES", 10_000 if ALL_TESTS else 24))
SEED = int(os.environ.get("COHORT_UPDATES_SEED", 0))
DIM, EDGE_DIM, CLASSES, LATEST = 6, 3, 4, 100
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
LISTS = np.array([0, 100, 100, 110, 500])
PAPERS = {EDGE_TYPE: 4}
SEVERAL = {
    ("paper", "cites", "paper"): 4,
    ("author", "writes", "paper"): 2,
    ("paper", "rev_writes", "author"): 2,
    ("field", "of", "paper"): 1,
}  # edges a target


@dataclass
class Edges:
    """sources, targets and times int64 [E], attributes float32 [E, EDGE_DIM], in any order."""

    source: np.ndarray
    target: np.ndarray
    time: np.ndarray
    attr: np.ndarray

    def __getitem__(self, some) -> "Edges":
        return Edges(self.source[some], self.target[some], self.time[some], self.attr[some])

    def __add__(self, other: "Edges") -> "Edges":
        return Edges(*(np.concatenate(pair) for pair in zip(vars(self).values(), vars(other).values(), strict=True)))

    def relation(self, num_targets: int) -> Relation:
        by_list = self[np.lexsort((self.time, self.source, self.target))]
        indptr = np.concatenate(([0], np.cumsum(np.bincount(self.target, minlength=num_targets))))
        table = FeatureTable(len(by_list.attr), by_list.attr, "float32")
        return Relation(indptr, by_list.source.astype(np.int32), None, edge_times=by_list.time, edge_table=table)


def random_edges(rng: np.random.Generator, count: int, sources: tuple[int, int], targets: tuple[int, int]) -> Edges:
    """With ends in the given ranges; some have the same target."""
    target = rng.integers(*targets, count)
    target[: count // 8] = targets[0]
    attr = rng.standard_normal((count, EDGE_DIM)).astype(np.float32)
    return Edges(rng.integers(*sources, count), target, rng.integers(0, LATEST, count), attr)


class Case:
    """A graph before and after a change, and a model on it.

    Attributes:
        what: has changed: edges were added or removed, nodes were added, or some have other features ("rows"), or some
            edges other times and features ("edits").
        edited: of each node type with features, int64 [any], ascending: which nodes have other ones.
    """

    def __init__(self, kind: str, number: int):
        self.rng = rng = np.random.default_rng((SEED, number))
        several = kind in SEVERAL_TYPES
        degrees = SEVERAL if several else PAPERS
        names = ["paper", "author", "field"] if several else [NODE_TYPE]
        before = {name: int(rng.integers(2, 80 >> 2 * place)) + 4 for place, name in enumerate(names)}
        self.what = what = rng.permutation(["add", "remove", "nodes", "rows", "edits"])[: rng.integers(1, 6)]
        grown = {name: int(rng.integers(0, 5)) if "nodes" in what else 0 for name in names}
        after = {name: before[name] + grown[name] for name in names}
        x = {name: rng.standard_normal((after[name], DIM)).astype(np.float32) for name in names if name != "author"}
        old_x = {name: rows[: before[name]] for name, rows in x.items()}
        self.edited = {name: np.unique(rng.integers(0, before[name], 2 if "rows" in what else 0)) for name in x}
        x = {name: rows.copy() for name, rows in x.items()}
        for name, nodes in self.edited.items():
            x[name][nodes, rng.integers(DIM)] += 1
        self.edges: dict[bool, dict[EdgeType, Relation]] = {False: {}, True: {}}
        for relation, degree in degrees.items():
            ends = relation[::2]
            old = random_edges(rng, degree * before[ends[1]], *((0, before[name]) for name in ends))
            new = old
            if "remove" in what:
                new = new[rng.random(len(new.source)) >= 3 / len(new.source)]
            if "edits" in what:
                some = rng.integers(0, len(new.source), 2)
                new = new[np.arange(len(new.source))]  # a copy
                new.time[some], new.attr[some] = rng.integers(0, LATEST, 2), 0
            if "add" in what:
                new = new + random_edges(rng, int(rng.integers(0, 4)), *((0, before[name]) for name in ends))
            for end in (0, 1):
                if grown[ends[end]]:
                    spans = [(0, after[name]) for name in ends]
                    spans[end] = before[ends[end]], after[ends[end]]
                    new = new + random_edges(rng, int(rng.integers(0, 6)), *spans)
            self.edges[False][relation] = old.relation(before[ends[1]])
            self.edges[True][relation] = new.relation(after[ends[1]])
        self.graphs = {
            later: graph_of({name: rows.get(name, count) for name, count in counts.items()}, edges)
            for (later, edges), counts, rows in zip(self.edges.items(), (before, after), (old_x, x), strict=True)
        }
        if rng.random() < 0.3:  # nodes go, in place of coming
            self.graphs = {later: self.graphs[not later] for later in (False, True)}
        self.spans = {name: (int(rng.integers(0, 50)), int(rng.integers(50, LATEST))) for name in degrees}
        self.spans = self.spans if rng.random() < 0.3 else {}
        self.work_bytes = int(rng.choice([40_000, *[1 << 30] * 7]))
        self.model = self._model(kind, several)

    def _model(self, kind: str, several: bool) -> torch.nn.Module:
        torch.manual_seed(int(self.rng.integers(1 << 30)))
        layers, has_edge_rows = int(self.rng.integers(1, 4)), self.rng.random() < 0.5
        shape = {
            "norm": str(self.rng.choice(["none", "layer", "batch"])),
            "residual": layers > 2 and bool(self.rng.random() < 0.5),
            "heads": 2,
        }
        if several:
            types = self.graphs[True].types
            if has_edge_rows and kind == "rgat":
                types = replace(types, edge_dims=[EDGE_DIM] * len(SEVERAL))
            return TypedGNN(kind, types, 8, CLASSES, layers, 0.5, **shape).eval()
        edge_dim = EDGE_DIM if has_edge_rows and kind == "gat" else 0
        return SampledGNN(kind, DIM, 8, CLASSES, layers, 0.5, edge_dim=edge_dim, **shape).eval()

    def layers(self, later: bool, scratch: Path, device: str) -> Layerwise:
        memory = MemoryPlan(self.work_bytes, [self.rng.choice(list(KeptIn))] * len(self.model.edge_types))
        graph = self.graphs[later]
        return Layerwise(self.model, graph, memory, scratch, torch.device(device), graph.target, self.spans)


def graph_of(nodes: dict, edges: dict[EdgeType, Relation]) -> StoredGraph:
    """Of each node type, its rows or how many nodes it has."""
    tables = {
        name: NodeTable(rows, None, None) if isinstance(rows, int) else NodeTable(len(rows), rows, "float32")
        for name, rows in nodes.items()
    }
    none, target = np.empty(0, np.int64), next(iter(nodes))
    y = np.zeros(tables[target].num_rows, np.int64)
    return StoredGraph(Path("none"), "", tables, edges, target, "classification", CLASSES, y, none, none, none)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", [*ONE_TYPE, *SEVERAL_TYPES])
def test_an_update_writes_the_bytes_of_a_predict_of_all(tmp_path, monkeypatch, kind, device):
    monkeypatch.setattr(update, "MOST_REACHED", 1)
    kinds = [*ONE_TYPE, *SEVERAL_TYPES]
    shares, ended = [], lambda done: None
    for number in range(kinds.index(kind), CASES, len(kinds)):
        case = Case(kind, number)
        folders = {name: tmp_path / f"{number}-{name}" for name in ("old", "all", "new", "changed")}
        for folder in folders.values():
            folder.mkdir()
        update.write_layers(case.layers(False, tmp_path, device), folders["old"], ended)
        update.write_layers(case.layers(True, tmp_path, device), folders["all"], ended)
        layers, done = case.layers(True, tmp_path, device), []
        old, new = (digests_of(case.graphs[later], case.model, case.spans) for later in (False, True))
        made = plain_digests(case.graphs[True], lambda: None)
        made = digests_of(case.graphs[True], case.model, case.spans, made)
        assert all(np.array_equal(made.nodes[name], new.nodes[name]) for name in new.nodes), number
        assert all(np.array_equal(made.lists[name], new.lists[name]) for name in new.lists), number
        changes = new.since(old)
        assert all(np.array_equal(changes.nodes[name], nodes) for name, nodes in case.edited.items())
        assert any(map(len, changes.lists.values())) <= (set(case.what) != {"rows"})
        reached = update.reached_by(changes, layers, case.graphs[True])
        assert reached is not None
        counts = {name: table.num_nodes for name, table in case.graphs[False].node_types.items()}
        before = Before(folders["old"], Record("cohort-kept-layers", 2, ".", counts, [], {}))
        updated = update.update_layers(
            layers, folders["changed"], folders["new"], done.append, before, reached, Copies()
        )
        assert sum(done) == reached.work
        shares.append(reached.work / layers.work)
        for file in folders["all"].iterdir():
            assert (folders["new"] / file.name).read_bytes() == file.read_bytes(), (number, file.name)
        last = np.load(folders["new"] / f"layer-{len(layers.gives) - 1}-0.npy")
        assert updated.piece(1, len(last)).numpy().tobytes() == last[1:].tobytes(), number
        if number % 5 == 0:
            expected = np.empty(layers.shape_of(len(layers.gives) - 1, layers.gives[-1][0]), np.float32)
            case.layers(True, tmp_path, device).run(keep_scores(expected), ended)
            assert last.tobytes() == expected.tobytes(), number
        for folder in folders.values():
            for file in folder.iterdir():
                file.unlink()
            folder.rmdir()
    assert min(shares) < 0.8, "a part is computed, not all"


@pytest.fixture(scope="module")
def kept(tmp_path_factory) -> Path:
    """A data set, a run, and what a predict kept of it: the data set has got edges since."""
    folder = tmp_path_factory.mktemp("kept")
    rng = np.random.default_rng(3)
    np.save(folder / "edges.npy", rng.integers(500, size=(2, 4000)))
    np.save(folder / "more.npy", rng.integers(500, size=(2, 6)))
    np.save(folder / "x.npy", rng.standard_normal((500, DIM), np.float32))
    np.save(folder / "y.npy", rng.integers(CLASSES, size=500))
    rows = ["--features", str(folder / "x.npy"), "--labels", str(folder / "y.npy"), "--split-ratio", "0.6,0.2,0.2"]
    assert main(["dataset", "import", str(folder / "edges.npy"), str(folder / "data"), *rows]) == 0
    ran("train", folder / "data", "--device", "cpu", "--epochs", 1, "--hidden", 8, "--fanout", "3,3", "--quiet",
        "--out", folder / "run")  # fmt: skip
    predicted(folder, "before.npy", keep=folder / "rows")
    assert main(["dataset", "append", str(folder / "data"), "--edges", str(folder / "more.npy")]) == 0
    predicted(folder, "all.npy")
    return folder


def predicted(folder: Path, out: str, early: EarlyWork | None = None, **options) -> bytes:
    """What the program of `cohort predict` writes."""
    job = {
        "run": folder / "run", "dataset": folder / "data", "out": folder / out, "classes": False, "node_type": None,
        "top_k": None, "exclude_seen": True, "nodes": None, "threshold": None, "at_time": None, "device": "cpu",
        "memory_bytes": 1 << 30, "quiet": True, "keep": None, "update": None,
    }  # fmt: skip
    job |= options
    job = {name: str(value) if isinstance(value, Path) else value for name, value in job.items()}
    with early or EarlyWork() as work:
        program.predict_nodes(job, work)
    return (folder / out).read_bytes()


def test_an_appended_data_set_is_predicted_again_in_part(kept, monkeypatch, caplog):
    everything = (kept / "all.npy").read_bytes()
    assert everything != (kept / "before.npy").read_bytes()
    caplog.set_level("INFO")
    assert predicted(kept, "new.npy", update=kept / "rows", keep=kept / "later", quiet=False) == everything
    assert "% of the edges and nodes of all layers were computed again" in caplog.text
    assert predicted(kept, "same.npy", update=kept / "later", quiet=False) == everything
    assert "0.00% of" in caplog.text
    all_classes = predicted(kept, "classes.npy", classes=True)
    assert predicted(kept, "new.npy", update=kept / "rows", classes=True) == all_classes
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tables = [predicted(kept, f"{name}.csv", update=rows) for name, rows in (("a", None), ("b", kept / "rows"))]
    assert tables[0] == tables[1]
    monkeypatch.setattr(update, "MOST_REACHED", 0)
    assert predicted(kept, "new.npy", update=kept / "rows", keep=kept / "later") == everything
    assert "reaches most of the graph: all is computed" in caplog.text
    assert sorted(path.suffix for path in (kept / "later").iterdir()) == ["", ".json"], "the rows before are gone"


def test_scores_are_copied_before_it_is_known_which_have_changed(kept, monkeypatch, tmp_path):
    """As if the program still loaded its packages, and whatever becomes of the job then."""

    def begun(name: str, **options) -> EarlyWork:
        early = EarlyWork()
        job = {"dataset": kept / "data", "out": kept / name, "update": kept / "rows", "classes": False, "nodes": None}
        job["keep"] = None
        early.begin(json.dumps(job | options, default=str))
        assert (early.output is None) == bool(options)
        return early

    everything = (kept / "all.npy").read_bytes()
    with monkeypatch.context() as once:
        copied = Mock(side_effect=copies.copy_bytes)
        once.setattr(copies, "copy_bytes", copied)
        once.setattr(digests, "_digests", None)
        assert predicted(kept, "new.npy", begun("new.npy"), update=kept / "rows") == everything
        assert copied.call_count == 1
    assert predicted(kept, "new.npy", begun("new.npy"), update=kept / "rows", keep=kept / "later") == everything
    assert predicted(kept, "new.npy", begun("new.npy"), update=kept / "later") == everything, "of other rows"
    others = {"classes": True, "update": None, "dataset": kept, "out": tmp_path / "a.csv"}
    for option in others.items():
        with begun("new.npy", **dict([option])):
            pass
    with monkeypatch.context() as less:
        less.setattr(update, "MOST_REACHED", 0)
        assert predicted(kept, "new.npy", begun("new.npy"), update=kept / "rows") == everything
    monkeypatch.setattr(kept_layers, "cpu_model", lambda: "another")
    with pytest.raises(CohortError, match="the same processor or libraries"):
        predicted(kept, "none.npy", begun("none.npy"), update=kept / "rows")
    late = EarlyWork()
    with late:
        late.open_checked(str(kept / "data"))
        late.begin(json.dumps({"dataset": "none"}))
        late.open_checked(str(kept / "data"))
    assert not list(kept.glob("*.tmp")) and not (kept / "none.npy").exists()


def test_copies_end_that_nobody_waits_for(tmp_path, monkeypatch):
    np.save(tmp_path / "old.npy", np.arange(60, dtype=np.float32).reshape(20, 3))
    rows, begun = np.load(tmp_path / "old.npy", mmap_mode="r"), threading.Event()

    def copy_bytes(source, target, offset, count, is_stopped):
        begun.set()
        while not is_stopped():
            time.sleep(0.001)

    monkeypatch.setattr(copies, "copy_bytes", copy_bytes)
    with pytest.raises(KeyError), Copies() as some:
        some.begin(rows, tmp_path / "new.npy", 20)
        assert begun.wait(60)
        raise KeyError


def test_several_threads_copy_into_memory(tmp_path, monkeypatch):
    """Where there are cores for them; the kernel copies into other file systems, and few rows."""
    monkeypatch.setattr(copies, "COPIED_AT_ONCE", 100)
    monkeypatch.setattr(copies, "copy_bytes", Mock(side_effect=KeyError))
    np.save(tmp_path / "old.npy", np.arange(3000, dtype=np.float32).reshape(1000, 3))
    rows = np.load(tmp_path / "old.npy", mmap_mode="r")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder, Copies() as some:
        monkeypatch.setattr(copies.os, "sched_getaffinity", lambda _: range(4))
        with pytest.raises(KeyError):
            some.end(rows, Path(folder, "slow.npy"), 1000)
        monkeypatch.setattr(copies.os, "sched_getaffinity", lambda _: range(16))
        with pytest.raises(KeyError):
            some.end(rows, Path(folder, "few.npy"), 8)
        for count in (1000, 500):
            assert not some.end(rows, Path(folder, "new.npy"), count)
            assert np.array_equal(np.load(Path(folder, "new.npy")), rows[:count])
        full = Mock(side_effect=OSError(28, "No space left on device"))
        with monkeypatch.context() as no_room, pytest.raises(OSError, match=r"No space left.*full\.npy"):
            no_room.setattr(copies.os, "posix_fallocate", full)
            some.end(rows, Path(folder, "full.npy"), 1000)
        assert is_in_memory(Path(folder, "new.npy"))
    assert not is_in_memory(Path("/proc/self/stat"))


def test_what_is_reached_is_looked_for_before_the_packages_are_there(kept, monkeypatch):
    """And only what an update would have made itself is taken."""
    early = EarlyWork()
    job = {"dataset": kept / "data", "out": kept / "new.npy", "update": kept / "rows", "classes": False, "nodes": None}
    early.begin(json.dumps(job | {"keep": None}, default=str))
    early_marks = early.marks()
    assert early_marks is not None and 0 < early_marks.sources.sum() < early_marks.reached.sum()
    everything, native = (kept / "all.npy").read_bytes(), Mock(side_effect=marks.dataset_native.mark_targets)
    for there, calls in ((early_marks, 0), (replace(early_marks, sources=~early_marks.sources), 1), (None, 1)):
        with monkeypatch.context() as once:
            native.reset_mock()
            once.setattr(marks, "dataset_native", Mock(mark_targets=native))
            once.setattr(EarlyWork, "marks", lambda _, there=there: there)
            assert predicted(kept, "new.npy", update=kept / "rows") == everything
            assert native.call_count == calls


def test_a_kill_leaves_what_was_there(kept, monkeypatch):
    predicted(kept, "out.npy", keep=kept / "killed")
    before = {path: path.read_bytes() for path in [kept / "out.npy", *(kept / "killed").rglob("*.*")] if path.is_file()}

    def killed(*_):
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(Layerwise, "run_layer", killed)
    if not (child := os.fork()):
        predicted(kept, "out.npy", update=kept / "rows", keep=kept / "killed")
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert all(path.read_bytes() == content for path, content in before.items())
    monkeypatch.undo()
    assert predicted(kept, "out.npy", update=kept / "rows", keep=kept / "killed") == (kept / "all.npy").read_bytes()
    assert not list(kept.rglob("*.tmp"))


def test_what_an_update_cannot_be_made_of_is_refused(kept, monkeypatch, tmp_path):
    def refused(**options) -> str:
        with pytest.raises(CohortError) as error:
            predicted(kept, "none.npy", **({"update": kept / "rows"} | options))
        assert not (kept / "none.npy").exists()
        return str(error.value)

    cure = "predict all: leave out --update"
    (tmp_path / "empty").mkdir()
    assert "expected a folder that cohort predict --keep made, found none" in refused(update=tmp_path / "empty")
    assert "expected a new folder, or one that --keep made" in refused(keep=kept / "data")
    assert f"--keep {kept}/nowhere/rows: expected a folder that can be written" in refused(keep=kept / "nowhere/rows")
    with monkeypatch.context() as full:
        full.setattr(node_rows.os, "posix_fallocate", Mock(side_effect=OSError(28, "No space left on device")))
        text = refused(update=None, keep=kept / "full")
        assert f"--keep {kept}/full: expected a file that can be written, found No space left on device" in text
        assert "the rows of all layers" in text and f"{kept}/none.npy: expected a file" in refused(update=None)
        assert f"{kept}/none.npy: expected a file" in refused()
    with monkeypatch.context() as full:
        full.setattr(copies, "copy_bytes", Mock(side_effect=OSError(28, "No space left on device")))
        assert f"--keep {kept}/full: expected a file that can be written, found No space" in refused(keep=kept / "full")
        assert f"{kept}/none.npy: expected a file that can be written, found No space" in refused()
    monkeypatch.setattr(kept_layers, "cpu_model", lambda: "another")
    text = refused()
    assert "the same processor or libraries as when these rows were made" in text and cure in text
    monkeypatch.undo()
    (rows,) = (kept / "rows").glob("rows-*")
    for name in ("layer-0-0.npy", "nodes-0.npy", "lists-0.npy"):
        content = (rows / name).read_bytes()
        (rows / name).write_bytes(content[:-4])
        assert name in refused()
        (rows / name).write_bytes(content)


@pytest.mark.parametrize("what", ["weights", "model options", "--node-type", "--at-time", "types of nodes and edges"])
def test_rows_that_others_were_made_of_are_refused(kept, tmp_path, what):
    data, run = open_dataset(kept / "data"), kept / "run"
    model, _ = program.model_of_run(run, data)
    given, types = {"run": run, "model": model, "name": NODE_TYPE, "times": (None, {})}, data.types
    given["device"] = torch.device("cpu")
    kept_layers.read_before(kept / "rows", types, kept_layers.made_of(**given))
    if what == "weights":
        next(iter(model.parameters())).data.mul_(2)
    if what == "types of nodes and edges":
        types = replace(types, counts={"paper": 500})
    (tmp_path / "run.json").write_text((run / "run.json").read_text().replace('"norm": "none"', '"norm": "layer"'))
    given |= {
        "model options": {"run": tmp_path}, "--node-type": {"name": "paper"}, "--at-time": {"times": (7, {})},
    }.get(what, {})  # fmt: skip
    with pytest.raises(CohortError, match=f"--update {kept}/rows: expected the same {what} as when these rows were"):
        kept_layers.read_before(kept / "rows", types, kept_layers.made_of(**given))


def test_other_features_are_found(kept, monkeypatch, caplog):
    everything = (kept / "all.npy").read_bytes()
    caplog.set_level("INFO")
    monkeypatch.setattr(digests, "DECODED_AT_ONCE", 1000)
    shutil.copytree(kept / "data", kept / "encoded")
    assert main(["dataset", "prepare", str(kept / "encoded"), "--codec", "raw", "--drop-raw"]) == 0
    assert predicted(kept, "new.npy", dataset=kept / "encoded", update=kept / "rows", quiet=False) == everything
    of_edges = [
        digests.digests_of_lists(Relation(LISTS, np.zeros(500, np.int32), None, edge_table=table), False, True)
        for table in (open_dataset(kept / name).node_types[NODE_TYPE] for name in ("data", "encoded"))
    ]
    assert np.array_equal(*of_edges)
    few = float(caplog.records[-2].getMessage().split("% of the edges")[0])
    x = np.load(open_dataset(kept / "data").node_types[NODE_TYPE].file, mmap_mode="r+")
    x[250, 3] += 1
    everything = predicted(kept, "edited.npy")
    assert predicted(kept, "new.npy", update=kept / "rows", quiet=False) == everything
    more = float(caplog.records[-2].getMessage().split("% of the edges")[0])
    assert few < more < 50
    x[250, 3] -= 1


@pytest.mark.parametrize("name", ["keep", "update"])
def test_links_are_refused(tmp_path, name):
    given = argparse.Namespace(keep=None, update=None, top_k=3)
    demand_all_rows(given)
    setattr(given, name, tmp_path)
    with pytest.raises(CohortError, match=f"--{name}: expected no --top-k beside it"):
        demand_all_rows(given)


def test_graphs_of_several_types_are_left_to_the_update(kept):
    data = open_dataset(kept / "data")
    now = plain_digests(data, lambda: None)
    nodes, lists = ({what: some for (what, _), some in now.items() if isinstance(what, kind)} for kind in (str, tuple))
    before = digests.Digests(nodes, lists)
    assert marks.marks_since(data, before, now, lambda: None) is None, "nothing has changed"
    before = digests.Digests(nodes, {EDGE_TYPE: np.zeros(500, np.uint64)})
    assert marks.marks_since(data, before, now, lambda: None) is not None
    several = replace(data, node_types=data.node_types | {"other": data.node_types[NODE_TYPE]})
    more = now | {("other", what): some for (name, what), some in now.items() if name == NODE_TYPE}
    assert marks.marks_since(several, before, more, lambda: None) is None
