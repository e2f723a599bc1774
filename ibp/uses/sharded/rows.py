"""Feature rows that the ranks of a process group share out: each holds a part of them, and all read all of them."""

from __future__ import annotations

import concurrent.futures
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from cohort_gnn import ibp
from cohort_gnn.base.errors import CohortError
from cohort_gnn.ibp import arrays
from cohort_gnn.ibp.rows import ids_on_gpu
from cohort_gnn.ibp.stored import SLACK_BYTES
from cohort_gnn.ibp.uses.sharded.groups import Groups
from cohort_gnn.ibp.uses.sharded.part import Messages, Part, put_rows
from cohort_gnn.ibp.uses.sharded.peers import PeerRows, peer_tables
from cohort_gnn.spec.types import MOST_NUMBER, checked_arguments

BAD_IDS = -1  # in place of the number of ids: a rank has asked for rows that do not exist
POLL_SECONDS = 2e-5  # between looks at whether a GPU's exchange has ended
BEYOND = 10  # timeouts, until a GPU's collective ends the process: the thread of the exchanges gives up before


@dataclass
class ShardedStats:
    """What a rank has fetched so far.

    Attributes:
        own_rows, remote_rows: fetched from this rank's memory, and from other ranks.
        sent_bytes, received_bytes: of rows, as they travel; none of rows that a GPU reads in another's memory.
        seconds: of all exchanges, from the first message of each to its last decoded row.
    """

    own_rows: int = 0
    remote_rows: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0
    seconds: float = 0.0


class Pending:
    """Rows on their way."""

    def __init__(self, result: Callable[[], Tensor]):
        self._result = result

    def wait(self) -> Tensor:
        """The rows [n, D], when they are there.

        Raises:
            CohortError: as of `ShardedRows.fetch`.
        """
        rows = self._result()
        if rows.is_cuda:
            rows.record_stream(torch.cuda.current_stream(rows.device))
        return rows


class ShardedRows:
    """Feature rows [V, D], distributed over the ranks of a process group. Encoded rows are sent encoded.

    Examples:
        >>> rows = cohort.ShardedRows(torch.tensor([[0.0, 1.0], [2.0, 3.0]]))  # on each rank its own; here there is one
        >>> rows.fetch(torch.tensor([1, 0, 1]))
        tensor([[2., 3.],
                [0., 1.],
                [2., 3.]])

    Every rank makes one `ShardedRows`, and all ranks must call `fetch` or `start` equally often, each rank with its own
    ids. The exchanges use separate process groups and a separate thread, so they do not disturb the script's own group.

    Encoded rows in the memory of GPUs of one machine that can read each other's memory (NVLink) do not travel: each GPU
    reads them in place, no rank waits for another, and an error is that rank's alone. NCCL_P2P_DISABLE=1 prevents this.

    Args:
        rows: this rank's rows: cohort.ibp.EncodedRows or a tensor or array [v, D], of the same D and dtype on all
            ranks. With device="cpu" in host memory; with a GPU a tensor in its memory, or encoded rows that it reads:
            those of EncodedRows.to("pinned") or to("cuda").
        owner: (ranks, positions), the same on all ranks: for each id, the rank that has its row, integers [V], and the
            position of the row among the rows of that rank, integers [V]. None: ids continue from rank to rank, and
            rank 0 has the first ids.
        group: the process group whose ranks take part; None: all ranks.
        timeout_s: how long a rank waits for the others in an exchange.
        wire: "stored": encoded rows travel encoded. "raw": all rows travel decoded.
        device: where rows are taken, sent from and decoded, of the same kind on all ranks: "cpu" (gloo), or a GPU of
            this rank's own, such as "cuda" (NCCL).

    Attributes:
        shape: (V, D).
        dtype: of the fetched rows.
        bounds: int64 [ranks + 1], the first id of each rank without `owner`.

    Raises:
        CohortError: ranks that are missing for `timeout_s` seconds, rows that differ in D, dtype or kind of device
            between ranks, rows that the device cannot read, or an `owner` that names rows that do not exist.
    """

    @checked_arguments
    def __init__(
        self,
        rows: ibp.EncodedRows | Tensor | np.ndarray,
        *,
        owner: tuple[Sequence[int] | Tensor | np.ndarray, Sequence[int] | Tensor | np.ndarray] | None = None,
        group: dist.ProcessGroup | None = None,
        timeout_s: float = 60.0,
        wire: str = "stored",
        device: str | torch.device = "cpu",
    ):
        if not 0 < timeout_s <= MOST_NUMBER:
            raise CohortError("ShardedRows: timeout_s", "seconds above 0", str(timeout_s))
        if wire not in ("stored", "raw"):
            raise CohortError("ShardedRows: wire", "stored or raw", repr(wire))
        self._device = _device_of(device)
        self._part = Part(rows, self._device)
        self._timeout_s = timeout_s
        if not dist.is_initialized():
            hint = "call torch.distributed.init_process_group() first"
            raise CohortError("ShardedRows", "an initialized process group", "no process group", hint)
        ranks = list(range(dist.get_world_size())) if group is None else dist.get_process_group_ranks(group)
        self._groups = Groups(ranks)
        self._group = self._groups.taken("gloo", timeout_s)
        self._rank, self._size = dist.get_rank(self._group), dist.get_world_size(self._group)
        profiles = self._agree(wire)
        self._is_encoded = [profile is not None for profile in profiles]
        self._bounds = torch.from_numpy(self.bounds).to(self._device)
        self._owner = None if owner is None else self._checked(owner)
        self._messages = Messages(profiles, self._device)
        self._bulk = self._group  # rows and ids travel in this group, counts in the other
        self._stream: torch.cuda.Stream | None = None
        self._peers: PeerRows | None = None
        self._under_way: list[tuple[torch.cuda.Event, Tensor]] = []
        if self._device.type == "cuda":
            self._stream = torch.cuda.Stream(self._device)
            tables = peer_tables(self._part.table, profiles, self._device, self._group)
            if tables is None:
                self._bulk = self._groups.taken("nccl", BEYOND * timeout_s)
            else:
                self._peers = PeerRows(tables, self._device, self.shape[0], self._bounds, self._owner)
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "sharded-rows")
        self._broken: CohortError | None = None
        self._stats = ShardedStats()

    def fetch(self, ids: Tensor | np.ndarray | Sequence[int], out: Tensor | None = None) -> Tensor:
        """The rows of ids, bit for bit those of a table that one rank holds.

        Args:
            ids: integers [n], on any device; n may differ between ranks, and ids may repeat.
            out: contiguous [n, D] to write to, on the device of the exchanges.

        Returns:
            `out`, or [n, D] on the device of the exchanges if that is a GPU, else on the device of the ids.

        Raises:
            CohortError: on all ranks, if a rank requests an id out of range, has ended, or does not take part within
                `timeout_s` seconds.
        """
        if self._peers is not None:
            return self._read(self._checked_ids(ids, out), out, None)()
        return self.start(ids, out).wait()

    def start(self, ids: Tensor | np.ndarray | Sequence[int], out: Tensor | None = None) -> Pending:
        """Like `fetch`, without waiting: requests rows of the next batch while the script trains on the current one."""
        index = self._checked_ids(ids, out)
        if self._broken:
            raise self._broken
        if self._peers is not None:
            return Pending(self._read(index, out, self._stream))
        back_to = ids.device if isinstance(ids, Tensor) and self._device.type == "cpu" else self._device
        ids_ready = torch.cuda.current_stream(self._device).record_event() if self._stream else None
        return Pending(self._thread.submit(self._exchange, index, back_to, out, ids_ready).result)

    def stats(self) -> ShardedStats:
        """What this rank has fetched so far."""
        return self._stats

    def close(self) -> None:
        """Ends the thread of the exchanges; all ranks call it, and nothing can be fetched afterwards.

        The groups stay for the next `ShardedRows` of the same ranks and timeout, until the script ends its own group.
        """
        self._thread.shutdown()
        self._groups.give_back(is_whole=self._broken is None)
        for name in ("_group", "_bulk"):  # from here on torch alone keeps them
            self.__dict__.pop(name, None)
        self._broken = self._broken or CohortError("ShardedRows", "a fetch before close()", "a fetch after it")

    def _agree(self, wire: str) -> list[ibp.Profile | None]:
        """Compares the rows of all ranks; returns how those of each travel: encoded by a profile, or raw."""
        profile = self._part.profile if wire == "stored" else None
        self.dtype = self._part.dtype
        kind = (int(self._part.shape[1]), str(self.dtype), self._device.type)
        parts: list = [None] * self._size
        try:
            dist.all_gather_object(parts, (len(self._part), kind, profile and profile.native), group=self._group)
        except RuntimeError as error:
            raise self._gone("the size of its rows", error) from error
        for rank, (_, actual, _) in enumerate(parts):
            if actual != parts[0][1]:
                expected = "rows of {} x {} for {}, as rank 0 has".format(*parts[0][1])
                raise CohortError(f"ShardedRows: rank {rank}", expected, "{} x {} for {}".format(*actual))
        self.bounds = np.cumsum([0, *(part[0] for part in parts)])
        self.shape = (int(self.bounds[-1]), kind[0])
        return [part[2] and ibp.Profile(part[2]) for part in parts]

    def _checked(self, owner) -> tuple[Tensor, Tensor]:
        """The rank and the position of each row, on the device, after a check that these rows exist."""
        ranks, positions = (np.asarray(array.cpu() if isinstance(array, Tensor) else array) for array in owner)
        if ranks.shape != positions.shape or ranks.ndim != 1 or {ranks.dtype.kind, positions.dtype.kind} - {"i", "u"}:
            actual = f"{ranks.dtype} {list(ranks.shape)} and {positions.dtype} {list(positions.shape)}"
            raise CohortError("ShardedRows: owner", "two arrays of integers [V]", actual)
        sizes = np.diff(self.bounds)
        wrong = (ranks < 0) | (ranks >= self._size)
        wrong |= (positions < 0) | (positions >= sizes[np.where(wrong, 0, ranks)])
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            expected = f"a rank below {self._size} and a position among its rows ({', '.join(map(str, sizes))})"
            raise CohortError(f"ShardedRows: owner of id {at}", expected, f"rank {ranks[at]}, position {positions[at]}")
        self.shape = (len(ranks), self.shape[1])
        narrow = ranks.astype(np.int32), positions.astype(np.int64 if sizes.max() > 2**31 - 1 else np.int32)
        return torch.from_numpy(narrow[0]).to(self._device), torch.from_numpy(narrow[1]).to(self._device)

    def _gone(self, what: str, error: Exception) -> CohortError:
        hint = "see the end of each rank's output: one of them has ended, hangs, or fetches less often than the others"
        expected = f"{what} from all {self._size} ranks within {self._timeout_s:g} s"
        return CohortError(f"ShardedRows: rank {self._rank}", expected, str(error).partition("\n")[0], hint)

    def _exchange(
        self, ids: Tensor, back_to: torch.device, out: Tensor | None, ids_ready: torch.cuda.Event | None
    ) -> Tensor:
        """A fetch, in the thread of the exchanges; `ids_ready`: when the ids are on the GPU."""
        if self._broken:
            raise self._broken
        start = time.perf_counter()
        try:
            on_stream = torch.cuda.stream(self._stream) if self._stream else contextlib.nullcontext()
            with torch.inference_mode(out is not None and out.is_inference()), torch.no_grad(), on_stream:
                if self._stream and ids_ready:
                    self._stream.wait_event(ids_ready)
                rows = self._fetched(ids, out)
                self._await()
                self._messages.check()
        except CohortError:  # on all ranks, or of rows that have come: the next exchange can go on
            raise
        except RuntimeError as error:
            self._broken = self._gone("its part of an exchange", error)
            raise self._broken from error
        self._stats.seconds += time.perf_counter() - start
        return rows if out is not None else rows.to(back_to)

    def _fetched(self, ids: Tensor, out: Tensor | None) -> Tensor:
        ranks, positions, num_wrong = self._located(ids)
        order = torch.argsort(ranks, stable=True)
        bounds = torch.searchsorted(ranks[order], torch.arange(self._size + 1, device=self._device, dtype=ranks.dtype))
        on_device = bounds.diff()
        *first, wrong = torch.cat([bounds, num_wrong.view(1)]).tolist()  # of the ids of each rank, sorted by rank
        wanted = np.diff(first)
        asked = self._all_to_all_counts(np.full(self._size, BAD_IDS) if wrong else wanted)
        if (asked == BAD_IDS).any():
            self._fail_ids(ids.cpu().numpy(), np.flatnonzero(asked == BAD_IDS))
        own = slice(first[self._rank], first[self._rank + 1])
        wanted[self._rank] = asked[self._rank] = 0  # own rows do not travel
        sorted_positions = positions[order]
        to_others = torch.cat([sorted_positions[: own.start], sorted_positions[own.stop :]])
        theirs = self._all_to_all(to_others, wanted, asked)
        here = self._is_encoded[self._rank]
        entries, data, sizes = self._part.take(theirs, asked.tolist(), here)
        arriving = self._all_to_all_counts(np.array(sizes))
        entries_found = entries[:0]
        if any(self._is_encoded):
            entries_found = self._all_to_all(entries, asked * here, wanted * np.array(self._is_encoded))
        data_found = self._all_to_all(data, np.array(sizes), arriving)
        rows = self._rows_for(ids, out)
        put_rows(rows, order[own], self._part.fetch(sorted_positions[own]))
        rank_entries = entries_found.split((wanted * np.array(self._is_encoded)).tolist())
        for rank, message in enumerate(zip(rank_entries, data_found.split(arriving.tolist()), strict=True)):
            positions = order[first[rank] :][: wanted[rank]]
            self._messages.write(rank, message, on_device[rank : rank + 1], positions, rows)
        self._stats.own_rows += own.stop - own.start
        self._stats.remote_rows += int(wanted.sum())
        self._stats.sent_bytes += sum(sizes) + entries.nbytes
        self._stats.received_bytes += data_found.nbytes + entries_found.nbytes
        return rows

    def _read(self, ids: Tensor, out: Tensor | None, stream: torch.cuda.Stream | None) -> Callable[[], Tensor]:
        """Begins to read the rows where they lie, on the current stream or beside it; the function waits for them."""
        if self._broken:
            raise self._broken
        assert self._peers is not None
        start = time.perf_counter()
        current = torch.cuda.current_stream(self._device)
        if stream is not None:
            stream.wait_stream(current)
        with torch.cuda.stream(stream):
            rows = self._rows_for(ids, out)
            outcome = self._peers.fetch(ids, rows)
        ended: torch.cuda.Stream | torch.cuda.Event = current
        if stream is not None:
            ended = stream.record_event()
            for tensor in (ids, rows):
                tensor.record_stream(stream)
            # The GPU writes to these even if the caller never waits for the rows.
            self._under_way = [fetch for fetch in self._under_way if not fetch[0].query()] + [(ended, outcome)]
        is_counted = False

        def result() -> Tensor:
            nonlocal is_counted
            ended.synchronize()
            *counts, status = outcome.tolist()
            if status >= 0 and status % 2 == 0:
                self._fail_ids(ids.cpu().numpy(), np.array([self._rank]))
            if status >= 0:
                hint = "the data is damaged"
                raise CohortError(
                    f"ShardedRows: ids[{status // 2}]", "a valid encoding", "bytes that are not an encoded row", hint
                )
            if not is_counted:
                self._stats.own_rows += counts[self._rank]
                self._stats.remote_rows += sum(counts) - counts[self._rank]
                self._stats.seconds += time.perf_counter() - start
                is_counted = True
            return rows

        return result

    def _checked_ids(self, ids: Tensor | np.ndarray | Sequence[int], out: Tensor | None) -> Tensor:
        """int64 [n] on the device of the exchanges; `out` has room for their rows."""
        if isinstance(ids, Tensor) and ids.is_cuda and self._device.type == "cuda" and ids.dim() == 1:
            index = ids_on_gpu(ids, str(self._device), "ShardedRows: ids")
        else:
            index = torch.from_numpy(arrays.as_index(ids.detach().cpu() if isinstance(ids, Tensor) else ids))
            index = index.to(self._device)
        wanted = (self._device.type, (len(index), self.shape[1]), self.dtype, True)
        if out is not None and not isinstance(out, Tensor):
            raise CohortError("ShardedRows: out", f"a tensor on {self._device}", type(out).__name__)
        if arrays.wants_grad(out):
            raise CohortError(
                "ShardedRows: out", "a tensor without gradients", "one with gradients", "pass a detached one"
            )
        if out is not None and (out.device.type, tuple(out.shape), out.dtype, out.is_contiguous()) != wanted:
            expected = f"a contiguous {self._device.type.upper()} tensor {self.dtype} [{len(index)}, {self.shape[1]}]"
            actual = f"{out.device} {out.dtype} {list(out.shape)}" + ("" if out.is_contiguous() else ", not contiguous")
            raise CohortError("ShardedRows: out", expected, actual)
        return index

    def _rows_for(self, ids: Tensor, out: Tensor | None) -> Tensor:
        if out is not None:
            return out
        return torch.empty(len(ids), self.shape[1], dtype=self.dtype, device=self._device)

    def _located(self, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rank and position of each id (of row 0 for an id out of range), and the number of ids out of range."""
        wrong = (ids < 0) | (ids >= self.shape[0])
        if self.shape[0] == 0:
            return ids * 0, ids * 0, wrong.sum()
        inside = ids.masked_fill(wrong, 0)
        if self._owner is not None:
            return self._owner[0][inside], self._owner[1][inside].long(), wrong.sum()
        ranks = torch.searchsorted(self._bounds, inside, right=True, out_int32=True) - 1
        return ranks, inside - self._bounds[ranks], wrong.sum()

    def _fail_ids(self, ids: np.ndarray, ranks: np.ndarray) -> None:
        expected = f"ids in [0, {self.shape[0]})"
        if self._rank in ranks:
            wrong = ids[(ids < 0) | (ids >= self.shape[0])]
            raise CohortError(f"ShardedRows: rank {self._rank}", expected, str(wrong[0]))
        numbers = ", ".join(map(str, ranks))
        raise CohortError(f"ShardedRows: rank {numbers}", expected, "one out of range", "see the error of that rank")

    def _await(self) -> None:
        """Waits for the GPU, which waits for other ranks, as long as ranks wait for each other."""
        if not self._stream:
            return
        ended, limit = self._stream.record_event(), time.monotonic() + self._timeout_s
        while not ended.query():
            if time.monotonic() > limit:
                self._bulk.abort()
                raise RuntimeError("rows that did not come")
            time.sleep(POLL_SECONDS)

    def _all_to_all_counts(self, counts: np.ndarray) -> np.ndarray:
        """int64 [ranks]: from each rank, the number that it has for this rank."""
        sent, received = torch.from_numpy(counts.astype(np.int64)), torch.empty(self._size, dtype=torch.int64)
        dist.all_to_all_single(received, sent, group=self._group)
        return received.numpy()

    def _all_to_all(self, values: Tensor, sent: np.ndarray, arriving: np.ndarray) -> Tensor:
        """Values for each rank in turn, `sent` of them; returns those from each rank in turn, with memory behind."""
        total = int(arriving.sum())
        received = torch.empty(total + SLACK_BYTES, dtype=values.dtype, device=self._device)[:total]
        dist.all_to_all_single(received, values, arriving.tolist(), sent.tolist(), group=self._bulk)
        return received


def _device_of(device: str | torch.device) -> torch.device:
    """The CPU, or a GPU by its number."""
    resolved = torch.device(device)
    if resolved.type == "cuda" and not torch.cuda.is_available():
        raise CohortError("ShardedRows: device", "a GPU that torch can use", "no GPU", 'use device="cpu"')
    if resolved.type not in ("cpu", "cuda"):
        raise CohortError("ShardedRows: device", "cpu or a GPU", str(device))
    if resolved.type == "cuda" and resolved.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return resolved
