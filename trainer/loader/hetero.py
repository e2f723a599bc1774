"""Arguments of loaders that name node types and edge types."""

from collections.abc import Mapping

import numpy as np
from torch_geometric.sampler import NumNeighbors

from cohort_gnn.base.errors import CohortError
from cohort_gnn.spec.graph import EdgeType, GraphTypes
from cohort_gnn.spec.types import Fanout, checked
from cohort_gnn.trainer.loader.arguments import ids_of


def canonical(types: GraphTypes, name) -> EdgeType:
    """The edge type that a name means in PyG.

    A name is (source, name, target), or the same as a text; (source, target), which means the only edge type between
    these, else the one called "to"; or the name of the only edge type that is called so.
    """
    parts = tuple(name.split("__")) if isinstance(name, str) else tuple(name)
    if len(parts) == 3:
        return parts
    named = [edge_type for edge_type in types.edge_types if parts in ((edge_type[0], edge_type[2]), (edge_type[1],))]
    return named[0] if len(named) == 1 else (parts[0], "to", parts[-1])


def hops_of(num_neighbors):
    """The argument ``num_neighbors``: one list for all edge types is checked, a dict of lists is returned as it is."""
    by_type = isinstance(num_neighbors, Mapping | NumNeighbors)
    return num_neighbors if by_type else checked("num_neighbors", num_neighbors, Fanout)


def fanout_of(types: GraphTypes, num_neighbors) -> list[int]:
    """[edge types x hops] from a list for all edge types, or from a list for each.

    Raises:
        CohortError: an edge type is missing or unknown, or lists have different lengths.
    """
    default = None
    if isinstance(num_neighbors, NumNeighbors):
        num_neighbors, default = num_neighbors.values, num_neighbors.default
    if not isinstance(num_neighbors, Mapping):
        return checked("num_neighbors", num_neighbors, Fanout) * len(types.edge_types)
    fanouts = dict.fromkeys(types.edge_types, default) if default is not None else {}
    fanouts |= {canonical(types, name): values for name, values in num_neighbors.items()}
    for expected, present, what in ((types.edge_types, fanouts, "none for"), (fanouts, types.edge_types, "one for")):
        if unmatched := [name for name in expected if name not in present]:
            edge_types = ", ".join(map(str, types.edge_types))
            hint = "[0, 0] leaves an edge type out of two hops"
            raise CohortError("num_neighbors", f"a list for each of {edge_types}", f"{what} {unmatched[0]}", hint)
    place = "num_neighbors[{}]"
    lists = [checked(place.format(name), fanouts[name], Fanout) for name in types.edge_types]
    if len({len(fanout) for fanout in lists}) > 1:
        lengths = ", ".join(str(len(fanout)) for fanout in lists)
        raise CohortError("num_neighbors", "as many hops for each edge type", f"lists of {lengths} hops")
    return [picks for fanout in lists for picks in fanout]


def seeds_of(types: GraphTypes, input_nodes, may_repeat: bool) -> tuple[str, np.ndarray]:
    """(node type, int64 [n] ids of the type) from the name of a type, or from (name, ids or mask or None). The only
    type need not be named.

    Raises:
        CohortError: it is neither, or ids are not of the type.
    """
    seeds = input_nodes if isinstance(input_nodes, tuple | list) and len(input_nodes) == 2 else (input_nodes, None)
    (name, ids), (first, *others) = seeds, types.counts
    if not others and not isinstance(name, str):
        name, ids = first, input_nodes
    if not isinstance(name, str) or name not in (first, *others):
        expected = f"a node type, or (node type, ids): one of {', '.join(types.counts)}"
        hint = f'for example input_nodes=("{types.target}", data.train_ids)'
        hint = hint if others else "the data set has one node type: pass the ids alone"
        raise CohortError("input_nodes", expected, repr(name)[:80], hint)
    return name, ids_of(ids, types.counts[name], may_repeat)


def pairs_type_of(types: GraphTypes, edge_label_index, may_be_new: bool = False) -> tuple[EdgeType, object]:
    """(edge type, pairs) from an edge type, for all its edges, or from (edge type, pairs). The only type need not be
    named.

    Args:
        may_be_new: pairs may be of an edge type between node types of the graph that the graph does not have.

    Raises:
        CohortError: it is neither.
    """
    parts = edge_label_index if isinstance(edge_label_index, tuple | list) else ()
    name, pairs = parts if len(parts) == 2 and not _is_name(parts) else (edge_label_index, None)
    first, *others = types.edge_types
    if _is_name(name) or (isinstance(name, str) and pairs is not None):
        name = canonical(types, name)
    elif not others:
        name, pairs = first, edge_label_index
    if may_be_new and pairs is not None and isinstance(name, tuple) and {name[0], name[-1]} <= types.counts.keys():
        return name, pairs
    if not isinstance(name, tuple) or name not in (first, *others):
        expected = f"an edge type, or (edge type, pairs): one of {', '.join(map(str, types.edge_types))}"
        hint = f"for example edge_label_index=({first}, pairs)"
        hint = hint if others else "the data set has one edge type: pass the pairs alone"
        if pairs is not None:
            hint += '; exclude="none" takes pairs between two node types that are edges of none'
        raise CohortError("edge_label_index", expected, repr(name)[:80], hint)
    return name, pairs


def _is_name(parts) -> bool:
    """Whether these are the parts of an edge type's name."""
    return isinstance(parts, tuple | list) and len(parts) > 0 and all(isinstance(part, str) for part in parts)
