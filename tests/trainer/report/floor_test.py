"""The least time of an epoch: each bound, computed by hand."""

import itertools
import math
import time
from types import SimpleNamespace

import pytest
import torch

from cohort_gnn.spec.results import TIERS, EpochReport
from cohort_gnn.trainer.report import floor as floor_module
from cohort_gnn.trainer.report.floor import LowerBound

LINKS = [1000e9, 400e9, 50e9]


def slot(edges: int, sample_us: float, fetch_us: float = 0.0, **read: tuple[int, int, float]):
    """`read`: (rows, bytes, seconds) by tier."""
    tiers = [read.get(tier, (0, 0, 0.0)) for tier in TIERS]
    edges_of_hops = [edges // 2, edges - edges // 2]
    return SimpleNamespace(num_sampled_edges=edges_of_hops, sample_us=sample_us, fetch_us=fetch_us, row_tiers=tiers)


def epoch_of(edges: int, seeds: int, host_bytes: int = 0, peer_bytes: int = 0, list_bytes: int = 0) -> EpochReport:
    epoch = EpochReport(0, seconds=2.0, num_edges=edges, num_seeds=seeds)
    epoch.row_tiers["host"]["bytes"], epoch.row_tiers["peer"]["bytes"] = host_bytes, peer_bytes
    epoch.list_tiers["host"]["bytes"] = list_bytes
    return epoch


@pytest.fixture
def on_gpu() -> LowerBound:
    floor = LowerBound(torch.device("cuda"), LINKS)
    for each in (slot(1000, 500.0), slot(2000, 800.0), slot(0, 3.0)):  # the second is the fastest an edge
        floor.add(each)
    floor.step_seconds = 0.010
    return floor


def test_each_part_and_the_largest_of_them(on_gpu):
    found = on_gpu.bounds(epoch_of(10_000_000, 2500, int(90e9), int(100e9), int(10e9)), batch_size=100, num_ranks=1)
    assert found["trainer"] == pytest.approx(0.25) and found["sampler"] == pytest.approx(4.0)
    assert found["pcie"] == pytest.approx(2.0) and found["nvlink"] == pytest.approx(0.25)
    assert found["bottleneck"] == "sampler" and found["seconds"] == found["sampler"]


def test_those_who_share_sms_are_told_what_they_take_in_turns(on_gpu):
    epoch = epoch_of(10_000_000, 2500)
    alone, sharing = (on_gpu.bounds(epoch, 100, 1, shares_sms) for shares_sms in (False, True))
    assert sharing == alone | {"in_turns": pytest.approx(4.25)}, "no bound: the floor is what it was"


def test_ranks_share_the_work_and_have_links_of_their_own(on_gpu):
    epoch = epoch_of(10_000_000, 5000, int(100e9))
    epoch.ranks = [vars(epoch_of(0, 0, int(75e9))), vars(epoch_of(0, 0, int(25e9)))]
    found = on_gpu.bounds(epoch, batch_size=100, num_ranks=2)
    assert found["trainer"] == pytest.approx(0.25) and found["sampler"] == pytest.approx(2.0)
    assert found["pcie"] == pytest.approx(1.5), "of the rank that reads most"


def test_a_rank_without_edges_takes_what_the_others_have_seen():
    idle, busy = LowerBound(torch.device("cpu"), None), LowerBound(torch.device("cpu"), None)
    busy.add(slot(1000, 500.0))
    busy.step_seconds = 0.5
    epoch = epoch_of(2000, 10)
    assert idle.bounds(epoch, 10, 1)["sampler"] == 0, "nobody knows what an edge takes"
    idle.join([(each.step_seconds, each.sample_seconds_an_edge, (0, 0.0)) for each in (idle, busy)])
    assert idle.bounds(epoch, 10, 1)["sampler"] == pytest.approx(0.001) and idle.step_seconds == 0.5


def test_on_the_cpu_fetching_is_the_samplers_work_and_there_are_no_links():
    floor = LowerBound(torch.device("cpu"), LINKS)
    floor.add(slot(1000, 500.0, 500.0))
    found = floor.bounds(epoch_of(2000, 10, host_bytes=int(1e12)), batch_size=10, num_ranks=1)
    assert found["sampler"] == pytest.approx(0.002) and found["pcie"] == found["nvlink"] == 0
    assert found["bottleneck"] == "sampler"


def test_rows_from_a_disk_come_at_the_rate_of_the_drive_that_ranks_share():
    floor = LowerBound(torch.device("cpu"), None, disk_rows_per_second=500.0)
    floor.add(slot(1000, 500.0, fetch_us=9e6, disk=(10, 4480, 9.0)))  # other batches' rows were read meanwhile
    epoch = epoch_of(2000, 10)
    epoch.row_tiers["disk"]["rows"] = 3000
    found = floor.bounds(epoch, batch_size=10, num_ranks=2)
    assert found["disk"] == found["seconds"] == pytest.approx(6.0) and found["bottleneck"] == "disk"
    assert found["sampler"] == pytest.approx(0.0005)


def test_rows_of_other_machines_come_at_the_rate_of_the_network_that_ranks_share(on_gpu):
    of_ranks = [epoch_of(0, 0, int(10e9)), epoch_of(0, 0), epoch_of(0, 0)]
    for each, received in zip(of_ranks, (int(1e9), int(1.5e9), int(2e9)), strict=True):
        each.row_tiers["remote"]["bytes"] = received
    epoch = epoch_of(2000, 10)
    epoch.ranks = [vars(each) for each in of_ranks]
    assert on_gpu.bounds(epoch, batch_size=10, num_ranks=3)["network"] == 0, "nobody has measured it"
    on_gpu.join([(0.01, 4e-7, machine) for machine in ((0, 1e-9), (1, 0.0), (0, 1.1e-9))])
    found = on_gpu.bounds(epoch, batch_size=10, num_ranks=3)
    assert found["network"] == found["seconds"] == pytest.approx(2.5) and found["bottleneck"] == "network"
    assert found["pcie"] == pytest.approx(0.22), "they come to the GPU over the link, too"
    of_ranks[2].row_tiers["remote"]["bytes"] = int(3e9)
    assert on_gpu.bounds(epoch, 10, 3)["network"] == pytest.approx(3.3), "of the machine that takes longest"


@pytest.fixture
def clock(monkeypatch):
    """The time, which only steps move: clock[0]."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    return now


def test_the_fastest_steps_count(on_gpu, clock):
    took = iter([0.36, 0.012, 0.012] + [0.008] + [0.004] * 2 + [0.012] * 5 + [0.016] * 100)
    calls = itertools.count()

    def step() -> None:
        next(calls)
        clock[0] += next(took)

    assert on_gpu.time_step(step) == pytest.approx(0.004)
    of_groups = [1, 2, 5, 5, 5]  # of 0.02 seconds, if all are as fast as the fastest before
    assert next(calls) == floor_module.WARM_UP_STEPS["cuda"] + sum(of_groups) and len(of_groups) == floor_module.GROUPS


@pytest.mark.parametrize(("seconds", "trained", "count"), [(5.0, math.inf, 2), (0.5, 9.0, 2), (0.5, 11.0, 3)])
def test_slow_steps_are_timed_fewer_times(clock, seconds, trained, count):
    def step() -> None:
        clock[0] += seconds

    assert LowerBound(torch.device("cpu"), None).time_step(step, trained) == seconds
    assert clock[0] == count * seconds


@pytest.mark.parametrize(("device", "steps"), [("cpu", 1), ("cuda", floor_module.MOST_STEPS)])
def test_fast_steps_are_timed_so_often_that_what_is_around_them_does_not_count(clock, device, steps):
    calls = itertools.count()

    def step() -> None:
        next(calls)
        clock[0] += 1e-6

    LowerBound(torch.device(device), None).time_step(step)
    assert next(calls) == floor_module.WARM_UP_STEPS[device] + floor_module.GROUPS * steps
