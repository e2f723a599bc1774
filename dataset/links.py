"""Links that are held out of a graph, to validate and test models that predict links: arrays beside a data set."""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cohort.base.errors import CohortError
from cohort.base.files import replacing
from cohort.dataset.array_file import map_array
from cohort.dataset.meta import META
from cohort.dataset.reader import Dataset, open_one_type
from cohort.dataset.writer import demand_no_problem, output_folder

HELD_OUT = ("val", "test")
REDRAWS = 8  # of a negative that is an edge
OTHER_FILES = ("id_of_node.npy",)  # of a data set, beside those of its meta.json


@dataclass(frozen=True)
class HeldOut:
    """Links of one split, and the nodes that their targets compete with.

    Attributes:
        pairs: int64 [n, 2], source and target of each link.
        negatives: int64 [n, K], nodes that are no targets of the link's source.
    """

    pairs: np.ndarray
    negatives: np.ndarray


def files_of(split: str) -> tuple[str, str]:
    """The names of the two arrays of a split."""
    return f"{split}_links.npy", f"{split}_negatives.npy"


def held_out(folder: str | os.PathLike) -> dict[str, HeldOut]:
    """The held-out links of a data set, "val" and "test"; {} where it has none.

    Raises:
        CohortError: the arrays are damaged, or do not fit each other or the data set.
    """
    folder = Path(folder)
    if not (folder / files_of("val")[0]).exists():
        return {}
    num_nodes = open_one_type(folder).num_nodes
    found = {}
    for split in HELD_OUT:
        places = [folder / name for name in files_of(split)]
        for path in places:
            if not path.exists():
                hint = "cohort dataset split-links and cohort.dataset.write_links write it"
                raise CohortError(str(path), "int64 [n, m] node ids", "no such file", hint)
        found[split] = _checked([str(path) for path in places], [map_array(path) for path in places], num_nodes)
    return found


def write_links(folder: str | os.PathLike, *, val: Sequence[Any], test: Sequence[Any]) -> None:
    """Writes held-out links of your own beside a data set, for instance those of a benchmark.

    Warns of links that are edges of the graph: messages tell of these.

    Args:
        folder: of a data set of one node type.
        val: (pairs, negatives): integers [n, 2], source and target, and [n, K], the nodes that each target competes
            with; torch or NumPy.
        test: likewise.

    Raises:
        CohortError: they do not fit each other or the data set.
    """
    data, held = open_one_type(folder), {}
    for split, given in (("val", val), ("test", test)):
        arrays = [np.asarray(each) for each in given]
        if not all(np.issubdtype(array.dtype, np.integer) for array in arrays):
            found = ", ".join(str(array.dtype) for array in arrays)
            raise CohortError(split, "(pairs, negatives) of integers", found)
        names = [f"{split}: {what}" for what in ("pairs", "negatives")]
        held[split] = _checked(names, [array.astype(np.int64) for array in arrays], data.num_nodes)
    edges = np.unique(_keys(*_edges_of(data), data.num_nodes))
    for split, links in held.items():
        count = np.isin(_keys(links.pairs[:, 0], links.pairs[:, 1], data.num_nodes), edges).sum()
        if count:
            text = f"{count:,} of {len(links.pairs):,} {split} links are edges of the graph: messages tell of them"
            warnings.warn(f"{folder}: {text}", stacklevel=2)
        for name, array in zip(files_of(split), (links.pairs, links.negatives), strict=True):
            with replacing(Path(folder) / name) as temporary, open(temporary, "wb") as file:
                np.save(file, array)


def _checked(places: Sequence[str], arrays: Sequence[np.ndarray], num_nodes: int) -> HeldOut:
    """Pairs and negatives, if they are; the places are what errors call them."""
    for place, ids in zip(places, arrays, strict=True):
        if ids.dtype != np.int64 or ids.ndim != 2:
            raise CohortError(place, "int64 [n, m] node ids", f"{ids.dtype} {list(ids.shape)}")
        if ids.size and not 0 <= ids.min() <= ids.max() < num_nodes:
            raise CohortError(place, f"node ids in [0, {num_nodes})", f"{ids.min()} .. {ids.max()}")
    pairs, negatives = arrays
    if pairs.shape[1] != 2:
        raise CohortError(places[0], "[n, 2] node ids", f"{list(pairs.shape)}")
    if len(negatives) != len(pairs) or negatives.shape[1] < 1:
        expected = f"[{len(pairs)}, K] node ids, with K of at least 1"
        raise CohortError(places[1], expected, f"{list(negatives.shape)}", "write the split again")
    return HeldOut(pairs, negatives)


def _edges_of(data: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """int64 [E] sources and targets."""
    targets = np.repeat(np.arange(data.num_nodes), np.diff(data.indptr))
    return data.indices.astype(np.int64), targets


def _keys(sources: np.ndarray, targets: np.ndarray, num_nodes: int) -> np.ndarray:
    """int64, as its arguments together: each pair as one number."""
    return sources * num_nodes + targets


def split_links(
    source: str | os.PathLike,
    out: str | os.PathLike,
    *,
    shares: Sequence[float] = (0.05, 0.1),
    negatives: int = 100,
    seed: int = 0,
    overwrite: bool = False,
) -> Path:
    """Writes a data set without some of the links, and these links beside it; returns its folder.

    A link is two different nodes with an edge between them. All edges of a held-out link are left out, in both
    directions, so that no message and no training pair tells of it. Needs about 60 bytes of memory per edge.

    Args:
        source: a data set of one node type with raw features.
        shares: of the links, for validation and for the test.
        negatives: K, how many nodes the target of a held-out link competes with: drawn uniformly among those to which
            its source has no edge, except that one that is still an edge after 8 more draws remains.
        seed: of all random numbers.
        overwrite: replace an existing data set `out`.

    Raises:
        CohortError: for shares that hold out nothing or leave nothing, or data that cannot be split.
    """
    _demand_shares(shares, negatives, seed)
    data = open_one_type(source)
    if data.x is None:
        hint = "split the data set before cohort dataset prepare"
        raise CohortError(str(source), "a data set with raw features", "only encoded ones", hint)
    generator = np.random.default_rng(seed)
    sources, targets = _edges_of(data)
    split_of_edge = _split_of_edges(sources, targets, data.num_nodes, shares, generator)
    edges = np.unique(_keys(sources, targets, data.num_nodes))
    with output_folder(out, overwrite) as folder:
        path = Path(folder.path)
        for number, split in enumerate(HELD_OUT, start=1):
            is_held = split_of_edge == number
            pairs = np.unique(np.stack([sources[is_held], targets[is_held]], axis=1), axis=0)
            others = _negatives(pairs[:, 0], edges, data.num_nodes, negatives, generator)
            for name, array in zip(files_of(split), (pairs, others), strict=True):
                np.save(path / name, array)
        _write_rest(data, path, Path(folder.out).name, split_of_edge == 0)
        demand_no_problem(out, path)
    return Path(out)


def _demand_shares(shares: Sequence[float], negatives: int, seed: int) -> None:
    told = ",".join(f"{share:g}" for share in shares)
    if len(shares) != 2 or not all(share >= 0 for share in shares) or not 0 < sum(shares) < 1:
        expected = "the shares of validation and test, which add up to more than 0 and less than 1"
        raise CohortError("--shares", expected, told, "for instance 0.05,0.1")
    if not 1 <= negatives <= 10_000:
        raise CohortError("--negatives", "an integer in [1, 10000]", str(negatives))
    if not 0 <= seed < 2**64:
        raise CohortError("--seed", "an integer in [0, 2^64)", str(seed))


def _split_of_edges(
    sources: np.ndarray, targets: np.ndarray, num_nodes: int, shares: Sequence[float], generator: np.random.Generator
) -> np.ndarray:
    """int8 [E]: 0 for an edge that stays, 1 for one of validation, 2 for one of the test."""
    low, high = np.minimum(sources, targets), np.maximum(sources, targets)
    links, link_of_edge = np.unique(_keys(low, high, num_nodes), return_inverse=True)
    may_go = np.flatnonzero(links // num_nodes != links % num_nodes)
    num_val, num_test = (round(share * len(may_go)) for share in shares)
    if num_val + num_test in (0, len(may_go)):
        found = f"{num_val} and {num_test} of {len(may_go)}"
        raise CohortError("--shares", "at least one link held out and one left", found, "other shares")
    held = generator.permutation(may_go)[: num_val + num_test]
    split_of_link = np.zeros(len(links), np.int8)
    split_of_link[held[:num_val]], split_of_link[held[num_val:]] = 1, 2
    return split_of_link[link_of_edge]


def _negatives(
    sources: np.ndarray, edges: np.ndarray, num_nodes: int, count: int, generator: np.random.Generator
) -> np.ndarray:
    """int64 [n, count]: nodes that are no targets of the sources. `edges`: _keys of all, ascending."""
    drawn = generator.integers(num_nodes, size=(len(sources), count))
    for _ in range(REDRAWS):
        keys = _keys(sources[:, None], drawn, num_nodes)
        place = np.searchsorted(edges, keys).clip(max=len(edges) - 1)
        is_bad = (edges[place] == keys) | (drawn == sources[:, None])
        if not is_bad.any():
            break
        drawn[is_bad] = generator.integers(num_nodes, size=int(is_bad.sum()))
    return drawn


def _write_rest(data: Dataset, folder: Path, name: str, is_kept: np.ndarray) -> None:
    """The data set with those edges alone."""
    meta = json.loads((data.path / META).read_text())
    files = meta["files"]
    kept_before = np.concatenate([[0], np.cumsum(is_kept, dtype=np.int64)])
    changed = {"indptr": kept_before[data.indptr], "indices": data.indices[is_kept]}
    if data.edge_weights is not None:
        changed["edge_weights"] = data.edge_weights[is_kept]
    for array, file in files.items():
        if array in changed:
            np.save(folder / file, changed[array])
        else:
            shutil.copyfile(data.path / file, folder / file)
    for file in OTHER_FILES:
        if (data.path / file).exists():
            shutil.copyfile(data.path / file, folder / file)
    members = meta | {"name": name, "num_edges": int(is_kept.sum())}
    (folder / META).write_text(json.dumps(members, indent=2) + "\n")
