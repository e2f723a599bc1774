"""A data set without some of its links, which are held out to validate and test models that predict links."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from cohort_gnn.base.distinct import distinct, is_among
from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset.columns import FILE as COLUMNS
from cohort_gnn.dataset.components import FILE as COMPONENTS
from cohort_gnn.dataset.links import HELD_OUT, HeldOut, LinkEdges, link_edges, save_links
from cohort_gnn.dataset.meta import META, array_files
from cohort_gnn.dataset.original_ids import FILE as IDS
from cohort_gnn.dataset.original_ids import RENAMED
from cohort_gnn.dataset.reader import open as open_dataset
from cohort_gnn.dataset.reverses import warn_of_opposites
from cohort_gnn.dataset.stored_graph import StoredGraph
from cohort_gnn.dataset.tasks import FOLDER as TASKS
from cohort_gnn.dataset.treatment import FILE as TREATMENT
from cohort_gnn.dataset.writer import demand_no_problem, output_folder, unreplaced
from cohort_gnn.spec.graph import EdgeType
from cohort_gnn.spec.meta import by_type, read_meta
from cohort_gnn.spec.types import checked_arguments

REDRAWS = 8  # of a negative that is an edge
NEGATIVES_AT_ONCE = 1 << 20
# Of a data set, beside those of its meta.json: the ids of nodes, what its columns and classes are, and what the import
# did to its edges, which is true of those that stay.
OTHER_FILES = (f"*{RENAMED}", f"*{IDS}", COLUMNS, COMPONENTS, TREATMENT)


@checked_arguments
def split_links(
    source: str | os.PathLike,
    out: str | os.PathLike,
    *,
    relation: str | None = None,
    shares: Sequence[float] = (0.05, 0.1),
    negatives: int = 100,
    by_time: bool = False,
    seed: int = 0,
    overwrite: bool = False,
) -> Path:
    """Writes a data set without some of the links, and these links beside it; returns its folder.

    A link is a pair of different nodes with an edge between them. All edges of a held-out link are removed, in both
    directions, so that the link is neither drawn as a neighbour nor used in training. Needs about 60 bytes of memory
    per edge, and 16 per negative of one part.

    With several node types, the links are the edges of one relation. The edges of held-out links are removed from the
    relation, and from all relations that have the same edges, in the other direction or in the same: those that the
    data set marks by ``reverse_of``, and those whose edges are exactly those of the other in the other direction. A
    relation within one node type that has no such reverse is treated as a graph of one node type. Warns of a relation
    that may be the reverse but has other edges, and about which the data set says nothing.

    Args:
        source: a data set with raw features.
        relation: of several, its name or "source:name:target"; None: the only one that is not the reverse of another.
        shares: of the links, for validation and for the test.
        negatives: K, the number of random targets that each held-out link competes with. They are drawn uniformly. A
            target to which the source has an edge is drawn again, at most 8 times. With `by_time`, this is an edge
            until the time of the link, and so is a target that does not exist then.
        by_time: hold out the latest links, by the time of the last edge of each: the test has the latest ones, and all
            of equal times are in one part. Their earlier edges, and edges from a node to itself from then on, are
            removed, too, so that all that is held out is later than all that stays. Otherwise links are held out at
            random.
        seed: of all random numbers.
        overwrite: replace an existing data set `out`.

    Raises:
        CohortError: for shares that hold out nothing or leave nothing, or data that cannot be split.
    """
    _demand_shares(shares, negatives, seed)
    if os.path.realpath(out) == os.path.realpath(source):
        hint = "choose another: the links that are held out would be lost"
        raise CohortError(str(out), "another folder than that of the data set", "the same", hint)
    with unreplaced(source) as demand_unreplaced:
        data = open_dataset(source)
        if any(table.x is None for table in (*data.feature_tables, *data.edge_tables)):
            hint = "split the data set before cohort dataset prepare"
            raise CohortError(str(source), "a data set with raw features", "only encoded ones", hint)
        edges, generator = link_edges(data, relation), np.random.default_rng(seed)
        _demand_not_averaged(edges)
        warn_of_opposites(data, edges.relation, "All its edges stay in the graph.")
        sources, targets = edges.endpoints()
        times = _times(edges) if by_time else None
        split_of_edge = _split_of_edges(edges, sources, targets, shares, generator, times)
        keys = edges.keys(sources, targets)
        every = _first_times(keys, times)
        with output_folder(out, overwrite) as folder:
            path = Path(folder.path)
            for number, split in enumerate(HELD_OUT, start=1):
                is_held = split_of_edge == number
                pairs = np.stack(np.divmod(distinct(keys[is_held]), edges.num_targets), axis=1)
                last = None if times is None else _last_times(edges, pairs, keys[is_held], times[is_held])
                others = _negatives(edges, pairs[:, 0], every, negatives, generator, last)
                save_links(path, split, HeldOut(pairs, others, times=last), edges)
            is_held = split_of_edge > 0
            kept = _kept_elsewhere(edges, distinct(edges.link_keys(sources[is_held], targets[is_held])))
            kept[edges.relation] = ~is_held
            _write_rest(data, path, Path(folder.out).name, kept)
            demand_unreplaced()
            demand_no_problem(out, path)
    return Path(out)


def _demand_shares(shares: Sequence[float], negatives: int, seed: int) -> None:
    actual = ",".join(f"{share:g}" for share in shares)
    if len(shares) != 2 or not all(share >= 0 for share in shares) or not 0 < sum(shares) < 1:
        expected = "the shares of validation and test, which add up to more than 0 and less than 1"
        raise CohortError("--shares", expected, actual, "for instance 0.05,0.1")
    if not 1 <= negatives <= 10_000:
        raise CohortError("--negatives", "an integer in [1, 10000]", str(negatives))
    if not 0 <= seed < 2**64:
        raise CohortError("--seed", "an integer in [0, 2^64)", str(seed))


def _demand_not_averaged(edges: LinkEdges) -> None:
    """Raises CohortError for features that are means over the links, those that are held out, too."""
    for entry in read_meta(edges.data.path)["nodes"]:
        over = tuple(entry.get("features", {}).get("derived", ()))
        if over in {relation for relation, _ in edges.there}:
            expected = f"features that are no means over the links of {', '.join(edges.relation)}"
            actual = f"those of {entry['type']}, which cohort dataset derive took over {over[1]}"
            hint = "split the data set before, and derive the features in the new one"
            raise CohortError(str(edges.data.path), expected, actual, hint)


def _times(edges: LinkEdges) -> np.ndarray:
    """int64 [E]: the time of each edge of the relation."""
    times = edges.data.edge_types[edges.relation].edge_times
    if times is None:
        raise CohortError(
            "--by-time", "edges with times", "edges without", "leave it out: links are held out at random"
        )
    return times


def _first_times(keys: np.ndarray, times: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """The different keys of edges, ascending, and the first time of each; without times 0."""
    if times is None:
        every = distinct(keys)
        return every, np.zeros(len(every), np.int64)
    every, number = np.unique(keys, return_inverse=True)
    first = np.full(len(every), np.iinfo(np.int64).max)
    np.minimum.at(first, number, times)
    return every, first


def _last_times(edges: LinkEdges, pairs: np.ndarray, keys: np.ndarray, times: np.ndarray) -> np.ndarray:
    """int64 [n]: when each of the pairs had its last edge. ``keys``, ``times``: of the edges that are held out."""
    last = np.full(len(pairs), np.iinfo(np.int64).min)
    np.maximum.at(last, np.searchsorted(edges.keys(*pairs.T), keys), times)  # pairs ascend, and so do their keys
    return last


def _split_of_edges(
    edges: LinkEdges,
    sources: np.ndarray,
    targets: np.ndarray,
    shares: Sequence[float],
    generator: np.random.Generator,
    times: np.ndarray | None,
) -> np.ndarray:
    """int8 [E]: 0 for an edge that stays, 1 for one of validation, 2 for one of the test, 3 for one that only goes.

    Args:
        times: int64 [E], by which the latest links are held out; None: they are drawn.
    """
    links, link_of_edge = np.unique(edges.link_keys(sources, targets), return_inverse=True)
    is_loop = links // edges.num_targets == links % edges.num_targets
    may_go = np.flatnonzero(~is_loop) if edges.is_within_one_type else np.arange(len(links))
    num_val, num_test = (round(share * len(may_go)) for share in shares)
    if num_val + num_test in (0, len(may_go)):
        actual = f"{num_val} and {num_test} of {len(may_go)}"
        raise CohortError("--shares", "at least one link held out and one left", actual, "other shares")
    split_of_link = np.zeros(len(links), np.int8)
    if times is None:
        held = generator.permutation(may_go)[: num_val + num_test]
        split_of_link[held[:num_val]], split_of_link[held[num_val:]] = 1, 2
    else:
        last = np.full(len(links), np.iinfo(np.int64).min)
        np.maximum.at(last, link_of_edge, times)
        ascending = np.sort(last[may_go])
        for number, count in {1: num_val + num_test, 2: num_test}.items():
            if count:
                split_of_link[last >= ascending[len(may_go) - count]] = number
        if edges.is_within_one_type:
            split_of_link[is_loop & (split_of_link > 0)] = 3
        if not np.any(split_of_link[may_go] == 0) or num_val and not np.any(split_of_link == 1):
            actual = "links of equal times, which are in one part"
            raise CohortError("--by-time", "times that divide the links into the parts", actual, "other shares")
    split_of_edge = split_of_link[link_of_edge]
    if times is not None:
        for number in (1, 2):
            own = split_of_edge == number
            split_of_edge[own & (times < last[split_of_link == number].min(initial=np.iinfo(np.int64).max))] = 3
    return split_of_edge


def _negatives(
    edges: LinkEdges,
    sources: np.ndarray,
    every: tuple[np.ndarray, np.ndarray],
    count: int,
    generator: np.random.Generator,
    times: np.ndarray | None,
) -> np.ndarray:
    """int64 [n, count]: nodes that are no targets of the sources.

    Args:
        every: keys of all edges, ascending, and the first time of each.
        times: int64 [n], until when edges count, and nodes exist; None: all.
    """
    drawn, (keys, first_times) = generator.integers(edges.num_targets, size=(len(sources), count)), every
    born = edges.data.node_types[edges.relation[2]].node_times

    def is_bad(places: np.ndarray) -> np.ndarray:
        own, others = places // count, drawn.reshape(-1)[places]
        drawn_keys = edges.keys(sources[own], others)
        place = np.searchsorted(keys, drawn_keys).clip(max=len(keys) - 1)
        bad = keys[place] == drawn_keys
        if times is not None:
            bad &= first_times[place] <= times[own]
        if times is not None and born is not None:
            bad |= born[others] > times[own]
        if edges.is_within_one_type:
            bad |= others == sources[own]
        return bad

    again = np.arange(drawn.size)
    for _ in range(REDRAWS):
        some = [again[first : first + NEGATIVES_AT_ONCE] for first in range(0, len(again), NEGATIVES_AT_ONCE)]
        again = np.concatenate([np.empty(0, np.int64), *(places[is_bad(places)] for places in some)])
        drawn.reshape(-1)[again] = generator.integers(edges.num_targets, size=len(again))
    return drawn


def _kept_elsewhere(edges: LinkEdges, held: np.ndarray) -> dict[EdgeType, np.ndarray]:
    """bool [E] of each other relation that has the links' edges: True for edges that stay, which are not held out.

    Args:
        held: int64, the keys of held-out links, ascending.
    """
    out: dict[EdgeType, np.ndarray] = {}
    for relation, is_reversed in edges.there:
        if relation != edges.relation and relation not in out:
            endpoints = edges.data.edge_types[relation].edge_index()[:: -1 if is_reversed else 1]
            out[relation] = ~is_among(edges.link_keys(*endpoints), held)
    return out


def _write_rest(data: StoredGraph, folder: Path, name: str, kept: dict[EdgeType, np.ndarray]) -> None:
    """Writes the data set with only the kept edges of some relations, and all edges of the others."""
    meta, changed = json.loads((data.path / META).read_text()) | {"name": name}, {}
    relations = dict(zip(data.edge_types, by_type(meta)["edges"], strict=True))
    for relation, described in relations.items():
        if (reverse := data.reverses[relation].reverse_of) is not None:
            described["reverse_of"] = list(relations).index(reverse)
    for relation, is_kept in kept.items():
        described, lists = relations[relation], data.edge_types[relation]
        described["count"] = int(is_kept.sum())
        changed[described["indptr"]] = np.concatenate([[0], np.cumsum(is_kept, dtype=np.int64)])[lists.indptr]
        for array in ("indices", "edge_weights", "edge_times"):
            if (values := getattr(lists, array)) is not None:
                changed[described[array]] = values[is_kept]
        if (rows := lists.edge_attr) is not None:
            changed[described["features"]["file"]] = rows[is_kept]
    if "num_edges" in meta:  # of versions 1 and 2
        meta["num_edges"] = sum(described["count"] for described in relations.values())
    _write_arrays(data.path, folder, array_files(meta), changed)
    (folder / META).write_text(json.dumps(meta, indent=2) + "\n")


def _write_arrays(source: Path, folder: Path, files: Iterable[str], changed: dict[str, np.ndarray]) -> None:
    """The arrays of a data set, some with other contents."""
    for file in (*files, *(path.name for pattern in OTHER_FILES for path in source.glob(pattern))):
        if file in changed:
            np.save(folder / file, changed[file])
        else:
            shutil.copyfile(source / file, folder / file)
    if (source / TASKS).is_dir():
        shutil.copytree(source / TASKS, folder / TASKS)
