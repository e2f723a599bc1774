"""The search of `cohort tune` against costs that are known: it ends near the best, in time, and asks nothing twice."""

import itertools
import math
import random

import pytest

from cohort_gnn.launch.tune.search import Axis, Space, TimeBound, Tried, best, explore

GRID = [Axis("cache_ratio", (1.1, 0.5, 0.1, 0.0)), Axis("sampler_sms", (8, 16, 32, 64))]
REST = [Axis("slots", (3, 4, 6)), Axis("reuse", ("on", "off")), Axis("compress", ("none", "cache", "host", "both"))]
START = {"cache_ratio": 0.0, "sampler_sms": 32, "slots": 3, "reuse": "on", "compress": "both"}


def separable(point) -> float:
    fetch = {0.0: 0.30, 0.1: 0.22, 0.5: 0.16, 1.1: 0.15}[point["cache_ratio"]]
    train = {8: 0.05, 16: 0.02, 32: 0.03, 64: 0.07}[point["sampler_sms"]]
    return fetch + train + 0.01 * abs(point["slots"] - 4) + 0.05 * (point["reuse"] == "off")


def coupled(point) -> float:
    """An epoch is what is slower: fetching, by the SMs that do, or the trainer, which has the others."""
    bytes_read = (1.2 - point["cache_ratio"]) * (0.6 if point["compress"] == "both" else 1.0)
    bytes_read *= (1 - 0.04 * point["slots"]) if point["reuse"] == "on" else 1.0
    fetch = bytes_read * (0.15 + 2.0 / point["sampler_sms"])
    train = 0.15 * 132 / (132 - point["sampler_sms"]) + 0.03 * point["cache_ratio"] ** 2
    return max(fetch, train) + 0.1 * min(fetch, train)


def points_of(axes: list[Axis]) -> list[dict]:
    return [
        dict(zip((axis.name for axis in axes), values, strict=True))
        for values in itertools.product(*(a.values for a in axes))
    ]


def forever() -> TimeBound:
    return TimeBound(1e9, clock=lambda: 0.0)


@pytest.mark.parametrize("axes", [GRID, GRID + REST], ids=["grid", "all"])
@pytest.mark.parametrize("cost", [separable, coupled])
@pytest.mark.parametrize(
    "first", [START, START | {"cache_ratio": 1.1, "sampler_sms": 64, "slots": 6, "compress": "none"}]
)
def test_the_search_ends_within_5_percent_of_the_best(axes, cost, first):
    least = min(cost(START | point) for point in points_of(axes))
    for seed in range(50):
        noise = random.Random(seed)
        start = START | {axis.name: first[axis.name] for axis in axes}
        tried = explore(
            Space(axes), start, lambda point, noise=noise: cost(point) * noise.uniform(0.99, 1.01), forever()
        )
        assert cost(best(tried).point) <= 1.05 * least
        assert len({str(each.point) for each in tried}) == len(tried) <= sum(2 * len(axis.values) for axis in axes) + 6
        assert tried[0].point == start


def tried_by(cost) -> list[tuple]:
    return [
        (each.point["cache_ratio"], each.point["sampler_sms"]) for each in explore(Space(GRID), START, cost, forever())
    ]


def test_a_second_round_looks_where_others_have_gained():
    ratios, sms = [(0.0, 32), (1.1, 32), (0.5, 32), (0.1, 32)], (8, 16, 64)
    last = [(1.1, 16), (0.5, 16), (0.1, 16)]  # larger caches with fewer SMs
    assert tried_by(lambda point: 1.0) == [*ratios, *((0.0, each) for each in sms), *last], "nothing has gained"
    by_ratio = tried_by(lambda point: 9.0 - point["cache_ratio"])
    assert by_ratio == [*ratios, *((1.1, each) for each in sms), (0.5, 64), (0.1, 64), (0.0, 64)]
    by_sms = tried_by(lambda point: 1.0 + point["sampler_sms"])
    assert by_sms[: 4 + 3 + 3] == [*ratios, *((0.0, each) for each in sms), (1.1, 8), (0.5, 8), (0.1, 8)], "again"


def test_a_larger_cache_is_tried_with_fewer_sms():
    """Where each alone costs more."""
    costs = {(0.1, 16): 0.9, (0.5, 8): 0.8}  # from (ratio, SMs)

    def cost(point):
        at = point["cache_ratio"], point["sampler_sms"]
        return costs.get(at, 1.0 + abs(at[0] - 0.1) + 0.01 * abs(at[1] - 16))

    assert (0.5, 8) in tried_by(cost)


def test_what_does_not_fit_fails_or_is_the_same_is_left_out():
    def fits(point):
        return point["cache_ratio"] < 1

    def cost(point):
        return math.inf if point["sampler_sms"] == 8 else 1 / point["sampler_sms"]

    def same(point):
        return point | {"sampler_sms": min(32, point["sampler_sms"])}

    tried = explore(Space(GRID, fits, same), START, cost, forever())
    found = [(each.point["cache_ratio"], each.point["sampler_sms"]) for each in tried]
    assert found == [(0.0, 32), (0.5, 32), (0.1, 32), (0.0, 8), (0.0, 16), (0.5, 16), (0.1, 16)]
    assert best(tried).point["sampler_sms"] == 32 and best([Tried({}, math.inf)]) is None and best([]) is None


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([(32, 0.1, 3, 1.0), (16, 0.5, 6, 1.019)], 1),  # fewer SMs first
        ([(32, 0.1, 3, 1.0), (16, 0.5, 6, 1.021)], 0),  # but not for more than 2 %
        ([(16, 0.5, 3, 1.0), (16, 0.1, 6, 1.01)], 1),  # then the smaller cache
        ([(16, "auto", 3, 1.0), (16, 1.1, 6, 1.01)], 1),
        ([(16, [0.1, 0.5], 3, 1.0), (16, 0.2, 6, 1.01)], 1),
        ([(16, 0.1, 4, 1.0), (16, 0.1, 3, 1.01), (16, 0.1, 6, 0.995)], 1),  # then fewer slots
        ([(16, 0.1, 3, 1.01), (16, 0.1, 3, 1.0)], 1),  # then time
    ],
)
def test_ties_go_to_what_takes_less(points, expected):
    names = ("sampler_sms", "cache_ratio", "slots")
    tried = [Tried(dict(zip(names, values, strict=False)), values[-1]) for values in points]
    assert best(tried) is tried[expected]


@pytest.mark.parametrize(
    ("durations", "seconds", "num_trials"),
    [
        ([10] * 99, 95, 9),
        ([10] * 99, 100, 10),
        ([10, 40, 10, 10, 10, 10], 115, 5),  # 80 s are gone then, and 35 are left: the next may take 40
        ([10, 40, 10, 10, 10], 89, 2),  # 39 are left
        ([200], 100, 1),
    ],
)
def test_no_trial_is_begun_that_would_not_end_in_time(durations, seconds, num_trials):
    now = [1000.0]
    remaining = iter(durations)

    def measure(_point):
        now[0] += next(remaining)
        return 1.0

    tried = explore(Space(GRID + REST), START, measure, TimeBound(seconds, clock=lambda: now[0]))
    assert len(tried) == num_trials
