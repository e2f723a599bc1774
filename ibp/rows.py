"""encode, fetch, decode: the Python interface of ibp/ibp.h."""

import os

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.ibp import _native, arrays
from cohort_gnn.ibp.profile import Profile
from cohort_gnn.spec.types import checked_arguments


class EncodedRows:
    """Encoded rows [num_rows, num_columns] in host, pinned or GPU memory.

    Examples:
        >>> rows = torch.randn(1000, 16)
        >>> encoded = cohort.ibp.encode(rows, cohort.ibp.fit(rows))
        >>> torch.equal(cohort.ibp.fetch(encoded, torch.tensor([5, 2])), rows[[5, 2]])
        True

    Attributes:
        place: cpu, pinned (host memory that a GPU reads) or cuda.
        device: cpu, or the GPU that fetches: cuda:0.
        profile: how the rows are encoded; layout: packed, slots or in place; shape: (num_rows, num_columns).
        stored_bytes: bytes of the encoded rows, without the index that finds them.
    """

    def __init__(self, native, kind=None, keep=None):
        self._native, self._kind, self._keep = native, kind, keep
        self._table = None
        self._gpu: int | None = None
        self._only_on_gpu = False  # of rows that a GPU has replaced, the host has no copy
        self._gathers: dict = {}  # by stream: fetches on one take turns, those on several would share scratch memory
        self.place = "cpu"

    @classmethod
    def replaced_on_gpu(cls, written, kind, place: str, gpu: int | None) -> "EncodedRows":
        """The rows of a DeviceWritableRows, as they are at each fetch."""
        rows = cls(written, kind)
        rows.place, rows._gpu, rows._table, rows._only_on_gpu = place, gpu, written.table, True
        return rows

    def __reduce__(self):
        raise CohortError(
            "pickle of EncodedRows", "a file", "rows in memory", "call save(), and load() where they arrive"
        )

    def __deepcopy__(self, memo) -> "EncodedRows":
        return self.shared()

    def shared(self) -> "EncodedRows":
        """The same memory, with fetches of its own."""
        rows = EncodedRows(self._native, self._kind, self._keep)
        rows.place, rows._gpu, rows._table, rows._only_on_gpu = self.place, self._gpu, self._table, self._only_on_gpu
        return rows

    profile = property(lambda self: Profile(self._native.profile))
    num_rows = property(lambda self: self._native.num_rows)
    layout = property(lambda self: self._native.layout)
    stored_bytes = property(lambda self: self._native.stored_bytes)
    shape = property(lambda self: (self.num_rows, self._native.profile.num_columns))
    device = property(lambda self: "cpu" if self._gpu is None else f"cuda:{self._gpu}")

    def __len__(self):
        return self.num_rows

    def __getitem__(self, index):
        """Rows of an integer, a slice, or integers of any type and shape (a tuple is an error), as ``fetch`` gives."""
        return fetch(self, arrays.subscript(index, len(self)))

    def __iter__(self):
        return (self[row] for row in range(len(self)))

    def save(self, path) -> None:
        """Writes a file for ``load``: whole, or not at all."""
        self._native.save(os.fsdecode(path))

    def to(self, place, device=None) -> "EncodedRows":
        """The rows for a GPU: "pinned" (host memory that the GPU reads) or "cuda" (the GPU's memory).

        Args:
            place: cpu, pinned, cuda, or a GPU as torch names it: "cuda:1".
            device: the GPU, as a number or as torch names it; default: the current one.
        """
        moved = EncodedRows(self._native, self._kind, self._keep)
        if str(place) == "cpu":
            return moved
        moved.place, moved._gpu = gpu_of(place, device)
        with on_gpu(moved._gpu):
            moved._table = _native.DeviceTable(self._native, moved.place == "pinned")
        return moved

    def reserve(self, max_rows: int, stream=None) -> None:
        """Allocates the memory for fetches of up to `max_rows` rows on a stream, so that they allocate nothing.

        Args:
            stream: torch stream or its handle; default: the current one. Each stream has memory of its own.
        """
        if self._gpu is None:
            raise CohortError("EncodedRows.reserve", "rows with place pinned or cuda", "cpu", "call to() first")
        with on_gpu(self._gpu):
            self._gather_of(handle_of(stream), max_rows)

    def _gather_of(self, stream: int, max_rows: int):
        gather = self._gathers.get(stream)
        if gather is None or gather.max_rows < max_rows:
            if gather is not None:
                stream_of(stream).synchronize()  # a fetch under way may yet find a wrong id
                gather.check()
            gather = self._gathers[stream] = _native.Gather(max(max_rows, 1))
        return gather

    def check(self) -> None:
        """Raises the error of a finished GPU fetch, if there was one."""
        for gather in list(self._gathers.values()):
            gather.check()


def demand_encoded(encoded, place: str) -> None:
    """Raises an error unless these are EncodedRows."""
    if not isinstance(encoded, EncodedRows):
        hint = "encode(rows, fit(rows)) encodes an array; a Table is read by table[ids] and table.fetch(ids)"
        raise CohortError(f"{place}: encoded", "EncodedRows", type(encoded).__name__, hint)


def gpu_of(place, device) -> tuple[str, int]:
    """("pinned" or "cuda", the number of the GPU)"""
    name, _, number = str(place).partition(":")
    if name not in ("pinned", "cuda") or (number and (name == "pinned" or not number.isdigit())):
        raise CohortError("EncodedRows.to", "cpu, pinned or cuda", str(place))
    if not _native.with_cuda:
        raise CohortError("EncodedRows.to", "a build with CUDA", "a build without CUDA", "build with a CUDA compiler")
    import torch

    count = torch.cuda.device_count()
    if count == 0:
        raise CohortError("EncodedRows.to", "a GPU that torch can use", "no GPU", 'use the place "cpu"')
    if number:
        gpu = int(number)
    elif device is None:
        gpu = torch.cuda.current_device()
    else:
        named = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
        if named.type != "cuda":
            raise CohortError("EncodedRows.to: device", "a GPU", str(device))
        gpu = torch.cuda.current_device() if named.index is None else named.index
    if not 0 <= gpu < count:
        raise CohortError("EncodedRows.to: device", f"one of cuda:0 to cuda:{count - 1}", f"cuda:{gpu}")
    return name, gpu


def on_gpu(gpu: int | None):
    """The GPU of this number as the current one; of None as it is."""
    import torch

    return torch.cuda.device(gpu)


def handle_of(stream) -> int:
    if stream is None:
        import torch

        stream = torch.cuda.current_stream()
    return getattr(stream, "cuda_stream", stream)


def stream_of(stream):
    """What torch.cuda.stream() takes, of a torch stream, its handle, or None for the current one."""
    if not isinstance(stream, int):
        return stream
    import torch

    return torch.cuda.ExternalStream(stream) if stream else torch.cuda.default_stream()  # an external 0 is a new one


@checked_arguments
def encode(
    rows,
    profile: Profile,
    *,
    layout="auto",
    slot_bytes: int = 0,
    in_place: bool = False,
    out=None,
    batch_rows: int | None = None,
):
    """Encodes rows and returns EncodedRows, or, with `out`, the number of bytes written.

    Args:
        layout: packed, slots (fixed stride, overflow area), or auto (the profile's recommendation). Codec planes has
            slots.
        slot_bytes: layout slots: bytes of a row's place, a multiple of 16; 0: the profile's.
        in_place: encode each row in its own place; `rows` is changed, and the result keeps a reference to it.
        out: a path; rows are read and written `batch_rows` at a time, so that a mapped table need not fit in memory.
        batch_rows: a multiple of 64; None: about 64 MiB of rows.

    Raises:
        CohortError: rows that do not fit the profile, an unknown layout, or a file that cannot be written.
    """
    if out is None or isinstance(rows, np.ndarray):  # else any object whose slices are rows: EncodedRows
        arrays.demand_rows(rows, "encode: rows")
    if not isinstance(profile, Profile):
        raise CohortError("encode: profile", "a Profile", type(profile).__name__, "fit(rows) makes one")
    arrays.demand_integer("encode: slot_bytes", slot_bytes, 0, 2**32 - 1)
    layout = str(layout)
    if batch_rows is not None and (batch_rows <= 0 or batch_rows % 64 != 0):
        raise CohortError("encode: batch_rows", "a multiple of 64 above 0", str(batch_rows))
    if in_place:
        _demand_writable(rows)
    rows = rows if in_place else arrays.computed(rows)
    if out is not None:
        if in_place:
            raise CohortError("encode", "in_place or out", "both", "rows in a file have row_index of their own")
        return _encode_to_file(rows, profile, os.fsdecode(out), layout, slot_bytes, batch_rows)
    if in_place:
        return EncodedRows(_native.encode_in_place(rows, profile.native), arrays.output_kind(rows), keep=rows)
    if arrays.is_cuda(rows) and profile.codec == "planes":  # only the host encodes it
        rows = rows.cpu()
    if arrays.is_cuda(rows):
        _check_cuda_rows(rows, profile)
        with on_gpu(rows.device.index):
            native = _native.encode_gpu(rows.data_ptr(), rows.shape[0], profile.native, layout, slot_bytes)
        return EncodedRows(native, arrays.output_kind(rows))
    return EncodedRows(_native.encode(rows, profile.native, layout, slot_bytes), arrays.output_kind(rows))


def _demand_writable(rows) -> None:
    """Raises an error unless encode() may change the memory of the rows, and this memory has their values."""
    read_only = isinstance(rows, np.ndarray) and not rows.flags.writeable
    if read_only or (arrays.is_torch(rows) and (rows.is_conj() or rows.is_neg())):
        actual = "a read-only array" if read_only else "a tensor of conjugates or signs that torch has put off"
        raise CohortError("encode: rows", "with in_place=True, rows that can be changed", actual, "pass a copy")


def _check_cuda_rows(rows, profile):
    import torch

    right = rows.dim() == 2 and rows.is_contiguous() and rows[:0].numel() == 0
    if not right or rows.shape[1] != profile.num_columns or rows.shape[1] * rows.element_size() != profile.row_bytes:
        expected = f"contiguous {profile.dtype} [n, {profile.num_columns}]"
        raise CohortError("encode: rows", expected, f"{rows.dtype} {list(rows.shape)}")
    torch.cuda.current_stream(rows.device).synchronize()  # encode() works on a stream of its own


def _encode_to_file(rows, profile, path, layout, slot_bytes, batch_rows):
    step = max((64 << 20) // profile.row_bytes // 64, 1) * 64 if batch_rows is None else batch_rows
    writer = _native.FileWriter(path, profile.native, layout, slot_bytes, len(rows))
    for first in range(0, len(rows), step):
        batch = rows[first : first + step]
        writer.append(batch.cpu() if arrays.is_cuda(batch) else batch)
    return writer.finish()


def fetch(encoded: EncodedRows, index, out=None, stream=None, max_sms=None, check=False, planes="AB"):
    """rows[index], decoded: [*index.shape, num_columns], in the library and on the device of `index`.

    Args:
        index: integers of any type and shape. From a CUDA tensor the GPU fetches, which takes rows that are pinned or
            on this GPU; else the CPU does, from its own copy of the rows.
        out: contiguous rows to write to, [*index.shape, num_columns], of the dtype of the rows; a tensor on the
            GPU, at an address that is a multiple of 16, makes the GPU fetch. With `out`, a contiguous int64 index and
            after reserve(), nothing is allocated. A bfloat16 tensor for planes="A" of float32 rows gets the elements
            rounded to the nearest bfloat16, ties to even, but only 0 becomes 0; a NaN becomes 0x7fff.
        stream: torch stream or its handle; default: the current one. The call does not wait for it.
        max_sms: maximum number of SMs to use; default: all SMs.
        check: wait, and raise the error of a bad index now instead of at the next call.
        planes: AB: the rows, bit for bit. A: for rows of codec planes, plane A alone: fewer bytes are read, and the
            elements are within ``profile.error_bound`` of the rows'. Zeros are exact, and so are rows with a NaN, an
            infinity or a subnormal number.

    Raises:
        CohortError: an index outside the table, an `out` that is not as above, planes="A" of another codec.
    """
    demand_encoded(encoded, "fetch")
    if planes not in ("A", "AB"):
        raise CohortError("fetch: planes", "A or AB", str(planes))
    if arrays.is_cuda(index) or arrays.is_cuda(out):
        with _on_gpu_of(encoded, index, out):
            return _fetch_cuda(encoded, index, out, stream, max_sms, check, planes)
    ids, shape = arrays.host_ids(index)
    wanted, dtype, is_new = (*shape, encoded.shape[1]), encoded.profile.dtype, out is None
    if is_new:
        out, rounds = arrays.new_array(wanted, arrays.kind_for(encoded._kind, dtype, index)), False
    else:
        rounds = _rounds(encoded, out, planes)
        arrays.check_out("fetch: out", out, wanted, dtype, encoded._kind, rounds=rounds)
    if encoded._only_on_gpu:
        return _fetch_to_host(encoded, ids.reshape(shape), out, stream, max_sms)
    _native.fetch(encoded._native, ids, out, planes == "A", rounds)
    return out if is_new else arrays.changed(out)


def fetch_distinct(encoded: EncodedRows, ids, padding: int | None = None):
    """The rows of the distinct ids, each decoded once by the GPU: (rows [n, num_columns] by ascending id, row_index,
    row of the padding or -1); None if an id is outside the table. Waits until n is known, not for the rows.

    Args:
        ids: int32 or int64 tensor of any shape on the GPU, with 1 to 2^31 - 1 ids. The result
            row_index, int32 of this shape, has the row of each id.
        padding: an id whose row to return.
    """
    import torch

    with _on_gpu_of(encoded, ids, None):
        table, stream, ids = encoded._table, handle_of(None), ids.contiguous()
        assert table is not None
        row_index = torch.empty(ids.shape, dtype=torch.int32, device=ids.device)
        memory = torch.empty(_native.distinct_bytes(ids.numel()), dtype=torch.uint8, device=ids.device)
        id_arguments = (ids.data_ptr(), ids.dtype == torch.int64, ids.numel(), -1 if padding is None else padding)
        addresses = (memory.data_ptr(), row_index.data_ptr(), stream)
        count, padding_row, is_outside = _native.find_distinct(table, *id_arguments, *addresses)
        if is_outside:
            return None
        kind = arrays.kind_for(encoded._kind, encoded.profile.dtype, ids)
        rows = arrays.new_array((count, encoded.shape[1]), kind, ids.device)
        gather = encoded._gather_of(stream, 1)
        gather.fetch_distinct(table, memory.data_ptr(), ids.numel(), rows.data_ptr(), stream)
    return rows, row_index, padding_row


def _rounds(encoded, out, planes: str) -> bool:
    """Whether `out` is to have plane A of float32 rows as bfloat16."""
    if planes != "A" or encoded.profile.dtype != "float32" or not arrays.is_torch(out):
        return False
    import torch

    return out.dtype == torch.bfloat16


def _fetch_to_host(encoded, ids, out, stream, max_sms):
    """The GPU fetches; the call waits for the rows, which go to host memory."""
    import torch

    fresh = torch.from_numpy(out) if isinstance(out, np.ndarray) else out
    gpu_rows = torch.empty(fresh.shape, dtype=fresh.dtype, device=encoded.device)
    fresh.copy_(fetch(encoded, ids, gpu_rows, stream, max_sms, check=True))
    return out


def _on_gpu_of(encoded, index, out):
    """The GPU of these rows as the current one, if what the caller gave is there too."""
    if encoded._gpu is None:
        hint = 'call to("pinned") or to("cuda") first'
        raise CohortError("fetch: index", "host memory", "a CUDA tensor", hint)
    for name, array in (("index", index), ("out", out)):
        if arrays.is_cuda(array) and array.device.index != encoded._gpu:
            hint = (
                f'move it, or call encoded.to("{encoded.place}", device="{array.device}") for rows that this GPU reads'
            )
            raise CohortError(f"fetch: {name}", f"a tensor on {encoded.device}", f"one on {array.device}", hint)
    return on_gpu(encoded._gpu)


def _fetch_cuda(encoded, index, out, stream, max_sms, check, planes):
    import torch

    handle = handle_of(stream)
    with torch.cuda.stream(stream_of(stream)):  # what is allocated and converted here belongs to it
        ids = ids_on_gpu(index, encoded.device, "fetch: index")
        shape = (*ids.shape, encoded.shape[1])
        if out is None:
            out = arrays.new_array(shape, arrays.kind_for(encoded._kind, encoded.profile.dtype, ids), ids.device)
    rounds = _rounds(encoded, out, planes)
    arrays.check_out("fetch: out", out, shape, encoded.profile.dtype, encoded._kind, "cuda", rounds)
    pointers = (ids.data_ptr(), ids.numel(), out.data_ptr())
    gather = encoded._gather_of(handle, ids.numel())
    gather.fetch(encoded._table, *pointers, handle, max_sms or 0, check, planes == "A", rounds)
    return arrays.changed(out)


def ids_on_gpu(index, device: str, place: str):
    """int64 [*index.shape], contiguous, on the device."""
    import torch

    ids = index if arrays.is_torch(index) else torch.from_numpy(arrays.host_ids(index, place)[0]).view(np.shape(index))
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        hint = arrays.OF_A_MASK if ids.dtype == torch.bool else ""
        raise CohortError(place, "integers", f"{ids.dtype} {list(ids.shape)}", hint)
    return ids.to(device, torch.int64).contiguous()


def decode(encoded: EncodedRows, out=None):
    """All rows, in order, in host memory."""
    demand_encoded(encoded, "decode")
    if out is None:
        kind = encoded._kind or arrays.default_kind(encoded.profile.dtype, None)
        out = arrays.new_array(encoded.shape, kind)
    arrays.check_out("decode: out", out, encoded.shape, encoded.profile.dtype, encoded._kind)
    _native.decode(encoded._native, out)
    return arrays.changed(out)


def bound(profile: Profile, num_rows: int, *, layout="auto", slot_bytes=0) -> int:
    """The maximum number of bytes of `num_rows` encoded rows; layout and slot_bytes as for ``encode``."""
    return _native.bound(profile.native, num_rows, layout, slot_bytes)


def load(path, *, verify=True) -> EncodedRows:
    """Maps a file of encoded rows; verify=False skips the rows' checksums."""
    return EncodedRows(_native.load(os.fsdecode(path), verify))
