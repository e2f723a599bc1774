"""Names that differ from a known one by a letter, a dash or their case: understood, or told what was meant."""

import subprocess
import sys

import numpy as np
import pytest
from processes import here, refused

import cohort_gnn as cohort
from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.spelling import as_known, nearest
from cohort_gnn.dataset.tables.table import choose_columns
from cohort_gnn.launch.main import build_parser, main
from cohort_gnn.launch.options.parser import read_config
from cohort_gnn.spec import types
from cohort_gnn.spec.options import options_of
from cohort_gnn.spec.run import Model, RunSpec


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["trian", "DIR"], "train"),
        (["Report", "RUN"], "report"),
        (["dataset", "improt", "a", "b"], "import"),
        (["train", "DIR", "--epoch", "3"], "--epochs"),
        (["train", "DIR", "-epochs", "3"], "--epochs"),
        (["train", "DIR", "--fanouts=10,5"], "--fanout"),
        (["train", "DIR", "--batch_size", "5"], "--batch-size"),
        (["train", "DIR", "--no-ampp"], "--no-amp"),
        (["train", "DIR", "--learning-rate", "0.1"], "--lr"),
        (["train", "DIR", "--hidden-channels", "64"], "--hidden"),
        (["predict", "RUN", "DIR", "--output", "p.npy"], "--out"),  # that --out is missing is said, too
        (["train", "DIR", "--device", "gpu"], "cuda"),
        (["train", "DIR", "--device", "cuda:0"], "cuda"),
        (["train", "DIR", "--model", "sgae"], "sage"),
        (["train", "DIR", "--model", "GraphSAGE"], "sage"),
        (["train", "DIR", "--cache-ratio", "atuo"], "auto"),
        (["bench", "step", "DIR", "--layers", "pyg,cohrot"], "cohort"),
        (["dataset", "prepare", "DIR", "--codec", "plane"], "planes"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else each,
)
def test_the_command_line_is_told_what_may_be_meant(words, meant, capsys):
    with pytest.raises(SystemExit) as end:
        main(words)
    said = capsys.readouterr().err
    assert end.value.code == 2 and f"did you mean {meant}?" in said, said


def test_what_is_near_nothing_is_refused_without_a_guess(capsys):
    for words in (["xyzzy"], ["train", "DIR", "--xyzzy"], ["train", "DIR", "--model", "xyzzy"]):
        with pytest.raises(SystemExit):
            main(words)
        assert "did you mean" not in capsys.readouterr().err


def test_a_word_counts_whatever_its_case(tmp_path):
    words = ["train", "DIR", "--model", "GCN", "--device", "CPU", "--norm", "Layer", "--cache-ratio", "AUTO"]
    args = build_parser("train").parse_args(words)
    assert (args.model, args.device, args.norm, args.cache_ratio) == ("gcn", "cpu", "layer", "auto")
    args = build_parser("dataset").parse_args(
        ["dataset", "import", "a", "b", "--format", "OGB", "--label-type", "MultiLabel"]
    )
    assert (args.format, args.task) == ("ogb", "multilabel")
    (tmp_path / "run.toml").write_text('model = "GCN"\ndevice = "Cpu"\n')
    known = {each.name: each for each in options_of(RunSpec)}
    assert read_config(tmp_path / "run.toml", known) == {"model": "gcn", "device": "cpu"}
    assert types.checked("device", "CUDA", types.Device) == "cuda"
    assert types.checked("model", "my.Net:GCN", Model) == "my.Net:GCN", "names of a user's own are as they are"


def test_toml_and_python_are_told_the_same(tmp_path, cora):
    known = {each.name: each for each in options_of(RunSpec)}
    for text, meant in (('device = "gpu"', "cuda"), ('model = "sgae"', "sage"), ("epoch = 3", "epochs")):
        (tmp_path / "run.toml").write_text(text)
        with pytest.raises(CohortError) as error:
            read_config(tmp_path / "run.toml", known)
        assert error.value.hint == f"did you mean {meant}?"
    for options, meant in (({"epoch": 3}, "epochs"), ({"device": "gpu"}, "cuda")):
        with pytest.raises(CohortError) as error:
            cohort.train(cora, tmp_path / "run", **options)
        assert error.value.hint == f"did you mean {meant}?"
    for options, meant in (({"num_neighbours": [5]}, "num_neighbors"), ({"input_node": [5]}, "input_nodes")):
        with pytest.raises(TypeError, match=f"did you mean {meant}\\?"):
            cohort.NeighborLoader(cora, **{"num_neighbors": [5]} | options)


@pytest.mark.parametrize(
    ("nodes", "options", "meant"),
    [
        ("{paper: {count: 3, lable: y.npy}}", [], "label"),
        ("{paper: {count: 3}, author: {count: 3}}", ["--target", "papr"], "paper"),
    ],
)
def test_names_in_files_are_told_what_may_be_meant(tmp_path, nodes, options, meant):
    np.save(tmp_path / "e.npy", np.array([[0, 1], [1, 2]]))
    np.save(tmp_path / "y.npy", np.array([0, 1, 0]))
    edges = "[{type: [paper, cites, paper], file: e.npy}]"
    (tmp_path / "graph.yaml").write_text(f"nodes: {nodes}\nedges: {edges}\n")
    refused(here("dataset", "import", tmp_path / "graph.yaml", tmp_path / "out", *options), 1, f"did you mean {meant}?")
    with pytest.raises(CohortError, match="did you mean year?"):
        choose_columns("table.csv", ["id", "year"], ["yaer"])


def test_names_that_differ_by_case_alone_are_kept_apart():
    assert as_known("A", ["a", "b"]) == "a" and as_known("A", ["a", "A"]) == "A"
    assert nearest("B", ["a", "b"]) == "b" and nearest("gpu", ["auto", "cuda", "cpu"]) == "cuda"


@pytest.mark.fresh
def test_a_shell_sees_the_hint():
    done = subprocess.run([sys.executable, "-m", "cohort_gnn", "trian"], capture_output=True, text=True)
    assert done.returncode == 2 and "  hint: did you mean train?\nsee: cohort --help\n" in done.stderr
