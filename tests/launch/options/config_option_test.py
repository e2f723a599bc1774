"""--config: files of options that cannot be read."""

from pathlib import Path

import pytest

from cohort_gnn import CohortError
from cohort_gnn.launch.options.parser import read_config


def test_a_file_that_is_not_there_is_named_once(tmp_path: Path) -> None:
    with pytest.raises(CohortError) as error:
        read_config(tmp_path / "no.toml", {})
    assert error.value.found == "No such file or directory" and str(error.value).count("no.toml") == 1
