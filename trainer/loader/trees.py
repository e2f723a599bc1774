"""Disjoint and temporal batches: checks the arguments of a loader."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import StoredGraph
from cohort_gnn.dataset.arrays import TIMES_HINT, edge_times
from cohort_gnn.spec.graph import GraphTypes
from cohort_gnn.spec.types import Span, checked
from cohort_gnn.trainer.loader.arguments import is_set
from cohort_gnn.trainer.loader.hetero import canonical
from cohort_gnn.trainer.loader.state import digest_of

Strategy = Literal["uniform", "last"]


@dataclass(frozen=True)
class TreeOptions:
    """How the seeds of a batch share its nodes.

    Attributes:
        disjoint: each seed is the root of a tree with nodes of its own.
        time_attr: what the times of edges are called; None: edges of any time are drawn.
        latest: of edges up to a seed's time, the latest are drawn.
        time_window: how much older than its seed an edge may be, in the unit of the times: one number, or one for some
            edge types by name; None: edges of any age are drawn.
    """

    disjoint: bool = False
    time_attr: str | None = None
    latest: bool = False
    time_window: int | Mapping | None = None

    def fields(self, replace: bool) -> dict:
        """Of requests (channel/request.h). ``replace``: edges are drawn with replacement."""
        draw = "last" if self.latest else "replaced" if replace else "uniform"
        return {"disjoint": self.disjoint, "draw": draw}

    def arguments(self) -> dict:
        """The arguments of a loader with these options."""
        strategy = "last" if self.latest else "uniform"
        return {
            "disjoint": self.disjoint,
            "time_attr": self.time_attr,
            "temporal_strategy": strategy,
            "time_window": self.time_window,
        }

    def identity(self, times: np.ndarray | None) -> dict:
        """The options and times that determine the batches, as text; empty where seeds share nodes."""
        if not self.disjoint:
            return {}
        digest = None if times is None else digest_of(times)
        return {"sharing": "latest" if self.latest else "disjoint", "input_time": digest}

    def checked_times(self, input_time, num_seeds: int, place: str = "input_time") -> np.ndarray | None:
        """The argument of this name, int64 [num_seeds].

        Raises:
            CohortError: there is none, or one that does not fit the seeds.
        """
        seed_kind = "input node" if place == "input_time" else "pair"
        expected = f"integers [{num_seeds}], the time of each {seed_kind}"
        if self.time_attr is None:
            if input_time is not None:
                raise CohortError(place, "None without time_attr", "times", "say time_attr='edge_time' as well")
            return None
        if input_time is None:
            hint = f"a seed's tree has edges up to its {place} alone"
            raise CohortError(place, f"{expected}, with time_attr={self.time_attr!r}", "None", hint)
        try:
            times = input_time if isinstance(input_time, np.ndarray) else torch.as_tensor(input_time).cpu().numpy()
        except (TypeError, ValueError, RuntimeError) as error:
            raise CohortError(place, expected, str(error)[:200], TIMES_HINT) from error
        if times.shape != (num_seeds,):
            hint = "with a mask as input_nodes: input_time[mask]" if place == "input_time" else ""
            raise CohortError(place, expected, f"shape {list(times.shape)}", hint)
        return edge_times(place, times)


def windows_of(types: GraphTypes, time_window) -> list[int]:
    """[edge types]: the window of each, as requests have them (channel/request.h); empty: none has one.

    Raises:
        CohortError: a window is no integer of at least 0, or that of an edge type that there is not.
    """
    if time_window is None:
        return []
    if not isinstance(time_window, Mapping):
        return [checked("time_window", time_window, Span)] * len(types.edge_types)
    windows = dict.fromkeys(types.edge_types, -1)
    for name, window in time_window.items():
        edge_type = canonical(types, name)
        if edge_type not in windows:
            expected = f"windows of {', '.join(map(str, types.edge_types))}"
            raise CohortError("time_window", expected, f"one of {name}")
        windows[edge_type] = checked(f"time_window[{name!r}]", window, Span)
    return list(windows.values())


def demand_times(data: StoredGraph, trees: TreeOptions, windows: list[int]) -> None:
    """Raises CohortError: an edge type that is named with a window has no times. ``windows``: see `windows_of`."""
    if not isinstance(trees.time_window, Mapping):
        return
    for (name, relation), window in zip(data.edge_types.items(), windows, strict=True):
        if window >= 0 and relation.edge_times is None:
            hint = "leave it out: edges without times are always there"
            raise CohortError(f"time_window[{name!r}]", "edges with times", "none", hint)


def tree_options(disjoint, time_attr, temporal_strategy, time_window=None) -> TreeOptions:
    """Of the arguments of a loader; times make batches disjoint, as in PyG.

    Raises:
        CohortError: they are none, or contradict each other.
    """
    if time_attr is not None:
        checked("time_attr", time_attr, str)
    strategy = checked("temporal_strategy", getattr(temporal_strategy, "value", temporal_strategy), Strategy)
    if strategy != "uniform" and time_attr is None:
        raise CohortError(
            "temporal_strategy", "'uniform' without time_attr", repr(strategy), "say time_attr='edge_time'"
        )
    if time_window is not None and time_attr is None:
        raise CohortError("time_window", "None without time_attr", repr(time_window), "say time_attr='edge_time'")
    disjoint = is_set("disjoint", disjoint) or time_attr is not None
    return TreeOptions(disjoint, time_attr, strategy == "last", time_window)


def demand_draws_offered(
    trees: TreeOptions, replace: bool, cache_ratio, weight_attr, sampling: str = "neighbor"
) -> None:
    """Raises CohortError: disjoint batches, or draws with replacement or by layers, do not fit these arguments."""
    checked("replace", replace, bool)
    if sampling == "labor":
        demand_shared(trees, "sampling='labor'")
        if replace:
            hint = "layer sampling draws each neighbour once: leave one of the two arguments out"
            raise CohortError("replace", "False, with sampling='labor'", "True", hint)
    if weight_attr is not None:
        demand_shared(trees, "draws by weight_attr")
    if replace and (weight_attr is not None or trees.latest):
        by = 'weight_attr="edge_weight"' if weight_attr is not None else 'temporal_strategy="last"'
        hint = "only uniform draws have replacement: leave one of the two arguments out"
        raise CohortError("replace", f"False, with {by}", "True", hint)
    if (trees.disjoint or replace) and isinstance(cache_ratio, str):
        what = "disjoint batches" if trees.disjoint else "draws with replacement"
        hint = f"slots take more memory for {what}: say cache_bytes or a number"
        raise CohortError("cache_ratio", f"a number, for {what}", repr(cache_ratio), hint)


def demand_shared(trees: TreeOptions, where: str) -> None:
    """Raises CohortError: disjoint batches are not offered there."""
    if trees.time_attr is not None:
        raise CohortError("time_attr", f"None, for {where}", repr(trees.time_attr))
    if trees.disjoint:
        raise CohortError("disjoint", f"False, for {where}", "True")
