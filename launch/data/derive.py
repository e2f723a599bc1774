"""``cohort dataset derive``: features of a node type that has none, as means of the features of its neighbours."""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.files import replacing, write_whole
from cohort_gnn.base.units import format_bytes
from cohort_gnn.dataset import Dataset, StoredGraph
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.dataset.meta import META
from cohort_gnn.dataset.prepared import is_prepared
from cohort_gnn.dataset.stored_graph import Relation
from cohort_gnn.dataset.writer import unreplaced, write_rows
from cohort_gnn.launch.data.prepare import bytes_bar
from cohort_gnn.launch.data.stored_rows import StoredRows
from cohort_gnn.spec.graph import EdgeType

BATCH_BYTES = 64 << 20  # of neighbours' rows in memory at a time, and of means


def register(dataset_commands) -> None:
    """Adds the command."""
    text = "compute the features of a node type as the mean of its neighbours' features in one relation"
    parser = dataset_commands.add_parser("derive", help=text, description=text)
    parser.add_argument("path", metavar="DIR", type=Path, help="folder of a data set of several node types")
    parser.add_argument("type", metavar="TYPE", help="node type whose features are computed")
    parser.add_argument("--mean-of", metavar="TYPE", required=True, help="node type of the neighbours")
    parser.add_argument(
        "--over",
        metavar="RELATION",
        required=True,
        help="name of the relation between the two types, or of its reverse",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace existing features of TYPE")
    parser.set_defaults(func=derive)


def derive(args: argparse.Namespace) -> int:
    """Runs the command; 0 when the features are in place."""
    with unreplaced(args.path) as demand_unreplaced:
        data = open_dataset(args.path, prefer_raw=True)
        source = _demand(data, args)
        relation = data.edge_types[source]
        begin, rows = time.monotonic(), StoredRows(data.node_types[args.mean_of])
        file = args.path / f"{args.type}.features.npy"
        with (
            bytes_bar("averaging", relation.num_edges * rows.row_bytes) as advance,
            replacing(file) as temporary,
        ):
            _, dim = write_rows(temporary, _means(rows, relation, advance))
            demand_unreplaced()
    dtype = _dtype_of_means(rows)
    _record_features(args.path, args.type, {"file": file.name, "dim": dim, "dtype": dtype, "derived": source})
    seconds = time.monotonic() - begin
    summary = f"{data.node_types[args.type].num_nodes:,} rows of {dim} x {dtype}, {format_bytes(file.stat().st_size)}"
    print(f"{file}: {summary}, written in {seconds:.1f} s", file=sys.stderr)
    return 0


def _demand(data: StoredGraph, args: argparse.Namespace) -> EdgeType:
    """The relation to average over.

    Raises:
        CohortError: there is no such relation or features, or there are features that would be replaced.
    """
    if isinstance(data, Dataset):
        raise CohortError(str(args.path), "a data set of several node types", "one of one node type")
    if is_prepared(args.path):
        raise CohortError(str(args.path), "a data set that was imported", "one that was prepared", "name its source")
    for place, name in (("TYPE", args.type), ("--mean-of", args.mean_of)):
        if name not in data.node_types:
            raise CohortError(place, f"one of the node types {', '.join(data.node_types)}", name)
    if not data.node_types[args.mean_of].feature_dim:
        raise CohortError("--mean-of", "a node type with features", f"{args.mean_of}, which has none")
    if data.node_types[args.type].feature_dim and not args.overwrite:
        raise CohortError("TYPE", "a node type without features", f"{args.type}, which has some", "pass --overwrite")
    return _relation_named(data, args.mean_of, args.over, args.type)


def _relation_named(data: StoredGraph, source: str, name: str, target: str) -> EdgeType:
    """The relation from source to target that has this name, or whose reverse has."""
    between = [edge_type for edge_type in data.edge_types if (edge_type[0], edge_type[2]) == (source, target)]
    matches = [
        edge_type
        for edge_type in between
        if name == edge_type[1]
        or any(
            other[1] == name and (relation.reverse_of == edge_type or data.edge_types[edge_type].reverse_of == other)
            for other, relation in data.edge_types.items()
        )
    ]
    if len(matches) == 1:
        return matches[0]
    there = " and ".join(", ".join(edge_type) for edge_type in matches or between) or "none"
    hint = "import the data set with --reverse-edges" if not between else "name another relation"
    raise CohortError(f"--over {name}", f"one relation from {source} to {target}", there, hint)


def _dtype_of_means(rows: StoredRows) -> str:
    return "float32" if rows.dtype == "uint8" else rows.dtype


def _means(rows: StoredRows, relation: Relation, advance) -> Iterator[np.ndarray]:
    """[n, D] at a time: of each target the mean of its sources' rows, added in float32 in the order of its list; zeros
    where it has none."""
    import torch

    dtype, dim = getattr(torch, rows.dtype), rows.row_bytes // getattr(torch, rows.dtype).itemsize
    at_once = max(1, BATCH_BYTES // (4 * dim))
    num_targets = len(relation.indptr) - 1
    for first in range(0, num_targets, at_once):
        starts = np.asarray(relation.indptr[first : first + at_once + 1])
        sums = torch.zeros(len(starts) - 1, dim)
        for begin in range(int(starts[0]), int(starts[-1]), at_once):
            end = min(begin + at_once, int(starts[-1]))
            ids = np.asarray(relation.indices[begin:end]).astype(np.int64)
            values = torch.from_numpy(rows.take(ids)).view(dtype).float()
            low, high = np.searchsorted(starts, begin, side="right") - 1, np.searchsorted(starts, end, side="left")
            offsets = torch.from_numpy(np.clip(starts[low:high], begin, end) - begin)
            sums[low:high] += torch.nn.functional.embedding_bag(torch.arange(len(ids)), values, offsets, mode="sum")
            advance(len(ids) * rows.row_bytes)
        means = sums / torch.from_numpy(np.maximum(1, np.diff(starts)))[:, None]
        yield _array_of(means.to(getattr(torch, _dtype_of_means(rows))))


def _array_of(rows) -> np.ndarray:
    """A tensor as the format stores it: bfloat16 as its bits in uint16."""
    import torch

    return rows.view(torch.int16).numpy().view(np.uint16) if rows.dtype == torch.bfloat16 else rows.numpy()


def _record_features(folder: Path, node_type: str, features: dict) -> None:
    """Records in meta.json that a node type has these features."""
    meta = json.loads((folder / META).read_text())
    for nodes in meta["nodes"]:
        if nodes["type"] == node_type:
            nodes["features"] = features
    write_whole(folder / META, json.dumps(meta, indent=2) + "\n")
