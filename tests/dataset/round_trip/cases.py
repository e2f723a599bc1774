"""Imports of random frames: what is written, the arguments of `cohort dataset import`, and what has to come out."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import yaml
from compare import edges_unlike, float32, ids_unlike, matrix, unlike
from declared import declared, triples
from frames import Column, Frame, Kinds
from tensors import tensors
from writers import File, write

from cohort_gnn.dataset import HeteroDataset, original_ids
from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.spec.graph import EDGE_TYPE, NODE_TYPE

# Sources and targets that a name tells apart, and pairs of names that tell nothing: the first column is the source.
NAMED_ENDS = (
    *(("src", "dst"), ("source", "target"), ("src_id", "dst_id"), ("from", "to")),
    *(("u", "v"), ("Source", "Target"), ("source_id", "target_id")),
)
ODD_ENDS = (
    *(("source_id", "destination_id"), ("fromNodeId", "toNodeId"), ("sender", "receiver"), ("start", "end")),
    *(("source_node", "target_node"), ("origin", "dest")),
)
OTHER_ENDS = (("a", "b"), ("0", "1"), ("x", "y"), ("first one", "second one"))
PLAIN = 0.2  # the part of frames without anything that is hard to read; an import refuses none of these
ID_KINDS = ("text", "text", "text", "integer", "integer", "uuid", "uint64", "decimal")
ID_NAMES = ("id", "node_id", "nodeId", "node", "ID", "nid", "index")


@dataclass
class Case:
    """One import.

    Attributes:
        argv: after `cohort dataset import`.
        wrong: what the data set in a folder has that the frames have not; "" if nothing.
        written: calls that made the files.
        traps: what is hard to read; an import without any has to work.
    """

    argv: list[str]
    wrong: Callable[[Path], str]
    written: list[str]
    traps: list[str]


@dataclass
class Making:
    """A case on its way."""

    draw: random.Random
    folder: Path
    kinds: Kinds
    written: list[str] = field(default_factory=list)

    def write(self, frame: Frame, name: str) -> File:
        file = write(frame, self.folder / name, self.draw, self.kinds.plain)
        self.written.append(f"{file.path.name}: {file.told}")
        if file.is_csv and not self.kinds.plain:
            self.kinds.traps.append("csv")
        return file

    def ring(self, count: int) -> Path:
        """Edges i -> i + 1 between nodes of these numbers."""
        nodes = np.arange(count)
        np.save(self.folder / "ring.npy", np.stack([nodes, (nodes + 1) % count]))
        return self.folder / "ring.npy"

    def case(self, source: Path, wrong: Callable[[Path], str], *options: Any) -> Case:
        return Case([str(source), *map(str, options)], wrong, self.written, self.kinds.traps)


def make(seed: int, folder: Path) -> Case:
    """The import of this number, with its files in a folder."""
    draw = random.Random(seed)
    kinds = Kinds(draw, plain=draw.random() < PLAIN)
    role = draw.choices(ROLES, (25, 10, 18, 7, 16, 4, 10, 4, 6))[0]
    return role(Making(draw, folder, kinds))


# --- roles ------------------------------------------------------------------------------------------------------------


def _with_ids(making: Making, columns: list[Column], count: int) -> tuple[Frame, np.ndarray | None]:
    """A frame that may say which node a row is, by a column or a pandas index, and the row of each node.

    None: the ids number no nodes, so that the table must be refused.
    """
    draw, kinds = making.draw, making.kinds
    order = list(range(count))
    if kinds.some(0.2, "index"):
        form = draw.choice(("sorted", "shuffled", "filtered", "slice", "reversed"))
        if form == "shuffled":
            draw.shuffle(order)
        elif form == "filtered":
            order = sorted(draw.sample(range(2 * count + 1), count))
        elif form == "slice":
            order = list(range(draw.randint(0, 3), 4 * count + 3, draw.choice((1, 2))))[:count]
        elif form == "reversed":
            order.reverse()
        frame = Frame(columns, order)
    elif draw.random() < 0.3:
        if kinds.some(0.5, "ids in another order"):
            draw.shuffle(order)
        name = "id" if kinds.plain else draw.choice(ID_NAMES)
        kinds.traps += ["ids by another name"] if name not in ("id", "node_id", "ID") else []
        frame = Frame([Column(name, order, pa.int64()), *columns])
    else:
        frame = Frame(columns)
    if sorted(order) != list(range(count)):
        return frame, None
    return frame, np.argsort(order)


def _features(making: Making) -> Case:
    draw, kinds = making.draw, making.kinds
    count, width = kinds.count(), draw.choice((1, 1, 2, 2, 3, 6))
    columns = [kinds.numbers(name, count) for name in kinds.names(width)]
    others = [kinds.texts("note", count)] if draw.random() < 0.3 else []
    frame, row_of = _with_ids(making, [*columns, *others], count)
    frame = frame if making.kinds.plain or draw.random() < 0.7 else frame.shuffled(draw)
    file, wanted = making.write(frame, "x"), matrix(columns)
    chosen = draw.random() < 0.5 or kinds.plain and len(frame.columns) > len(columns)
    options = ["--features", file.path]
    if chosen:
        options += ["--feature-columns", ",".join(file.names(frame, columns))]
        kinds.traps += ["names of other signs"] if any(set(column.name) & set(",:") for column in columns) else []
    else:  # all of them, in the order of the file
        wanted = matrix([column for column in frame.columns if column in columns])
        kinds.traps += ["other columns"] if len(frame.columns) > len(columns) else []

    def wrong(folder: Path) -> str:
        if others and not chosen:
            return "texts were taken as features\n" if any(map(_is_word, others[0].values)) else ""
        if row_of is None:
            return "rows of ids that are no nodes were taken\n"
        return unlike("x", open_dataset(folder).x_float32(), None if wanted is None else wanted[row_of])

    return making.case(making.ring(count), wrong, *options)


def _is_word(value: str | None) -> bool:
    """Whether a text is neither missing nor, without its quotes, a number."""
    return value is not None and value.strip() not in ("", "7", "007", "1e5", "0.5", "16", "nan")


def _labels(making: Making) -> Case:
    draw, kinds = making.draw, making.kinds
    count = kinds.count()
    task = draw.choice(("classification", "regression"))
    if task == "regression":
        labels = kinds.numbers("score", count)
    else:
        type_ = draw.choice((pa.int64(), pa.int32(), pa.int8()))
        labels = Column("label", [draw.randint(-1, 5) for _ in range(count)], type_)
        labels = kinds.with_nulls(labels, 0.3)
    if kinds.some(0.1, "numeric names"):
        labels.name = str(draw.randint(0, 9))
    others = [kinds.texts("note", count)] if draw.random() < 0.3 else []
    frame, row_of = _with_ids(making, [labels, *others], count)
    frame = frame if kinds.plain else frame.shuffled(draw)
    file = making.write(frame, "y")
    options = ["--features", "ones", "--labels", file.path, "--label-type", task, "--nodes", count]
    chosen = len(frame.columns) > 1 or draw.random() < 0.5
    options += ["--label-columns", *file.names(frame, [labels])] if chosen else []
    if task == "regression":
        wanted = float32(labels)
        wanted = None if wanted is None or np.isinf(wanted).any() else wanted
    else:
        wanted = np.array([-1 if value is None else value for value in labels.values], np.int64)

    def wrong(folder: Path) -> str:
        if row_of is None:
            return "labels of ids that are no nodes were taken\n"
        return unlike("y", np.asarray(open_dataset(folder).y), None if wanted is None else wanted[row_of])

    return making.case(making.ring(count), wrong, *options)


def _beside(draw: random.Random, kinds: Kinds, count: int) -> tuple[str, list[Column], np.ndarray | None]:
    """What edges have beside their ends: its kind, its columns and its values; None: they have to be refused."""
    what = draw.choice(("", "weights", "times", "features"))
    if what == "times":
        column = kinds.with_nulls(kinds.integers("t", count), 0.2)
        wrong = any(value is None or not -(2**63) <= value < 2**63 for value in column.values)
        return what, [column], None if wrong else np.array(column.values, np.int64)
    if what == "features":
        columns = [kinds.numbers(name, count) for name in ("w", "z")]
        return what, columns, matrix(columns)
    if what == "weights":
        column = kinds.numbers("w", count)
        values = float32(column)
        return what, [column], values if values is not None and np.isfinite(values).all() else None
    return "", [], None


def _edges(making: Making) -> Case:
    draw, kinds = making.draw, making.kinds
    count, num_nodes = kinds.count(), draw.choice((1, 2, 5, 50, 70_000))
    src, dst = ([draw.randrange(num_nodes) for _ in range(count)] for _ in range(2))
    pair = draw.choice(NAMED_ENDS if kinds.plain else NAMED_ENDS + ODD_ENDS + OTHER_ENDS)
    ends = [Column(pair[0], src, pa.int64()), Column(pair[1], dst, draw.choice((pa.int64(), pa.int32())))]
    what, beside, values = _beside(draw, kinds, count)
    options: list = ["--features", "ones", "--nodes", num_nodes]
    apart = draw.random() < 0.3
    frame = Frame(ends + ([] if apart else beside) + ([kinds.texts("note", count)] if draw.random() < 0.2 else []))
    frame = frame if kinds.plain or pair in OTHER_ENDS else frame.shuffled(draw)
    file = making.write(frame, "edges")
    if draw.random() < 0.4 or not file.header:
        options += ["--columns", ",".join(file.names(frame, ends))]
        kinds.traps += ["names of other signs"] if pair in OTHER_ENDS else []
    else:
        kinds.traps += [] if pair in NAMED_ENDS else ["odd ends"]
    if what and apart:
        options += [f"--edge-{what}", making.write(Frame(beside), "beside").path]
    elif what:
        option = "--edge-feature-columns" if what == "features" else f"--{what[:-1]}-column"
        options += [option, ",".join(file.names(frame, beside))]
    if file.is_csv and draw.random() < 0.5:
        options += ["--separator", file.separator, "--header", "yes" if file.header else "no"]

    def wrong(folder: Path) -> str:
        data = open_dataset(folder)
        kept = {"weights": data.edge_weights, "times": data.edge_times, "features": data.edge_attr}
        if what and values is None:
            return f"{what} that their type does not hold were taken\n"
        return edges_unlike(data, src, dst, values, kept.get(what))

    return making.case(file.path, wrong, *options)


def _node_ids(making: Making) -> Case:
    draw, kinds = making.draw, making.kinds
    count = kinds.count(3000)
    ids = kinds.unique_integers(count)
    held = all(-(2**63) <= value < 2**63 for value in ids)
    type_ = pa.int64() if held else pa.uint64()
    name = draw.choice(("id", "node", "0")) if not kinds.plain else "id"
    file = making.write(Frame([Column(name, ids, type_)]), "ids")
    src, dst = ([draw.randrange(count) for _ in range(2 * count)] for _ in range(2))
    ends = [Column(name, [ids[i] for i in nodes], type_) for name, nodes in (("src", src), ("dst", dst))]
    edges = making.write(Frame(ends), "edges")

    def wrong(folder: Path) -> str:
        if not held:
            return "ids that int64 does not hold were taken\n"
        found = unlike("ids", np.load(folder / "id_of_node.npy"), np.array(ids, np.int64))
        return found + edges_unlike(open_dataset(folder), src, dst, None, None)

    return making.case(edges.path, wrong, "--features", "ones", "--node-ids", file.path)


def _described(making: Making) -> Case:
    """graph.yaml: nodes with ids, numbers or texts, and relations between them."""
    draw, kinds = making.draw, making.kinds
    counts = {type_: kinds.count(3000) for type_ in draw.choice((("a",), ("a", "b")))}
    kind = draw.choice(ID_KINDS)
    ids, nodes, wanted = {}, {}, {}
    for type_, count in counts.items():
        ids[type_] = kinds.unique_ids(kind, count)
        columns = [kinds.numbers(name, count) for name in kinds.names(draw.randint(1, 3))]
        key = ids[type_].named("key")
        frame = Frame([key, *columns, *([kinds.texts("note", count)] if draw.random() < 0.3 else [])])
        frame = frame if kinds.plain else frame.shuffled(draw)
        file = making.write(frame, f"nodes_{type_}")
        (key_name,), names = file.names(frame, [key]), file.names(frame, columns)
        nodes[type_] = {"file": file.path.name, "id": key_name, "features": names}
        kinds.traps += ["names of other signs"] if any(set(column.name) & set(",:") for column in columns) else []
        wanted[type_] = matrix(columns)
    edges, ends = [], []
    for source, target in draw.choice(((("a", list(counts)[-1]),), (("a", "a"), (list(counts)[-1], "a")))):
        src, dst = ([draw.randrange(counts[type_]) for _ in range(draw.randint(1, 40))] for type_ in (source, target))
        src, dst = src[: len(dst)], dst[: len(src)]
        columns = [
            ids[source].take(src).named("from"),
            ids[target].take(dst).named("to"),
        ]
        file = making.write(Frame(columns), f"edges_{len(edges)}")
        relation, names = [source, f"r{len(edges)}", target], file.names(Frame(columns), columns)
        edges.append({"type": relation, "file": file.path.name, "source": names[0], "target": names[1]})
        ends.append((tuple(relation), src, dst))
    description = {"target": "a", "nodes": nodes, "edges": edges}
    (making.folder / "graph.yaml").write_text(yaml.safe_dump(description, sort_keys=False))

    def wrong(folder: Path) -> str:
        data = open_dataset(folder)
        has_names, found = isinstance(data, HeteroDataset), ""
        for type_, rows in wanted.items():
            found += unlike(f"x of {type_}", data.node_types[type_ if has_names else NODE_TYPE].x_float32(), rows)
        for relation, src, dst in ends:
            found += edges_unlike(data.edge_types[relation if has_names else EDGE_TYPE], src, dst, None, None)
        for type_, column in ids.items():
            found += ids_unlike(original_ids(folder, type_ if has_names else None), column)
        return found

    return making.case(making.folder / "graph.yaml", wrong)


def _splits(making: Making) -> Case:
    draw, kinds = making.draw, making.kinds
    count = draw.choice((8, 60, 3000))
    np.save(making.folder / "y.npy", np.zeros(count, np.int64))
    parts = np.split(np.array(draw.sample(range(count), count)), [count // 2, 3 * count // 4])
    name = "id" if kinds.plain else draw.choice(("id", "0", "node"))
    files = [
        making.write(Frame([Column(name, part.tolist(), pa.int64())]), split).path
        for split, part in zip(("train", "val", "test"), parts, strict=True)
    ]

    def wrong(folder: Path) -> str:
        data = open_dataset(folder)
        found = (data.train_ids, data.val_ids, data.test_ids)
        return "".join(unlike("ids", np.sort(one), np.sort(part)) for one, part in zip(found, parts, strict=True))

    options = ["--features", "ones", "--labels", making.folder / "y.npy", "--splits", *files]
    return making.case(making.ring(count), wrong, *options)


ROLES = (_features, _labels, _edges, _node_ids, _described, _splits, declared, triples, tensors)
