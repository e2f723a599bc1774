"""Learnable rows of nodes, in the memory of a device, or in host memory that a GPU reads and writes in place."""

import functools
import math
import numbers
import weakref
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from cohort_gnn.base.errors import CohortError
from cohort_gnn.nn import _native, kernels
from cohort_gnn.nn.own_layers import draw


@dataclass
class Read:
    """Rows that a forward pass has read, for the optimizer.

    Attributes:
        ids: int64 [n], ascending.
        row_index: int64 [n], which of `rows` each id has, ascending for equal ids; None: they are in order.
        rows: float32 [n, dim], a leaf, which gets the gradient.
        versions: of `rows` and of the table's values, by which torch counts changes; None: `rows` are others.
    """

    ids: Tensor
    row_index: Tensor | None
    rows: Tensor
    versions: tuple[int, ...] | None = None

    def is_current(self, table: "RowTable") -> bool:
        """The values of `rows` are those of the table."""
        return self.versions == versions_of(self.rows, table.values)


def versions_of(*tensors: Tensor) -> tuple[int, ...]:
    """The version of each tensor, which counts its changes; torch counts none of tensors made in inference mode."""
    return tuple(-1 if tensor.is_inference() else tensor._version for tensor in tensors)


class HotRows:
    """The ids whose rows tables in host memory keep on a device.

    Args:
        ids: integers, each at least once.
        num_rows: of the tables.
        device: where kernels look them up.
    """

    def __init__(self, ids: Tensor, num_rows: int, device: torch.device):
        marks = np.zeros(-(-num_rows // 32) * 32, dtype=bool)
        marks[ids.cpu().numpy()] = True
        counts = marks.reshape(-1, 32).sum(axis=1)
        self.ids = torch.from_numpy(np.flatnonzero(marks))  # in host memory, ascending
        self.bits = torch.from_numpy(np.packbits(marks, bitorder="little").view(np.int32)).to(device)
        self.before = torch.from_numpy((np.cumsum(counts) - counts).astype(np.int32)).to(device)


@dataclass
class _ChangedRows:
    """Rows on the device that a step changed: rows[row_index[i]] is row ids[i]. After `written` the host has them."""

    ids: Tensor
    row_index: Tensor | None
    rows: Tensor
    written: torch.cuda.Event | None = None

    @property
    def ref(self):
        row_index = 0 if self.row_index is None else self.row_index.data_ptr()
        addresses = {"ids": self.ids.data_ptr(), "row_index": row_index, "rows": self.rows.data_ptr()}
        return _native.ChangedRows(count=len(self.ids), **addresses)


class RowTable:
    """Rows float32 [num_rows, dim], zeros at first, that kernels read and change.

    Args:
        device: where the kernels run.
        on_host: the rows are in host memory, except for those of `hot`, which are on the device.

    Attributes:
        values: float32 [num_rows, dim]. After writing to it, call `refresh`.
        device: where the kernels run.
        puts_later: new rows stay on the device until `put_later` has written them to host memory, beside other work.
    """

    def __init__(
        self, num_rows: int, dim: int, device: torch.device, on_host: bool = False, hot: HotRows | None = None
    ):
        self.on_host, self.device, self._hot = on_host, device, hot
        self.puts_later = on_host and device.type == "cuda"
        self._changed: _ChangedRows | None = None
        self._before_last: torch.cuda.Event | None = None  # the rows that changed before those of _changed are written
        self._beside: torch.cuda.Stream | None = None
        self._memory: _native.HostTable | None = None
        if on_host and device.type == "cuda":
            with torch.cuda.device(device):
                self._memory = _native.HostTable(4 * num_rows * dim)
            self.values = torch.from_numpy(self._memory.array()).view(torch.float32).view(num_rows, dim)
        else:
            self.values = torch.empty(num_rows, dim, dtype=torch.float32, device="cpu" if on_host else device)
        self._hot_values = torch.empty(len(hot.ids), dim, dtype=torch.float32, device=device) if hot else None
        self.values.fill_(0)
        self.refresh()

    @property
    def ref(self):
        """What kernels take."""
        hot = self._hot if self._hot_values is not None and len(self._hot_values) else None
        arrays = {"hot": self._hot_values, "hot_bits": hot.bits, "hot_before": hot.before} if hot else {}
        addresses = {name: arrays[name].data_ptr() if arrays else 0 for name in ("hot", "hot_bits", "hot_before")}
        return _native.LearnedRows(rows=self.values.data_ptr(), **addresses)

    def changed_rows(self):
        """What the next kernel takes as the rows that `values` does not have yet."""
        if self._before_last is not None:
            torch.cuda.current_stream(self.device).wait_event(self._before_last)
        return _native.ChangedRows(count=0, ids=0, row_index=0, rows=0) if self._changed is None else self._changed.ref

    def await_rows(self) -> None:
        """Makes kernels wait, from now on, until `values` has all rows."""
        if self._changed is not None and self._changed.written is not None:
            torch.cuda.current_stream(self.device).wait_event(self._changed.written)

    def put_later(self, ids: Tensor, row_index: Tensor | None, rows: Tensor) -> None:
        """Writes changed rows to `values`: rows[row_index[i]] is the new row ids[i]. Until then kernels take these."""
        last, self._changed = self._changed, _ChangedRows(ids, row_index, rows)
        num_rows, dim = self.values.shape
        fields = {"table": self.ref, "num_rows": num_rows, "dim": dim, "changed": self._changed.ref}
        if self.device.type != "cuda":
            kernels.run(_native.put_rows, rows, **fields)
            return
        if self._beside is None:
            self._beside = torch.cuda.Stream(self.device)
        self._beside.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self._beside):
            kernels.run(_native.put_rows, rows, **fields)
            self._changed.written = self._beside.record_event()
        for tensor in (ids, row_index, rows):
            if tensor is not None:
                tensor.record_stream(self._beside)
        self._before_last = None if last is None else last.written

    def refresh(self) -> None:
        """Makes what was written to `values` what kernels read."""
        if self._memory is not None:
            with torch.cuda.device(self.device):
                self._memory.open_to_gpu()
        if self._hot is not None and self._hot_values is not None:
            self._hot_values.copy_(self.values[self._hot.ids])

    def whole(self) -> Tensor:
        """`values` after all work of the device on them, with the hot rows written back."""
        if self.on_host and self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self._changed = self._before_last = None
        if self._hot is not None and self._hot_values is not None:
            self.values[self._hot.ids] = self._hot_values.to(self.values.device)
        return self.values

    def assign(self, values: Tensor) -> None:
        """Takes over other values [num_rows, dim]."""
        self.whole().copy_(values)
        self.refresh()

    def move(self, device: torch.device) -> None:
        """To another device, unless the rows are in host memory."""
        if not self.on_host:
            self.values, self.device = self.values.to(device), device


class _BadId:
    """Where kernels write an id that is out of range; 0: none was."""

    def __init__(self, device: torch.device):
        self.device = device
        self.at = torch.zeros(1, dtype=torch.int64, device="cpu", pin_memory=device.type == "cuda")

    def __reduce__(self):  # a copy must be page-locked, too
        return _BadId, (self.device,)


class NodeEmbedding(nn.Module):
    """Learnable rows float32 [num_nodes, dim], which ``RowAdam`` or ``RowAdagrad`` trains.

    Examples:
        >>> rows = cohort.nn.NodeEmbedding(1000, 16, place="host", device="cpu", seed=0)
        >>> optimizer = cohort.nn.RowAdam(rows, lr=0.01)
        >>> rows(torch.tensor([3, 7])).sum().backward()  # of a batch: rows(batch.n_id)
        >>> optimizer.step()  # changes rows 3 and 7

    ``forward`` in training reads rows by id, and the optimizer's step changes these rows only. The rows are not
    parameters: other optimizers and wrappers such as DDP do not see them. In ``state_dict`` they are ``weight``, as of
    ``torch.nn.Embedding``.

    Args:
        num_nodes: number of rows.
        dim: number of columns.
        place: "device": the rows are on the module's device and move with ``.to()``. "host": they are in host memory,
            which a GPU reads and writes in place, so they may be larger than GPU memory; ``.to()`` has no effect.
        device: with place "host" the device that trains the rows, by default the current GPU, or the CPU where there
            is none; otherwise where the rows are at first, by default the CPU.
        hot: with place "host": ids of rows that are kept on the device, for instance those of the nodes of highest
            degree, with the states of their optimizer. ``weight`` and ``state_dict`` copy them back to host memory.
        seed: of the first values, uniform in +-sqrt(6 / (num_nodes + dim)) (Glorot and Bengio, AISTATS 2010); None:
            torch's own generator.

    Attributes:
        table: the rows as kernels take them.
        reads: what forward passes have read since the last step, for the optimizer; None: there is no optimizer, and
            rows have no gradients.

    Raises:
        CohortError: sizes below 1, another place, or hot ids out of range.
    """

    def __init__(
        self,
        num_nodes: int,
        dim: int,
        *,
        place: str = "device",
        device: torch.device | str | None = None,
        hot: Tensor | None = None,
        seed: int | None = None,
    ):
        super().__init__()
        if not all(isinstance(size, numbers.Integral) and size > 0 for size in (num_nodes, dim)):
            raise CohortError("NodeEmbedding", "integers num_nodes and dim of at least 1", f"{num_nodes} and {dim}")
        if place not in ("device", "host"):
            raise CohortError("NodeEmbedding: place", "device or host", repr(place))
        on_host = place == "host"
        if hot is not None:
            _check_hot(hot, num_nodes, on_host)
        if device is None:
            device = f"cuda:{torch.cuda.current_device()}" if on_host and torch.cuda.is_available() else "cpu"
        where = torch.device(device)
        if where.type == "cuda" and where.index is None:
            where = torch.device("cuda", torch.cuda.current_device())
        self.num_nodes, self.dim, self.place = num_nodes, dim, place
        self._hot = None if hot is None else HotRows(hot, num_nodes, where)
        self.table = RowTable(num_nodes, dim, where, on_host, self._hot)
        self._bad: _BadId | None = None
        self.reads: list[Read] | None = None
        generator = None if seed is None else torch.Generator(self.table.values.device).manual_seed(seed)
        draw(self.table.values, math.sqrt(6 / (num_nodes + dim)), generator)
        self.table.refresh()

    @property
    def weight(self) -> Tensor:
        """All rows, float32 [num_nodes, dim], as they are now: the memory itself. Waits for the GPU, if in host memory.

        Raises:
            CohortError: an id of an earlier batch was out of range.
        """
        rows = self.table.whole()
        self._raise_bad_id()
        return rows

    def forward(self, ids: Tensor) -> Tensor:
        """Rows by id, float32 [*ids.shape, dim] on the device; with gradients in training.

        Args:
            ids: int32 or int64 of any shape, on any device; they may repeat.

        Raises:
            CohortError: an id out of range. On a GPU its row is zeros, and a later call raises the error.
        """
        if not isinstance(ids, Tensor) or ids.dtype not in (torch.int32, torch.int64):
            actual = str(ids.dtype) if isinstance(ids, Tensor) else type(ids).__name__
            raise CohortError("NodeEmbedding: ids", "a tensor, int32 or int64", actual)
        if ids.layout != torch.strided or ids.is_nested or (ids.is_meta and self.table.device.type != "meta"):
            actual = f"one of layout {ids.layout} on {ids.device}"
            raise CohortError("NodeEmbedding: ids", "a dense tensor", actual)
        self._raise_bad_id()
        device, row_index = self.table.device, None
        flat = ids.detach().to(device, torch.int64).reshape(-1).contiguous()
        reads = self.reads if self.training and torch.is_grad_enabled() else None
        if reads is not None or (self.place == "host" and device.type == "cuda"):
            # The link reads host memory fastest in the order of addresses. A GPU sorts 32 bits in half the time of 64.
            row_index = torch.argsort(flat.to(torch.int32) if self.num_nodes < 2**31 else flat, stable=True)
            flat = flat[row_index]
        rows = self._take(flat, row_index)
        if reads is not None:
            reads.append(Read(flat, row_index, rows.requires_grad_(), versions_of(rows, self.table.values)))
            known = {"ids": flat, "row_index": row_index, "versions": reads[-1].versions}
            rows.register_post_accumulate_grad_hook(functools.partial(_read_again, weakref.ref(self), known))
        return rows if ids.dim() == 1 else rows.view(*ids.shape, self.dim)

    def _take(self, ids: Tensor, row_index: Tensor | None) -> Tensor:
        if self._bad is None or self._bad.device != ids.device:
            self._bad = _BadId(ids.device)
        rows = torch.empty(len(ids), self.dim, dtype=torch.float32, device=ids.device)
        arrays = {"ids": ids, "row_index": row_index, "out": rows, "bad": self._bad.at}
        sizes = {"num_rows": self.num_nodes, "dim": self.dim, "count": len(ids)}
        kernels.run(_native.take_rows, ids, table=self.table.ref, changed=self.table.changed_rows(), **sizes, **arrays)
        if ids.device.type == "cpu":
            self._raise_bad_id()
        return rows

    def _raise_bad_id(self) -> None:
        bad = 0 if self._bad is None else int(self._bad.at)
        if self._bad is not None and bad:
            self._bad.at.zero_()
            raise CohortError("NodeEmbedding: ids", f"0 to {self.num_nodes - 1}", str(bad))

    def state_like_rows(self, on_host: bool) -> RowTable:
        """A table of zeros for an optimizer: where the rows are, or else all on the device."""
        hot = self._hot if on_host else None
        return RowTable(self.num_nodes, self.dim, self.table.device, on_host, hot)

    def __getstate__(self) -> dict:
        return self.__dict__ | {"reads": None}  # no optimizer takes what a copy reads, until one is made for it

    def _apply(self, fn, recurse: bool = True):
        super()._apply(fn, recurse)
        self.table.move(fn(self.table.values[:1]).device)
        return self

    def _save_to_state_dict(self, destination, prefix: str, keep_vars: bool) -> None:
        destination[prefix + "weight"] = self.weight

    def _load_from_state_dict(
        self, state_dict, prefix: str, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
    ) -> None:
        name, others = prefix + "weight", [key for key in state_dict if key.startswith(prefix)]
        unexpected_keys += [key for key in others if strict and key != name]
        if name not in state_dict:
            missing_keys += [name] if strict else []
        elif tuple(state_dict[name].shape) != (self.num_nodes, self.dim):
            shapes = f"{list(state_dict[name].shape)}, the current one has {[self.num_nodes, self.dim]}"
            error_msgs.append(f"size mismatch for {name}: the state has the shape {shapes}")
        else:
            self.table.assign(state_dict[name].detach())

    def extra_repr(self) -> str:
        hot = "" if self._hot is None else f", {len(self._hot.ids)} hot"
        return f"{self.num_nodes}, {self.dim}, place={self.place!r}{hot}"


def _read_again(embedding: weakref.ref, known: dict, rows: Tensor) -> None:
    """Rows that have got their gradient after zero_grad() or step() count for the next step. The hook of `rows` has no
    Read of them: torch would never free the circle."""
    module = embedding()
    if module is not None and module.reads is not None and all(read.rows is not rows for read in module.reads):
        module.reads.append(Read(rows=rows, **known))


def _check_hot(hot: Tensor, num_nodes: int, on_host: bool) -> None:
    if not on_host:
        raise CohortError("NodeEmbedding: hot", 'none with place="device"', f"{len(hot)} ids")
    if not isinstance(hot, Tensor) or hot.dtype not in (torch.int32, torch.int64) or hot.dim() != 1:
        actual = f"{hot.dtype} {list(hot.shape)}" if isinstance(hot, Tensor) else type(hot).__name__
        raise CohortError("NodeEmbedding: hot", "int32 or int64 [any]", actual)
    if hot.numel() and not 0 <= int(hot.min()) <= int(hot.max()) < num_nodes:
        actual = f"{int(hot.min())} to {int(hot.max())}"
        raise CohortError("NodeEmbedding: hot", f"ids of 0 to {num_nodes - 1}", actual)
