"""EmbeddingBag over the encoded rows of a table."""

import numbers

import torch
from torch import Tensor
from torch.nn import functional

from cohort_gnn.base.errors import CohortError
from cohort_gnn.ibp.table import Table


class EmbeddingBag(torch.nn.Module):
    """``torch.nn.EmbeddingBag`` with frozen weights that are stored encoded. Each distinct id is decoded once.

    The weights are not parameters: they are not in ``state_dict``, and ``.to()`` does not move them. For input on a
    GPU, the table's place must be pinned or cuda.

    Args:
        table: rows of floats.
        mode: sum, mean or max.
        include_last_offset: as for ``torch.nn.EmbeddingBag``.
        padding_idx: as for ``torch.nn.EmbeddingBag``.
    """

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
        self.padding_idx = padding_idx if padding_idx is None or padding_idx >= 0 else padding_idx + len(table)

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        """Bags of rows: [bags, num_columns].

        Args:
            input: int32 or int64 ids: [bags, n], or [n] with offsets.
            offsets: int32 or int64 [bags]: where each bag begins in `input`.
            per_sample_weights: of the shape of `input`, for mode sum.
        """
        for name, given in (("input", input), ("offsets", offsets)):
            if given is None and name == "offsets":
                continue
            if not isinstance(given, Tensor) or given.dtype not in (torch.int32, torch.int64):
                found = str(given.dtype) if isinstance(given, Tensor) else type(given).__name__
                raise CohortError(f"EmbeddingBag: {name}", "a tensor, int32 or int64", found)
        # A GPU sorts 32 bits in half the passes of 64. Ids that are out of range stay so.
        num_rows = len(self.table)
        narrow = input.clamp(-1, num_rows).to(torch.int32) if num_rows < 2**31 - 1 else input
        ids, places = torch.unique(narrow, return_inverse=True)
        ends = ids[:: max(1, len(ids) - 1)].to("cpu", non_blocking=True)  # the least and the largest
        if not input.is_cuda:
            self._demand_in_range(ends, input)
        told = torch.cuda.current_stream(input.device).record_event() if input.is_cuda else None
        rows = self.table.fetch(ids, ascending=True)
        if told:  # while the GPU fetches; an id that is out of range gets zeros
            told.synchronize()
            self._demand_in_range(ends, input)
        return functional.embedding_bag(
            places,
            rows,
            None if offsets is None else offsets.long(),
            mode=self.mode,
            per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset,
            padding_idx=self._place_of_padding(ids),
        )

    def _demand_in_range(self, ends: Tensor, input: Tensor) -> None:
        if all(0 <= end < len(self.table) for end in ends.tolist()):
            return
        least, largest = torch.stack(torch.aminmax(input)).tolist()
        wrong = least if least < 0 else largest
        error = CohortError("EmbeddingBag: input", f"0 to {len(self.table) - 1}", str(wrong))
        try:
            self.table.check()  # of a GPU's fetch, which has ended, for the next fetch not to raise it
        except CohortError as of_fetch:
            raise error from of_fetch
        raise error

    def _place_of_padding(self, ids: Tensor) -> int | None:
        if self.padding_idx is None:
            return None
        place = int(torch.searchsorted(ids, self.padding_idx))
        return place if place < len(ids) and ids[place] == self.padding_idx else None

    def extra_repr(self) -> str:
        return f"{self.table!r}, mode={self.mode!r}, padding_idx={self.padding_idx}"
