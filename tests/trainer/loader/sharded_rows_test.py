"""cohort.ShardedRows: bit-equal to the table that one rank would hold, and errors that reach all ranks."""

import json

import pytest
import torch.multiprocessing
from sharded_ranks import run

from cohort_gnn import CohortError, ShardedRows


def answers(folder, what: str, size: int) -> list[dict]:
    """What each rank answers; {} of one that has gone."""
    torch.multiprocessing.spawn(run, (size, str(folder), what), nprocs=size)
    files = [folder / f"{rank}.json" for rank in range(size)]
    found = [json.loads(file.read_text()) if file.exists() else {} for file in files]
    failed = [each["failed"] for each in found if "failed" in each]
    assert not failed, failed[0]
    return found


@pytest.mark.parametrize("size", [2, 4])
def test_rows_of_every_form_come_as_they_are(tmp_path, size):
    assert [each["checked"] for each in answers(tmp_path, "every_form", size)] == [4 * 4 * 2 * 4] * size


def test_rows_may_lie_anywhere_and_be_fetched_ahead(tmp_path):
    found = answers(tmp_path, "owners", 3)
    for rank, stats in enumerate(found):
        assert stats["own_rows"] + stats["remote_rows"] == 6 * (50 + 10 * rank) + 70
    sent, received = (sum(stats[f"{way}_bytes"] for stats in found) for way in ("sent", "received"))
    assert sent == received


def test_all_ranks_are_told_what_one_did_wrong(tmp_path):
    first, second = answers(tmp_path, "wrong", 2)
    for told in (first, second):
        assert "rank 1: expected rows of 36 x torch.float32, as rank 0 has, found 35 x torch.float32" in told["dim"]
        assert "owner of id 4: expected a rank below 2 and a place among its rows" in told["owner"]
        for text, found in zip(told["out"], ("[4, 36]", "[3, 36], not contiguous"), strict=True):
            expected = "a contiguous CPU tensor torch.float32 [3, 36]"
            assert f"out: expected {expected}, found cpu torch.float32 {found}" in text
    assert "rank 1: expected ids in [0, 200), found one out of range" in first["ids"][0]
    assert "rank 1: expected ids in [0, 200), found 200" in second["ids"][0]
    assert "rank 0: expected ids in [0, 200), found -1" in first["ids"][1]
    assert "rank 0: expected ids in [0, 200), found one out of range" in second["ids"][1]


def test_a_rank_that_has_gone_ends_the_others(tmp_path):
    *left, _ = answers(tmp_path, "gone", 3)
    for rank, each in enumerate(left):
        assert each["seconds"] < 20 and len(each["told"]) == 2, "the second fetch fails at once"
        assert (
            f"ShardedRows: rank {rank}: expected its part of an exchange from all 3 ranks within 5 s" in each["told"][0]
        )


def test_a_rank_that_is_late_is_not_waited_for(tmp_path):
    first, _ = answers(tmp_path, "late", 2)
    assert "expected its part of an exchange from all 2 ranks within 2 s" in first["told"]


def test_refuses_to_start_alone():
    with pytest.raises(CohortError, match="expected a process group, found none"):
        ShardedRows(torch.zeros(3, 2))
    with pytest.raises(CohortError, match="wire: expected stored or raw, found 'zip'"):
        ShardedRows(torch.zeros(3, 2), wire="zip")
