"""Rows as they are stored: for sending them, which takes fewer bytes than sending decoded rows."""

import numpy as np

from cohort_gnn.base.errors import CohortError
from cohort_gnn.ibp import _native, arrays
from cohort_gnn.ibp.profile import Profile
from cohort_gnn.ibp.rows import EncodedRows, demand_encoded, handle_of, ids_on_gpu, on_gpu

SLACK_BYTES = 64  # behind the rows: the GPU's decoders may read on


def take(encoded: EncodedRows, index):
    """Rows as they are stored.

    Args:
        index: integers [n]. From a CUDA tensor the GPU takes rows that are pinned or on this GPU.

    Returns:
        (entries [n], data uint8 [bytes]) for decode_stored(): numpy arrays, with entries uint64; of a CUDA index CUDA
        tensors, with entries int64.

    Raises:
        CohortError: an index outside the table.
    """
    demand_encoded(encoded, "take")
    if not arrays.is_cuda(index):
        entries, data = _native.take(encoded._native, arrays.as_index(index))
        return entries.view(np.uint64), data  # of the C type that torch takes
    if encoded._table is None or encoded._gpu != index.device.index:
        hint = f'call to("pinned", device="{index.device}") or to("{index.device}") first'
        raise CohortError("take: rows", f"rows that {index.device} reads", f"rows for {encoded.device}", hint)
    ids = ids_on_gpu(index, encoded.device, "take: index")
    if ids.dim() != 1:
        raise CohortError("take: index", "integers [n]", f"{list(ids.shape)}")
    sizes, end_offsets = sizes_on_gpu(encoded, ids)
    if bool((sizes == 0).any()):
        wrong = int((sizes == 0).nonzero()[0])
        expected = f"0 to {encoded.num_rows - 1}"
        raise CohortError(f"take: index[{wrong}]", expected, str(int(ids[wrong])))
    return take_on_gpu(encoded, ids, end_offsets, int(end_offsets[-1]) if len(ids) else 0)


def sizes_on_gpu(encoded: EncodedRows, ids):
    """(int64 [n], int64 [n]): the bytes of each row in what take_on_gpu() returns, 0 of an id outside the table, and
    their running sum. Does not wait for the GPU.

    Args:
        ids: int64 [n], contiguous, on the GPU of the rows.
    """
    import torch

    sizes = torch.empty_like(ids)
    assert encoded._table is not None
    with on_gpu(encoded._gpu):
        _native.stored_sizes(encoded._table, ids.data_ptr(), len(ids), sizes.data_ptr(), handle_of(None))
    return sizes, sizes.cumsum(0)


def take_on_gpu(encoded: EncodedRows, ids, end_offsets, num_bytes: int):
    """take() of rows whose sizes are known. Does not wait for the GPU."""
    import torch

    entries = torch.empty_like(ids)
    data = torch.empty(num_bytes + SLACK_BYTES, dtype=torch.uint8, device=ids.device)[:num_bytes]
    assert encoded._table is not None
    with on_gpu(encoded._gpu):
        addresses = (end_offsets.data_ptr(), entries.data_ptr(), data.data_ptr())
        _native.take_stored(encoded._table, ids.data_ptr(), len(ids), *addresses, handle_of(None))
    return entries, data


def decode_stored(profile: Profile, entries, data, out=None):
    """The rows of take(), decoded, bit for bit; any bytes are safe to give.

    Args:
        profile: of the rows that take() was called with.
        out: [n, num_columns] to write to.

    Raises:
        CohortError: a row that is no valid encoding.
    """
    if arrays.is_cuda(entries):
        return _decode_on_gpu(profile, entries, data, out)
    if out is None:
        out = arrays.new_array((len(entries), profile.num_columns), arrays.default_kind(profile.dtype, None))
    arrays.check_out("decode_stored: out", out, (len(entries), profile.num_columns), profile.dtype)
    _native.decode_stored(profile.native, entries, data, out)
    return arrays.changed(out)


def _decode_on_gpu(profile: Profile, entries, data, out):
    import torch

    if out is None:
        kind = arrays.kind_for(None, profile.dtype, entries)
        out = arrays.new_array((len(entries), profile.num_columns), kind, entries.device)
    for name, array, dtype in (("entries", entries, torch.int64), ("data", data, torch.uint8), ("out", out, None)):
        right = arrays.is_torch(array) and array.device == entries.device and dtype in (None, array.dtype)
        if not right or (dtype is not None and array.dim() != 1):
            actual = (
                f"{array.dtype} {list(array.shape)} on {array.device}"
                if arrays.is_torch(array)
                else type(array).__name__
            )
            raise CohortError(f"decode_stored: {name}", f"{dtype or profile.dtype} on {entries.device}", actual)
    arrays.check_out("decode_stored: out", out, (len(entries), profile.num_columns), profile.dtype, device="cuda")
    entries = entries.contiguous()
    demand_inside(entries, len(data))
    decoder = Decoder(profile, entries.device)
    whole = torch.empty(len(data) + SLACK_BYTES, dtype=torch.uint8, device=data.device)[: len(data)].copy_(data)
    count = torch.tensor([len(entries)], device=entries.device)
    decoder.decode(entries, whole, count, torch.arange(len(entries), dtype=torch.int32, device=out.device), out)
    decoder.check()
    return out


def demand_inside(entries, num_bytes: int) -> None:
    """Raises an error unless all rows lie within so many bytes: a GPU that reads beyond could not go on.

    Args:
        entries: int64 [n] of take(), on any device.
    """
    begin, length, region = entries & (1 << 40) - 1, entries >> 40 & 0xFFFF, entries >> 56 & 7
    wrong = (4 * (begin + length) > num_bytes + 3) | (region != 0)  # lengths are rounded up to 4
    if bool(wrong.any()):
        raise _damaged(int(wrong.nonzero()[0]))


def _damaged(number: int) -> CohortError:
    hint = "the data is damaged, or belongs to another profile"
    return CohortError(f"stored row {number}", "a valid encoding", "bytes that are not an encoded row", hint)


class Decoder:
    """Decodes, on a GPU, rows of a profile that were taken on any GPU."""

    def __init__(self, profile: Profile, device):
        import torch

        self.device = torch.device(device)
        with on_gpu(self.device.index):
            self._profile = _native.DeviceProfile(profile.native)
        self._status = torch.full((1,), -1, dtype=torch.int64, device=self.device)  # the first damaged row * 2 + 1

    def decode(self, entries, data, count, positions, out) -> None:
        """out[positions[i]] = the row of entries[i]; a damaged row becomes zeros. Does not wait for the GPU.

        Args:
            entries: int64 [n] of take(), relative to `data`.
            data: uint8 [bytes] of take(), with SLACK_BYTES of memory behind it, at a multiple of 16 bytes.
            count: int64 [1], n.
            positions: int32 [n]. out: rows, contiguous. All arrays lie on this GPU.
        """
        if len(entries) == 0:
            return
        with on_gpu(self.device.index):
            read = (entries.data_ptr(), positions.data_ptr(), count.data_ptr(), data.data_ptr(), len(data))
            _native.decode_stored_gpu(self._profile, *read, out.data_ptr(), self._status.data_ptr(), handle_of(None))

    def check(self) -> None:
        """Waits for what was decoded on the current stream.

        Raises:
            CohortError: a row was no valid encoding.
        """
        status = int(self._status)
        if status == -1:
            return
        self._status.fill_(-1)
        raise _damaged(status // 2)
