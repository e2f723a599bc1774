"""Feature rows that the ranks of a process group share out: each holds a part of them, and all read all of them."""

from __future__ import annotations

import concurrent.futures
import datetime
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from cohort_gnn import ibp
from cohort_gnn.base.errors import CohortError
from cohort_gnn.ibp import arrays

NOTHING = np.empty(0, np.uint8)
BAD_IDS = -1  # in place of the number of ids: a rank has asked for rows that there are not


@dataclass
class ShardedStats:
    """What a rank has fetched so far.

    Attributes:
        own_rows, remote_rows: fetched from this rank's memory, and from other ranks.
        sent_bytes, received_bytes: of rows, as they travel.
        seconds: of all exchanges, from the first message of each to its last decoded row.
    """

    own_rows: int = 0
    remote_rows: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0
    seconds: float = 0.0


class Pending:
    """Rows on their way."""

    def __init__(self, future: concurrent.futures.Future):
        self._future = future

    def wait(self) -> Tensor:
        """The rows [n, D], when they are there.

        Raises:
            CohortError: as of `ShardedRows.fetch`.
        """
        return self._future.result()


class ShardedRows:
    """Feature rows [V, D], distributed over the ranks of a process group. Encoded rows are sent encoded.

    Every rank makes one `ShardedRows`, and all ranks must call `fetch` or `start` equally often, each rank with its own
    ids. The exchanges use a separate gloo group and a separate thread, so they do not disturb the script's own group.

    Args:
        rows: this rank's rows: cohort.ibp.EncodedRows in host memory, or a tensor or array [v, D] there, of the same D
            and dtype on all ranks.
        owner: (ranks, places), the same on all ranks: for each id, the rank that has its row, integers [V], and the
            position of the row among the rows of that rank, integers [V]. None: ids continue from rank to rank, and
            rank 0 has the first ids.
        group: the process group whose ranks take part; None: all ranks.
        timeout_s: how long a rank waits for the others in an exchange.
        wire: "stored": encoded rows travel encoded. "raw": all rows travel decoded.

    Attributes:
        shape: (V, D).
        dtype: of the fetched rows.
        bounds: int64 [ranks + 1], the first id of each rank without `owner`.

    Raises:
        CohortError: rows that differ in D or dtype between ranks, or an `owner` that names rows that there are not.
    """

    def __init__(
        self,
        rows: ibp.EncodedRows | Tensor | np.ndarray,
        *,
        owner: tuple[Sequence[int] | Tensor | np.ndarray, Sequence[int] | Tensor | np.ndarray] | None = None,
        group: dist.ProcessGroup | None = None,
        timeout_s: float = 60.0,
        wire: str = "stored",
    ):
        if wire not in ("stored", "raw"):
            raise CohortError("ShardedRows: wire", "stored or raw", repr(wire))
        self._rows = rows if isinstance(rows, ibp.EncodedRows) else _host_rows(rows)
        self._timeout_s = timeout_s
        if not dist.is_initialized():
            hint = "call torch.distributed.init_process_group() first"
            raise CohortError("ShardedRows", "a process group", "none", hint)
        self._group = dist.new_group(
            list(range(dist.get_world_size())) if group is None else dist.get_process_group_ranks(group),
            timeout=datetime.timedelta(seconds=timeout_s),
            backend="gloo",
            use_local_synchronization=True,
        )
        self._rank, self._size = dist.get_rank(self._group), dist.get_world_size(self._group)
        self._profiles = self._agree(wire)
        self._owner = None if owner is None else self._checked(owner)
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "sharded-rows")
        self._broken: CohortError | None = None
        self._stats = ShardedStats()

    def fetch(self, ids: Tensor | np.ndarray | Sequence[int], out: Tensor | None = None) -> Tensor:
        """The rows of ids, bit for bit those of a table that one rank holds.

        Args:
            ids: integers [n], on any device; n may differ between ranks, and ids may repeat.
            out: contiguous [n, D] in host memory, to write to.

        Returns:
            [n, D] on the device of the ids, or `out`.

        Raises:
            CohortError: on all ranks, if a rank requests an id out of range, has ended, or does not take part within
                `timeout_s` seconds.
        """
        return self.start(ids, out).wait()

    def start(self, ids: Tensor | np.ndarray | Sequence[int], out: Tensor | None = None) -> Pending:
        """Like `fetch`, without waiting: requests rows of the next batch while the script trains on the current one."""
        device = ids.device if isinstance(ids, Tensor) else torch.device("cpu")
        index = arrays.as_index(ids.detach().cpu() if isinstance(ids, Tensor) else ids)
        wanted = ("cpu", (len(index), self.shape[1]), self.dtype, True)
        if out is not None and (out.device.type, tuple(out.shape), out.dtype, out.is_contiguous()) != wanted:
            expected = f"a contiguous CPU tensor {self.dtype} [{len(index)}, {self.shape[1]}]"
            found = f"{out.device} {out.dtype} {list(out.shape)}" + ("" if out.is_contiguous() else ", not contiguous")
            raise CohortError("ShardedRows: out", expected, found)
        return Pending(self._thread.submit(self._exchange, index, device, out))

    def stats(self) -> ShardedStats:
        """What this rank has fetched so far."""
        return self._stats

    def close(self) -> None:
        """Ends the thread and the group of the exchanges; all ranks call it, and nothing can be fetched afterwards."""
        self._thread.shutdown()
        self._broken = self._broken or CohortError("ShardedRows", "rows to fetch before close()", "closed ones")
        dist.destroy_process_group(self._group)

    def _agree(self, wire: str) -> list[ibp.Profile | None]:
        """Compares the rows of all ranks; returns how those of each travel: encoded by a profile, or raw."""
        profile = None
        if isinstance(self._rows, ibp.EncodedRows):
            self.dtype = torch.as_tensor(ibp.fetch(self._rows, np.empty(0, np.int64))).dtype
            profile = self._rows.profile if wire == "stored" else None
        else:
            self.dtype = self._rows.dtype
        own = (len(self._rows), int(self._rows.shape[1]), str(self.dtype), profile and profile.native)
        told: list = [None] * self._size
        try:
            dist.all_gather_object(told, own, group=self._group)
        except RuntimeError as error:
            raise self._gone("the size of its rows", error) from error
        for rank, (_, dim, dtype, _) in enumerate(told):
            if (dim, dtype) != told[0][1:3]:
                expected = f"rows of {told[0][1]} x {told[0][2]}, as rank 0 has"
                raise CohortError(f"ShardedRows: rank {rank}", expected, f"{dim} x {dtype}")
        self.bounds = np.cumsum([0, *(each[0] for each in told)])
        self.shape = (int(self.bounds[-1]), own[1])
        return [each[3] and ibp.Profile(each[3]) for each in told]

    def _checked(self, owner) -> tuple[np.ndarray, np.ndarray]:
        """The rank and the place of each row, once they are known to be rows that there are."""
        ranks, places = (np.asarray(each) for each in owner)
        if ranks.shape != places.shape or ranks.ndim != 1 or {ranks.dtype.kind, places.dtype.kind} - {"i", "u"}:
            found = f"{ranks.dtype} {list(ranks.shape)} and {places.dtype} {list(places.shape)}"
            raise CohortError("ShardedRows: owner", "two arrays of integers [V]", found)
        sizes = np.diff(self.bounds)
        wrong = (ranks < 0) | (ranks >= self._size)
        wrong |= (places < 0) | (places >= sizes[np.where(wrong, 0, ranks)])
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            expected = f"a rank below {self._size} and a place among its rows ({', '.join(map(str, sizes))})"
            raise CohortError(f"ShardedRows: owner of id {at}", expected, f"rank {ranks[at]}, place {places[at]}")
        self.shape = (len(ranks), self.shape[1])
        return ranks, places

    def _gone(self, what: str, error: Exception) -> CohortError:
        hint = "see the end of each rank's output: one of them has ended, hangs, or fetches less often than the others"
        expected = f"{what} from all {self._size} ranks within {self._timeout_s:g} s"
        return CohortError(f"ShardedRows: rank {self._rank}", expected, str(error).partition("\n")[0], hint)

    def _exchange(self, ids: np.ndarray, device: torch.device, out: Tensor | None) -> Tensor:
        """A fetch, in the thread of the exchanges."""
        if self._broken:
            raise self._broken
        start = time.perf_counter()
        try:
            rows = self._fetched(ids, out)
        except CohortError:  # on all ranks, or of rows that have come: the next exchange can go on
            raise
        except RuntimeError as error:
            self._broken = self._gone("its part of an exchange", error)
            raise self._broken from error
        self._stats.seconds += time.perf_counter() - start
        return rows if out is not None else rows.to(device)

    def _fetched(self, ids: np.ndarray, out: Tensor | None) -> Tensor:
        ranks, places = self._located(ids)
        order = np.argsort(ranks, kind="stable")
        wanted = np.bincount(ranks, minlength=self._size)
        asked = self._all_to_all_counts(wanted if len(ranks) == len(ids) else np.full(self._size, BAD_IDS))
        if (asked == BAD_IDS).any():
            self._fail_ids(ids, np.flatnonzero(asked == BAD_IDS))
        own = slice(*np.cumsum([0, *wanted])[self._rank : self._rank + 2])
        wanted[self._rank] = asked[self._rank] = 0  # own rows do not travel
        sorted_places = places[order]
        own_places = sorted_places[own]
        theirs = self._all_to_all(np.delete(sorted_places, own), wanted, asked)
        messages = [self._stored(part) for part in np.split(theirs, np.cumsum(asked)[:-1])]
        sizes = np.array([sum(map(len, message)) for message in messages])
        arriving = self._all_to_all_counts(sizes)
        given = [part for message in messages for part in message]
        found = self._all_to_all(given[0] if len(given) == 1 else np.concatenate([NOTHING, *given]), sizes, arriving)
        rows = out if out is not None else torch.empty((len(ids), self.shape[1]), dtype=self.dtype)
        in_place = bool((ranks[1:] >= ranks[:-1]).all())  # the ids stand by rank, as the rows come
        by_rank = rows if in_place else torch.empty_like(rows)
        first = np.cumsum([0, *wanted])
        first[self._rank + 1 :] += len(own_places)
        parts = zip(wanted, np.split(found, np.cumsum(arriving)[:-1]), strict=True)
        for rank, (count, message) in enumerate(parts):
            self._decode(rank, message, by_rank[first[rank] :][:count])
        by_rank[first[self._rank] :][: len(own_places)] = self._own(own_places)
        if not in_place:
            rows.index_copy_(0, torch.from_numpy(order), by_rank)
        self._stats.own_rows += len(own_places)
        self._stats.remote_rows += int(wanted.sum())
        self._stats.sent_bytes += int(sizes.sum())
        self._stats.received_bytes += len(found)
        return rows

    def _located(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rank and place of each id; none at all when one of them is out of range."""
        if len(ids) and not (0 <= ids.min() and ids.max() < self.shape[0]):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        if self._owner is not None:
            return self._owner[0][ids].astype(np.int64), self._owner[1][ids].astype(np.int64)
        ranks = np.searchsorted(self.bounds, ids, side="right") - 1
        return ranks, ids - self.bounds[ranks]

    def _fail_ids(self, ids: np.ndarray, ranks: np.ndarray) -> None:
        expected = f"ids in [0, {self.shape[0]})"
        if self._rank in ranks:
            wrong = ids[(ids < 0) | (ids >= self.shape[0])]
            raise CohortError(f"ShardedRows: rank {self._rank}", expected, str(wrong[0]))
        told = ", ".join(map(str, ranks))
        raise CohortError(f"ShardedRows: rank {told}", expected, "one out of range", "see the error of that rank")

    def _own(self, places: np.ndarray) -> Tensor:
        if isinstance(self._rows, ibp.EncodedRows):
            return torch.as_tensor(ibp.fetch(self._rows, places))
        return self._rows[torch.from_numpy(places)]

    def _stored(self, places: np.ndarray) -> list[np.ndarray]:
        """Parts, uint8, of a message with these rows of this rank: raw, or what ibp.take() gives, entries first."""
        if len(places) == 0:
            return []
        if self._profiles[self._rank] is None:
            return [self._own(places).contiguous().view(torch.uint8).flatten().numpy()]
        entries, data = ibp.take(self._rows, places)
        return [entries.view(np.uint8), data]

    def _decode(self, rank: int, message: np.ndarray, rows: Tensor) -> None:
        """Writes the rows [n, D] of a message of a rank."""
        if len(rows) == 0:
            return
        profile = self._profiles[rank]
        if profile is None:
            rows.view(torch.uint8).copy_(torch.from_numpy(message).view(len(rows), -1))
            return
        directory = 8 * len(rows)
        ibp.decode_stored(profile, message[:directory].copy().view(np.uint64), message[directory:], rows)

    def _all_to_all_counts(self, counts: np.ndarray) -> np.ndarray:
        """int64 [ranks]: one number from each rank, of those that it has for all."""
        sent, found = torch.from_numpy(counts.astype(np.int64)), torch.empty(self._size, dtype=torch.int64)
        dist.all_to_all_single(found, sent, group=self._group)
        return found.numpy()

    def _all_to_all(self, values: np.ndarray, sent: np.ndarray, arriving: np.ndarray) -> np.ndarray:
        """Values for each rank in turn, `sent` of them; returns those from each rank in turn."""
        given = torch.from_numpy(np.ascontiguousarray(values))
        found = torch.empty(int(arriving.sum()), dtype=given.dtype)
        dist.all_to_all_single(found, given, arriving.tolist(), sent.tolist(), group=self._group)
        return found.numpy()


def _host_rows(rows: Tensor | np.ndarray) -> Tensor:
    """[v, D] in host memory."""
    tensor = torch.as_tensor(rows)
    if tensor.dim() != 2 or tensor.is_cuda:
        raise CohortError("ShardedRows: rows", "[v, D] in host memory", f"{tensor.device} {list(tensor.shape)}")
    return tensor
