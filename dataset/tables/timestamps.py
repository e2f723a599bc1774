"""Timestamps and dates of tables: as integers in a unit that the user names, or as parts of the calendar."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import arrays
from cohort_gnn.dataset.tables import values

if TYPE_CHECKING:
    import pyarrow as pa

    from cohort_gnn.dataset.tables.table import TableFile

FUNCTIONS = {"weekday": "day_of_week"}  # of pyarrow.compute, where a part has another name there
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
UNITS = ("days", *PER_SECOND)
TEXT_HINT = (
    "texts are as ISO 8601 has them: 2024-01-31 (a date has no zone) or 2024-01-31 12:00:00, with Z or +01:00 behind it"
    " or not; of other forms strptime in SQL, or pandas.to_datetime, makes timestamps"
)
NUMBER_HINT = (
    "to_timestamp({0}) in SQL, pandas.to_datetime(table['{0}'], unit='s'); times of nodes and edges may be integers,"
    " without time_unit"
)
YEARS = 1 << 15  # of the calendar that Arrow computes


@dataclass(frozen=True)
class Clock:
    """How timestamps become times of edges.

    Attributes:
        unit: "days", "s", "ms", "us" or "ns" since 1970-01-01 UTC.
        zone: of timestamps that are no instants; None: there are none.
    """

    unit: str
    zone: str | None = None

    @staticmethod
    def named(place: str, unit: str | None, zone: str | None, says: Callable[[str, str], str]) -> Clock | None:
        """The clock that options name; None: times are integers.

        Args:
            says: how the user gives an option a value.

        Raises:
            CohortError: there is no such unit, or a zone without a unit.
        """
        if unit is None and zone is not None:
            raise CohortError(place, "the unit of the times, beside their zone", "none", says("time_unit", "s"))
        if unit is not None and unit not in UNITS:
            raise CohortError(place, f"one of the units {', '.join(UNITS)}", unit)
        return None if unit is None else Clock(unit, zone)

    def read(self, table: TableFile, column: int, block_bytes: int) -> Iterator[np.ndarray]:
        """int64 [n] at a time: a column of timestamps, dates or texts of them."""
        done = 0
        for (array,), _ in table.pieces([column], "texts", block_bytes):
            yield as_integers(table.place(column), _chunked(array), self.unit, self.zone, done)
            done += len(array)


def times_or(none: int, table: TableFile, column: int, clock: Clock | None, block_bytes: int) -> Iterator[np.ndarray]:
    """int64 [n] at a time: a column of integers, or of timestamps by a clock; `none` in place of nulls."""
    done = 0
    for (array,), _ in table.pieces([column], "integers" if clock is None else "texts", block_bytes):
        array = _chunked(array)
        known = array.drop_null()
        out = np.full(len(array), none, np.int64)
        if len(known):
            filled, place = array.fill_null(known[0]), table.place(column)
            if clock is not None:
                out[:] = as_integers(place, filled, clock.unit, clock.zone, done)
            else:
                out[:] = values.numbers(table, column, filled, "integers", done)
            out[np.asarray(array.is_null())] = none
        yield out
        done += len(array)


def timestamps(place: str, array: pa.ChunkedArray, zone: str | None, first: int) -> pa.ChunkedArray:
    """Timestamps without a zone, which show the clocks of `zone`; dates are midnights.

    Args:
        zone: of clocks; needed for timestamps that are instants.
        first: number of the first row.

    Raises:
        CohortError: a value is missing, is no timestamp, or its zone is open; or there is no such zone.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    stamps = _parsed(place, array, first)
    if pa.types.is_date(stamps.type):
        return stamps.cast(pa.timestamp("ms"))  # date64 may have a time of the day
    if stamps.type.tz is None:
        return stamps
    if zone is None:
        hint = "zone: UTC, or zone: Europe/Berlin, says whose clocks show year, day and hour"
        raise CohortError(place, "the time zone of the parts", f"instants ({stamps.type})", hint)
    try:
        return pc.local_timestamp(stamps.cast(pa.timestamp(stamps.type.unit, zone)))
    except pa.ArrowInvalid as error:
        raise _no_zone(place, zone) from error


def as_integers(
    place: str, array: pa.ChunkedArray, unit: str, zone: str | None, first: int, exact: bool = True
) -> np.ndarray:
    """int64 [n]: units since 1970-01-01 UTC.

    Args:
        exact: refuse what is no whole number of units; else it is rounded down.
        zone: of timestamps that are no instants; None: there are none, unless they are only put into order.
        first: number of the first row.

    Raises:
        CohortError: a value is missing, is no timestamp or no whole number of units, or does not exist or comes twice
            on the clocks of the zone.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    stamps = _parsed(place, array, first)
    if pa.types.is_date(stamps.type):
        stamps = stamps.cast(pa.timestamp("ms"))
    elif exact and zone is None and stamps.type.tz is None:
        hint = "time_zone: UTC, or time_zone: Europe/Berlin (--time-zone), says whose clocks they show"
        raise CohortError(place, "timestamps whose time zone is known", f"{stamps.type}, without a zone", hint)
    if zone is not None and stamps.type.tz is not None:
        hint = "leave time_zone (--time-zone) out: these say their own"
        raise CohortError(place, "timestamps without a zone, where one is named", f"{stamps.type}", hint)
    if zone is not None:
        try:
            stamps = pc.assume_timezone(stamps, zone)
        except pa.ArrowInvalid as error:
            if "Cannot locate" in str(error):
                raise _no_zone(place, zone) from error
            expected = f"times that the clocks of {zone} show once"
            hint = "write the column with its zone, as instants: TIMESTAMP WITH TIME ZONE in SQL, tz_localize in pandas"
            wrong = re.search(r"': (\S+ [\d:]+)\S* is", str(error))
            often = "twice" if "ambiguous" in str(error) else "never"
            raise CohortError(
                place, expected, f"{wrong[1] if wrong else 'one'}, which they show {often}", hint
            ) from error
    numbers = stamps.cast(pa.timestamp(stamps.type.unit)).cast(pa.int64()).to_numpy()
    per_second = PER_SECOND[stamps.type.unit]
    if unit == "days" or PER_SECOND[unit] <= per_second:
        divisor = 86_400 * per_second if unit == "days" else per_second // PER_SECOND[unit]
        return _divided(place, array, numbers, divisor, unit, first) if exact else numbers // divisor
    factor = PER_SECOND[unit] // per_second
    largest = np.iinfo(np.int64).max // factor
    if len(numbers) and (numbers.max() > largest or numbers.min() < -largest):
        raise CohortError(place, f"times that int64 holds in {unit}", "others", "choose a longer unit")
    return numbers * factor


def as_order(place: str, array: pa.Array | pa.ChunkedArray, first: int) -> tuple[str, np.ndarray]:
    """What times are, and int64 [n] of them: integers as they are, timestamps and dates as microseconds since 1970,
    rounded down."""
    import pyarrow as pa

    array = _chunked(array)
    if values.is_text(array.type):
        array = values.texts(place, array)
        whole = values.integers_of_texts(array)
        array = array if whole is None else whole
    if not pa.types.is_integer(array.type):
        array = _parsed(place, array, first)
        kind = "instants" if is_instant(array.type) else "timestamps without a zone"
        return kind, as_integers(place, array, "us", None, first, exact=False)
    if array.null_count:
        raise _missing(place, array, "a time", first)
    return "integers", arrays.as_int64(place, array.to_numpy())


def _divided(place: str, array: pa.ChunkedArray, numbers: np.ndarray, factor: int, unit: str, first: int) -> np.ndarray:
    import pyarrow as pa

    whole, rest = np.divmod(numbers, factor)
    bad = np.flatnonzero(rest)
    if len(bad):
        actual = _shown(array, int(bad[0]))
        hint = f"a shorter unit: {', '.join(UNITS[UNITS.index(unit) + 1 :])}"
        if pa.types.is_date(array.type):
            hint += "; or leave time_zone (--time-zone) out: days are then those of the calendar"
        raise CohortError(f"{place}, row {first + bad[0]}", f"a whole number of {unit}", actual, hint)
    return whole


def _demand_years(place: str, stamps: pa.ChunkedArray, first: int) -> None:
    """Raises CohortError for years of which Arrow makes others, such as that of infinity in DuckDB."""
    import pyarrow as pa

    numbers = stamps.cast(pa.int32() if pa.types.is_date32(stamps.type) else pa.int64()).to_numpy()
    per_day = 1 if pa.types.is_date32(stamps.type) else 86_400 * PER_SECOND[getattr(stamps.type, "unit", "ms")]
    bad = np.flatnonzero(np.abs(numbers / (365.2425 * per_day) + 1970) > YEARS - 2)
    if len(bad):
        row = int(bad[0])
        expected = f"a year from {3 - YEARS} to {YEARS - 3}"
        raise CohortError(
            f"{place}, row {first + row}", expected, _shown(stamps, row), "leave the row out, or fill it in"
        )


def _shown(array: pa.ChunkedArray, row: int) -> str:
    """A value in a message, also one that Python has no date for."""
    import pyarrow as pa

    return str(array[row].as_py()) if values.is_text(array.type) else array.slice(row, 1).cast(pa.string())[0].as_py()


def part_of(stamps: pa.ChunkedArray, part: str) -> np.ndarray:
    """int64 [n]: a part of the calendar."""
    import pyarrow.compute as pc

    return getattr(pc, FUNCTIONS.get(part, part))(stamps).to_numpy()


def are_dates(place: str, array: pa.Array | pa.ChunkedArray) -> bool:
    """Whether a column has dates, or texts that are dates."""
    import pyarrow as pa

    return pa.types.is_date(_parsed(place, _chunked(array), 0).type)


def is_instant(array_type: pa.DataType) -> bool:
    """Whether a type is of timestamps with a zone."""
    import pyarrow as pa

    return pa.types.is_timestamp(array_type) and array_type.tz is not None


def _parsed(place: str, array: pa.ChunkedArray, first: int) -> pa.ChunkedArray:
    """Timestamps or dates; texts are read as such."""
    import pyarrow as pa

    if array.null_count:
        raise _missing(place, array, "a timestamp", first)
    if pa.types.is_timestamp(array.type) or pa.types.is_date(array.type):
        _demand_years(place, array, first)
        return array
    if not values.is_text(array.type):
        numbers = pa.types.is_integer(array.type) or pa.types.is_floating(array.type)
        hint = NUMBER_HINT.format(place.rpartition("column ")[2]) if numbers else TEXT_HINT
        raise CohortError(place, "timestamps, dates or texts of them", str(array.type), hint)
    array = values.texts(place, array).cast(pa.string())
    for type_ in _types_of_texts():
        try:
            return array.cast(type_)
        except pa.ArrowInvalid:
            continue
    odd = next((i for i in range(len(array)) if not _is_timestamp(array.slice(i, 1))), 0)
    actual = f'"{str(array[odd].as_py())[:40]}"'
    if _is_timestamp(array.slice(odd, 1)):
        actual = "some with a zone and some without"
    raise CohortError(f"{place}, row {first + odd}", "a timestamp", actual, TEXT_HINT)


def _chunked(array: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    """The values, without the dictionary that they may be in."""
    import pyarrow as pa

    return values.plain(array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array]))


def _missing(place: str, array: pa.ChunkedArray, expected: str, first: int) -> CohortError:
    row = first + int(np.asarray(array.is_null()).argmax())
    hint = "leave the row out, or fill it in; or null_time: always, of nodes that are always there"
    return CohortError(f"{place}, row {row}", expected, "none", hint)


def _is_timestamp(array: pa.ChunkedArray) -> bool:
    import pyarrow as pa

    for type_ in _types_of_texts():
        try:
            array.cast(type_)
            return True
        except pa.ArrowInvalid:
            continue
    return False


def _types_of_texts() -> list[pa.DataType]:
    """What texts may be: dates, or timestamps; microseconds hold all years, nanoseconds more digits."""
    import pyarrow as pa

    return [pa.date32()] + [pa.timestamp(unit, zone) for unit in ("us", "ns") for zone in (None, "UTC")]


def _no_zone(place: str, zone: str) -> CohortError:
    return CohortError(place, "a time zone such as UTC or Europe/Berlin", zone, "the names are those of the IANA list")
