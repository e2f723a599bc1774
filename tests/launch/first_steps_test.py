"""What somebody meets who uses Cohort for the first time: names that are there, and refusals before anything starts."""

import subprocess
import sys
import warnings

import pytest
from processes import cohort

from cohort.dataset import open as open_dataset
from cohort.trainer.loader_arguments import ids_of


@pytest.mark.parametrize("name", ["nn.SAGEConv", "dataset.open", "ibp.fetch"])
def test_packages_come_with_cohort(name):
    """In a process of its own: here others have imported them."""
    code = f"import cohort; print(cohort.{name}.__name__)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == name.partition(".")[2], result.stderr


def test_a_name_that_there_is_not_is_an_attribute_error():
    import cohort as package

    with pytest.raises(AttributeError, match="no attribute 'nowhere'"):
        package.nowhere  # noqa: B018 (the access is what is tested)


def test_splits_of_a_data_set_are_seeds_without_a_warning(cora):
    data = open_dataset(cora)
    assert not data.train_ids.flags.writeable
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ids_of(data.train_ids, data.num_nodes).tolist() == data.train_ids.tolist()


@pytest.mark.parametrize("command", ["train", "plan", "digest"])
def test_too_few_slots_are_refused_by_the_command_line(cora, command):
    result = cohort(command, cora, "--slots", 1)
    assert result.returncode == 2 and "--slots: expected 2 to 64, found 1" in result.stderr


def test_a_source_or_run_that_is_not_there_is_named(tmp_path):
    result = cohort("dataset", "import", tmp_path / "none", tmp_path / "out")
    assert result.returncode == 1 and "none: expected a file or folder to import, found no such file" in result.stderr
    result = cohort("train", "--resume", tmp_path / "none")
    assert (
        result.returncode == 1
        and "run.json: expected what cohort train has written, found no such file" in result.stderr
    )


def test_the_bar_of_a_run_that_is_done_is_full(cora, tmp_path, shm):
    result = cohort("train", cora, "--device", "cpu", "--fanout", "2", "--hidden", 4, "--epochs", 2, "--out", tmp_path)
    assert "epoch 2/2" in result.stdout and "100%" in result.stdout, result.stderr
