"""EmbeddingBag over the encoded rows of a table."""

import numbers

import torch
from torch import Tensor
from torch.nn import functional

from cohort_gnn.base.errors import CohortError
from cohort_gnn.ibp import _native
from cohort_gnn.ibp.rows import handle_of, on_gpu
from cohort_gnn.ibp.table import Table
from cohort_gnn.spec.types import checked_arguments


class EmbeddingBag(torch.nn.Module):
    """``torch.nn.EmbeddingBag`` with frozen weights that are stored encoded. Each distinct id is decoded once.

    Examples:
        >>> bag = cohort.ibp.EmbeddingBag(cohort.ibp.Table(torch.randn(1000, 16)), mode="sum")
        >>> bag(torch.tensor([[1, 2, 3], [4, 4, 0]])).shape
        torch.Size([2, 16])

    The weights are not parameters: they are not in ``state_dict``, and ``.to()`` does not move them. For input on a
    GPU, the table's place must be pinned or cuda.

    Args:
        table: rows of floats.
        mode: sum, mean or max.
        include_last_offset: as for ``torch.nn.EmbeddingBag``.
        padding_idx: as for ``torch.nn.EmbeddingBag``.
    """

    @checked_arguments
    def __init__(
        self, table: Table, mode: str = "mean", *, include_last_offset: bool = False, padding_idx: int | None = None
    ):
        super().__init__()
        if mode not in ("sum", "mean", "max"):
            raise CohortError("EmbeddingBag: mode", "sum, mean or max", str(mode))
        if not isinstance(table, Table):
            hint = "encode the weights: EmbeddingBag(Table(weights))"
            raise CohortError("EmbeddingBag: table", "an ibp.Table", type(table).__name__, hint)
        dtype = table.dtype_for(torch.empty(0))
        if not dtype.is_floating_point:
            hint = "Table.load(path, dtype=torch.float64) names the dtype of a file's rows"
            raise CohortError("EmbeddingBag: table", "rows of floats", str(dtype), hint)
        is_row = isinstance(padding_idx, numbers.Integral) and -len(table) <= padding_idx < len(table)
        if padding_idx is not None and not is_row:
            limits = f"{-len(table)} to {len(table) - 1}"
            raise CohortError("EmbeddingBag: padding_idx", limits, str(padding_idx))
        self.table, self.mode, self.include_last_offset = table, mode, include_last_offset
        self.num_embeddings, self.embedding_dim = table.shape  # as torch calls them
        self.padding_idx = padding_idx if padding_idx is None or padding_idx >= 0 else padding_idx + len(table)

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        """Bags of rows: [bags, num_columns].

        Args:
            input: int32 or int64 ids: [bags, n], or [n] with offsets.
            offsets: int32 or int64 [bags]: where each bag begins in `input`.
            per_sample_weights: of the shape of `input`, for mode sum.
        """
        for name, argument in (("input", input), ("offsets", offsets)):
            if argument is None and name == "offsets":
                continue
            if not isinstance(argument, Tensor) or argument.dtype not in (torch.int32, torch.int64):
                actual = str(argument.dtype) if isinstance(argument, Tensor) else type(argument).__name__
                raise CohortError(f"EmbeddingBag: {name}", "a tensor, int32 or int64", actual)
            if argument.layout != torch.strided or argument.is_nested or argument.is_meta:
                actual = "a nested one" if argument.is_nested else f"{argument.layout} on {argument.device}"
                raise CohortError(f"EmbeddingBag: {name}", "a dense tensor", actual, "pass ids [n], and offsets")
        self._check_bags(input, offsets)
        uses_gpu = input.is_cuda and 0 < input.numel() < 2**31 and len(self.table) < 2**32
        distinct = self.table._fetch_distinct(input, self.padding_idx) if uses_gpu else self._rows_of(input)
        if distinct is None:
            least, largest = torch.stack(torch.aminmax(input)).tolist()
            wrong = least if least < 0 else largest
            raise CohortError("EmbeddingBag: input", f"0 to {len(self.table) - 1}", str(wrong))
        rows, row_index, padding_row = distinct
        if uses_gpu and per_sample_weights is None and rows.dtype != torch.float64 and _is_bags(input, offsets):
            return self._reduce(rows, row_index, padding_row, offsets)
        if offsets is not None and input.dim() == offsets.dim() == 1 and len(offsets) == self.include_last_offset:
            row_index = row_index[:0]  # no bags: with ids torch would read and write beyond the results
            per_sample_weights = None if per_sample_weights is None else per_sample_weights[:0]
        return functional.embedding_bag(
            row_index,
            rows,
            None if offsets is None else offsets.to(row_index.dtype),
            mode=self.mode,
            per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset,
            padding_idx=None if padding_row < 0 else padding_row,
        )

    def _check_bags(self, input: Tensor, offsets: Tensor | None) -> None:
        """Raises an error for bags that torch rejects without a useful message, or for which it reads past the ids."""
        place = "EmbeddingBag: offsets"
        if offsets is None:
            if input.dim() == 2 and input.shape[1] == 0:
                raise CohortError("EmbeddingBag: input", "[bags, n] with n of at least 1", str(list(input.shape)))
        elif offsets.dim() == 1 and len(offsets) < self.include_last_offset:
            raise CohortError(
                place, "at least one offset, since include_last_offset=True", "no offset", "the last is len(input)"
            )
        elif offsets.dim() == 1 and offsets.is_cpu and bool((offsets[1:] < offsets[:-1]).any()):
            wrong = int((offsets[1:] < offsets[:-1]).nonzero()[0])
            raise CohortError(place, "ascending numbers", f"{int(offsets[wrong])} before {int(offsets[wrong + 1])}")

    def _rows_of(self, input: Tensor) -> tuple[Tensor, Tensor, int] | None:
        """(the row of each different id, the row index of each id, the row of the padding or -1); None: an id is
        outside the table."""
        ids, row_index = torch.unique(input, return_inverse=True)
        if len(ids) and not 0 <= int(ids[0]) <= int(ids[-1]) < len(self.table):
            return None
        rows = self.table.fetch(ids)
        if self.padding_idx is None:
            return rows, row_index, -1
        row = int(torch.searchsorted(ids, self.padding_idx))
        return rows, row_index, row if row < len(ids) and ids[row] == self.padding_idx else -1

    def _reduce(self, rows: Tensor, row_index: Tensor, padding_row: int, offsets: Tensor | None) -> Tensor:
        """Bags of float16, bfloat16 or float32 rows, by the GPU."""
        if offsets is None:
            num_bags, bag_size = row_index.shape
            where = (0, True, 0)
        else:
            offsets = offsets.contiguous()
            num_bags, bag_size = len(offsets) - self.include_last_offset, 0
            where = (offsets.data_ptr(), offsets.dtype == torch.int64, len(offsets))
        with on_gpu(rows.device.index):
            out = rows.new_empty(num_bags, rows.shape[1])
            index = (row_index.data_ptr(), row_index.numel(), padding_row)
            addresses = (out.data_ptr(), handle_of(None))
            profile = self.table.profile.native
            _native.reduce_bags(profile, rows.data_ptr(), index, where, bag_size, num_bags, self.mode, *addresses)
        return out

    def extra_repr(self) -> str:
        return f"{self.table!r}, mode={self.mode!r}, padding_idx={self.padding_idx}"


def _is_bags(input: Tensor, offsets: Tensor | None) -> bool:
    """Whether torch accepts these as bags; torch reports the error of others."""
    if offsets is None:
        return input.dim() == 2
    return input.dim() == 1 and offsets.dim() == 1 and len(offsets) > 0 and offsets.device == input.device
