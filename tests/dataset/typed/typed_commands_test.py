"""The commands on data sets of several node types: who knows them, and who refuses them in the same words."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from processes import here, refused
from typed_by_hand import ARRAYS, META, write_by_hand

from cohort_gnn.base.units import format_bytes
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.launch import main

INFO = """\
name              small
nodes             7
edges             13
target            paper
classes           3
train, val, test  2, 1, 0
size              {size}
"""
TYPES = [
    ["node type", "nodes", "features"],
    ["author", "3", "none"],
    ["paper (target)", "4", "2 x float32"],
    ["relation", "edges", "reverse of"],
    ["author, writes, paper", "5"],
    ["paper, rev_writes, author", "5", "author, writes, paper"],
    ["paper, cites, paper", "3"],
]


@pytest.fixture
def small(tmp_path) -> Path:
    return write_by_hand(tmp_path / "small")


def test_info_prints_types_and_relations(small, run, capsys):
    assert run("info", small) == 0
    told, size = capsys.readouterr().out, sum(file.stat().st_size for file in small.iterdir())
    info = INFO.format(size=format_bytes(size))
    assert told.startswith(info)
    rows = [re.split(r"  +", line.strip()) for line in told.removeprefix(info).splitlines()]
    assert [row for row in rows if row in TYPES] == TYPES


def test_check_tells_every_problem(small, run, capsys):
    assert run("check", small) == 0
    told = " ".join(capsys.readouterr().err.split())
    assert "7 nodes, 13 edges, 2 node types, 3 relations, 3 classes: no problem found" in told
    for file, place, value in (("w.indices", 0, 9), ("c.indices", 1, -1), ("y", 0, 5)):
        array = ARRAYS[file].copy()
        array[place] = value
        np.save(small / f"{file}.npy", array)
    assert run("check", small) == 1
    err = capsys.readouterr().err
    assert all(f"{file}.npy[" in err for file in ("w.indices", "c.indices", "y")) and err.count("expected") == 3


def test_generate_writes_what_info_reads(tmp_path, run, capsys):
    sizes = ["--nodes", "240", "--edges", "1K", "--dim", 4, "--classes", 3]
    assert run("generate", tmp_path / "out", "--kind", "typed", *sizes, "--all-features", "--dtype", "float16") == 0
    assert "240 nodes, 2,000 edges, 3 node types, 4 relations, 3 classes" in " ".join(capsys.readouterr().err.split())
    assert run("info", tmp_path / "out") == 0
    assert "author             20  4 x float16" in capsys.readouterr().out
    assert run("generate", tmp_path / "out", "--kind", "typed", *sizes) == 1, "it exists"
    assert run("generate", tmp_path / "out", "--kind", "typed", *sizes, "--overwrite") == 0
    assert open_dataset(tmp_path / "out").node_types["field"].x is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--kind", "typed", "--undirected"], "--undirected: expected --kind sbm, powerlaw or rmat, found --kind t"),
        (["--kind", "typed", "--random-edge-weights"], "--random-edge-weights: expected --kind sbm, powerlaw or rmat"),
        (["--kind", "typed", "--rows", "x.npy"], "--rows: expected --kind sbm, powerlaw or rmat"),
        (["--kind", "typed", "--prepared"], "--prepared: expected --kind sbm, powerlaw, rmat, mag, mag240m or igbh"),
        (["--all-features"], "--all-features: expected --kind typed, found --kind sbm"),
        (["--scale", "0.5"], "--scale: expected --kind mag, mag240m or igbh, found --kind sbm"),
        (["--kind", "igbh"], "--nodes: expected --kind sbm, powerlaw, rmat or typed, found --kind igbh"),
    ],
)
def test_generate_refuses_options_of_other_kinds(tmp_path, arguments, words):
    out = tmp_path / "out"
    refused(here("dataset", "generate", out, "--nodes", "600", "--edges", "9K", *arguments), 1, words)
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--kind", "igbh", "--scale", "0"], "--scale: expected a number in (0, 1], found 0"),
        (["--nodes", "0", "--edges", "5"], "--nodes: expected an integer in [1, "),
    ],
)
def test_zero_is_a_number_that_was_given(tmp_path, arguments, words):
    refused(here("dataset", "generate", tmp_path / "out", *arguments), 1, words)
    assert not (tmp_path / "out").exists()


def test_a_version_3_of_one_type_is_refused_too(tmp_path, capsys):
    meta = json.loads(json.dumps(META))
    meta["nodes"], meta["edges"] = meta["nodes"][1:], meta["edges"][2:]
    folder = write_by_hand(tmp_path / "one", meta)
    assert main.main(["dataset", "info", str(folder)]) == 0
    sizes = ["--nodes", "9", "--edges", "9"]
    assert main.main(["dataset", "generate", str(tmp_path / "out"), *sizes, "--rows", str(folder)]) == 1
    assert "expected a data set of one node type, found one of version 3, with 1 node type: paper" in " ".join(
        capsys.readouterr().err.split()
    )
