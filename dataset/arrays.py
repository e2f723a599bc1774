"""Checks of arrays from outside before they are written: shape, kind of numbers, range."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy  # its packages load on first use

from cohort_gnn.base.errors import CohortError

TASKS = ("classification", "regression", "multilabel")
MASKS = ("train_mask", "val_mask", "test_mask")  # of PyG's Data
FEW_NODES, NODES_AN_EDGE = 1 << 20, 64  # of a matrix that says more, one of its numbers is damaged
MANY_CLASSES = 1_000_000  # more than there are nodes are none
EXACT = 1 << 24  # integers up to here are float32
TIMES_AT_ONCE = 1 << 20
KEPT_FEATURE_DTYPES = (np.uint8, np.float16, np.float32)
MATRIX_HINT = "edges, weights = torch_geometric.utils.to_edge_index({}); "  # of COO, CSR, CSC and SparseTensor
NO_NODES_HINT = "leave it out: data.node_type_subgraph([name for name in data.node_types if data[name].num_nodes])"
ADJ_HINT = (
    MATRIX_HINT.format("data.adj_t")
    + "data.edge_index = edges.flip(0); data.edge_weight = weights  # which can stay out if all are 1"
)
TIMES_HINT = "times are integers, such as seconds; of dates: array.astype('datetime64[s]').astype(numpy.int64)"
RANGE_HINT = "integers are from -2^63 to 2^63 - 1: number ids anew, for example with numpy.unique"
NUMBERS_HINT = "number them: ids, y = numpy.unique(column, return_inverse=True)"
IDS_HINT = f"{NUMBERS_HINT}; ids may be texts where id of a graph.yaml names the nodes' column of them"


def demand_shape(place: str, array: Any, shape: tuple[int | None, ...]) -> None:
    """Raises CohortError unless the array has this shape; None stands for any length."""
    fits = len(array.shape) == len(shape) and all(
        want in (None, have) for want, have in zip(shape, array.shape, strict=True)
    )
    if not fits:
        text = ", ".join("any" if want is None else str(want) for want in shape)
        raise CohortError(place, f"shape [{text}]", f"shape {list(array.shape)}", _reshaped(tuple(array.shape), shape))


def _reshaped(have: tuple[int, ...], want: tuple[int | None, ...]) -> str:
    """What makes an array of the wrong shape fit."""
    if len(have) == 1 and len(want) == 2:
        return "for one column: array[:, None]"
    if len(want) == 1 and len(have) == 2 and have[1] == 1:
        return "take its only column: array[:, 0]"
    if len(have) == len(want) == 2 and all(
        length in (None, other) for length, other in zip(want, have[::-1], strict=True)
    ):
        return "transpose it: array.T"
    return "look at how the array was made"


def integers(place: str, array: np.ndarray, shape: tuple[int | None, ...] = (None,)) -> np.ndarray:
    """The array as int64, for ids and labels: int64 of that shape."""
    demand_shape(place, array, shape)
    if array.dtype.kind not in "iu":
        hint = IDS_HINT if array.dtype.kind in "US" else "convert it with array.astype(numpy.int64)"
        raise CohortError(place, "integers", f"dtype {array.dtype}", hint)
    return as_int64(place, array)


def as_int64(place: str, array: np.ndarray, hint: str = RANGE_HINT) -> np.ndarray:
    """The integers, in C order."""
    if array.dtype == np.uint64 and array.size and array.max() >= 2**63:
        raise CohortError(place, "integers that int64 holds", f"dtype uint64, {array.max()}", hint)
    return np.ascontiguousarray(array, dtype=np.int64)


def mask(place: str, array: np.ndarray, key: str, ids_hint: str = "") -> np.ndarray:
    """bool [V] of a Data's mask called `key`: bool, or, as older files have them, integers that are all 0 or 1.

    Args:
        ids_hint: what to do with ids; default: a mask of them, by PyG's function.
    """
    if array.ndim != 1:
        hint = f"choose one of the splits: data.{key} = data.{key}[:, 0]"
        raise CohortError(place, "a mask [V]", f"shape {list(array.shape)}", hint)
    if array.dtype.kind == "b":
        return array
    if array.dtype.kind not in "iu" or (len(array) and (array.min() < 0 or array.max() > 1)):
        hint = f"data.{key} = index_to_mask(ids, size=data.num_nodes), of torch_geometric.utils, where it has ids"
        actual = f"dtype {array.dtype}, {array[:3]}"
        raise CohortError(place, "a mask: True or False for each node", actual, ids_hint or hint)
    return array.astype(bool)


def split_ids(place: str, array: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """int64 [any]: the ids of a split, or of a mask [V] its nodes with a label; labels as ``targets`` has them."""
    if array.dtype.kind == "b":
        demand_shape(place, array, labels.shape[:1])
        return np.flatnonzero(array & labelled(labels))
    ids = integers(place, array)
    if len(labels) > 2 and len(ids) == len(labels) and ids.min() >= 0 and ids.max() <= 1:
        hint = "a mask must be bool: array.astype(bool)"
        raise CohortError(place, "ids, or a mask of True and False", f"{len(ids)} integers of 0 and 1", hint)
    return ids


def features(place: str, array: np.ndarray, vanished: Vanished | None = None) -> np.ndarray:
    """uint8, float16 and float32 stay as they are; other numbers become float32, integers only without rounding.

    Args:
        vanished: takes note of rows that are a part of all; None: these are all.
    """
    demand_shape(place, array, (None, None))
    if array.dtype.kind not in "biuf":
        raise CohortError(place, "numbers", f"dtype {array.dtype}", "convert it with array.astype(numpy.float32)")
    if array.shape[1] == 0:
        raise CohortError(place, "at least one column", f"shape {list(array.shape)}")
    demand_no_bits(place, array.dtype)
    with np.errstate(over="ignore"):  # such numbers become infinity, which is refused
        rows = array.astype(feature_dtype(array.dtype), copy=False)
    _demand_unrounded(place, array, rows)
    seen = Vanished(place) if vanished is None else vanished
    seen.add(array, rows)
    if vanished is None:
        seen.demand_none()
    return rows


def demand_no_bits(place: str, dtype: np.dtype) -> None:
    """Refuses uint16, which may be numbers, or the bits of bfloat16."""
    if dtype.newbyteorder("=") == np.uint16:
        hint = "numbers: array.astype(numpy.float32); bits of bfloat16: torch.from_numpy(array).view(torch.bfloat16), "
        hint += "or in a file --features FILE.npy --feature-dtype bfloat16"
        raise CohortError(place, "numbers, or the bits of bfloat16", "dtype uint16, which may be either", hint)


def float32(place: str, array: np.ndarray) -> np.ndarray:
    """The numbers as float32; integers only without rounding."""
    rows = array.astype(np.float32, copy=False)
    _demand_unrounded(place, array, rows)
    return rows


def rounded(array: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Indices [n, array.ndim] of the integers of `array` that its float32 `rows` do not hold.

    Integers are those of integer types, and whole numbers below 2^53 of float64, which pandas makes of integers with
    nulls.
    """
    is_integer = array.dtype.kind in "iu" and array.dtype.itemsize > 2
    if rows.dtype != np.float32 or not (is_integer or array.dtype == np.float64):
        return np.empty((0, array.ndim), np.int64)
    large = (np.abs(rows) >= EXACT) & np.isfinite(rows)
    if not is_integer:
        large &= (np.abs(array) < 2**53) & (array == np.floor(array))
    at = np.argwhere(large)
    places = tuple(at.T)
    return at[rows[places].astype(np.longdouble) != array[places].astype(np.longdouble)]


class Vanished:
    """Notices columns whose numbers all become 0 as float32, such as 1e-50; a few may, beside others.

    Example:
        >>> vanished = Vanished("weights.csv: column w")
        >>> vanished.add(numbers, numbers.astype(np.float32))
        >>> vanished.demand_none()
    """

    def __init__(self, place: str):
        self._place = place
        self._are_left: np.ndarray | None = None  # bool [columns]: other than 0 as float32
        self._lost: dict[int, float] = {}

    @property
    def is_settled(self) -> bool:
        """Whether each column has a number that does not become 0."""
        return self._are_left is not None and bool(self._are_left.all())

    def add(self, numbers: np.ndarray, rows: np.ndarray) -> None:
        """Takes note of numbers [n] or [n, k], and of what becomes of them."""
        if numbers.dtype.kind != "f" or numbers.dtype.itemsize <= 4 or rows.dtype != np.float32 or not numbers.size:
            return
        numbers, rows = numbers.reshape(len(numbers), -1), rows.reshape(len(rows), -1)
        if self._are_left is None:
            self._are_left = np.zeros(rows.shape[1], bool)
        for column in np.flatnonzero(~self._are_left).tolist():
            self._are_left[column] = rows[:, column].any()
            if not self._are_left[column] and column not in self._lost:
                lost = numbers[:, column][numbers[:, column] != 0]
                self._lost |= {column: float(lost[0])} if len(lost) else {}

    def demand_none(self) -> None:
        """Raises CohortError for such a column."""
        gone = [] if self._are_left is None else [column for column in self._lost if not self._are_left[column]]
        if gone:
            where = f", column {gone[0]}" if self._are_left is not None and len(self._are_left) > 1 else ""
            actual = f"{self._lost[gone[0]]}, which becomes 0, as all others"
            hint = "multiply all by one number (of weights, only the ratios count for draws), or write 0"
            raise CohortError(f"{self._place}{where}", "numbers that float32 holds", actual, hint)


def _demand_unrounded(place: str, array: np.ndarray, rows: np.ndarray) -> None:
    """Refuses integers that float32 does not hold, such as ids: rounded, two of them may be one."""
    bad = rounded(array, rows)
    if len(bad):
        at = tuple(bad[0])
        hint = "divide each into columns of smaller numbers; to round them: array.astype(numpy.float32)"
        where = f"{place}[{', '.join(map(str, at))}]"
        raise CohortError(where, "an integer that float32 holds", f"{int(array[at])}, rounded to {int(rows[at])}", hint)


def feature_dtype(dtype: np.dtype) -> np.dtype:
    """What numbers of this type become as features."""
    native = dtype.newbyteorder("=")
    return native if native in KEPT_FEATURE_DTYPES else np.dtype(np.float32)


def as_float32(x: np.ndarray, dtype: str) -> np.ndarray:
    """The features as float32, a copy; bfloat16 as its bits in uint16."""
    if dtype == "bfloat16":
        return (x.astype(np.uint32) << 16).view(np.float32)
    return x.astype(np.float32)


def class_labels(place: str, array: np.ndarray, num_nodes: int) -> np.ndarray:
    """int64 [V] of classes as other libraries have them: [V] or [V, 1], integers or whole floats, NaN for none; -1
    is the only negative label there is."""
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim == 2 and array.shape[0] == num_nodes:
        hint = "choose one of them, or say that each is a label of its own: --label-type multilabel"
        raise CohortError(place, "one class per node", f"{array.shape[1]} targets per node", hint)
    if array.dtype.kind == "f":
        array = array.astype(np.float32) if array.dtype == np.float16 else array  # which ends at 65504
        missing = np.isnan(array)
        whole = np.where(missing, -1, array)
        bad = np.flatnonzero((whole != np.floor(whole)) | (np.abs(whole) >= 2.0**63))
        if len(bad):
            hint = "make classes of them, or say that they are numbers: --label-type regression"
            raise CohortError(f"{place}[{bad[0]}]", "the number of a class, or NaN", f"{whole[bad[0]]}", hint)
        array = whole.astype(np.int64)
    out = integers(place, array.astype(np.int64) if array.dtype.kind == "b" else array, (num_nodes,))
    bad = np.flatnonzero(out < -1)
    if len(bad):
        hint = "give nodes without a label -1"
        raise CohortError(f"{place}[{bad[0]}]", "a class from 0, or -1 for none", str(out[bad[0]]), hint)
    return out


def targets(place: str, array: np.ndarray, num_nodes: int, task: str) -> np.ndarray:
    """What a data set of this task has as labels.

    Classification: int64 [V], as class_labels. Regression: float32 [V], NaN for none. Multilabel: [V, labels] of 0 and
    1, float32 with NaN for unknown where the array has floats, else uint8 with 255 where it has -1.
    """
    if task == "classification":
        return class_labels(place, array, num_nodes)
    if array.dtype.kind not in "biuf":
        raise CohortError(place, "numbers", f"dtype {array.dtype}", "convert it with array.astype(numpy.float32)")
    if task == "multilabel":
        return _several_labels(place, array, num_nodes)
    if task != "regression":
        raise CohortError("task", " or ".join(TASKS), repr(task))
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    demand_shape(place, array, (num_nodes,))
    with np.errstate(over="ignore"):  # such numbers become infinity, which is refused
        numbers = float32(place, array)
    vanished = Vanished(place)
    vanished.add(array, numbers)
    vanished.demand_none()
    if bad := np.flatnonzero(np.isinf(numbers)).tolist():
        hint = "replace it, or leave the node without a label"
        raise CohortError(f"{place}[{bad[0]}]", "a finite number, or NaN for none", str(array[bad[0]]), hint)
    return numbers


def _several_labels(place: str, array: np.ndarray, num_nodes: int) -> np.ndarray:
    """[V, labels]: uint8, or float32 where the array has floats."""
    demand_shape(place, array, (num_nodes, None))
    if array.shape[1] == 0:
        raise CohortError(place, "at least one label", f"shape {list(array.shape)}")
    floats = array.dtype.kind == "f"
    unknown = np.isnan(array) if floats else array == -1 if array.dtype.kind == "i" else np.zeros_like(array, bool)
    bad = np.argwhere(~unknown & (array != 0) & (array != 1))
    if len(bad):
        row, column = bad[0].tolist()
        expected = f"0, 1, or {'NaN' if floats else '-1'} for unknown"
        raise CohortError(f"{place}[{row}, {column}]", expected, str(array[row, column]))
    return array.astype(np.float32) if floats else np.where(unknown, np.uint8(255), array.astype(np.uint8))


def labelled(labels: np.ndarray) -> np.ndarray:
    """bool [V]: nodes with a class, a number, or an answer for one label at least; labels as ``targets`` has them."""
    if labels.dtype == np.int64:
        return labels >= 0
    known = labels != 255 if labels.dtype == np.uint8 else ~np.isnan(labels)
    return known.reshape(len(labels), -1).any(axis=1)


def demand_few_classes(place: str, count: int, num_rows: int) -> None:
    """Raises CohortError for so many classes that their numbers are something else."""
    if count > max(num_rows, MANY_CLASSES):
        hint = "classes are numbered from 0: are these ids? --label-type regression takes numbers as they are"
        raise CohortError(place, f"at most {max(num_rows, MANY_CLASSES)} classes", str(count), hint)


def num_outputs(labels: np.ndarray) -> int:
    """Classes as the largest says, labels a node may have, or 1 number; labels as ``targets`` has them."""
    if labels.ndim == 2:
        return labels.shape[1]
    return int(labels.max(initial=-1)) + 1 if labels.dtype == np.int64 else 1


def edge_weights(place: str, array: np.ndarray) -> np.ndarray:
    """float32 [n] of numbers [n] or [n, 1]."""
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    demand_shape(place, array, (None,))
    if array.dtype.kind not in "biuf":
        raise CohortError(place, "numbers", f"dtype {array.dtype}", "convert it with array.astype(numpy.float32)")
    with np.errstate(over="ignore", under="ignore"):
        weights = float32(place, array)
    lost = array[np.isinf(weights) & np.isfinite(array)]
    if len(array) and not weights.any():  # a few may become 0 beside others
        lost = array[array != 0]
    if len(lost):
        hint = "multiply all weights by one number: only their ratios count for draws"
        raise CohortError(place, "weights that float32 holds", f"{lost[0]}", hint)
    return weights


def edge_times(place: str, array: np.ndarray) -> np.ndarray:
    """int64 [n] of integers [n] or [n, 1]."""
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    demand_shape(place, array, (None,))
    if array.dtype.kind not in "iu":
        raise CohortError(place, "integers that int64 holds", f"dtype {array.dtype}", TIMES_HINT)
    return as_int64(place, array, TIMES_HINT)


def edges(place: str, src: np.ndarray, dst: np.ndarray, num_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Both ends of the edges, int64 [E] each, all in [0, V)."""
    endpoints = integers(f"{place}src", src), integers(f"{place}dst", dst)
    demand_shape(f"{place}dst", endpoints[1], endpoints[0].shape)
    for end, ids in zip(("src", "dst"), endpoints, strict=True):
        demand_nodes(f"{place}{end}", ids, num_nodes)
    return endpoints


def demand_offsets(place: str, offsets: np.ndarray, count: int) -> None:
    """Raises CohortError unless the offsets into an array of `count` elements ascend from 0 to its end."""
    if offsets[0] != 0 or offsets[-1] != count or (offsets[1:] < offsets[:-1]).any():
        actual = f"{offsets[0]} .. {offsets[-1]}, or a step down"
        raise CohortError(place, f"values that ascend from 0 to {count}", actual)


def demand_plausible(place: str, num_nodes: int, num_edges: int) -> None:
    """Raises CohortError for a matrix that says it has far more rows than entries; files would be made for them."""
    if not 0 < num_nodes <= FEW_NODES + NODES_AN_EDGE * num_edges:
        hint = "so many nodes without edges are possible in an edge list (.csv), with --nodes"
        raise CohortError(place, f"nodes for {num_edges} entries", f"{num_nodes} rows", hint)


def csr_matrix(
    prefix: str, data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, shape: Sequence[int]
) -> scipy.sparse.csr_matrix:
    """A SciPy CSR matrix whose parts belong together; their places are `prefix` and their names."""
    indptr = integers(f"{prefix}indptr", indptr, (shape[0] + 1,))
    indices = integers(f"{prefix}indices", indices)
    demand_shape(f"{prefix}data", data, indices.shape)
    demand_offsets(f"{prefix}indptr", indptr, len(indices))
    demand_nodes(f"{prefix}indices", indices, shape[1])
    return scipy.sparse.csr_matrix((data, indices, indptr), shape=tuple(shape))


def demand_nodes(place: str, ids: np.ndarray, num_nodes: int) -> None:
    """Raises CohortError unless all ids are in [0, V)."""
    bad = np.flatnonzero((ids < 0) | (ids >= num_nodes))
    if len(bad):
        actual = f"{ids[bad[0]]}" + (f" ({len(bad)} such places)" if len(bad) > 1 else "")
        hint = "nodes are numbered from 0, one per feature row"
        raise CohortError(f"{place}[{bad[0]}]", f"a node in [0, {num_nodes})", actual, hint)


def any_between(times: np.ndarray, first: int, last: int) -> bool:
    """Whether one of the times, int64 [n], is in a span, whose ends count. Reads until one is found."""
    pieces = (times[begin : begin + TIMES_AT_ONCE] for begin in range(0, len(times), TIMES_AT_ONCE))
    return any(bool(((piece >= first) & (piece <= last)).any()) for piece in pieces)


def times_of_sources(place: str, sources: np.ndarray, times: np.ndarray) -> np.ndarray:
    """int64 [E]: an edge is as old as its source. `sources`: [E], of nodes with `times` int64 [nodes].

    Raises:
        CohortError: sources that are no such nodes.
    """
    sources = integers(place, sources)
    demand_nodes(place, sources, len(times))
    return times[sources]
