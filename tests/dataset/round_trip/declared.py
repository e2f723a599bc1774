"""Imports of frames with declared columns: nulls, categories, timestamps, classes with names, unknown ids."""

from __future__ import annotations

import datetime
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import yaml
from compare import edges_unlike, float32, float64, unlike
from frames import Column, Frame, Kinds

from cohort_gnn.dataset import open as open_dataset
from cohort_gnn.dataset.columns import read_columns

WORDS = ("Rome", "New York", "x,y", 'say "hi"', "#1", "é", "true", "NA", "null", "-", "0.5", "007", "yes", "no")
PARTS = ("year", "month", "day", "hour", "minute", "second")
EPOCH = datetime.datetime(1970, 1, 1)


def declared(making: Any) -> Any:
    """graph.yaml: users with declared features, a label and a split, and payments between them with timestamps."""
    draw, kinds = making.draw, making.kinds
    count = max(2, kinds.count(3000))
    part = Column("part", ["train", *(draw.choice(("train", "val", "test")) for _ in range(count - 1))], pa.string())
    training = np.array(part.values) == "train"
    columns, entries, expected = [], [], []
    for number in range(draw.randint(1, 3)):
        column, entry, wanted = draw.choice((_number, _number, _category, _category, _moment, _moment, _vector))(
            draw, kinds, f"f{number}", count, training
        )
        columns.append(column)
        entries.append(entry)
        expected.append(wanted)
    label, classes = _label(draw, kinds, count)
    key = Column("key", [f"u{i}" for i in range(count)], pa.string())
    users = Frame([key, *columns, label, part])
    has_nulls = any(column.has_nulls for column in columns)
    null = None if kinds.plain or has_nulls else draw.choice((None, "none"))
    options = {} if null is None else {"null": null}
    file = making.write(users if kinds.plain else users.shuffled(draw), "users")
    called = dict(zip(users.names, file.names(users, users.columns), strict=True))
    kinds.traps += ["numbers of columns"] if not file.header else []
    node = {"file": file.path.name, "id": called["key"], "label": called["label"], "split": called["part"]} | options
    node["features"] = [entry | {"column": called[entry["column"]]} for entry in entries]
    edge, ends, times = _payments(making, draw, kinds, count)
    description = {"nodes": {"user": node}, "edges": [edge]}
    (making.folder / "graph.yaml").write_text(yaml.safe_dump(description, sort_keys=False))

    def wrong(folder: Path) -> str:
        data, said = open_dataset(folder), ""
        if any(wanted is None for wanted in expected):
            return "a column was taken that has no value, or no finite one, in some rows\n"
        said += unlike("x", data.x, np.concatenate([wanted for wanted in expected if wanted is not None], axis=1))
        names = read_columns(folder).classes
        codes = [-1 if value is None else names.index(value) for value in classes]
        said += unlike("y", np.asarray(data.y), np.array(codes, np.int64))
        return said + edges_unlike(data, *ends, times, data.edge_times)

    return making.case(making.folder / "graph.yaml", wrong)


def triples(making: Any) -> Any:
    """graph.yaml: a table of the edges of several relations, whose names are in a column."""
    draw, kinds = making.draw, making.kinds
    count = max(2, kinds.count(300))
    people = Frame([kinds.unique_ids("text" if draw.random() < 0.7 else "integer", count).named("key")])
    file = making.write(people, "people")
    node = {"file": file.path.name, "id": file.names(people, people.columns)[0]}
    src, dst = ([draw.randrange(count) for _ in range(3 * count)] for _ in range(2))
    names = [_name_of_relation(draw, kinds) for _ in range(draw.choice((1, 2, 5)))]
    relations = [draw.choice(names) for _ in src]
    strangers = [draw.random() < 0.2 for _ in src] if draw.random() < 0.3 else [False] * len(src)
    key = people.columns[0]
    heads = key.take(src).named("head")
    odd = (
        "nobody knows"
        if isinstance(heads.values[0], str)
        else next(i for i in range(count + 1) if i not in set(key.values))
    )
    heads.values = [odd if is_odd else value for value, is_odd in zip(heads.values, strangers, strict=True)]
    columns = [heads, Column("relation", relations, pa.string()), key.take(dst).named("tail")]
    what = draw.choice(("", "weight", "time"))
    beside = (
        kinds.integers("t", len(src)) if what == "time" else Column("w", [draw.random() for _ in src], pa.float64())
    )
    columns += [beside] if what else []
    frame = Frame(columns)
    file = making.write(frame, "triples")
    source, relation, target, *more = file.names(frame, columns)
    edge = {"type": ["person", "*", "person"], "file": file.path.name, "source": source, "target": target}
    edge |= (
        {"relation": relation} | ({what: more[0]} if what else {}) | ({"unknown_ids": "skip"} if any(strangers) else {})
    )
    node["features"] = "x.npy"
    np.save(making.folder / "x.npy", np.ones((count, 1), np.float32))
    description = {"target": "person", "nodes": {"person": node}, "edges": [edge]}
    (making.folder / "graph.yaml").write_text(yaml.safe_dump(description, sort_keys=False))

    def wrong(folder: Path) -> str:
        data, said = open_dataset(folder), ""
        found = {name for _, name, _ in data.edge_types}
        several = len(set(relations)) > 1
        if several and found != set(relations):
            return f"relations {sorted(found)}, not {sorted(set(relations))}\n"
        for name in found:
            rows = [i for i, one in enumerate(relations) if (one == name or not several) and not strangers[i]]
            lists = next(lists for (_, one, _), lists in data.edge_types.items() if one == name)
            kept = {"weight": lists.edge_weights, "time": lists.edge_times}.get(what)
            values = np.array([beside.values[i] for i in rows], np.int64 if what == "time" else np.float32)
            ends = [src[i] for i in rows], [dst[i] for i in rows]
            said += edges_unlike(lists, *ends, values if what else None, kept)
        return said

    return making.case(making.folder / "graph.yaml", wrong)


def _name_of_relation(draw: random.Random, kinds: Kinds) -> str:
    if kinds.plain or draw.random() < 0.5:
        return draw.choice(("likes", "knows", "has_met"))
    kinds.traps.append("names of relations")
    return draw.choice((*WORDS, "a/b", "..", "a.b", "a:b", "", " left", "*"))


def _number(draw: random.Random, kinds: Kinds, name: str, count: int, training: np.ndarray) -> tuple:
    column = kinds.numbers(name, count)
    entry = {"column": name, "nulls": draw.choice(("refuse", "zero", "mean")), "standardize": draw.random() < 0.4}
    if pa.types.is_float16(column.type) or pa.types.is_float32(column.type):
        entry["standardize"] = False  # texts have other numbers than these, and float64 reads them
    values = float64(column) if entry["standardize"] else float32(column)
    if values is None:
        return column, entry, None
    missing = np.isnan(values)  # pandas writes NaN as null; else it is refused
    fits = np.isfinite(values[~missing]).all() and not (entry["nulls"] == "refuse" and missing.any())
    known = values[training & ~missing].astype(np.float64)
    needs_some = entry["standardize"] or entry["nulls"] == "mean"
    if not fits or needs_some and not len(known):
        kinds.traps.append("no values to fit")
        return column, entry, None
    kinds.traps += ["fitted to large numbers"] if needs_some and np.abs(known).max() > 1e15 else []
    exact = np.where(missing, (known.mean() if entry["nulls"] == "mean" else 0), values.astype(np.float64))
    if entry["standardize"]:
        with np.errstate(over="ignore"):
            mean, deviation = known.mean(), known.std()
        if not np.isfinite(deviation) or abs(mean) >= 2**53 and deviation < 2**16 * np.spacing(abs(mean)):
            return column, entry, None  # float64 does not hold their squares, or tell them apart
        exact = (exact - known.mean()) / (known.std() or 1)
    parts = [exact.astype(np.float32)] + ([] if entry["nulls"] == "refuse" else [missing.astype(np.float32)])
    return column, entry, np.stack(parts, axis=1)


def _words(draw: random.Random, kinds: Kinds, count: int) -> list:
    words = ("red", "green", "blue") if kinds.plain else draw.sample(WORDS, draw.randint(1, 6))
    return [draw.choice(words) for _ in range(count)]


def _category(draw: random.Random, kinds: Kinds, name: str, count: int, training: np.ndarray) -> tuple:
    column = Column(name, _words(draw, kinds, count), pa.string())
    kinds.traps += [] if kinds.plain else ["text"]
    column = kinds.with_nulls(column, 0.3)
    entry = {"column": name, "kind": draw.choice(("category", "code")), "nulls": draw.choice(("refuse", "unknown"))}
    if column.has_nulls and entry["nulls"] == "refuse":
        return column, entry, None
    values = column.values
    known = sorted({value for value, counts in zip(values, training, strict=True) if counts and value is not None})
    codes = np.array([known.index(value) + 1 if value in known else 0 for value in values])
    rows = codes[:, None] if entry["kind"] == "code" else np.eye(len(known) + 1)[codes]
    return column, entry, rows.astype(np.float32)


def _moments(draw: random.Random, count: int) -> list[datetime.datetime]:
    return [EPOCH + datetime.timedelta(seconds=draw.randint(-(10**9), 4 * 10**9)) for _ in range(count)]


def _moment(draw: random.Random, kinds: Kinds, name: str, count: int, training: np.ndarray) -> tuple:
    column = Column(name, _moments(draw, count), pa.timestamp(draw.choice(("us", "ms"))))
    if draw.random() < 0.3:
        column = Column(name, [value.date() for value in column.values], pa.date32())
    parts = draw.sample(PARTS, draw.randint(1, len(PARTS)))
    column = kinds.with_nulls(column, 0.1)
    entry = {"column": name, "kind": "time", "parts": parts}
    if column.has_nulls:
        return column, entry, None
    return column, entry, np.float32([[getattr(value, part, 0) for part in parts] for value in column.values])


def _vector(draw: random.Random, kinds: Kinds, name: str, count: int, training: np.ndarray) -> tuple:
    """Lists of numbers, which only files with types have."""
    width = draw.choice((1, 2, 5))
    values = [[draw.randint(-64, 64) / 8 for _ in range(width)] for _ in range(count)]
    wanted = np.float32(values)
    type_ = draw.choice((pa.list_(pa.float32(), width), pa.list_(pa.float64()), pa.large_list(pa.float32())))
    if not pa.types.is_fixed_size_list(type_) and kinds.some(0.2, "lists of other lengths"):
        values[draw.randrange(count)] += [0.5]
        wanted = None if count > 1 else np.float32(values)
    column = kinds.with_nulls(Column(name, values, type_), 0.1)
    return column, {"column": name}, None if column.has_nulls else wanted


def _label(draw: random.Random, kinds: Kinds, count: int) -> tuple[Column, Sequence]:
    """A column of texts, and the name of each row's class."""
    names = [word for word in WORDS if word not in ("0.5", "007")]  # of a text file, these alone are numbers
    words = ("good", "bad", "ugly") if kinds.plain else draw.sample(names, 3)
    kinds.traps += [] if kinds.plain else ["text"]
    values = [draw.choice(words) for _ in range(count)]
    return Column("label", values, pa.string()), values


def _payments(making: Any, draw: random.Random, kinds: Kinds, count: int) -> tuple[dict, tuple, np.ndarray]:
    src, dst = ([draw.randrange(count) for _ in range(draw.randint(1, 60))] for _ in range(2))
    src, dst = src[: len(dst)], dst[: len(src)]
    moments = _moments(draw, len(src))
    strangers = [draw.random() < 0.2 for _ in src] if draw.random() < 0.4 else [False] * len(src)
    columns = [
        Column("payer", [f"v{i}" if odd else f"u{i}" for i, odd in zip(src, strangers, strict=True)], pa.string()),
        Column("payee", [f"u{i}" for i in dst], pa.string()),
        Column("at", moments, pa.timestamp("us")),
    ]
    file = making.write(frame := Frame(columns), "payments")
    payer, payee, at = file.names(frame, columns)
    unit, per_second = draw.choice((("s", 1), ("ms", 10**3), ("us", 10**6)))
    edge = {"type": ["user", "pays", "user"], "file": file.path.name, "source": payer, "target": payee, "time": at}
    edge |= {"time_unit": unit, "time_zone": "UTC"} | ({"unknown_ids": "skip"} if any(strangers) else {})
    times = [int((moment - EPOCH).total_seconds()) * per_second for moment in moments]
    kept = [i for i, odd in enumerate(strangers) if not odd]
    ends = [src[i] for i in kept], [dst[i] for i in kept]
    return edge, ends, np.array([times[i] for i in kept], np.int64)
