"""The search of ``cohort tune``: what to try next, and which of what was tried is best. It starts no runs."""

import contextlib
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

CLEAR_GAIN = 0.02  # costs that differ by less are equal: runs of the same options differ as much
ROUNDS = 2

Point = dict  # {option: value}, with a value for each option that is varied


class Axis(NamedTuple):
    """An option that is varied, and its values in the order in which they are tried."""

    name: str
    values: tuple


class Tried(NamedTuple):
    """What a point has cost; math.inf where the trial failed."""

    point: Point
    cost: float


@dataclass(frozen=True)
class Space:
    """What can be tried.

    Attributes:
        axes: in the order in which they are looked at.
        fits: False for points that are not worth a trial, since there is no memory for them.
        same_as: the representative of all points with the same meaning; equal points are tried once.
    """

    axes: list[Axis]
    fits: Callable[[Point], bool] = lambda point: True
    same_as: Callable[[Point], Point] = lambda point: point


class TimeBound:
    """How long all trials may take.

    Args:
        seconds: of all trials; they begin now.
        clock: seconds since some moment.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic):
        self.seconds, self._clock, self._begin = seconds, clock, clock()
        self.slowest = 0.0  # of the trials so far, in seconds

    @property
    def left(self) -> float:
        return self.seconds - (self._clock() - self._begin)

    def allows_another(self, count: int = 1) -> bool:
        """Whether so many trials as slow as the slowest so far would end in time."""
        return self.left > 0 and count * self.slowest <= self.left

    @contextlib.contextmanager
    def timing(self):
        """Takes the time of the trial inside."""
        begin = self._clock()
        yield
        self.slowest = max(self.slowest, self._clock() - begin)


class _TimeIsOver(Exception):
    """Another trial might not end in time."""


def explore(space: Space, start: Point, measure: Callable[[Point], float], bound: TimeBound) -> list[Tried]:
    """Measures `start`, then what promises to be cheaper, until nothing does or the time is over; all that was tried.

    Coordinate by coordinate: all values of an axis at the cheapest point so far. The second round looks again at those
    axes since whose first look others have gained something clear: fewer SMs may have made a cache worth its while. In
    the end larger caches are tried with fewer SMs, and smaller ones with more: either alone may cost more.
    """
    walk = _Walk(space, measure, bound)
    with contextlib.suppress(_TimeIsOver):
        walk.try_all([start])
        cost_at_last_look = {axis.name: math.inf for axis in space.axes}
        for _ in range(ROUNDS):
            for axis in space.axes:
                cheapest = walk.cheapest
                if cheapest.cost < cost_at_last_look[axis.name] * (1 - CLEAR_GAIN):
                    walk.try_all(cheapest.point | {axis.name: value} for value in axis.values)
                    cost_at_last_look[axis.name] = walk.cheapest.cost
        cost_before = math.inf
        while walk.cheapest.cost < cost_before * (1 - CLEAR_GAIN):
            cost_before = walk.cheapest.cost
            walk.try_all(_trades(space.axes, walk.cheapest.point))
    return walk.tried


class _Walk:
    """What was tried so far."""

    def __init__(self, space: Space, measure: Callable[[Point], float], bound: TimeBound):
        self._space, self._measure, self._bound = space, measure, bound
        self.tried: list[Tried] = []
        self._seen: set[tuple] = set()

    @property
    def cheapest(self) -> Tried:
        return min(self.tried, key=lambda trial: trial.cost)

    def try_all(self, points: Iterable[Point]) -> None:
        """Measures those points that fit and are new."""
        for point in points:
            key = tuple(sorted((name, str(value)) for name, value in self._space.same_as(point).items()))
            if key in self._seen or self.tried and not self._space.fits(point):
                continue
            if self.tried and not self._bound.allows_another():
                raise _TimeIsOver
            self._seen.add(key)
            with self._bound.timing():
                self.tried.append(Tried(point, self._measure(point)))


def _trades(axes: list[Axis], point: Point) -> list[Point]:
    """The point with the next fewer SMs and no smaller caches, and with the next more SMs and smaller caches."""
    values = {axis.name: axis.values for axis in axes}
    if not {"cache_ratio", "sampler_sms"} <= values.keys():
        return []
    size, sms = size_of_ratio(point["cache_ratio"]), num_sms(point["sampler_sms"])
    fewer = max((count for count in values["sampler_sms"] if num_sms(count) < sms), key=num_sms, default=None)
    more = min((count for count in values["sampler_sms"] if num_sms(count) > sms), key=num_sms, default=None)
    trades = [(ratio, fewer if size_of_ratio(ratio) >= size else more) for ratio in values["cache_ratio"]]
    return [point | {"cache_ratio": ratio, "sampler_sms": count} for ratio, count in trades if count is not None]


def best(tried: list) -> Any:
    """The cheapest of what has a `point` and its `cost`, as Tried; of those that are equal, the one that takes the
    least of the GPU. None when all failed."""
    lowest = min((trial.cost for trial in tried), default=math.inf)
    if lowest == math.inf:
        return None
    near = [trial for trial in tried if trial.cost <= lowest * (1 + CLEAR_GAIN)]

    def taken(point: Point) -> tuple[float, float, float]:  # what the point takes of the GPU
        return num_sms(point.get("sampler_sms")), size_of_ratio(point.get("cache_ratio")), point.get("slots") or 0

    return min(near, key=lambda trial: (*taken(trial.point), trial.cost))


def num_sms(sampler_sms: int | None) -> float:
    """SMs that the sampler may take; 0 and None: all."""
    return sampler_sms or math.inf


def size_of_ratio(ratio: float | list[float] | str | None) -> float:
    """A cache ratio as a number: the mean of several GPUs' ratios; infinity for "auto", which is all that is left."""
    if isinstance(ratio, list):
        return sum(ratio) / len(ratio)
    return math.inf if isinstance(ratio, str) else ratio or 0.0
