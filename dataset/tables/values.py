"""Columns as Arrow has them become numbers or texts; what is neither is refused, with its column and a cure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset import arrays

if TYPE_CHECKING:
    import pyarrow as pa

    from cohort_gnn.dataset.tables.table import ColumnKind, TableFile

BLANKS = " \t"  # around a number in a text
DECIMALS_HINT = "decimals have a point: 0.5, not 0,5; there is nothing between thousands: 1000, not 1,000"
WHOLE_HINT = "write ids without a fraction: 3, not 3.0; of a table: table['{}'].astype('int64')"
FLOAT_HINT = "convert the column: CAST({} AS DOUBLE) in SQL, astype('float64') in pandas"
TEXT_HINT = "convert it to texts: CAST({} AS VARCHAR) in SQL, astype(str) in pandas"
ID_HINT = f"ids are integers or texts; {TEXT_HINT}"
INTEGER_HINT = "convert whole numbers to integers: CAST({} AS BIGINT) in SQL, astype('Int64') in pandas"
DURATION_HINT = "convert it to a number, such as seconds: epoch({}) in SQL, dt.total_seconds() in pandas"
CATEGORY_HINT = f"{arrays.NUMBERS_HINT}; or make categories of it in a graph.yaml: {{{{column: {{}}, kind: category}}}}"
TIME_HINT = f"{arrays.TIMES_HINT}; of a graph.yaml, kind: time makes features of weekday, hour and so on"
ROUNDED_HINT = (
    "divide it into columns of smaller numbers, or leave it out; standardize: true of a declared column of graph.yaml "
    "keeps the differences; to have it rounded, write it as float32 to Parquet"
)


def numbers(
    table: TableFile, column: int, array: pa.Array | pa.ChunkedArray, kind: ColumnKind, first_row: int
) -> np.ndarray:
    """Numbers [n], or [n, k] of lists: int64, float32, or as the column has them; NaN in the place of nulls."""
    import pyarrow as pa

    place, name = table.place(column), table.titles[column] if column < len(table.titles) else str(column)
    array = plain(array)
    if is_list(array.type):
        return _stacked_lists(place, array, lambda flat: numbers(table, column, flat, kind, first_row))
    if fault := type_fault(array, name, kind):
        raise CohortError(place, *fault)
    if kind == "integers":
        return arrays.as_int64(place, to_numpy(_whole(place, array)))
    integers = pa.types.is_integer(array.type)
    if pa.types.is_null(array.type) or pa.types.is_boolean(array.type) and array.null_count:
        array = array.cast(pa.float64() if pa.types.is_null(array.type) else pa.uint8())
    missing = array.is_null() if kind == "features" and integers and array.null_count else None
    array = array if missing is None else array.fill_null(0)
    out = to_numpy(array)
    if kind != "features":
        return out
    with np.errstate(over="ignore"):  # such numbers become infinity, which is refused
        rows = out.astype(np.float32, copy=False)
    bad = arrays.rounded(out, rows)
    if len(bad):
        row = int(bad[0, 0])
        raise rounding_error(f"{place}, row {first_row + row}", str(int(out[row])), rows[row])
    if missing is not None:
        rows[np.asarray(missing)] = np.nan
    return rows


def note_vanished(vanished: arrays.Vanished, array: pa.Array | pa.ChunkedArray, rows: np.ndarray) -> None:
    """Takes note of a block of a column of numbers, or of lists of them, and of what became of it as float32."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if vanished.is_settled or rows.dtype != np.float32:
        return
    array = plain(array)
    array = pc.list_flatten(array) if is_list(array.type) else array
    if pa.types.is_float64(array.type):
        vanished.add(to_numpy(array.drop_null()), rows.reshape(-1))


def to_numpy(array: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """Numbers [n] as Arrow's to_numpy has them: NaN in the place of nulls. That function loads pandas, if it is there,
    which takes longer than the import of a small table."""
    import pyarrow as pa

    if array.null_count or not (pa.types.is_integer(array.type) or pa.types.is_floating(array.type)):
        return array.to_numpy() if isinstance(array, pa.ChunkedArray) else array.to_numpy(zero_copy_only=False)
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    parts = [np.from_dlpack(chunk) for chunk in chunks]
    return parts[0] if len(parts) == 1 else np.concatenate(parts or [np.empty(0, array.type.to_pandas_dtype())])


def type_fault(array: pa.Array | pa.ChunkedArray, name: str, kind: ColumnKind) -> tuple[str, str, str] | None:
    """What is expected of a column's type, what it is, and the cure; None: it has numbers, or integers."""
    import pyarrow as pa

    type_ = plain(array).type
    while is_list(type_) or pa.types.is_dictionary(type_):
        type_ = type_.value_type
    integers, floats = pa.types.is_integer(type_), pa.types.is_floating(type_)
    if kind == "integers" and pa.types.is_decimal(type_):
        return None  # if they are whole
    if kind == "integers" and not integers:
        return "integers", str(type_), WHOLE_HINT.format(name) if floats else _hint(type_, name, kind)
    if integers or floats or pa.types.is_boolean(type_) or pa.types.is_null(type_):
        return None
    return "numbers", str(type_), _hint(type_, name, kind)


def demand_types(
    table: TableFile, columns: Sequence[int], arrays: Sequence[pa.Array | pa.ChunkedArray], kind: ColumnKind
) -> None:
    """Raises CohortError for columns that have no numbers; it names all of them."""
    names = [table.titles[column] if column < len(table.titles) else str(column) for column in columns]
    type_faults = {name: type_fault(array, name, kind) for name, array in zip(names, arrays, strict=True)}
    faults = {name: fault for name, fault in type_faults.items() if fault is not None}
    if not faults:
        return
    expected, first, hint = next(iter(faults.values()))
    if len(faults) == 1:
        raise CohortError(table.place(columns[names.index(next(iter(faults)))]), expected, first, hint)
    names_by_type: dict[str, list[str]] = {}
    for name, (_, type_, _) in faults.items():
        names_by_type.setdefault(type_, []).append(name)
    types = ", ".join(f"{type_} in {' and '.join(names)}" for type_, names in names_by_type.items())
    cures = {type_: fault[2] for fault in faults.values() for type_ in [fault[1]]}
    raise CohortError(f"{table.path}: {len(faults)} columns", expected, types, "; ".join(dict.fromkeys(cures.values())))


def rounding_error(place: str, text: str, number: np.floating) -> CohortError:
    """An integer that float32 does not hold."""
    return CohortError(place, "an integer that float32 holds", f"{text}, rounded to {number:.0f}", ROUNDED_HINT)


def texts(place: str, array: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    """int64 of integers, else large_string. Unsigned and decimal integers, which int64 may not hold, and UUIDs become
    texts."""
    import pyarrow as pa

    array = plain(array)
    if isinstance(array.type, pa.UuidType):
        return _uuid_texts(array)
    if pa.types.is_decimal(array.type) or array.type == pa.uint64():
        return _digits(place, array)
    name = place.rpartition("column ")[2]
    if not (is_text(array.type) or pa.types.is_integer(array.type) or pa.types.is_null(array.type)):
        raise CohortError(place, "integers or texts", str(array.type), _hint(array.type, name, "texts"))
    try:
        array.validate(full=True)  # Parquet may say of any bytes that they are a text
        out = array.cast(pa.int64() if pa.types.is_integer(array.type) else pa.large_string())
    except pa.ArrowInvalid as error:
        if pa.types.is_integer(array.type):
            raise CohortError(place, "integers below 2^63", f"{array.type}", ID_HINT.format(name)) from error
        raise CohortError(place, "texts in UTF-8", "other bytes", "convert the text to UTF-8") from error
    return out if isinstance(out, pa.ChunkedArray) else pa.chunked_array([out])


def _digits(place: str, array: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    """large_string of whole numbers, without a point."""
    import pyarrow as pa

    out = (_rescaled(place, array) if pa.types.is_decimal(array.type) else array).cast(pa.large_string())
    return out if isinstance(out, pa.ChunkedArray) else pa.chunked_array([out])


def _rescaled(place: str, array: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Decimals without a fraction."""
    import pyarrow as pa

    wide = pa.types.is_decimal256(array.type)
    try:
        return array.cast(pa.decimal256(76, 0) if wide else pa.decimal128(38, 0))
    except pa.ArrowInvalid as error:
        hint = "CAST it AS BIGINT in SQL, if its fractions mean nothing"
        raise CohortError(place, "whole numbers", f"{array.type} with a fraction", hint) from error


def _whole(place: str, array: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Integers, also of decimals."""
    import pyarrow as pa

    if not pa.types.is_decimal(array.type):
        return array
    try:
        return _rescaled(place, array).cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise CohortError(place, "integers that int64 holds", "larger decimals", arrays.RANGE_HINT) from error


def _uuid_texts(array: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    """large_string of UUIDs: 36 characters, in small letters."""
    import pyarrow as pa

    return pa.chunked_array([_uuids_of(chunk) for chunk in getattr(array, "chunks", [array])], pa.large_string())


def _uuids_of(chunk: pa.Array) -> pa.Array:
    import pyarrow as pa

    storage = chunk.storage.fill_null(bytes(16))
    taken = slice(16 * storage.offset, 16 * (storage.offset + len(storage)))
    digits = np.frombuffer(bytes(storage.buffers()[1])[taken].hex().encode(), np.uint8).reshape(-1, 32)
    texts = np.full((len(storage), 36), ord("-"), np.uint8)
    for begin, end, at in ((0, 8, 0), (8, 12, 9), (12, 16, 14), (16, 20, 19), (20, 32, 24)):
        texts[:, at : at + end - begin] = digits[:, begin:end]
    offsets = np.arange(0, 36 * len(storage) + 1, 36, dtype=np.int64)
    out = pa.LargeStringArray.from_buffers(len(storage), pa.py_buffer(offsets), pa.py_buffer(texts.tobytes()))
    return pa.compute.if_else(chunk.is_null(), pa.scalar(None, pa.large_string()), out) if chunk.null_count else out


def type_of_values(type_: pa.DataType) -> pa.DataType:
    """The type, or that of a dictionary's values."""
    import pyarrow as pa

    return type_.value_type if pa.types.is_dictionary(type_) else type_


def categories(place: str, name: str, array: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    """large_string of texts, integers and bools, also in a dictionary."""
    import pyarrow as pa
    import pyarrow.compute as pc

    array = plain(array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array]))
    if pa.types.is_boolean(array.type):
        return pc.if_else(array, pa.scalar("true", pa.large_string()), pa.scalar("false", pa.large_string()))
    if not (pa.types.is_integer(array.type) or is_text(array.type) or pa.types.is_null(array.type)):
        hint = (INTEGER_HINT if pa.types.is_floating(array.type) else TEXT_HINT).format(name)
        raise CohortError(place, "texts, integers or bools as categories", str(array.type), hint)
    return texts(place, array).cast(pa.large_string())


def nulls(array: pa.Array | pa.ChunkedArray) -> int:
    """How many values are missing, also in lists."""
    import pyarrow.compute as pc

    array = plain(array)
    return array.null_count + (nulls(pc.list_flatten(array)) if is_list(array.type) else 0)


def null_lists(array: pa.Array | pa.ChunkedArray) -> int:
    """How many lists are missing: unlike a number, a list has no NaN."""
    array = plain(array)
    return array.null_count if is_list(array.type) else 0


def empty(array: pa.Array | pa.ChunkedArray) -> int:
    """How many texts are empty."""
    import pyarrow as pa
    import pyarrow.compute as pc

    array = plain(array)
    if array.type not in (pa.string(), pa.large_string(), pa.string_view()):
        return 0
    lengths = pc.binary_length(array.cast(pa.large_string()))
    return len(array) - array.null_count - (pc.sum(lengths.cast(pa.bool_())).as_py() or 0)


def not_finite(array: pa.Array | pa.ChunkedArray, dtype: type = np.float64) -> int:
    """How many numbers are NaN or infinite as float64 or float32, also in lists."""
    import pyarrow as pa
    import pyarrow.compute as pc

    array = plain(array)
    if is_list(array.type):
        return not_finite(pc.list_flatten(array), dtype)
    if not pa.types.is_floating(array.type):
        return 0
    with np.errstate(over="ignore"):
        return int(np.count_nonzero(~np.isfinite(to_numpy(array.drop_null()).astype(dtype))))


def integers_of_texts(texts: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """int64 of texts, all of which are decimal integers with a sign or without, and blanks around them or not; null of
    an empty one. None: one of them is something else, which may be an integer to Arrow, such as 0x10."""
    import pyarrow as pa
    import pyarrow.compute as pc

    pattern = f"^([{BLANKS}]*[+-]?[0-9]+[{BLANKS}]*)?$"
    if not pc.all(pc.match_substring_regex(texts, pattern), min_count=0).as_py():
        return None
    try:
        return pc.utf8_ltrim(_bare(texts), "+").cast(pa.int64())
    except pa.ArrowInvalid:  # out of range
        return None


def _bare(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Texts without the blanks around them; null of an empty one."""
    import pyarrow.compute as pc

    return pc.if_else(pc.equal(texts, ""), None, pc.utf8_trim(texts, BLANKS))


def first_bad(array: pa.ChunkedArray, kind: ColumnKind) -> int | None:
    """The first of some texts that is no integer, or no number; None: there is none."""
    import pyarrow as pa

    def fits(part: pa.ChunkedArray) -> bool:
        if kind == "integers":
            return integers_of_texts(part) is not None
        try:
            _bare(part).cast(pa.float64())
        except pa.ArrowInvalid:
            return False
        return True

    if fits(array):
        return None
    first, count = 0, len(array)
    while count > 1:
        half = count // 2
        if fits(array.slice(first, half)):
            first, half = first + half, count - half
        count = half
    return first


def is_text(type_: pa.DataType) -> bool:
    """Whether a type is of texts, or of bytes, which may be texts."""
    import pyarrow as pa

    return type_ in (pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary())


def is_list(type_: pa.DataType) -> bool:
    """Whether a type is of lists."""
    import pyarrow as pa

    return pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_)


def _stacked_lists(place: str, array: pa.Array | pa.ChunkedArray, read) -> np.ndarray:
    """[n, k] of lists of one length."""
    import pyarrow as pa

    parts = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    out = []
    for part in parts:
        if part.null_count:  # of lists in lists; its numbers would be those of the next
            raise CohortError(place, "a list", "none", "fill it in")
        rows, flat = len(part), read(part.flatten())
        lengths = np.diff(part.offsets.to_numpy()) if not pa.types.is_fixed_size_list(part.type) else np.empty(0)
        if rows and (len(flat) % rows or (lengths != len(flat) // rows).any()):
            raise lengths_differ(place)
        if rows and not len(flat):
            raise CohortError(place, "lists of at least one number", "empty ones", "leave the column out")
        if rows:
            out.append(flat.reshape(rows, -1))
    if len({part.shape[1] for part in out}) > 1:
        raise lengths_differ(place)
    return np.concatenate(out) if out else np.empty((0, 1), np.float32)


def lengths_differ(place: str) -> CohortError:
    """The error of a column of lists, in one block or in several."""
    return CohortError(place, "lists of one length", "different ones", "fill the shorter ones up")


def plain_type(type_: pa.DataType) -> pa.DataType:
    """That of the values of a dictionary; of views, from which Arrow takes no values, that of other texts."""
    import pyarrow as pa

    if not pa.types.is_dictionary(type_):
        return type_
    wide = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
    return wide.get(type_.value_type, type_.value_type)


def plain(array: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """The values of a dictionary, and what an extension type holds where it is a tensor."""
    import pyarrow as pa

    parts = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    if pa.types.is_dictionary(array.type):
        type_ = plain_type(array.type)
        words = [part.dictionary if part.dictionary.type == type_ else part.dictionary.cast(type_) for part in parts]
        taken = [values.take(part.indices) for part, values in zip(parts, words, strict=True)]
        return pa.chunked_array(taken, type_) if isinstance(array, pa.ChunkedArray) else taken[0]
    if isinstance(array.type, pa.FixedShapeTensorType):
        return pa.chunked_array([part.storage for part in parts], array.type.storage_type)
    return array


def _hint(type_: pa.DataType, name: str, kind: ColumnKind) -> str:
    """What to do with a column of another type."""
    import pyarrow as pa

    if kind == "texts":
        whole = f"ids are integers or texts; {INTEGER_HINT}"
        return (whole if pa.types.is_floating(type_) else ID_HINT).format(name)
    if pa.types.is_temporal(type_) and not (pa.types.is_timestamp(type_) or pa.types.is_date(type_)):
        return DURATION_HINT.format(name)
    if pa.types.is_temporal(type_):
        return (
            f"{arrays.TIMES_HINT}; or name their unit: --time-unit s (time_unit: s)"
            if kind == "integers"
            else TIME_HINT
        )
    if pa.types.is_string(type_) or pa.types.is_large_string(type_) or type_ == pa.string_view():
        return f"{arrays.IDS_HINT}; --columns chooses others" if kind == "integers" else CATEGORY_HINT.format(name)
    if pa.types.is_decimal(type_):
        return f"convert the column: CAST({name} AS BIGINT) in SQL" if kind == "integers" else FLOAT_HINT.format(name)
    if kind == "integers":
        return "convert the column to int64, or choose others by --columns"
    return "convert the column to numbers, or choose others"
