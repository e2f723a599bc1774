"""Counts for the cache, of data sets whose folder cannot be written."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from cohort_gnn import CohortError
from cohort_gnn.base.files import user_cache
from cohort_gnn.cache.options import cache_members, presample
from cohort_gnn.cache.planner import load_counts
from cohort_gnn.spec.run import SamplerSpec


def test_they_are_kept_in_the_users_cache_folder(read_only):
    before = sorted(read_only.iterdir())
    first = presample(read_only, [4, 3], 64, 10)
    assert not first["reused"] and Path(first["file"]).parent.parent == user_cache()
    assert sorted(read_only.iterdir()) == before
    again = presample(read_only, [4, 3], 64, 10)
    assert again["reused"] and again["file"] == first["file"]
    assert not presample(read_only, [5, 3], 64, 10)["reused"]


def test_those_that_the_data_set_has_are_used(cora, read_only):
    made = Path(presample(cora, [4, 3], 64, 10)["file"])
    shutil.copy(made, read_only)
    found = presample(read_only, [4, 3], 64, 10)
    assert found["reused"]
    np.testing.assert_array_equal(load_counts(Path(found["file"])).node_reads, load_counts(made).node_reads)


def test_all_who_read_the_data_set_can_read_them(cora, tmp_path):
    shutil.copytree(cora, tmp_path / "data")
    (tmp_path / "data" / "meta.json").chmod(0o644)
    before = os.umask(0o077)
    try:
        made = presample(tmp_path / "data", [2, 2], 64, 3)
    finally:
        os.umask(before)
    assert Path(made["file"]).stat().st_mode & 0o777 == 0o644


def test_without_a_folder_that_is_an_error(read_only, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/nowhere")
    with pytest.raises(CohortError, match="counts that are kept there: set XDG_CACHE_HOME"):
        presample(read_only, [4, 3], 64, 10)


def test_a_cache_needs_features(tmp_path):
    meta = {"version": 3, "nodes": [{"type": "user", "count": 3}], "edges": [], "target": {"num_classes": 2}}
    (tmp_path / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(CohortError, match="expected features to cache, found none in"):
        cache_members(SamplerSpec(cache_ratio=[0.5]), tmp_path, 1, on_gpu=False)
