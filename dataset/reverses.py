"""Which relations of a graph have the same edges in the other direction; dataset/reverses.h has the rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cohort_gnn.base.errors import CohortError, warn_user
from cohort_gnn.dataset import _native
from cohort_gnn.spec.graph import EdgeType

if TYPE_CHECKING:
    from cohort_gnn.dataset.stored_graph import StoredGraph

UNKNOWN, NONE = -1, -2  # where no relation is named, as dataset/reverses.h has them
NO_REVERSE = "none"  # on the command line and in graph.yaml


class EdgesByTarget(NamedTuple):
    """The edges of a relation by target, and its declared reverse: unknown (None), a relation, or none (has_none)."""

    indptr: np.ndarray
    indices: np.ndarray
    reverse_of: EdgeType | None = None
    has_none: bool = False


class KnownRelation(NamedTuple):
    """The reverse of a relation, and the relations with its edges.

    Attributes:
        reverse_of: the relation that it is the reverse of, as declared or as found; None: none.
        there: the relations that have its edges, itself first, and whether they have them in the other direction.
    """

    reverse_of: EdgeType | None
    there: list[tuple[EdgeType, bool]]


def find_reverses(relations: Mapping[EdgeType, EdgesByTarget]) -> dict[EdgeType, KnownRelation]:
    """The reverse of each relation, as declared, or else by comparing edges.

    Of two relations that are reverses of each other, the one that is called ``rev_...`` names the other; else the later
    one does.
    """
    order = sorted(relations, key=lambda relation: relation[1].startswith("rev_"))
    types = {name: number for number, name in enumerate({end for name in order for end in (name[0], name[2])})}

    def said(lists: EdgesByTarget) -> int:
        return NONE if lists.has_none else UNKNOWN if lists.reverse_of is None else order.index(lists.reverse_of)

    arguments = [
        (types[name[0]], types[name[2]], lists.indptr, lists.indices, said(lists))
        for name, lists in ((name, relations[name]) for name in order)
    ]
    return {
        name: KnownRelation(
            None if reverse < 0 else order[reverse], [(order[other], bool(reversed_)) for other, reversed_ in there]
        )
        for name, (reverse, there) in zip(order, _native.reverses(arguments), strict=True)
    }


def are_by_source(place: str, data: StoredGraph, made: EdgeType, original: EdgeType, have_own_times: bool) -> bool:
    """How edges of equal times stand in a relation whose edges are made of the reverse ones: by their sources, as they
    come from lists that are written; False: in the order of the source.

    Args:
        made: has times and features; its edges are made of those of `original`.
        have_own_times: the original edges do, not only their sources.

    Raises:
        CohortError: the order would be another than that of an import of all.
    """
    sources_have_times, targets_have_times = (
        data.node_types[name].node_times is not None for name in (original[0], original[2])
    )
    name = f"{place}: {', '.join(original)}"
    if data.edge_types[made].reverse_of != original:
        expected = f"edges of {', '.join(made)}, where edges have both times and features"
        raise CohortError(name, expected, "those of its reverse", "give the edges themselves: the reverse follows")
    if have_own_times and targets_have_times and not sources_have_times:
        expected = (
            f"edges without features or times of their own, where {original[2]} has times and each edge a reverse"
        )
        raise CohortError(name, expected, "both", f"append {', '.join(made)}, too, or import all data again")
    return not (have_own_times and sources_have_times)


def checked_reverses(
    place: str, reverses: Mapping[Any, Any] | None, relations: Iterable[EdgeType]
) -> dict[EdgeType, EdgeType | None]:
    """Checks the reverses that a user declares: {relation: the one that it reverses; None: it has no reverse}.

    Raises:
        CohortError: a relation does not exist, or the types of two do not fit each other.
    """
    there, out = list(relations), dict[EdgeType, EdgeType | None]()
    if reverses is not None and not isinstance(reverses, Mapping):
        expected = "a dict {relation: the relation that it is the reverse of, or None}"
        raise CohortError(place, expected, type(reverses).__name__)
    for name, reverse in (reverses or {}).items():
        for type_ in (name, reverse):
            if type_ not in there and not (type_ is None and type_ is not name):
                known = ", ".join(map(str, there))
                raise CohortError(place, f"(source type, name, target type) of a relation: {known}", repr(type_)[:80])
        if reverse is not None and (reverse[0], reverse[2]) != (name[2], name[0]):
            expected = f"a relation from {name[2]} to {name[0]}, or None, for {name}"
            raise CohortError(place, expected, repr(reverse))
        out[name] = reverse
    return out


def warn_of_opposites(data: StoredGraph, relation: EdgeType, what: str) -> None:
    """Warns of relations that may be the reverse of a relation but are neither recognised nor declared as such; `what`:
    the consequence."""
    if text := opposites_text(data, relation):
        warn_user(f"{text} {what}")


def opposites_text(data: StoredGraph, relation: EdgeType) -> str:
    """The text of the warning; "" if there are no such relations."""
    own = data.edge_types[relation]
    unclear = [other for other in data.edge_types if _is_unclear(data, relation, other)]
    if own.has_no_reverse or not unclear:
        return ""
    other, count = unclear[0], data.edge_types[unclear[0]].num_edges
    counts = f"{count:,} edges, {relation[1]} {own.num_edges:,}"
    counts = "as many edges, but others" if count == own.num_edges else counts
    options = f"--reverse-of {':'.join(other)}={':'.join(relation)} (or ={NO_REVERSE} if it is not)"
    return (
        f"{', '.join(map(str, unclear))}: opposite to {relation}, but not recognised as its reverse: {other[1]} has"
        f" {counts}. If it has the reverse edges, say so when the data set is written:"
        f" from_pyg(..., reverse_of={{{other}: {relation}}}), or None if it has not;"
        f" cohort dataset import {options}."
    )


def _is_unclear(data: StoredGraph, relation: EdgeType, other: EdgeType) -> bool:
    """Whether another relation may be the reverse: it runs between the same types, within one type only with a name
    that says so, and nothing is known of its own reverse."""
    if other == relation or (other[0], other[2]) != (relation[2], relation[0]):
        return False
    if relation[0] == relation[2] and f"rev_{relation[1]}" != other[1] and f"rev_{other[1]}" != relation[1]:
        return False
    if data.edge_types[other].has_no_reverse:
        return False
    return all(not is_reversed or there == other for there, is_reversed in data.same_edges(other))
