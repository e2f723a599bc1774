"""cohort.ShardedRows: bit-equal to the table that one rank would hold, and errors that reach all ranks."""

import json

import pytest
import torch.multiprocessing
from processes import ALL_TESTS
from sharded_ranks import run

from cohort_gnn import CohortError, ShardedRows, ibp

TWO_GPUS = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="a GPU for each of two ranks"),
]


def answers(folder, what: str, size: int, device: str = "cpu") -> list[dict]:
    """What each rank answers; {} of one that has gone."""
    torch.multiprocessing.spawn(run, (size, str(folder), what, device), nprocs=size)
    files = [folder / f"{rank}.json" for rank in range(size)]
    found = [json.loads(file.read_text()) if file.exists() else {} for file in files]
    failed = [each["failed"] for each in found if "failed" in each]
    assert not failed, failed[0]
    return found


@pytest.mark.parametrize(
    ("size", "device"), [(2, "cpu"), *[(4, "cpu")] * ALL_TESTS, pytest.param(2, "cuda", marks=TWO_GPUS)]
)
def test_rows_of_every_form_come_as_they_are(tmp_path, size, device):
    assert all(each["checked"] == each["expected"] > 0 for each in answers(tmp_path, "every_form", size, device))


def test_rows_of_every_dtype_come_as_they_are(tmp_path):
    assert all(len(each["checked"]) == 13 for each in answers(tmp_path, "every_dtype", 2))


@pytest.mark.parametrize(("size", "device"), [(3, "cpu"), pytest.param(2, "cuda", marks=TWO_GPUS)])
def test_rows_may_lie_anywhere_and_be_fetched_ahead(tmp_path, size, device):
    found = answers(tmp_path, "owners", size, device)
    for rank, stats in enumerate(found):
        assert stats["own_rows"] + stats["remote_rows"] == 6 * (50 + 10 * rank) + 70
    sent, received = (sum(stats[f"{way}_bytes"] for stats in found) for way in ("sent", "received"))
    assert sent == received


@pytest.mark.gpu
@pytest.mark.parametrize("size", [2, 3])
def test_gpus_read_rows_of_each_other_in_place(tmp_path, size):
    assert all(each["checked"] == each["expected"] for each in answers(tmp_path, "in_place", size, "cuda"))


def test_all_ranks_are_told_what_one_did_wrong(tmp_path):
    first, second = answers(tmp_path, "wrong", 2)
    for told in (first, second):
        assert (
            "rank 1: expected rows of 36 x torch.float32 for cpu, as rank 0 has, found 35 x torch.float32 for cpu"
            in told["dim"]
        )
        assert "owner of id 4: expected a rank below 2 and a position among its rows" in told["owner"]
        *shapes, of_numpy, with_grad = told["out"]
        assert "out: expected a tensor on cpu, found ndarray" in of_numpy
        assert "out: expected a tensor without gradients, found one with gradients" in with_grad
        assert "expected a fetch before close(), found a fetch after it" in told["closed"]
        for text, found in zip(shapes, ("[4, 36]", "[3, 36], not contiguous"), strict=True):
            expected = "a contiguous CPU tensor torch.float32 [3, 36]"
            assert f"out: expected {expected}, found cpu torch.float32 {found}" in text
    assert "rank 1: expected ids in [0, 200), found one out of range" in first["ids"][0]
    assert "rank 1: expected ids in [0, 200), found 200" in second["ids"][0]
    assert "rank 0: expected ids in [0, 200), found -1" in first["ids"][1]
    assert "rank 0: expected ids in [0, 200), found one out of range" in second["ids"][1]


@pytest.mark.parametrize(("size", "device"), [(3, "cpu"), pytest.param(2, "cuda", marks=TWO_GPUS)])
def test_a_rank_that_has_gone_ends_the_others(tmp_path, size, device):
    *left, _ = answers(tmp_path, "gone", size, device)
    for rank, each in enumerate(left):
        assert each["seconds"] < 20 and len(each["told"]) == 2, "the second fetch fails at once"
        expected = f"rank {rank}: expected its part of an exchange from all {size} ranks within 5 s"
        assert expected in each["told"][0]


def test_groups_of_closed_rows_are_used_again(tmp_path):
    first, second = answers(tmp_path, "again", 2)
    assert first == second and first["groups"] == 3 * [first["groups"][0]]


def test_groups_end_with_the_scripts_own(tmp_path):
    assert answers(tmp_path, "ended", 2) == 2 * [{"kept": True, "lives": False}]


def test_a_rank_that_makes_no_rows_is_not_waited_for(tmp_path):
    first, _ = answers(tmp_path, "missing", 2)
    assert "ShardedRows: expected all 2 ranks within 2 s" in first["told"]


def test_a_rank_that_is_late_is_not_waited_for(tmp_path):
    first, _ = answers(tmp_path, "late", 2)
    assert "expected its part of an exchange from all 2 ranks within 2 s" in first["told"]


def test_refuses_devices_that_are_not_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(CohortError, match="device: expected a GPU that torch can use, found no GPU"):
        ShardedRows(torch.zeros(3, 2), device="cuda")
    with pytest.raises(CohortError, match="device: expected cpu or a GPU, found meta"):
        ShardedRows(torch.zeros(3, 2), device="meta")


@pytest.mark.gpu
def test_refuses_rows_that_its_gpu_cannot_read():
    rows = torch.zeros(3, 2)
    for given in (rows, ibp.encode(rows, ibp.fit(rows))):
        with pytest.raises(CohortError, match="ShardedRows: rows: expected .* cuda:0"):
            ShardedRows(given, device="cuda:0")


def test_refuses_to_start_alone():
    with pytest.raises(CohortError, match="expected an initialized process group, found no process group"):
        ShardedRows(torch.zeros(3, 2))
    with pytest.raises(
        CohortError, match="ShardedRows: rows: expected EncodedRows, or a tensor or array, found a Table"
    ):
        ShardedRows(ibp.Table(torch.zeros(3, 2)))
    with pytest.raises(CohortError, match="wire: expected stored or raw, found 'zip'"):
        ShardedRows(torch.zeros(3, 2), wire="zip")
    with pytest.raises(CohortError, match=r"rows: expected a dense tensor, found a tensor of layout torch.sparse_coo"):
        ShardedRows(torch.eye(3).to_sparse())
    for timeout, said in ((-1, "seconds above 0, found -1"), (float("nan"), "seconds above 0"), ("a", "a number")):
        with pytest.raises(CohortError, match=f"ShardedRows: timeout_s: expected {said}"):
            ShardedRows(torch.zeros(3, 2), timeout_s=timeout)
