"""What the options of an import make of edges and nodes, and edge lists that are larger than its memory."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.csv
import pytest
from import_helpers import edge_pairs, imported, refusal
from processes import ALL_TESTS
from pyarrow.csv import write_csv

from cohort_gnn import train
from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import (
    append,
    append_from_tables,
    check,
    from_tables,
    from_tensors,
    generate,
    generate_typed,
    import_graph,
    split_links,
)
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.dataset.importing.beside import SourceOptions
from cohort_gnn.dataset.layouts.tables import RawLayout
from cohort_gnn.dataset.tables.text_file import TextFile
from cohort_gnn.dataset.tables.text_options import TextOptions

# --- what becomes of edges and nodes ----------------------------------------------------------------------------------

PAIRS = np.array([[0, 0, 1, 2, 2, 3, 0], [1, 1, 0, 2, 2, 1, 3]])


def made(pairs, reverse=False, dedupe=False, transpose=False, loops="keep", num_nodes=4):
    """What the options say, from their definition."""
    edges = [(d, s) if transpose else (s, d) for s, d in zip(*pairs.tolist(), strict=True)]
    edges += [(d, s) for s, d in edges] if reverse else []
    edges = list(dict.fromkeys(edges)) if dedupe else edges
    if loops != "keep":
        edges = [(s, d) for s, d in edges if s != d] + [(v, v) for v in range(num_nodes) if loops == "add"]
    return sorted(edges, key=lambda edge: (edge[1], edge[0]))


@pytest.mark.parametrize("loops", ["keep", "remove", "add"])
@pytest.mark.parametrize("dedupe", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("transpose", [False, True])
def test_options_change_edges_as_they_say(tmp_path, run, loops, dedupe, reverse, transpose):
    np.save(tmp_path / "e.npy", PAIRS)
    given = {"--dedupe": dedupe, "--reverse-edges": reverse, "--transpose": transpose}
    flags = ["--self-loops", loops, *(flag for flag, is_given in given.items() if is_given)]
    assert run("import", tmp_path / "e.npy", tmp_path / "out", "--features", "ones", *flags) == 0
    assert edge_pairs(tmp_path / "out") == made(PAIRS, reverse, dedupe, transpose, loops)
    assert check(tmp_path / "out") == []


@pytest.mark.parametrize("option", ["dedupe", "reverse"])
def test_undirected_is_not_without_what_it_is(tmp_path, option):
    np.save(tmp_path / "e.npy", np.array([[0, 1], [1, 0]]))
    error = refusal(tmp_path / "e.npy", features="ones", undirected=True, **{option: False})
    assert "--undirected, --no-" in error.place and (error.expected, error.found) == ("one of the two", "both")


def test_undirected_is_reverse_and_dedupe(tmp_path):
    np.save(tmp_path / "e.npy", PAIRS)
    data = imported(tmp_path / "e.npy", features="ones", undirected=True)
    assert edge_pairs(data) == made(PAIRS, reverse=True, dedupe=True)


def test_nodes_says_how_many_there_are(tmp_path, run):
    np.save(tmp_path / "e.npy", PAIRS)
    assert run("import", tmp_path / "e.npy", tmp_path / "out", "--features", "ones", "--nodes", "9") == 0
    assert open_dataset(tmp_path / "out").num_nodes == 9
    error = refusal(tmp_path / "e.npy", features="ones", nodes=3)
    assert "a node in [0, 3)" in error.expected
    np.save(tmp_path / "x.npy", np.ones((5, 2)))
    error = refusal(tmp_path / "e.npy", features=tmp_path / "x.npy", nodes=9)
    assert "9 rows" in error.expected


NAMES = np.array([-(10**18), -5, 77, 10**15])


def test_renamed_nodes_are_in_the_order_of_their_ids(tmp_path, run):
    np.save(tmp_path / "e.npy", NAMES[PAIRS])
    (tmp_path / "ids.csv").write_text("id\n" + "".join(f"{name}\n" for name in NAMES[[2, 0]]))
    (tmp_path / "none.csv").write_text("")
    (tmp_path / "y.csv").write_text("id,label\n" + "".join(f"{NAMES[i]},{i}\n" for i in (2, 3, 0, 1)))
    labels = ["--labels", tmp_path / "y.csv", "--id-column", "id"]
    arguments = ["--features", "ones", *labels, "--splits", tmp_path / "ids.csv"]
    arguments += [tmp_path / "none.csv"] * 2
    assert run("import", tmp_path / "e.npy", tmp_path / "out", "--rename", *arguments) == 0
    assert edge_pairs(tmp_path / "out") == made(PAIRS)
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "id_of_node.npy"), NAMES)
    assert open_dataset(tmp_path / "out").train_ids.tolist() == [2, 0]
    assert open_dataset(tmp_path / "out").y.tolist() == [0, 1, 2, 3]


def test_node_ids_say_whose_rows_they_are(tmp_path, run):
    order = [2, 0, 4, 3, 1]  # of the rows; 4 is a node without edges
    ids = np.append(NAMES, 5)[order]
    np.save(tmp_path / "e.npy", NAMES[PAIRS])
    np.save(tmp_path / "ids.npy", ids)
    np.save(tmp_path / "x.npy", np.arange(5.0)[order][:, None])
    np.save(tmp_path / "some.npy", ids[[4, 0]])
    np.save(tmp_path / "none.npy", np.empty(0, np.int64))
    np.save(tmp_path / "y.npy", np.arange(5)[order])
    splits = ["--splits", tmp_path / "some.npy", tmp_path / "none.npy", tmp_path / "none.npy"]
    tables = ["--features", tmp_path / "x.npy", "--labels", tmp_path / "y.npy", *splits]
    assert run("import", tmp_path / "e.npy", tmp_path / "out", "--node-ids", tmp_path / "ids.npy", *tables) == 0
    data = open_dataset(tmp_path / "out")
    old = [(order[s], order[d]) for s, d in edge_pairs(tmp_path / "out")]
    assert sorted(old, key=lambda edge: edge[::-1]) == made(PAIRS)
    assert data.y.tolist() == data.x[:, 0].tolist() == order and data.train_ids.tolist() == [4, 0]
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "id_of_node.npy"), ids)


def test_names_that_do_not_fit_are_refused(tmp_path):
    source = tmp_path / "e.npy"
    np.save(source, NAMES[PAIRS])
    np.save(tmp_path / "x.npy", np.ones((5, 2)))
    rows = tmp_path / "x.npy"
    assert "--node-ids FILE" in refusal(source, features=rows, rename=True).hint
    for ids, expected in (
        (NAMES, "5 nodes, one per row"),
        ([1, 2, 3, 4, 1], "an id named once"),
        ([1, 2, 3, 4, 5], "an id that the list of node ids has"),
        ([1.0, 2, 3, 4, 5], "integers"),
    ):
        np.save(tmp_path / "ids.npy", ids)
        assert expected in refusal(source, features=rows, node_ids=tmp_path / "ids.npy").expected
    np.save(tmp_path / "split.npy", np.array([6]))
    error = refusal(source, features="ones", splits=[tmp_path / "split.npy"] * 3, rename=True)
    assert "the id of a node" in error.expected


def test_too_little_memory_is_refused(tmp_path):
    np.save(tmp_path / "e.npy", PAIRS)
    assert "at least 16.00 MB" in refusal(tmp_path / "e.npy", features="ones", memory=10**6).expected
    np.save(tmp_path / "x.npy", np.ones((2_000_000, 3), np.float32))
    error = refusal(tmp_path / "e.npy", features=tmp_path / "x.npy", memory=16 * 10**6, row_normalize=True)
    assert "--memory" in error.hint
    np.save(tmp_path / "e.npy", np.arange(1_600_000).reshape(2, -1) * 7)
    error = refusal(tmp_path / "e.npy", features="ones", memory=16 * 10**6, rename=True)
    assert "for the ids of all nodes" in error.expected


@pytest.mark.parametrize(
    "argument", ["--memory=x", "--separator=ab", "--columns=a", "--self-loops=no", "--format=hdf5"]
)
def test_bad_arguments_are_refused(tmp_path, argument, run, capsys):
    with pytest.raises(SystemExit) as end:
        run("import", tmp_path / "e.npy", tmp_path / "out", argument)
    assert end.value.code == 2 and argument.split("=")[0] in capsys.readouterr().err


# --- more edges than memory -------------------------------------------------------------------------------------------

LARGE, LARGE_NODES = 3_000_000, 50_000  # 48 MB of edges, 24 MB of keys; twelve times that with --undirected in 16 MB


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("large")
    rng = np.random.default_rng(1)
    edges = (rng.random((2, LARGE)) ** 2 * LARGE_NODES).astype(np.int64)
    np.save(folder / "e.npy", edges)
    write_csv(pyarrow.table(list(edges), ["source", "target"]), folder / "e.csv")
    return folder


def digest_of(folder: Path) -> str:
    files = sorted(path for path in folder.iterdir() if path.suffix == ".npy")
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


@pytest.mark.parametrize("undirected", [False, True])
def test_runs_on_disk_give_the_bytes_of_a_sort_in_memory(large, tmp_path, undirected):
    imports = {"b": ("e.npy", 16 * 10**6)}
    if ALL_TESTS or not undirected:
        imports |= {"a": ("e.npy", 10**9), "c": ("e.csv", 20 * 10**6)}
        folder, (src, dst) = large, np.load(large / "e.npy")
    else:  # a third of them, still four times the memory
        folder, (src, dst) = tmp_path, np.load(large / "e.npy")[:, : LARGE // 3]
        np.save(folder / "e.npy", [src, dst])
    for name, (source, memory) in imports.items():
        imported(folder / source, tmp_path / name, features="ones", memory=memory, undirected=undirected)
    assert len({digest_of(tmp_path / name) for name in imports}) == 1
    keys = np.concatenate([dst * LARGE_NODES + src] + [src * LARGE_NODES + dst] * undirected)
    keys = np.unique(keys) if undirected else np.sort(keys)
    data = open_dataset(tmp_path / "b")
    np.testing.assert_array_equal(data.indices, keys % LARGE_NODES)
    np.testing.assert_array_equal(np.diff(data.indptr), np.bincount(keys // LARGE_NODES, minlength=data.num_nodes))


IMPORT = "import sys; from cohort_gnn.launch.main import main; sys.exit(main(sys.argv[1:]))"


def start_import(*arguments) -> subprocess.Popen:
    command = [sys.executable, "-c", IMPORT, "dataset", "import", *map(str, arguments), "--features", "ones"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def peak_bytes(*arguments) -> int:
    """Peak resident memory of an import in a process of its own."""
    process = start_import(*arguments)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_maxrss * 1024


@pytest.mark.parametrize("kind", ["npy", "csv"])
def test_memory_bounds_what_the_process_takes(large, tmp_path, kind):
    few = tmp_path / f"few.{kind}"
    np.save(few, PAIRS) if kind == "npy" else write_csv(pyarrow.table(list(PAIRS), ["source", "target"]), few)
    bare = peak_bytes(few, tmp_path / "few", "--memory", "16MB")  # pyarrow, which reads text, takes 35 MB itself
    took = peak_bytes(large / f"e.{kind}", tmp_path / "large", "--memory", "20MB", "--undirected")
    assert took < bare + 60 * 10**6  # the edges in both directions are 96 MB, as keys 48 beside 25 to 50 for blocks


def test_an_interrupt_that_arrow_notices_first_is_no_error(tmp_path, run, monkeypatch):
    (tmp_path / "e.csv").write_text("src,dst\n0,1\n1,2\n")

    def interrupted(*_arguments):
        raise pyarrow.ArrowCancelled("Operation cancelled. Detail: received signal 2")

    monkeypatch.setattr(pyarrow.csv, "read_csv", interrupted)
    assert run("import", tmp_path / "e.csv", tmp_path / "out", "--features", "ones") == 128 + signal.SIGINT
    assert not (tmp_path / "out").exists()
    with pytest.raises(KeyboardInterrupt):
        next(TextFile(tmp_path / "e.csv", TextOptions(",", "no")).texts([0], 1 << 20))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_import_that_is_ended_leaves_no_data(large, tmp_path, number):
    process = start_import(large / "e.csv", tmp_path / "out", "--memory", "16MB", "--undirected")
    while process.poll() is None and not list(tmp_path.iterdir()):
        time.sleep(0.002)
    process.send_signal(number)
    process.wait()
    left = [path for folder in tmp_path.iterdir() for path in folder.iterdir()]
    assert not (tmp_path / "out").exists()
    if number == signal.SIGKILL:  # nobody is there to remove the folder, but what was sorted is gone
        assert all(path.suffix in (".npy", ".json") for path in left)
    else:
        assert list(tmp_path.iterdir()) == []
        assert process.returncode == 128 + number


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"columns": ["b", "a"]}, "--columns: expected an edge list, or a table beside the source, found format"),
        ({"destinations": "to.npy"}, "--destinations: expected an edge list"),
        ({"separator": ";"}, "--separator: expected an edge list"),
        ({"null": "NA"}, "--null: expected an edge list"),
        ({"time_unit": "s", "time_zone": "UTC"}, "--time-unit: expected an edge list"),
        ({"time_column": "t"}, "--time-column: expected an edge list"),
        ({"raw": RawLayout(2)}, "--feature-dim, --feature-dtype: expected --features FILE, found none"),
    ],
)
@pytest.mark.parametrize("kind", ["yaml", "npz"])
def test_options_that_a_source_has_no_use_for_are_refused(tmp_path, kind, options, told):
    np.save(tmp_path / "to.npy", np.array([[0, 1], [1, 2]]))
    np.savez(tmp_path / "graph.npz", src=[0, 1], dst=[1, 2], x=np.ones((3, 1), np.float32))
    (tmp_path / "graph.yaml").write_text(
        "nodes: {a: {count: 3, features: ones}}\nedges: [{type: [a, e, a], file: to.npy}]\n"
    )
    inputs = SourceOptions(
        **{name: tmp_path / value if name == "destinations" else value for name, value in options.items()}
    )
    with pytest.raises(CohortError, match=told):
        import_graph(tmp_path / f"graph.{kind}", tmp_path / "out", inputs=inputs)
    import_graph(tmp_path / "graph.yaml", tmp_path / "data")
    with pytest.raises(CohortError, match=told):
        append(tmp_path / "data", edges=tmp_path / "graph.yaml", inputs=inputs)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"memory": "2GB"}, "memory: expected bytes such as 20GB, found '2GB'\n  hint: write it as 2000000000"),
        ({"memory": 2e9}, "memory: expected bytes such as 20GB, found 2000000000.0"),
        ({"memory": True}, "memory: expected bytes such as 20GB, found True"),
        ({"overwrite": "no"}, "overwrite: expected true or false, found 'no'"),
        ({"ids": None}, "ids: expected true or false, found None"),
        ({"dedupe": 1}, "dedupe: expected true or false, found 1"),
        ({"seed": 1.5}, "seed: expected an integer, found 1.5"),
        ({"self_loops": "kept"}, "self_loops: expected keep, remove, add, or None, found 'kept'"),
    ],
)
def test_values_of_another_kind_are_refused(tmp_path, options, words):
    np.save(tmp_path / "edges.npy", PAIRS)
    assert str(refusal(tmp_path / "edges.npy", **options)) == words


@pytest.mark.parametrize(
    ("option", "meant"),
    [("reverse_edges", "did you mean reverse"), ("overwrit", "did you mean overwrite"), ("xyz", "there are memory,")],
)
def test_options_that_there_are_not_are_refused_before_anything_is_read(tmp_path, option, meant):
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{option}'; {meant}"):
        import_graph(tmp_path / "nothing", tmp_path / "out", **{option: True})
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{option}'; {meant}"):
        from_tables(tmp_path / "out", nodes={"a": {"count": 3}}, **{option: True})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda data, out: split_links(data, out, negatives="100"), "split_links: negatives: expected an integer"),
        (lambda data, out: split_links(data, out, shares=0.1), "split_links: shares: expected a number"),
        (lambda data, out: split_links(data, out, overwrite="no"), "split_links: overwrite: expected true or false"),
        (
            lambda data, out: generate(out, kind="sbm", nodes="20K", edges=9, dim=1),
            "generate: nodes: expected an integer",
        ),
        (
            lambda data, out: generate_typed(out, nodes=99, edges=99, all_features="no"),
            "all_features: expected true or",
        ),
        (lambda data, out: from_tensors(out, x=np.ones((3, 1)), seed="a"), "from_tensors: seed: expected an integer"),
        (lambda data, out: append(data, edges=out, memory="2GB"), "append: memory: expected bytes such as 20GB"),
        (lambda data, out: append_from_tables(data, memory=2e9), "append_from_tables: memory: expected bytes"),
        (lambda data, out: train(data, out, overwrite="no"), "train: overwrite: expected true or false, found 'no'"),
    ],
)
def test_functions_refuse_arguments_of_another_kind(tmp_path, call, words):
    with pytest.raises(CohortError, match=words):
        call(tmp_path / "data", tmp_path / "out")
    assert not list(tmp_path.iterdir())
