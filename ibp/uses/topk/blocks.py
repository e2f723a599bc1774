"""The rows of an encoded table, block by block, as bfloat16: what top_k() scores."""

import functools
from collections.abc import Iterator

import torch

from cohort_gnn.ibp.rows import EncodedRows, fetch
from cohort_gnn.ibp.uses.topk.group_scores import ROWS

BEGUN = 2  # blocks that are scored ahead of the block that the host looks at
_HOST_MEMORY_SMS = 16  # for each of two fetches from host memory: enough for the link, and SMs are left for the scores


def _ranges(num_rows: int, block_rows: int) -> list[range]:
    """The rows of each block. Rows at the end of the table that make no whole group are a block of their own."""
    last = num_rows // block_rows * block_rows
    whole = last + (num_rows - last) // ROWS * ROWS
    begins = [*range(0, last, block_rows), *{last, whole} - {num_rows}]
    begins.sort()
    return [range(begin, end) for begin, end in zip(begins, [*begins[1:], num_rows], strict=True)]


def _rounded(block: torch.Tensor) -> torch.Tensor:
    """The rows as bfloat16. Only 0 becomes 0, so that rows of zeros can still be recognised."""
    rounded = block.to(torch.bfloat16)
    if block.dtype == torch.float32:
        rounded.masked_fill_((rounded == 0) & (block != 0), 2.0**-133)
    return rounded


def row_blocks(rows: EncodedRows, block_rows: int) -> Iterator[tuple[int, torch.Tensor]]:
    """(number of the first row, rows bfloat16 [n, d]) of each block, in order; only elements that are 0 become 0.

    On a GPU, the next two blocks are fetched on two other streams while the current stream works, and a block is valid
    until BEGUN others after it were returned and the next is requested. On a CPU it is valid until the next request.
    """
    coarse = rows.profile.codec == "planes"
    planes, dtype = ("A", torch.bfloat16) if coarse else ("AB", getattr(torch, rows.profile.dtype))
    ranges = _ranges(len(rows), block_rows)
    shape = (max(map(len, ranges)), rows.shape[1])

    if rows._gpu is None:
        buffer = torch.empty(shape, dtype=dtype, device="cpu")
        return ((ids.start, _rounded(fetch(rows, ids, buffer[: len(ids)], planes=planes))) for ids in ranges)

    current = torch.cuda.current_stream(rows.device)
    streams = _streams(rows._gpu)
    buffers = [torch.empty(shape, dtype=dtype, device=rows.device) for _ in range(len(streams) + 1 + BEGUN)]
    for buffer in buffers:
        for stream in streams:
            buffer.record_stream(stream)
    ready: list[torch.cuda.Event] = []
    sms = None if rows.place == "cuda" else _HOST_MEMORY_SMS  # None: all

    def ask(number: int) -> None:
        """Fetches a block to its buffer, once the current stream is done with the previous block in this buffer."""
        if number < len(ranges):
            stream = streams[number % len(streams)]
            stream.wait_stream(current)
            with torch.cuda.stream(stream):
                ids = torch.arange(ranges[number].start, ranges[number].stop, device=rows.device)
                fetch(rows, ids, buffers[number % len(buffers)][: len(ids)], max_sms=sms, planes=planes)
                ready.append(stream.record_event())

    def rounded_blocks() -> Iterator[tuple[int, torch.Tensor]]:
        for number, ids in enumerate(ranges):
            ask(number + len(streams))  # the work on the buffer's last block is queued by now
            current.wait_event(ready[number])
            yield ids.start, _rounded(buffers[number % len(buffers)][: len(ids)])

    for number in range(len(streams)):
        ask(number)
    return rounded_blocks()


@functools.cache
def _streams(gpu: int) -> list[torch.cuda.Stream]:
    """Two streams for fetches. Of high priority: their kernels start before others that wait; the link stays busy."""
    return [torch.cuda.Stream(gpu, priority=-1) for _ in range(2)]
