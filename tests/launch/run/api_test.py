"""cohort.train: the command from Python."""

import json
import threading

import numpy as np
import pytest

import cohort_gnn as cohort
from cohort_gnn import CohortError
from cohort_gnn.dataset import open as open_dataset

SMALL = {"device": "cpu", "fanout": [4, 3], "hidden": 8, "batch_size": 512, "epochs": 2, "quiet": True}


def test_a_run_gives_its_summary_and_its_model(cora, tmp_path):
    summary = cohort.train(open_dataset(cora), tmp_path / "run", **SMALL)
    assert summary == json.loads((tmp_path / "run/summary.json").read_text()) and len(summary["epochs"]) == 2
    assert len(cohort.load_model(tmp_path / "run").convs) == 2
    with pytest.raises(CohortError):
        cohort.train(cora, tmp_path / "run", **SMALL)  # a run is there
    again = cohort.train(cora, tmp_path / "run", overwrite=True, **SMALL)
    assert [each["loss"] for each in again["epochs"]] == [each["loss"] for each in summary["epochs"]]


def test_a_run_is_continued(cora, tmp_path):
    whole = cohort.train(cora, tmp_path / "whole", **SMALL | {"epochs": 3})
    cohort.train(cora, tmp_path / "run", **SMALL)
    more = cohort.train(cora, tmp_path / "run", resume=True, epochs=3, quiet=True)
    assert [each["loss"] for each in more["epochs"]] == [each["loss"] for each in whole["epochs"]]
    with pytest.raises(CohortError, match="--hidden: expected 8, as .*run.json has it, found 16"):
        cohort.train(cora, tmp_path / "run", resume=True, hidden=16)
    with pytest.raises(CohortError, match="expected resume or overwrite, found both"):
        cohort.train(cora, tmp_path / "run", resume=True, overwrite=True)


@pytest.mark.parametrize(
    ("options", "place", "found"),
    [
        ({"model": "sage", "heads": 3}, "--heads", "--model sage"),
        ({"batchsize": 5}, "cohort.train: batchsize", "an unknown one"),
        ({"batch_size": 0}, "cohort.train: batch_size", "0"),
        ({"callbacks": [print]}, "cohort.train: callbacks", "[<built-in function print>]"),
        ({"callbacks": "own:Log"}, "cohort.train: callbacks", "'own:Log'"),
        ({"model": "gat", "hidden": 30}, "--hidden", "30"),
    ],
)
def test_options_are_checked(cora, tmp_path, options, place, found):
    with pytest.raises(CohortError) as error:
        cohort.train(cora, tmp_path / "run", **SMALL | options)
    assert (error.value.place, error.value.found) == (place, found) and not (tmp_path / "run").exists()


def test_files_among_the_options_may_be_paths(cora, tmp_path):
    np.save(tmp_path / "weights.npy", np.ones(open_dataset(cora).num_classes))
    summary = cohort.train(cora, tmp_path / "run", **SMALL, class_weights=tmp_path / "weights.npy")
    assert summary["loss_name"] == f"cross entropy, class weights {tmp_path / 'weights.npy'}"
    with pytest.raises(CohortError, match="cohort.train: out: expected a folder for results and logs, found None"):
        cohort.train(cora, None, **SMALL)


def test_a_graph_in_memory_is_no_data_set(cora, tmp_path):
    with pytest.raises(
        CohortError, match=r"data: expected the folder of a data set, or a Dataset, found Data\n.*from_pyg"
    ):
        cohort.train(open_dataset(cora).to_pyg(), tmp_path / "run", **SMALL)


def test_a_run_that_fails_is_an_error(cora, tmp_path, capfd):
    with pytest.raises(CohortError) as error:
        cohort.train(cora, tmp_path / "run", **SMALL, callbacks=["json:JSONDecoder"])
    assert error.value.found == "exit code 1" and "json:JSONDecoder" in capfd.readouterr().err


def test_another_thread_gets_no_signals(cora, tmp_path):
    errors = []

    def try_it():
        try:
            cohort.train(cora, tmp_path / "run", **SMALL)
        except CohortError as error:
            errors.append(error)

    thread = threading.Thread(target=try_it, name="second")
    thread.start()
    thread.join()
    assert errors[0].found == "second"
