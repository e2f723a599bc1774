"""Nodes by the ids that they had in the tables of the import."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from cohort_gnn.base.errors import CohortError
from cohort_gnn.dataset.tables.values import is_text

if TYPE_CHECKING:
    import pyarrow as pa


class NodeIds:
    """Finds the numbers of the nodes of one type.

    Args:
        ids: of all nodes, integers or texts [count]; None: nodes are called by their numbers.
        count: of nodes.
        node_type: for messages.
    """

    def __init__(self, ids: pa.Array | None, count: int, node_type: str):
        self._ids, self._count, self._node_type = ids, count, node_type

    @functools.cached_property
    def _number_of(self) -> dict[Any, int]:
        assert self._ids is not None
        return {name: number for number, name in enumerate(self._ids.to_pylist())}

    def numbers(self, names: Sequence, new: dict[Any, int], place: str) -> np.ndarray:
        """int64 [n]: the numbers of nodes.

        Args:
            new: numbers of nodes that the data set does not have, by their ids.

        Raises:
            CohortError: no node has one of the ids.
        """
        names = _listed(names, place)
        if self._ids is None and set(map(type, names)) == {int} and all(name == number for name, number in new.items()):
            with contextlib.suppress(OverflowError):  # of an id, which is then named below
                numbers = np.array(names, np.int64)
                if ((numbers >= 0) & (numbers < self._count + len(new))).all():
                    return numbers
        numbers = np.empty(len(names), np.int64)
        for position, name in enumerate(names):
            number = self._number(name, new)
            if number is None:
                what = f"the id of a node of type {self._node_type}"
                what += "" if self._ids is not None else f", below {self._count:,}, or of a new one"
                raise CohortError(f"{place}: {position}", what, repr(name)[:60])
            numbers[position] = number
        return numbers

    def names(self, numbers: Tensor) -> list:
        """The ids of nodes of the data set, int64 [n]."""
        if self._ids is None:
            return numbers.tolist()
        return [self._ids[number].as_py() for number in numbers.tolist()]

    def _number(self, name: Any, new: dict[Any, int]) -> int | None:
        if isinstance(name, bool) or not isinstance(name, int | str):
            return None
        if name in new:
            return new[name]
        if self._ids is None:
            return name if isinstance(name, int) and 0 <= name < self._count else None
        return self._number_of.get(name)

    def new(self, names: Sequence | None, count: int, place: str) -> dict[Any, int]:
        """Numbers for nodes that the data set does not have: the next ones.

        Raises:
            CohortError: an id that a node has already, or twice, or of another kind than theirs; none for a node.
        """
        if names is None:
            if self._ids is not None:
                raise CohortError(place, "id: one for each node, as the data set's nodes have", "none")
            return {self._count + i: self._count + i for i in range(count)}
        names = _listed(names, f"{place}: id")
        if len(names) != count:
            raise CohortError(f"{place}: id", f"{count} ids, one for each node", str(len(names)))
        kind = int if self._ids is None or not is_text(self._ids.type) else str
        number_of: dict[Any, int] = {}
        for name in names:
            is_other = isinstance(name, bool) or not isinstance(name, kind)
            if is_other or (kind is int and not -(2**63) <= name < 2**63):
                expected = "texts, as the data set has" if kind is str else "integers from -2^63 to 2^63 - 1"
                raise CohortError(f"{place}: id", expected, repr(name)[:60])
            if name in number_of or self._number(name, {}) is not None:
                raise CohortError(f"{place}: id", "ids that no other node has", f"{name!r} again"[:60])
            number_of[name] = self._count + len(number_of)
        return number_of


def _listed(names: Any, place: str) -> list:
    """Ids of an array, a tensor, a column of a table or a list; raises CohortError for others."""
    if isinstance(names, str | bytes | Set | Mapping) or not hasattr(names, "__len__"):
        raise CohortError(place, "a list of ids", type(names).__name__)
    if hasattr(names, "tolist"):
        return names.tolist()
    if isinstance(names, list) and set(map(type, names)) <= {int, str}:  # as a rule; quicker than a look at each
        return names
    return [name.item() if isinstance(name, np.generic) else name for name in names]
