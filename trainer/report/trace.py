"""RUN/trace.json: what both programs of every rank did, in the trace event format of chrome://tracing and Perfetto.

Times are microseconds of the clock of time.monotonic(). A rank's sampler and trainer are two processes of the trace.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from cohort.base.files import replacing
from cohort.trainer.report.step_log import Span, Step

SAMPLE, FETCH = range(2)  # tracks of a sampler
STEPS = 0  # track of a trainer; others are those of its GPU's streams


def write_part(path: Path, rank: int, steps: list[Step], kernels: list[dict]) -> None:
    """Writes a rank's events, one a line.

    Args:
        kernels: of its trainer, see kernel_trace.py.
    """
    with open(path, "w") as file:
        for events in (_names(rank, kernels), _step_events(rank, steps), _kernel_events(rank, kernels)):
            file.writelines(json.dumps(event) + "\n" for event in events)


def merge(parts: list[Path], path: Path) -> None:
    """Makes one trace of the ranks' parts, and removes them; a reader sees no half of it."""
    with replacing(path) as temporary, open(temporary, "w") as file:
        file.write('{"displayTimeUnit": "ms", "traceEvents": [\n')
        separator = ""
        for part in parts:
            with open(part) as lines:
                for line in lines:
                    file.write(separator + line.rstrip("\n"))
                    separator = ",\n"
        file.write("\n]}\n")
    for part in parts:
        part.unlink()


def _sampler(rank: int) -> int:
    return 2 * rank


def _trainer(rank: int) -> int:
    return 2 * rank + 1


def _names(rank: int, kernels: list[dict]) -> Iterator[dict]:
    """Metadata: what processes and tracks are called."""
    streams = {_stream_track(kernel): f"stream {kernel['stream']}" for kernel in kernels}
    tracks = {_sampler(rank): {SAMPLE: "sample", FETCH: "fetch"}, _trainer(rank): {STEPS: "steps"} | streams}
    for (process, names), role in zip(tracks.items(), ("sampler", "trainer"), strict=True):
        yield _metadata("process_name", process, 0, {"name": f"rank {rank}: {role}"})
        yield _metadata("process_sort_index", process, 0, {"sort_index": process})
        for track, name in names.items():
            yield _metadata("thread_name", process, track, {"name": name})
            yield _metadata("thread_sort_index", process, track, {"sort_index": track})


def _metadata(kind: str, process: int, track: int, args: dict) -> dict:
    return {"ph": "M", "name": kind, "pid": process, "tid": track, "args": args}


def _step_events(rank: int, steps: list[Step]) -> Iterator[dict]:
    for step in steps:
        batch = {"epoch": step.epoch, "task": step.task, "batch": step.batch}
        made = batch | {"nodes": step.nodes, "edges": step.edges}
        read = made | {"bytes": sum(step.row_bytes.values())}
        read |= {f"{tier}_bytes": count for tier, count in step.row_bytes.items() if count}
        if step.sample:
            yield _event("sample", _sampler(rank), SAMPLE, step.sample, made)
        if step.fetch:
            yield _event("fetch", _sampler(rank), FETCH, step.fetch, read)
        yield _event("wait", _trainer(rank), STEPS, step.wait, batch)
        yield _event(step.task, _trainer(rank), STEPS, step.work, made)


def _kernel_events(rank: int, kernels: Iterable[dict]) -> Iterator[dict]:
    for kernel in kernels:
        yield _event(kernel["name"], _trainer(rank), _stream_track(kernel), kernel["span"], kernel["args"])


def _stream_track(kernel: dict) -> int:
    return 1 + kernel["stream"]


def _event(name: str, process: int, track: int, span: Span, args: dict) -> dict:
    begin_ns, end_ns = (round(1e9 * seconds) for seconds in span)
    times = {"ts": begin_ns / 1e3, "dur": (end_ns - begin_ns) / 1e3}
    return {"ph": "X", "name": name, "pid": process, "tid": track} | times | {"args": args}
