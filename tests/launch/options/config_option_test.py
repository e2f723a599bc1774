"""--config: files of options that cannot be read."""

from pathlib import Path

import pytest

from cohort_gnn import CohortError
from cohort_gnn.launch.options.parser import read_config
from cohort_gnn.spec.options import options_of
from cohort_gnn.spec.run import RunSpec


def test_a_file_that_is_not_there_is_named_once(tmp_path: Path) -> None:
    with pytest.raises(CohortError) as error:
        read_config(tmp_path / "no.toml", {})
    assert error.value.found == "No such file or directory" and str(error.value).count("no.toml") == 1


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("batchsize = 5", "did you mean batch-size?"),
        ("[train]\nepochs = 5", "write the options without the line [train]"),
        ("overwrite = true", "pass --overwrite on the command line"),
        ("resume = 'runs/a'", "pass --resume on the command line"),
        ("xyzzy = 5", "options have the names of the command's --help, without --"),
    ],
)
def test_an_unknown_option_is_told_what_may_be_meant(tmp_path, text, hint):
    (tmp_path / "run.toml").write_text(text)
    with pytest.raises(CohortError) as error:
        read_config(tmp_path / "run.toml", {each.name: each for each in options_of(RunSpec)})
    assert (error.value.found, error.value.hint) == ("an unknown option", hint)


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("batch-size = 5\nbatch_size = 6", "batch_size", "batch-size once"),
        ("gpu = '0'\ngpus = '1'", "gpus", "gpus once"),
        ("features = 'auto'\nfeature-placement = 'replicated'", "feature-placement", "feature-placement once"),
    ],
)
def test_an_option_under_two_names_is_refused(tmp_path, text, name, expected):
    (tmp_path / "run.toml").write_text(text)
    with pytest.raises(CohortError) as error:
        read_config(tmp_path / "run.toml", {each.name: each for each in options_of(RunSpec)})
    assert error.value.place == f"{tmp_path / 'run.toml'}: {name}" and error.value.expected == expected
