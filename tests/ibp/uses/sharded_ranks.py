"""What each rank of sharded_rows_test.py does; it answers through a file."""

import json
import os
import time
import traceback
import weakref

import numpy as np
import torch
import torch.distributed as dist

from cohort_gnn import CohortError, ShardedRows, ibp

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16, "uint8": torch.uint8}


def table(dtype: str, num_rows: int = 700, dim: int = 36) -> torch.Tensor:
    """The rows that the ranks share out, the same on all of them."""
    values = torch.randn(num_rows, dim, generator=torch.Generator().manual_seed(3))
    values[values.abs() < 0.3] = 0
    return (values.abs() * 20).to(torch.uint8) if dtype == "uint8" else values.to(DTYPES[dtype])


def encoded(rows: torch.Tensor, codec: str, layout: str, place: str = "cpu") -> ibp.EncodedRows:
    return ibp.encode(rows, ibp.fit(rows, codec), layout=layout).to(place)


def same(rows: torch.Tensor, expected: torch.Tensor) -> bool:
    bits = [each.cpu().contiguous().view(torch.uint8) for each in (rows, expected)]
    return rows.dtype == expected.dtype and rows.shape == expected.shape and torch.equal(*bits)


def forms_of(part: torch.Tensor, device: str) -> list:
    """The rows of a rank, plain and encoded, where the device reads them."""
    places = ["cpu", "cpu"] if device == "cpu" else ["pinned", "cuda"]
    if len(part) == 0:
        return [part.to(device)] * 4
    codec = "sparse" if part.dtype == torch.uint8 else "exponent"
    return [
        part.to(device),
        encoded(part, "auto", "packed", places[0]),
        encoded(part, "raw", "slots", places[1]),
        encoded(part, codec, "slots", places[1]),
    ]


def every_form(rank: int, size: int, device: str = "cpu") -> dict:
    """Fetches of all forms, dtypes and wires, against the whole table."""
    cases = [(dtype, number, wire) for dtype in DTYPES for number in range(4) for wire in ("stored", "raw")]
    if device != "cpu":  # a group of NCCL takes seconds to begin
        cases = [("float32", number, "stored") for number in range(4)]
        cases += [("float32", 3, "raw"), ("bfloat16", 3, "stored"), ("uint8", 3, "stored")]
    draw, checked = np.random.default_rng(rank), 0
    for dtype, number, wire in cases:
        whole = table(dtype)
        cuts = [0, *np.sort(np.random.default_rng(5).integers(0, len(whole), size - 1)), len(whole)]
        if device == "cpu":
            cuts[1] = 0  # rank 0 has no rows
        forms = forms_of(whole[cuts[rank] : cuts[rank + 1]], device)  # ranks hold their rows in forms of their own
        rows = ShardedRows(forms[(number + rank) % len(forms)], wire=wire, device=device)
        assert rows.shape == tuple(whole.shape) and rows.dtype == whole.dtype
        assert rows.bounds.tolist() == [int(cut) for cut in cuts]
        counts = (0, 1, 300 * rank, 500)
        for count in counts:
            ids = torch.from_numpy(draw.integers(0, len(whole), count))
            found = rows.fetch(ids.to(device) if count % 2 == 0 else ids)
            assert found.device.type == device and same(found, whole[ids]), (dtype, number, wire, count)
            checked += 1
        stats = rows.stats()
        assert stats.own_rows + stats.remote_rows == sum(counts)
        rows.close()
    return {"checked": checked, "expected": 4 * len(cases)}


def every_dtype(rank: int, size: int, device: str = "cpu") -> dict:
    """Bytes as numbers of each dtype of torch, from ranks whose rows are plain and encoded."""
    bytes_of = torch.randint(0, 256, (90, 48), dtype=torch.uint8, generator=torch.Generator().manual_seed(3))
    floats = [torch.float64, torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2]
    integers = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64]
    checked = []
    for dtype in floats + integers + [torch.bool]:
        whole = bytes_of.remainder(2).bool() if dtype == torch.bool else bytes_of.view(dtype)
        held = whole[rank * 50 : rank * 50 + 50]
        if rank == 1 and (dtype.itemsize in (1, 4, 8)):
            held = encoded(held, "auto", "packed")
        rows = ShardedRows(held)
        assert same(rows.fetch([3, 80, 3, 51]), whole[[3, 80, 3, 51]]), dtype
        rows.close()
        checked.append(str(dtype))
    return {"checked": checked}


def owners(rank: int, size: int, device: str = "cpu") -> dict:
    """Rows that lie anywhere, fetched ahead, into memory of the caller, and by several loops at once."""
    os.environ["NCCL_P2P_DISABLE"] = "1"  # they are not read in place
    whole = table("float32")
    ranks = np.random.default_rng(1).integers(0, size, len(whole)).astype(np.uint8)
    places = np.zeros(len(whole), np.int64)
    for each in range(size):
        mine = np.flatnonzero(ranks == each)[::-1]
        places[mine] = np.arange(len(mine))
    own = whole[np.flatnonzero(ranks == rank)[::-1].copy()]
    held = encoded(own, "exponent", "auto", device)
    rows = ShardedRows(held, owner=(ranks, torch.from_numpy(places)), device=device)
    batches = [torch.randperm(len(whole))[: 50 + 10 * rank] for _ in range(6)]
    pending = [rows.start(ids) for ids in batches]
    assert all(same(each.wait(), whole[ids]) for ids, each in zip(batches, pending, strict=True))
    out = torch.empty(70, whole.shape[1], device=device)
    ids = torch.arange(70, dtype=torch.int32) * 3
    assert rows.fetch(ids, out) is out and same(out, whole[ids.long()])
    stats = rows.stats()
    raw = (stats.remote_rows * whole.shape[1]) * 4
    assert 0 < stats.received_bytes < raw, "encoded rows are smaller"
    rows.close()
    return vars(stats)


def in_place(rank: int, size: int, device: str = "cpu") -> dict:
    """Rows that GPUs read where they lie: no rank waits for another, and what is open stays."""
    draw, checked = np.random.default_rng(rank), 0
    cases = [("float32", "exponent", "packed"), ("float32", "planes", "slots"), ("float32", "raw", "slots")]
    cases += [("bfloat16", "exponent", "slots"), ("uint8", "sparse", "packed")]
    for dtype, codec, layout in cases:
        whole = table(dtype)
        part = whole[len(whole) * rank // size : len(whole) * (rank + 1) // size]
        held = encoded(part, codec, layout, device)  # each by a profile of its own
        rows = ShardedRows(held, device=device)
        del held
        assert rows._peers is not None
        for count in (0, 1, 300 * rank, 500) + 3 * rank * (40,):  # not equally often
            ids = torch.from_numpy(draw.integers(0, len(whole), count)).to(device)
            assert same(rows.fetch(ids), whole[ids.cpu()]), (dtype, codec, count)
            checked += 1
        drawn = [torch.from_numpy(draw.integers(0, len(whole), count)) for count in (700, 20, 90)]
        begun = [rows.start(ids.to(device)) for ids in drawn]
        for ids, pending in reversed(list(zip(drawn, begun, strict=True))):
            assert same(pending.wait(), whole[ids]), (dtype, codec, "begun")
        checked += 1
        out = torch.zeros((2, whole.shape[1]), dtype=whole.dtype, device=device)
        dist.barrier()
        if rank == 0:
            for wrong in ([len(whole)], [3, -1]):
                try:
                    rows.fetch(wrong)
                except CohortError as error:
                    assert f"expected ids in [0, {len(whole)})" in str(error)
                    checked += 1
            assert vars(rows.stats())["received_bytes"] == 0 < rows.stats().remote_rows
            rows.close()
            del rows
        dist.barrier()
        if rank > 0:  # rank 0 has given up its rows
            assert rows.fetch([0, len(whole) - 1], out) is out and same(out, whole[[0, -1]])
            rows.close()
        dist.barrier()
    return {"checked": checked, "expected": len(cases) * (5 + 3 * rank + 2 * (rank == 0))}


def wrong(rank: int, size: int, device: str = "cpu") -> dict:
    """Errors that all ranks see; a fetch after them works."""
    told, whole = {}, table("float32")
    part = whole[rank * 100 : (rank + 1) * 100]
    try:
        ShardedRows(part[:, : 36 - rank])
    except CohortError as error:
        told["dim"] = str(error)
    try:
        ShardedRows(part, owner=(np.zeros(5, int), np.arange(5) * 30))
    except CohortError as error:
        told["owner"] = str(error)
    rows = ShardedRows(part)
    for ids in ([5, 100 * size if rank == 1 else 7], [-1 if rank == 0 else 3]):
        try:
            rows.fetch(ids)
        except CohortError as error:
            told.setdefault("ids", []).append(str(error))
    assert same(rows.fetch([rank, 99]), whole[[rank, 99]])
    for out in (torch.empty(4, 36), torch.empty(36, 3).t()):
        try:
            rows.fetch(torch.arange(99, 102), out)
        except CohortError as error:
            told.setdefault("out", []).append(str(error))
    assert same(rows.fetch([rank, 101]), whole[[rank, 101]])
    needs_grad = torch.empty(2, 36, requires_grad=True)
    for out in (np.empty((2, 36), np.float32), needs_grad):
        try:
            rows.fetch([rank, 101], out)
        except CohortError as error:
            told.setdefault("out", []).append(str(error))
    with torch.no_grad():
        assert rows.fetch([rank, 101], needs_grad) is needs_grad and same(needs_grad, whole[[rank, 101]])
    with torch.inference_mode():
        assert same(rows.fetch([rank, 101], torch.empty(2, 36)), whole[[rank, 101]])
    assert not ShardedRows(part.clone().requires_grad_()).fetch([rank, 101]).requires_grad
    rows.close()
    try:
        rows.fetch([rank])
    except CohortError as error:
        told["closed"] = str(error)
    return told


def again(rank: int, size: int, device: str = "cpu") -> dict:
    """Rows after rows, one rank later than the other, with the names of groups that torch 2.11 gives."""
    world = dist.distributed_c10d

    def name_of(ranks) -> str:
        return f"{'_'.join(map(str, ranks))} of {len(world._world.pg_names)}"

    world._hash_ranks_to_str = name_of
    groups = []
    for number in range(3):
        rows = ShardedRows(table("float32")[rank * 100 : (rank + 1) * 100], timeout_s=5)
        other = ShardedRows(torch.arange(6).view(3, 2) + 6 * rank, timeout_s=5)
        assert same(rows.fetch([3, 150]), table("float32")[[3, 150]])
        assert other.fetch([0, 5]).tolist() == [[0, 1], [10, 11]]
        groups.append([each._group.group_name for each in (rows, other)])
        rows.close()
        other.close()
        time.sleep(1 if rank == number % 2 else 0)
    return {"groups": groups}


def ended(rank: int, size: int, device: str = "cpu") -> dict:
    """Groups of closed rows end with the script's own, not as the interpreter ends, where they would abort it."""
    rows = ShardedRows(table("float32")[rank * 100 : (rank + 1) * 100])
    rows.fetch([3, 150])
    group = weakref.ref(rows._group)
    rows.close()
    rows.close()
    kept = group() is not None
    dist.destroy_process_group()
    return {"kept": kept, "lives": group() is not None}


def gone(rank: int, size: int, device: str = "cpu") -> dict:
    """The last rank ends, or stops to fetch, in the middle."""
    rows = ShardedRows(table("float32")[rank * 100 : (rank + 1) * 100].to(device), timeout_s=5, device=device)
    rows.fetch([1, 2])
    if rank == size - 1 and device == "cpu":
        os._exit(0)
    if rank == size - 1:  # the others have its counts, and wait for its ids
        rows._all_to_all = lambda *_: os._exit(0)
    start, told = time.monotonic(), []
    for _ in range(2):
        try:
            rows.fetch([3, 150])
        except CohortError as error:
            told.append(str(error))
    return {"told": told, "seconds": time.monotonic() - start}


def missing(rank: int, size: int, device: str = "cpu") -> dict:
    if rank == size - 1:
        time.sleep(6)
        return {}
    try:
        ShardedRows(table("float32"), timeout_s=2)
    except CohortError as error:
        return {"told": str(error)}
    return {}


def late(rank: int, size: int, device: str = "cpu") -> dict:
    rows = ShardedRows(table("float32")[rank * 100 : (rank + 1) * 100], timeout_s=2)
    if rank == size - 1:
        time.sleep(6)
        return {}
    try:
        rows.fetch([1])
    except CohortError as error:
        return {"told": str(error)}
    return {}


def run(rank: int, size: int, folder: str, what: str, device: str = "cpu") -> None:
    if device == "cuda":
        torch.cuda.set_device(rank % torch.cuda.device_count())
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size)
    try:
        answer = globals()[what](rank, size, device)
    except Exception:
        answer = {"failed": traceback.format_exc()}
    with open(f"{folder}/{rank}.json", "w") as file:
        json.dump(answer, file)
    os._exit(0)  # without waiting for ranks that are gone
