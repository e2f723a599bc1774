"""Tensors of nodes that a data set does not have: the argument ``node_tensors`` of a loader."""

from collections.abc import Mapping

from torch import Tensor

from cohort_gnn.base.errors import CohortError

OF_BATCHES = {"x", "edge_index", "indptr", "n_id", "input_id", "batch", "batch_size"}
OF_BATCHES |= {"e_id", "edge_weight", "edge_attr", "num_nodes", "num_sampled_nodes", "num_sampled_edges"}
OF_BATCHES |= {
    "edge_label",
    "edge_label_index",
    "edge_label_time",
    "src_index",
    "dst_pos_index",
    "dst_neg_index",
    "seed_time",
    "input_type",
}
NodeTensors = dict[str, dict[str, Tensor]]  # by name, of each node type


def checked_tensors(tensors: Mapping | None, counts: Mapping[str, int]) -> NodeTensors:
    """The argument ``node_tensors``: tensors by name, of each node type, of which the only one need not be named.

    Args:
        counts: of the nodes of each type.

    Raises:
        CohortError: one is no tensor [num_nodes, ...], or has the name of what batches have anyway; or a node type is
            unknown.
    """
    if tensors is not None and not isinstance(tensors, Mapping):
        expected, hint = "tensors by name", 'node_tensors={"year": year}'
        raise CohortError("node_tensors", expected, type(tensors).__name__, hint)
    tensors, by_type = tensors or {}, {}
    if len(counts) == 1 and not any(isinstance(value, Mapping) for value in tensors.values()):
        return {name: _checked("node_tensors", tensors, count) for name, count in counts.items()}
    for type_, type_tensors in tensors.items():
        place = f"node_tensors[{type_!r}]"
        if type_ not in counts or not isinstance(type_tensors, Mapping):
            expected = f"tensors by name, of one of the node types {', '.join(map(str, counts))}"
            raise CohortError(place, expected, type(type_tensors).__name__, 'node_tensors={"paper": {"year": year}}')
        by_type[type_] = _checked(place, type_tensors, counts[type_])
    return by_type


def _checked(argument: str, tensors: Mapping[str, Tensor], num_nodes: int) -> dict[str, Tensor]:
    for name, tensor in tensors.items():
        place = f"{argument}[{name!r}]"
        if name in OF_BATCHES:
            raise CohortError(place, f"another name than {', '.join(sorted(OF_BATCHES))}", repr(name))
        if not isinstance(tensor, Tensor) or tensor.dim() < 1 or len(tensor) != num_nodes:
            actual = f"shape {list(tensor.shape)}" if isinstance(tensor, Tensor) else type(tensor).__name__
            raise CohortError(place, f"a tensor [{num_nodes}, ...], one row per node", actual)
    return dict(tensors)


def rows_by_name(tensors: Mapping[str, Tensor], n_id: Tensor) -> dict[str, Tensor]:
    """Copies of the batch's rows, on the device of ``n_id``. Where a tensor is elsewhere, the ids go there and the rows
    come back."""
    return {name: tensor[n_id.to(tensor.device)].to(n_id.device) for name, tensor in tensors.items()}
