"""Links that are held out of a graph, to validate and test models that predict links: arrays beside a data set."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cohort_gnn.base.distinct import distinct, is_among
from cohort_gnn.base.errors import CohortError, warn_user
from cohort_gnn.base.files import replacing
from cohort_gnn.base.spelling import did_you_mean
from cohort_gnn.dataset.array_file import map_array
from cohort_gnn.dataset.reader import open as open_dataset
from cohort_gnn.dataset.stored_graph import Relation, StoredGraph
from cohort_gnn.spec.graph import EdgeType
from cohort_gnn.spec.types import checked_arguments

HELD_OUT = ("val", "test")


@dataclass(frozen=True)
class HeldOut:
    """Links of one split, and the nodes that their targets compete with.

    Attributes:
        pairs: int64 [n, 2], source and target of each link.
        negatives: int64 [n, K], nodes that are no targets of the link's source; if ``shared``, int64 [m, 2], pairs with
            which each link competes.
        shared: all links compete with the same pairs.
        times: int64 [n], of each link, in the unit of the edges' times; None: not known.
    """

    pairs: np.ndarray
    negatives: np.ndarray
    shared: bool = False
    times: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class LinkEdges:
    """The edges that links are: those of one relation of a data set."""

    data: StoredGraph
    relation: EdgeType

    @property
    def lists(self) -> Relation:
        """The relation, with its indptr and indices."""
        return self.data.edge_types[self.relation]

    @property
    def num_sources(self) -> int:
        return self.data.node_types[self.relation[0]].num_nodes

    @property
    def num_targets(self) -> int:
        return self.data.node_types[self.relation[2]].num_nodes

    @functools.cached_property
    def there(self) -> list[tuple[EdgeType, bool]]:
        """The relations that have these edges, ``relation`` first, and whether in the other direction."""
        return self.data.same_edges(self.relation)

    @property
    def has_directions(self) -> bool:
        """Whether an edge and one in the other direction, in the same relation, are two links."""
        return (self.relation, True) not in self.there

    @property
    def is_within_one_type(self) -> bool:
        return self.relation[0] == self.relation[2]

    def endpoints(self) -> np.ndarray:
        """int64 [2, E]: sources and targets of the edges."""
        return self.lists.edge_index()

    def files(self, split: str, shared: bool = False) -> tuple[str, str]:
        """The names of the two arrays of a split; its negatives are those of a link, or ``shared``."""
        prefix = ".".join((*self.data.key_of(self.relation), split))
        return f"{prefix}_links.npy", f"{prefix}_{'negative_pairs' if shared else 'negatives'}.npy"

    def times_file(self, split: str) -> str:
        """The name of the array of the times of a split's links."""
        return f"{'.'.join((*self.data.key_of(self.relation), split))}_link_times.npy"

    def keys(self, sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """int64, as its arguments together: each pair as one number."""
        return sources * self.num_targets + targets

    def link_keys(self, sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """The same of the links that pairs are: both directions are one where links have no direction."""
        if not self.has_directions:
            sources, targets = np.minimum(sources, targets), np.maximum(sources, targets)
        return self.keys(sources, targets)


def link_edges(data: StoredGraph, relation: str | None = None) -> LinkEdges:
    """The edges among which the links of a data set are.

    Args:
        relation: its name or "source:name:target". None: the only one, or the one that has held-out links, or else the
            one that is no reverse of another.

    Raises:
        CohortError: there is none of that name, or more than one.
    """
    if relation is None:
        matches = with_held_out(data) or [
            type_ for type_, known in data.reverses.items() if known.reverse_of in (None, type_)
        ]
    else:
        matches = [edge_type_named(data, relation)]
    if len(matches) == 1:
        return LinkEdges(data, matches[0])
    raise _not_one("--relation", data, None, matches)


def edge_type_named(data: StoredGraph, relation: str, place: str = "--relation") -> EdgeType:
    """The edge type of this name, or "source:name:target".

    Raises:
        CohortError: there is none, or more than one.
    """
    matches = [type_ for type_ in data.edge_types if relation in (type_[1], ":".join(type_))]
    if len(matches) != 1:
        raise _not_one(place, data, relation, matches)
    return matches[0]


def _not_one(place: str, data: StoredGraph, relation: str | None, matches: list[EdgeType]) -> CohortError:
    candidates = ", ".join(":".join(type_) for type_ in matches or data.edge_types)
    expected = f"the name of one relation, or source:name:target: {candidates}"
    names = [":".join(type_) for type_ in data.edge_types] + [type_[1] for type_ in data.edge_types]
    hint = did_you_mean(relation, names) if relation and not matches else ""
    return CohortError(place, expected, "none" if relation is None else relation, hint)


def with_held_out(data: StoredGraph) -> list[EdgeType]:
    """The relations that have held-out links."""
    return [type_ for type_ in data.edge_types if (data.path / LinkEdges(data, type_).files("val")[0]).exists()]


def held_out(folder: str | os.PathLike, relation: str | None = None) -> dict[str, HeldOut]:
    """The held-out links of a data set, "val" and "test"; {} where it has none.

    Args:
        relation: of several, its name or "source:name:target"; None: the one that has held-out links.

    Raises:
        CohortError: the arrays are damaged, or do not fit each other or the data set.
    """
    data = open_dataset(folder)
    if relation is None and not with_held_out(data):
        return {}
    return held_out_of(link_edges(data, relation))


def held_out_of(edges: LinkEdges) -> dict[str, HeldOut]:
    """The held-out links among some edges; errors as of `held_out`."""
    folder = edges.data.path
    if not (folder / edges.files("val")[0]).exists():
        return {}
    held_out = {}
    for split in HELD_OUT:
        shared = (folder / edges.files(split, shared=True)[1]).exists()
        places = [folder / name for name in edges.files(split, shared)]
        for path in places:
            if not path.exists():
                hint = "cohort dataset split-links and cohort.dataset.write_links write it"
                raise CohortError(str(path), "int64 [n, m] node ids", "no such file", hint)
        arrays = [map_array(path) for path in places]
        times_file = folder / edges.times_file(split)
        held = HeldOut(arrays[0], arrays[1], shared, map_array(times_file) if times_file.exists() else None)
        held_out[split] = checked_links([str(path) for path in (*places, times_file)], held, edges)
    return held_out


@checked_arguments
def write_links(
    folder: str | os.PathLike,
    *,
    val: Sequence[Any],
    test: Sequence[Any],
    relation: str | None = None,
    shared: bool = False,
) -> None:
    """Writes held-out links of your own beside a data set, for instance those of a benchmark.

    Warns of links that are edges of the graph, because a model can read them from the graph.

    Args:
        folder: of a data set.
        val: (pairs, negatives): integers [n, 2], source and target, and [n, K], the nodes that each target competes
            with; torch or NumPy. Of several node types, ids of the relation's source type and target type.
        test: likewise.
        relation: of several, its name or "source:name:target".
        shared: negatives are pairs [m, 2], source and target, and every link competes with all of them.

    Raises:
        CohortError: they do not fit each other or the data set.
    """
    edges, held = link_edges(open_dataset(folder), relation), {}
    for split, parts in (("val", val), ("test", test)):
        arrays = [np.asarray(part) for part in parts]
        if not all(np.issubdtype(array.dtype, np.integer) for array in arrays):
            actual = ", ".join(str(array.dtype) for array in arrays)
            raise CohortError(split, "(pairs, negatives) of integers", actual)
        names = [f"{split}: {what}" for what in ("pairs", "negatives")]
        pairs, negatives = (array.astype(np.int64) for array in arrays)
        held[split] = checked_links(names, HeldOut(pairs, negatives, shared), edges)
    keys = distinct(edges.keys(*edges.endpoints()))
    for split, links in held.items():
        count = is_among(edges.keys(*links.pairs.T), keys).sum()
        if count:
            text = f"{count:,} of {len(links.pairs):,} {split} links are edges of the graph, where models see them"
            warn_user(f"{folder}: {text}")
        save_links(Path(folder), split, links, edges)


def save_links(folder: Path, split: str, held: HeldOut, edges: LinkEdges) -> None:
    """Writes the arrays of a split of links among the edges, in the place of earlier ones."""
    arrays = dict(zip(edges.files(split, held.shared), (held.pairs, held.negatives), strict=True))
    arrays |= {} if held.times is None else {edges.times_file(split): held.times}
    for name, array in arrays.items():
        with replacing(folder / name) as temporary, open(temporary, "wb") as file:
            np.save(file, array)
    for name in {edges.files(split, not held.shared)[1], edges.times_file(split)} - arrays.keys():
        (folder / name).unlink(missing_ok=True)


def checked_links(places: Sequence[str], held: HeldOut, edges: LinkEdges) -> HeldOut:
    """Checks links and returns them; `places`: the names of pairs, negatives and, if there are any, times in errors.

    Raises:
        CohortError: they do not fit each other or the nodes.
    """
    pairs, negatives = held.pairs, held.negatives
    times = held.times
    if times is not None and (times.dtype != np.int64 or times.shape != (len(pairs),)):
        raise CohortError(
            places[2], f"int64 [{len(pairs)}], the time of each link", f"{times.dtype} {list(times.shape)}"
        )
    for place, ids in zip(places[:2], (pairs, negatives), strict=True):
        if ids.dtype != np.int64 or ids.ndim != 2:
            raise CohortError(place, "int64 [n, m] node ids", f"{ids.dtype} {list(ids.shape)}")
    if pairs.shape[1] != 2:
        raise CohortError(places[0], "[n, 2] node ids", f"{list(pairs.shape)}")
    if held.shared and (negatives.shape[1] != 2 or len(negatives) == 0):
        raise CohortError(places[1], "[m, 2] node ids, with m of at least 1", f"{list(negatives.shape)}")
    if not held.shared and (len(negatives) != len(pairs) or negatives.shape[1] < 1):
        expected = f"[{len(pairs)}, K] node ids, with K of at least 1"
        raise CohortError(places[1], expected, f"{list(negatives.shape)}", "write the split again")
    pair_arrays = [(places[0], pairs)] + ([(places[1], negatives)] if held.shared else [])
    bounded = [(place, ids[:, 0], edges.num_sources) for place, ids in pair_arrays]
    bounded += [(place, ids[:, 1], edges.num_targets) for place, ids in pair_arrays]
    bounded += [] if held.shared else [(places[1], negatives, edges.num_targets)]
    for place, ids, bound in bounded:
        if ids.size and not 0 <= ids.min() <= ids.max() < bound:
            raise CohortError(place, f"node ids in [0, {bound})", f"{ids.min()} .. {ids.max()}")
    return held
