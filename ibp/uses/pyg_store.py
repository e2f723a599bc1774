"""pyg_store: tables as a feature store of PyG, whose loaders then read encoded rows."""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch_geometric.data import FeatureStore, TensorAttr

from cohort_gnn.base.errors import CohortError
from cohort_gnn.ibp.table import Table


class _TableStore(FeatureStore):
    def __init__(self, tables: dict):
        super().__init__()
        self.__dict__["_tables"] = tables

    def _put_tensor(self, tensor, attr: TensorAttr) -> bool:
        key, old = _key_of(attr), self._tables.get(_key_of(attr))
        if attr.index is None:
            self._tables[key] = _checked(key, tensor)
        elif old is None:
            return False
        elif isinstance(old, Table):
            index = range(len(old))[attr.index] if isinstance(attr.index, slice) else attr.index
            old.put(index, tensor)
        else:
            old[attr.index] = torch.as_tensor(tensor)
        return True

    def _get_tensor(self, attr: TensorAttr) -> Tensor | None:
        rows = self._tables.get(_key_of(attr))
        if rows is None:
            return None
        index = slice(None) if attr.index is None else attr.index
        if isinstance(rows, Table) and not isinstance(index, slice):
            index = torch.as_tensor(index)  # the rows are a tensor then
        return torch.as_tensor(rows[index])

    def _remove_tensor(self, attr: TensorAttr) -> bool:
        if attr.index is not None:  # update_tensor() removes rows, before it puts others in their places
            return False
        return self._tables.pop(_key_of(attr), None) is not None

    def _get_tensor_size(self, attr: TensorAttr) -> tuple[int, ...] | None:
        rows = self._tables.get(_key_of(attr))
        return None if rows is None else tuple(rows.shape)

    def get_all_tensor_attrs(self) -> list[TensorAttr]:
        return [TensorAttr(group, name) for group, name in self._tables]

    def __len__(self) -> int:
        return len(self._tables)


def _key_of(attr: TensorAttr) -> tuple:
    return attr.group_name, attr.attr_name


def _checked(key, value) -> Table | Tensor:
    if not (isinstance(key, tuple) and len(key) == 2):
        raise CohortError("pyg_store", "keys (node type, attribute)", repr(key), 'as in {("paper", "x"): table}')
    if not isinstance(value, Table | Tensor):
        raise CohortError(f"pyg_store: {key}", "a Table or a tensor", type(value).__name__)
    return value


def pyg_store(tables: Mapping) -> FeatureStore:
    """A feature store for PyG's loaders: ``NeighborLoader((pyg_store(tables), graph), ...)``.

    Args:
        tables: {(node type, attribute): Table, or a tensor for data that is not encoded, such as labels}. In a graph of
            one node type, the node type is None.
    """
    checked_tables = {key: _checked(key, value) for key, value in dict(tables).items()}
    lengths: dict = {}
    for (node_type, name), value in checked_tables.items():
        other, length = lengths.setdefault(node_type, (name, len(value)))
        if length != len(value):
            expected = f"{length} rows, one for each node, as {(node_type, other)} has"
            raise CohortError(f"pyg_store: {(node_type, name)}", expected, str(len(value)))
    return _TableStore(checked_tables)
