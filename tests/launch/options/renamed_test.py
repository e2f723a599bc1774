"""Options that have a new name: the old one works for a release, with a note, and old run folders are read."""

import json

import pytest

from cohort_gnn.launch.main import build_parser
from cohort_gnn.launch.options.parser import read_config
from cohort_gnn.spec.options import options_of
from cohort_gnn.spec.run import RunSpec, TrainerSpec, from_json
from cohort_gnn.spec.run_file import read_run_json

TRAIN, IMPORT, GENERATE = ["train", "DIR"], ["dataset", "import", "a", "b"], ["dataset", "generate", "a"]


@pytest.mark.parametrize(
    ("command", "old", "new", "name", "value"),
    [
        (TRAIN, ["--features", "partitioned"], "--feature-placement", "feature_placement", "partitioned"),
        (TRAIN, ["--features=Replicated"], "--feature-placement", "feature_placement", "replicated"),
        (TRAIN, ["--edge-weights"], "--use-edge-weights", "use_edge_weights", True),
        (TRAIN, ["--no-edge-weights"], "--no-use-edge-weights", "use_edge_weights", False),
        (TRAIN, ["--no-edge-features"], "--no-use-edge-features", "use_edge_features", False),
        (IMPORT, ["--task", "Regression"], "--label-type", "task", "regression"),
        (IMPORT, ["--split", "0.5,0.2,0.3"], "--split-ratio", "split", (0.5, 0.2, 0.3)),
        (GENERATE, ["--edge-weights"], "--random-edge-weights", "random_edge_weights", True),
    ],
)
def test_the_old_name_does_what_the_new_one_does(command, old, new, name, value, capsys):
    parser = build_parser(command[0])
    assert getattr(parser.parse_args([*command, *old]), name) == value
    flag = old[0].partition("=")[0]
    assert f"note: {flag} is called {new} now" in capsys.readouterr().err
    words = [new, *old[1:]] if "=" not in old[0] else [f"{new}={old[0].partition('=')[2]}"]
    assert getattr(parser.parse_args([*command, *words]), name) == value
    assert capsys.readouterr().err == ""


def test_files_of_imports_have_the_names_they_had():
    args = build_parser("dataset").parse_args([*IMPORT, "--features", "x.npy", "--edge-weights", "w.npy"])
    assert (str(args.features), str(args.edge_weights)) == ("x.npy", "w.npy")


def test_a_file_of_options_may_have_the_old_names(tmp_path, capsys):
    known = {each.name: each for each in options_of(RunSpec)}
    path = tmp_path / "run.toml"
    path.write_text('features = "partitioned"\nedge-weights = true\n')
    assert read_config(path, known) == {"feature_placement": "partitioned", "use_edge_weights": True}
    assert f"{path}: note: features is called feature-placement now" in capsys.readouterr().err


def test_a_run_of_the_release_before_is_read(tmp_path):
    trainer = {"features": "partitioned", "edge_weights": True, "edge_features": False, "hidden": 7}
    (tmp_path / "run.json").write_text(json.dumps({"trainer": trainer, "sampler": {"edge_weights": True}}))
    run = read_run_json(tmp_path, "trainer")
    assert run["sampler"] == {"edge_weights": True}, "that of the sampler is another option"
    wanted = {"feature_dim": 3, "num_classes": 2}
    spec = from_json(run["trainer"] | wanted, TrainerSpec, "run.json")
    assert (spec.feature_placement, spec.use_edge_weights, spec.use_edge_features) == ("partitioned", True, False)
