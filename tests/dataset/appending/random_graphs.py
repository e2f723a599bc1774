"""Random small graphs in two parts: what is imported first, and what is appended; beside them, all at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

BESIDE = ("none", "weights", "times", "features", "weights+features", "times+features")
LOOPS = ("remove", "keep", "add")


def files_of(folder: Path) -> dict[str, bytes]:
    """The content of all files but the record of what was appended, which an import does not write."""
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {name: content for name, content in files.items() if not name.startswith("appended")}


@dataclass
class Part:
    """Nodes and edges that come at once.

    Attributes:
        nodes: of all parts until now.
        ids: of the nodes of this part, where they have some.
        ends: int64 [2, E], nodes of all parts until now.
        beside: weights, times and features of the edges, as far as they have them.
        removed: int64 [2, any], edges of the parts before that go.
    """

    nodes: int
    ids: np.ndarray
    x: np.ndarray
    y: np.ndarray
    splits: list[np.ndarray]
    ends: np.ndarray
    beside: dict[str, np.ndarray]
    removed: np.ndarray = field(default_factory=lambda: np.empty((2, 0), np.int64))


@dataclass
class Case:
    """A graph of one type in parts, and the options of its import."""

    parts: list[Part]
    options: dict
    dim: int
    has_ids: bool

    def write(self, folder: Path, part: Part, removed: bool = False) -> dict:
        """The files of a part; returns the inputs by the names of options."""
        folder.mkdir()
        ids = np.concatenate([each.ids for each in self.parts])
        ends = part.removed if removed else part.ends
        np.save(folder / "edges.npy", ids[ends] if self.has_ids else ends)
        if removed:
            return {}
        inputs = {}
        if len(part.x):
            inputs |= {"features": part.x, "labels": part.y}
            inputs |= {"node_ids": part.ids} if self.has_ids else {}
            for name, nodes in zip(("train", "val", "test"), part.splits, strict=True):
                np.save(folder / f"{name}.npy", ids[nodes] if self.has_ids else nodes)
            inputs["splits"] = [folder / f"{name}.npy" for name in ("train", "val", "test")]
        inputs |= {f"edge_{name}": array for name, array in part.beside.items() if ends.size or not len(part.x)}
        for name, array in inputs.items():
            if isinstance(array, np.ndarray):
                np.save(folder / f"{name}.npy", array)
                inputs[name] = folder / f"{name}.npy"
        return inputs

    def whole(self) -> Part:
        """All parts as one, without the edges that went."""
        ends, beside = np.empty((2, 0), np.int64), {name: [] for name in self.parts[0].beside}
        for part in self.parts:
            keeps = ~self._goes(ends, part.removed)
            ends = np.concatenate([ends[:, keeps], part.ends], axis=1)
            beside = {name: [*(rows[0][keeps] for rows in [kept] if rows), part.beside[name]]
                      for name, kept in beside.items()}  # fmt: skip
            beside = {name: [np.concatenate(kept)] for name, kept in beside.items()}
        splits = [np.concatenate([part.splits[number] for part in self.parts]) for number in range(3)]
        joined = (np.concatenate([getattr(part, name) for part in self.parts]) for name in ("ids", "x", "y"))
        return Part(self.parts[-1].nodes, *joined, splits, ends, {name: kept[0] for name, kept in beside.items()})

    def _goes(self, ends: np.ndarray, removed: np.ndarray) -> np.ndarray:
        gone = set(zip(*removed.tolist(), strict=True))
        gone |= {pair[::-1] for pair in gone} if self.options["reverse"] else set()
        return np.array([pair in gone for pair in zip(*ends.tolist(), strict=True)], bool)


def random_case(seed: int) -> Case:
    """A graph of one type in two or three parts."""
    generator = np.random.default_rng(seed)
    beside = BESIDE[seed % len(BESIDE)]
    plain, merges = beside == "none", "features" not in beside
    options = {
        "reverse": bool(generator.integers(2)),
        "dedupe": merges and beside != "weights" and bool(generator.integers(2)),
        "self_loops": LOOPS[2 - seed // len(BESIDE) % 3 if plain else generator.integers(2)],
        "transpose": bool(generator.integers(2)),
    }
    nodes, parts, dim = 0, [], int(generator.integers(1, 4))
    pool = generator.permutation(1000) - 500
    known: list[tuple[int, int]] = []
    for number in range(generator.integers(2, 4)):
        more = generator.integers(1, 20) if number == 0 else generator.integers(3) * generator.integers(4)
        part = _random_part(generator, nodes, int(more), dim, beside, pool)
        if number and known and generator.integers(2) and options["self_loops"] == "keep":
            part.removed = np.array(known)[generator.choice(len(known), min(3, len(known) - 1), replace=False)].T
            gone = set(map(tuple, part.removed.T)) | {pair[::-1] for pair in map(tuple, part.removed.T)}
            known = [pair for pair in known if pair not in gone]
        known = list(dict.fromkeys([*known, *zip(*part.ends.tolist(), strict=True)]))
        nodes = part.nodes
        parts.append(part)
    return Case(parts, options, dim, bool(generator.integers(2)))


def _random_part(
    generator: np.random.Generator, first: int, more: int, dim: int, beside: str, pool: np.ndarray
) -> Part:
    nodes, count = first + more, int(generator.integers(first == 0, 40))  # of no rows an import knows no columns
    count *= first == 0 or more == 0 or generator.integers(2)
    labels = generator.integers(-1, 3, more)
    labels[:1] = 2 if first == 0 else labels[:1]
    split_of = generator.integers(4, size=more)
    splits = [first + np.flatnonzero((labels >= 0) & (split_of == number)) for number in range(3)]
    rows = {
        "weights": generator.integers(1, 5, count).astype(np.float32) / 2,
        "times": generator.integers(-3, 4, count),
        "features": generator.normal(size=(count, 2)).astype(np.float16),
    }
    ends = generator.integers(nodes, size=(2, count))
    names = [] if beside == "none" else beside.split("+")
    x = generator.normal(size=(more, dim)).astype(np.float32)
    return Part(nodes, pool[first:nodes], x, labels, splits, ends, {name: rows[name] for name in names})


# --- several types --------------------------------------------------------------------------------------------------

DESCRIPTION = """
nodes:
{nodes}
edges:
{edges}
"""
USER = (  # with a time, edges from users have no weights
    "  user: {file: user.parquet, id: id, label: class, split: part, classes: [a, b],{time}"
    " features: [age, {column: town, kind: category, nulls: unknown}, {column: pay, nulls: mean, standardize: true}]}"
)
ITEM = "  item: {file: item.parquet, features: [price]}"
EDGES = {
    "buys": "  - {type: [user, buys, item], file: buys.parquet, source: user, target: item{weight}}",
    "knows": "  - {type: [user, knows, user], file: knows.parquet, source: a, target: b, time: t}",
    "like": "  - {type: [item, like, item], file: like.parquet, source: a, target: b, features: [f]}",
}


class TypedCase:
    """A graph of two node types, users with ids of texts and items without, in two parts."""

    def __init__(self, seed: int):
        generator = np.random.default_rng(seed)
        self.reverse, self.has_times = bool(seed % 2), bool(seed % 4 // 2)
        self.tables: list[dict[str, pa.Table]] = []
        users = items = 0
        for number in range(2):
            more = [int(generator.integers(2, 8)) if number == 0 else int(generator.integers(4)) for _ in range(2)]
            self.tables.append(self._part(generator, users, items, *more, number == 0))
            users, items = users + more[0], items + more[1]
        first = {name: self.tables[0][name] for name in EDGES}
        self.removed = {  # edges of the first part
            name: table.take(pa.array(generator.choice(len(table), min(3, len(table)) // 2, replace=False)))
            for name, table in first.items()
        }

    def _part(self, generator, users: int, items: int, new_users: int, new_items: int, is_first: bool) -> dict:
        def ends(most: int, count: int) -> np.ndarray:
            return generator.integers(most, size=count)

        ids = [f"u{number}" for number in range(users, users + new_users)]
        labels = generator.choice(["a", "b"], new_users).tolist()
        user = {
            "id": pa.array(ids, pa.string()),
            "age": generator.integers(0, 90, new_users).astype(np.float32),
            "town": pa.array(generator.choice(["x", "y"] if is_first else ["x", "z"], new_users).tolist(), pa.string()),
            "pay": pa.array([None if draw == 0 else float(draw) for draw in generator.integers(4, size=new_users)],
                            pa.float32()),
            "class": pa.array([None if generator.integers(4) == 0 else label for label in labels], pa.string()),
            "since": generator.integers(0, 5, new_users),
        }  # fmt: skip
        parts = [None if label is None else ["train", "val", "test", None][generator.integers(4)]
                 for label in user["class"].to_pylist()]  # fmt: skip
        user["part"] = pa.array(parts, pa.string())
        if is_first:
            user["class"] = pa.array(["a", "b", *user["class"].to_pylist()[2:]], pa.string())
            user["part"] = pa.array(["train", "train", *parts[2:]], pa.string())
            user["pay"] = pa.array([1.0, *user["pay"].to_pylist()[1:]], pa.float32())
        count, users, items = int(generator.integers(is_first, 30)), users + new_users, items + new_items
        names = np.array([f"u{number}" for number in range(users)])
        return {
            "user": pa.table(user),
            "item": pa.table({"price": generator.normal(size=new_items).astype(np.float32)}),
            "buys": pa.table({"user": names[ends(users, count)], "item": ends(items, count),
                              "w": generator.integers(1, 4, count).astype(np.float32)}),
            "knows": pa.table({"a": names[ends(users, count)], "b": names[ends(users, count)],
                               "t": generator.integers(0, 9, count)}),
            "like": pa.table({"a": ends(items, count), "b": ends(items, count),
                              "f": generator.normal(size=count).astype(np.float32)}),
        }  # fmt: skip

    def write(self, folder: Path, tables: dict[str, pa.Table], appended: bool = False) -> Path:
        """graph.yaml and its tables; appended: without node types that get no nodes."""
        folder.mkdir()
        nodes = [
            text
            for name, text in (("user", USER), ("item", ITEM))
            if not appended or name in tables and len(tables[name])
        ]
        edges = [text for name, text in EDGES.items() if len(tables[name]) or not appended]
        text = DESCRIPTION.format(nodes="\n".join(nodes) or "  {}", edges="\n".join(edges) or "  []")
        time, weight = (" time: since,", "") if self.has_times else ("", ", weight: w")
        (folder / "graph.yaml").write_text(text.replace("{time}", time).replace("{weight}", weight))
        for name, table in tables.items():
            pq.write_table(table, folder / f"{name}.parquet")
        return folder / "graph.yaml"

    @staticmethod
    def in_memory(source: Path, tables: dict[str, pa.Table]) -> dict:
        """What a graph.yaml says, with tables in place of files, as `from_tables` takes it."""
        text = yaml.safe_load(source.read_text())
        for keys in (*text["nodes"].values(), *text["edges"]):
            keys["table"] = tables[keys.pop("file").split(".")[0]]
        return {"nodes": text["nodes"], "edges": {tuple(keys.pop("type")): keys for keys in text["edges"]}}

    def whole(self) -> dict[str, pa.Table]:
        """The tables of both parts, without the edges that went."""
        first, second = self.tables
        kept = {name: self._without(first[name], table) for name, table in self.removed.items()}
        return {name: pa.concat_tables([kept.get(name, table), second[name]]) for name, table in first.items()}

    @staticmethod
    def _without(edges: pa.Table, removed: pa.Table) -> pa.Table:
        gone = set(zip(*(column.to_pylist() for column in removed.columns[:2]), strict=True))
        pairs = zip(*(column.to_pylist() for column in edges.columns[:2]), strict=True)
        return edges.filter(pa.array([pair not in gone for pair in pairs], pa.bool_()))
