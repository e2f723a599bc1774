"""Random tables, as plain Python values: what a file of them has to say again."""

from __future__ import annotations

import decimal
import random
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

TEXTS = (
    *("a", "New York", "Rome", "x,y", 'say "hi"', "two\nlines", "#1", "% of all", "# no comment", "é", "日本", "7"),
    *("007", " led", "trailed ", "NA", "null", "nan", "None", "-", "a;b", "a|b", "a\tb", "''", '"', "1e5", "0.5"),
    *("0x10", "16", "true", "\\"),
)
NUMERALS = ("0x10", "0X1f", "16", "+17", "018", "019", " 20", "21 ", "1e3", "2.0", "nan", "1_000", "-0", "-5", "+3")
UUID = pa.uuid()
SEPARATORS = (",", ",", ",", ";", "\t", "|")


@dataclass
class Column:
    """Values of one kind, or None; `type` is Arrow's."""

    name: str
    values: list[Any]
    type: pa.DataType

    @property
    def has_nulls(self) -> bool:
        return any(value is None for value in self.values)

    def named(self, name: str) -> Column:
        return Column(name, self.values, self.type)

    def take(self, rows: Sequence[int]) -> Column:
        return Column(self.name, [self.values[i] for i in rows], self.type)

    def array(self) -> pa.Array:
        if self.type == UUID:
            return pa.array([value.bytes for value in self.values], pa.binary(16)).cast(UUID)
        return pa.array(self.values, self.type)


@dataclass
class Frame:
    """Columns of one length.

    Attributes:
        index: what a pandas frame has as its index, or None.
    """

    columns: list[Column]
    index: list[Any] | None = None

    def __len__(self) -> int:
        return len(self.columns[0].values)

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    def table(self) -> pa.Table:
        arrays = [column.array() for column in self.columns]
        return pa.table(arrays, pa.schema([(column.name, column.type) for column in self.columns]))

    def rows(self, begin: int, end: int) -> Frame:
        """The same columns, some rows of them."""
        columns = [Column(column.name, column.values[begin:end], column.type) for column in self.columns]
        return Frame(columns, None if self.index is None else self.index[begin:end])

    def with_texts_of_uuids(self) -> Frame:
        """As files have them that have no type of UUIDs."""
        columns = [
            Column(c.name, [str(value) for value in c.values], pa.string()) if c.type == UUID else c
            for c in self.columns
        ]
        return Frame(columns, self.index)

    def shuffled(self, draw: random.Random) -> Frame:
        """The same columns in another order."""
        return Frame(draw.sample(self.columns, len(self.columns)), self.index)


@dataclass
class Kinds:
    """Draws columns; what they hold may be hard to read (`traps` names it) unless `plain`."""

    draw: random.Random
    plain: bool
    traps: list[str] = field(default_factory=list)

    def some(self, chance: float, trap: str) -> bool:
        """Whether something that is hard to read happens here."""
        if self.plain or self.draw.random() >= chance:
            return False
        self.traps.append(trap)
        return True

    def count(self, most: int = 50_000) -> int:
        """A number of rows: mostly a few."""
        highest = self.draw.choices((6, 40, 400, 3000, most), (70, 22, 6, 1.6, 0.4))[0]
        return self.draw.randint(1, highest)

    def numbers(self, name: str, count: int) -> Column:
        """Integers, floats or bools, some of them missing."""
        kinds: Sequence[Callable[[str, int], Column]] = (self.integers, self.floats, self.floats, self.bools)
        column = self.draw.choices(kinds, (4, 4, 4, 0 if self.plain else 1))[0](name, count)
        if any(value == round(value) for value in column.values if abs(value) < float("inf")):
            self.traps += ["distinct integers, which may be ids"] if len({*column.values}) == count else []
            self.traps += ["whole numbers that float32 may round"] if max(map(abs, column.values)) >= 2**24 else []
        return self.with_nulls(column, 0.3)

    def with_nulls(self, column: Column, chance: float) -> Column:
        if self.some(chance, "null"):
            share = self.draw.choice((0.1, 0.5, 1.0))
            column.values = [None if self.draw.random() < share else value for value in column.values]
        return column

    def integers(self, name: str, count: int) -> Column:
        low, high, type_ = self.draw.choice(((0, 9, pa.int64()), (-100, 100, pa.int8()), (0, 2**24, pa.int32())))
        if self.some(0.25, "large"):
            ranges = (
                *((2**24 - 3, 2**24 + 3, pa.int64()), (1_700_000_000, 1_700_000_003, pa.int64())),
                *((2**53 - 2, 2**53 + 2, pa.int64()), (-(2**63), -(2**63) + 3, pa.int64())),
                *((2**63 - 3, 2**63 - 1, pa.int64()), (2**63 - 2, 2**64 - 1, pa.uint64())),
            )
            low, high, type_ = self.draw.choice(ranges)
        return Column(name, [self.draw.randint(low, high) for _ in range(count)], type_)

    def floats(self, name: str, count: int) -> Column:
        make: Callable[[], float] = self.draw.choice(
            (
                lambda: self.draw.gauss(0, 1),
                lambda: float(self.draw.randint(-5, 5)),
                lambda: self.draw.randint(-64, 64) / 8,
                lambda: self.draw.gauss(0, 1) * 10.0 ** self.draw.randint(-20, 20),
            )
        )
        values = [make() for _ in range(count)]
        if self.some(0.1, "no number"):
            values = [self.draw.choice((value, float("nan"), float("inf"), -float("inf"))) for value in values]
        if self.some(0.05, "beyond float32"):
            values = [self.draw.choice((value, 1e300)) for value in values]
        narrow = self.draw.random() < 0.2 and max(map(abs, values)) < 1e38
        return Column(name, np.float32(values).tolist() if narrow else values, pa.float32() if narrow else pa.float64())

    def bools(self, name: str, count: int) -> Column:
        self.traps.append("bool")
        return Column(name, [self.draw.random() < 0.5 for _ in range(count)], pa.bool_())

    def texts(self, name: str, count: int) -> Column:
        type_ = self.draw.choice((pa.string(), pa.large_string()))
        if self.plain:
            return Column(name, [f"word{self.draw.randint(0, 9)}" for _ in range(count)], type_)
        self.traps.append("text")
        pad = self.draw.choice(("", "", "\n" * 3 + "long " * 20))
        column = Column(name, [self.draw.choice(TEXTS) + pad for _ in range(count)], type_)
        return self.with_nulls(column, 0.2)

    def names(self, count: int) -> list[str]:
        """Of feature columns, all different."""
        if self.some(0.15, "numeric names"):
            return [str(i) for i in range(count)] if self.draw.random() < 0.7 else [str(2020 + i) for i in range(count)]
        if self.some(0.1, "odd names"):
            odd = ("a b", "x,y", 'q"q', "#first", "%", "é", " f", "Nan", "inf", "1e3", "a;b", "f:g")
            return self.draw.sample(odd, min(count, len(odd))) + [f"f{i}" for i in range(len(odd), count)]
        return [f"f{i}" for i in range(count)]

    def unique_integers(self, count: int) -> list[int]:
        """Ids of any size, in any order."""
        low, high = self.draw.choice(((0, 4 * count + 8), (-1000 - count, 1000 + count), (10**9, 10**9 + 4 * count)))
        if self.some(0.15, "large ids"):
            low, high = self.draw.choice(
                ((2**62, 2**63 - 1), (-(2**63), -(2**62)), (2**63 - 4 * count, 2**63 + 4 * count))
            )
        found: set[int] = set()
        while len(found) < count:
            found.add(self.draw.randint(low, high))
        return self.draw.sample(sorted(found), count)

    def unique_ids(self, kind: str, count: int) -> Column:
        """A column of ids, all different: texts, integers, UUIDs, unsigned integers or decimals."""
        if kind == "text":
            return Column("key", self.unique_texts(count), pa.string())
        if kind == "uuid":
            return Column("key", [uuid.UUID(int=self.draw.getrandbits(128)) for _ in range(count)], UUID)
        ids = self.unique_integers(count)
        if kind == "decimal":
            scale = self.draw.choice((2, 10)) if self.some(0.5, "decimals with a scale") else 0
            if self.some(0.2, "long decimals"):
                ids, scale = [10**25 + value for value in ids], 0
            return Column("key", [decimal.Decimal(value) for value in ids], pa.decimal128(38, scale))
        unsigned = kind == "uint64" and min(ids) >= 0 or max(ids) >= 2**63
        return Column("key", ids, pa.uint64() if unsigned else pa.int64())

    def unique_texts(self, count: int) -> list[str]:
        base = [f"id{i}" for i in range(count)] if self.plain else [*TEXTS, *(f"id {i}" for i in range(count))]
        if self.some(0.3, "numerals"):
            base = [*NUMERALS, *(str(i) for i in range(7, 7 + count))]
        return self.draw.sample(base, count)
