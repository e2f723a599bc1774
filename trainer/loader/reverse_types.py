"""Which edge type has the reverses of another, for ``subgraph_type="bidirectional"``."""

from cohort_gnn.dataset import StoredGraph
from cohort_gnn.spec.graph import EdgeType


def reverse_types_of(data: StoredGraph) -> dict[EdgeType, EdgeType]:
    """The reverse of each edge type that has one: the one that the data set names, else the one that PyG would take."""
    return {name: reverse for name in data.edge_types if (reverse := _reverse_of(data, name)) is not None}


def names_no_edges(data: StoredGraph, subgraph_type: str) -> bool:
    """Whether batches tell nothing about edges but their ends, as in PyG: all edge types have names, and reverses."""
    reverses = reverse_types_of(data) if subgraph_type == "bidirectional" else {}
    return len(reverses) == len(data.edge_types) and all(map(data.key_of, reverses))


def _reverse_of(data: StoredGraph, name: EdgeType) -> EdgeType | None:
    source, relation, target = name
    named = data.reverse_of(name)
    if named is not None and named != name:
        return named
    by_name = relation.removeprefix("rev_") if relation.startswith("rev_") else f"rev_{relation}"
    if (target, by_name, source) in data.edge_types:
        return target, by_name, source
    back = [other for other in data.edge_types if (other[0], other[2]) == (target, source)]
    return named or (back[0] if len(back) == 1 else None)
