"""Folders that runs and tunings have for themselves."""

import pytest

from cohort_gnn.base.errors import CohortError
from cohort_gnn.launch import main
from cohort_gnn.launch.run import folder as run_folder


def test_names_that_are_not_given_are_not_shared(tmp_path):
    folders = [run_folder.new_folder(tmp_path / "runs" / "cora-1200") for _ in range(3)]
    assert [folder.name for folder in folders] == ["cora-1200", "cora-1200-2", "cora-1200-3"]
    (tmp_path / "file").touch()
    with pytest.raises(CohortError, match="file/run: expected a folder that can be written"):
        run_folder.new_folder(tmp_path / "file" / "run")
    (tmp_path / "disk").symlink_to(tmp_path / "not-mounted")
    with pytest.raises(CohortError, match="disk/run: expected a folder that can be written"):
        run_folder.new_folder(tmp_path / "disk" / "run")


def test_a_folder_that_a_tuning_works_in_is_left_alone(cora, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(run_folder, "LOCK_SECONDS", 0.2)
    with run_folder.sole_use(tmp_path):
        assert main.main(["tune", str(cora), "--device", "cpu", "--fanout", "4,3", "--out", str(tmp_path)]) == 1
    assert f"{tmp_path}: expected a folder that no other run uses" in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []
