"""Encoded rows in the memory of GPUs of one machine, which the ranks of `ShardedRows` read in place."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import socket
import struct

import torch
import torch.distributed as dist
from torch import Tensor

from cohort_gnn import ibp
from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.machine import machine_identity
from cohort_gnn.ibp import _native
from cohort_gnn.ibp.rows import handle_of, on_gpu

LOG = logging.getLogger("cohort")
SECONDS = 10.0  # in which ranks that have exchanged the names of their sockets exchange descriptors


class PeerRows:
    """The rows of all ranks, as one GPU reads them.

    Args:
        tables: of each rank.
        device: the GPU.
        num_rows: of all ids.
        bounds: int64 [ranks + 1], the first id of each rank; owner: for ids in any order, int32 [num_rows], the rank of
            each id, and its row there, int32 or int64 [num_rows]. On the GPU.
    """

    def __init__(
        self,
        tables: list,
        device: torch.device,
        num_rows: int,
        bounds: Tensor,
        owner: tuple[Tensor, Tensor] | None,
    ):
        self._num_tables, self._device = len(tables), device
        self._keep = bounds, owner
        ranks, positions = owner if owner is not None else (None, None)
        addresses = tuple(0 if tensor is None else tensor.data_ptr() for tensor in (bounds, ranks, positions))
        with on_gpu(device.index):
            is_wide = positions is not None and positions.dtype == torch.int64
            self._shards = _native.Shards(tables, num_rows, addresses, is_wide)

    def fetch(self, ids: Tensor, out: Tensor) -> Tensor:
        """Starts out[i] = the row of ids[i], on the current stream.

        Returns:
            int64 [ranks + 1] in host memory, valid when the stream has come here: how many rows of each rank; and -1,
            or 2 * i for an id without a row, or 2 * i + 1 for a damaged row.
        """
        num_entries = self._num_tables * len(ids)  # of 8 bytes; positions have 4
        num_found = self._num_tables + 1
        num_words = num_entries + (num_entries + 1) // 2
        scratch = torch.empty(num_words + self._num_tables + num_found, dtype=torch.int64, device=self._device)
        counts = torch.empty(num_found, dtype=torch.int64, pin_memory=True)
        entries = scratch.data_ptr()
        where = (entries, entries + 8 * num_entries, entries + 8 * num_words)
        with on_gpu(self._device.index):
            self._shards.fetch(ids.data_ptr(), len(ids), out.data_ptr(), where, counts.data_ptr(), handle_of(None))
        return counts


def peer_tables(
    table, profiles: list[ibp.Profile | None], device: torch.device, group: dist.ProcessGroup
) -> list | None:
    """The tables of all ranks if each can read the others', else None on all ranks.

    Args:
        table: the _native.DeviceTable of this rank, None if it has no encoded rows in its GPU's memory.
        profiles: of each rank; None: its rows travel decoded.
        group: gloo's, of all ranks.
    """
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    shape, shared = (b"", -1) if table is None else table.share()
    with contextlib.ExitStack() as stack:
        if shared >= 0:
            stack.callback(os.close, shared)
        listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        listener.settimeout(SECONDS)
        name = f"\0cohort-rows-{secrets.token_hex(16)}"  # unknown to other programs
        listener.bind(name)
        listener.listen(size)
        can = shared >= 0 and None not in profiles and os.environ.get("NCCL_P2P_DISABLE", "0") == "0"
        here = (machine_identity(), os.stat("/proc/self/ns/net").st_ino)
        offers: list = [None] * size
        dist.all_gather_object(offers, (here, name, shape) if can else None, group=group)
        if any(offer is None or offer[0] != here for offer in offers):
            return None
        tables, error = {rank: table}, None
        try:
            descriptors = _exchanged(listener, shared, rank, [offer[1] for offer in offers], stack)
            with on_gpu(device.index):
                for peer, descriptor in descriptors.items():
                    profile = profiles[peer]
                    assert profile is not None
                    tables[peer] = _native.DeviceTable.open(profile.native, offers[peer][2], descriptor)
        except (OSError, CohortError) as caught:
            error = caught
        errors: list = [None] * size
        dist.all_gather_object(errors, error and str(error), group=group)
        reason = next((message for message in errors if message), None)
        if reason is not None:
            LOG.info(f"ShardedRows: rows travel by NCCL, because a GPU cannot read another's: {reason}")
            return None
    return [tables[peer] for peer in range(size)]


def _exchanged(
    listener: socket.socket, shared: int, rank: int, names: list[str], stack: contextlib.ExitStack
) -> dict[int, int]:
    """The descriptors of the other ranks, which the stack closes."""
    for name in names[:rank] + names[rank + 1 :]:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
            peer.settimeout(SECONDS)
            peer.connect(name)
            socket.send_fds(peer, [struct.pack("i", rank)], [shared])
    received: dict[int, int] = {}
    while len(received) < len(names) - 1:
        peer, _ = listener.accept()
        with peer:
            peer.settimeout(SECONDS)
            data, descriptors, _, _ = socket.recv_fds(peer, struct.calcsize("i"), 1)
            for descriptor in descriptors:
                stack.callback(os.close, descriptor)
            if not descriptors:
                raise OSError("a descriptor that did not come: the limit of open files is reached")
            (sender,) = struct.unpack("i", data)
            received[sender] = descriptors[0]
    return received
