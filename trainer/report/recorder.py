"""RUN/timeline.json: what both programs of every rank did, as trace events that Perfetto and chrome://tracing read.

Times are microseconds of the clock of time.monotonic(). A rank's sampler and trainer are two processes of the file.
"""

import json
import time
from collections.abc import Iterator

import torch
from torch.profiler import ProfilerActivity, profile

from cohort_gnn.base.files import scratch_folder, write_whole
from cohort_gnn.spec import files
from cohort_gnn.spec.results import TIERS, EpochReport
from cohort_gnn.trainer.report.callback import Callback
from cohort_gnn.trainer.report.messages import unless_full

SHOWN_STEPS = 40
PROFILED_EPOCHS, PROFILED_STEPS = 2, 500
SAMPLE, FETCH = range(2)  # tracks of a sampler
STEPS = 0  # track of a trainer; others are those of its GPU's streams
Span = tuple[float, float]  # begin and end, in seconds of time.monotonic()
ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")  # categories of torch.profiler's events


class Recorder(Callback):
    """Records steps: the first of training in the second epoch, or in the last where there is none.

    With --profile: the first of the first two epochs, validation included, and the kernels that the trainer ran
    meanwhile; steps of all epochs are NVTX ranges for other profilers. A run that is resumed keeps the file that it
    has, or counts its epochs from the first that it runs from the beginning.
    """

    def run_begins(self, trainer) -> None:
        options, running, rank = trainer.options, trainer.running, trainer.ranks.rank
        self._device, self._profiled = trainer.device, options.profile
        self._ranges = self._profiled and self._device.type == "cuda"
        self._sampler, self._trainer = 2 * rank, 2 * rank + 1  # processes of the file
        first, shown = running.epoch + (running.step > 0), 1
        if self._profiled:
            shown = PROFILED_EPOCHS
        else:
            first = min(max(1, first), options.epochs - 1)
        has_file = running.epoch + running.step > 0 and (trainer.out / files.TIMELINE).exists()
        has_file = trainer.ranks.share(has_file, 0)  # other machines have none
        self._epochs = range(first, 0 if has_file else min(first + shown, options.epochs))  # of which the file tells
        self._room = PROFILED_STEPS if self._profiled else SHOWN_STEPS
        self._epoch: int | None = None  # that runs now
        self._task = ""  # of the pass that runs now
        self._clock: _MarkClock | None = None  # of that pass, where it is recorded
        self._steps: list[tuple] = []  # of that pass: begin, end, and _facts of the batch
        self._events: list[dict] = []
        self._profiler: profile | None = None  # while it runs

    def epoch_begins(self, trainer, epoch: int) -> None:
        self._epoch = epoch
        if self._ranges and epoch in self._epochs and epoch == self._epochs.start:
            self._profiler = profile(activities=[ProfilerActivity.CUDA])
            self._profiler.start()

    def pass_begins(self, trainer) -> None:
        """Ends the pass before; outside of epochs nothing is recorded."""
        self._end_pass()
        self._task = trainer.task
        if self._epoch in self._epochs and self._room > 0 and (self._profiled or self._task == "train"):
            self._clock = _MarkClock(self._device)

    def step_begins(self, trainer) -> None:
        if self._ranges:
            torch.cuda.nvtx.range_push(self._task)

    def step_ended(self, trainer, batch) -> None:
        if self._ranges:
            torch.cuda.nvtx.range_pop()
        if self._clock and self._room > 0:
            self._room -= 1
            self._steps.append((trainer.clock.begun, trainer.clock.ended, _facts(batch)))
            if self._room == 0:
                self._stop_profiler()

    def epoch_ended(self, trainer, report: EpochReport) -> None:
        """Writes the file after the last epoch that it describes."""
        self._end_pass()
        if self._epochs and self._epoch == self._epochs[-1]:
            self._stop_profiler()
            lines = trainer.ranks.gather(",\n".join(map(json.dumps, [*self._names(), *self._events])))
            self._events = []
            path = trainer.out / files.TIMELINE
            if trainer.ranks.rank == 0:
                with unless_full(path):
                    text = '{"displayTimeUnit": "ms", "traceEvents": [\n' + ",\n".join(lines) + "\n]}\n"
                    write_whole(path, text)
        self._epoch = None

    def _end_pass(self) -> None:
        """Brings the pass's steps to the clock of both programs; waits for the last of them."""
        if self._clock:
            before = self._clock.start
            for begin_mark, end_mark, batch in self._steps:
                begin, end = map(self._clock.seconds, (begin_mark, end_mark))
                self._add_step((before, begin), (begin, end), **batch)
                before = end
        self._clock, self._steps = None, []

    def _add_step(self, wait: Span, work: Span, batch: int, sample: Span, fetch: Span, sizes: dict, read: dict) -> None:
        number = {"epoch": self._epoch, "task": self._task, "batch": batch}
        made = number | sizes
        if sample[1] > 0:  # a rank for which no batch is left gets one without seeds
            self._add("sample", self._sampler, SAMPLE, sample, made)
            self._add("fetch", self._sampler, FETCH, fetch, made | read)
        self._add("wait", self._trainer, STEPS, wait, number)
        self._add(self._task, self._trainer, STEPS, work, made)

    def _add(self, name: str, process: int, track: int, span: Span, args: dict) -> None:
        begin_ns, end_ns = (round(1e9 * seconds) for seconds in span)
        times = {"ts": begin_ns / 1e3, "dur": (end_ns - begin_ns) / 1e3}
        self._events.append({"ph": "X", "name": name, "pid": process, "tid": track} | times | {"args": args})

    def _stop_profiler(self) -> None:
        """Takes up the kernels of the profiler, if it runs; takes a while."""
        profiler, self._profiler = self._profiler, None
        if profiler:
            torch.cuda.synchronize(self._device)
            profiler.stop()
            for kernel in kernels_of(profiler):
                self._add(kernel["name"], self._trainer, 1 + kernel["stream"], kernel["span"], kernel["args"])

    def _names(self) -> Iterator[dict]:
        """Metadata: what processes and tracks are called."""
        streams = {event["tid"] for event in self._events if event["pid"] == self._trainer} - {STEPS}
        tracks = {STEPS: "steps"} | {track: f"stream {track - 1}" for track in sorted(streams)}
        sampler = self._sampler, "sampler", {SAMPLE: "sample", FETCH: "fetch"}
        for process, role, names in (sampler, (self._trainer, "trainer", tracks)):
            title = {"name": f"rank {process // 2}: {role}"}
            yield {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": title}
            for track, name in names.items():
                yield {"ph": "M", "name": "thread_name", "pid": process, "tid": track, "args": {"name": name}}


def _facts(slot) -> dict:
    """Of a batch, as arguments of _add_step. (A slot itself, kept, would not go back to the sampler.)"""
    times = [us / 1e6 for us in slot.spans]
    stored = {tier: stored for tier, (_, stored, _) in zip(TIERS, slot.row_tiers, strict=True)}
    read = {"bytes": sum(stored.values())} | {f"{tier}_bytes": count for tier, count in stored.items() if count}
    sizes = {"nodes": sum(slot.num_sampled_nodes), "edges": sum(slot.num_sampled_edges)}
    spans = {"sample": times[:2], "fetch": times[2:]}
    return {"batch": slot.step, **spans, "sizes": sizes, "read": read}


def kernels_of(profiler: torch.profiler.profile, categories: tuple[str, ...] = ON_GPU) -> list[dict]:
    """What ran while it profiled, as {"name", "stream", "span", "args"}, spans in seconds of time.monotonic()."""
    with scratch_folder("profile") as folder:
        path = folder / "trace.json"
        profiler.export_chrome_trace(str(path))
        trace = json.loads(path.read_text())
    shift = trace.get("baseTimeNanoseconds", 0) / 1e9 - (time.time() - time.monotonic())
    return [
        {
            "name": event["name"],
            "stream": event["args"].get("stream", 0),
            "span": (shift + event["ts"] / 1e6, shift + (event["ts"] + event["dur"]) / 1e6),
            "args": {name: event["args"][name] for name in ("grid", "block", "bytes") if name in event["args"]},
        }
        for event in sorted(trace["traceEvents"], key=lambda event: event["ts"])
        if event.get("cat") in categories
    ]


class _MarkClock:
    """Brings marks of a StepClock to time.monotonic(): on a GPU by one event whose time both clocks know.

    Attributes:
        start: when it was made.
    """

    def __init__(self, device: torch.device):
        self.start = time.monotonic()
        self._event = None
        if device.type == "cuda":
            self._event = torch.cuda.Event(enable_timing=True)
            torch.cuda.current_stream(device).synchronize()  # the event's time is then when it is recorded
            before = time.monotonic()
            self._event.record()
            self._event.synchronize()
            self.start = (before + time.monotonic()) / 2

    def seconds(self, mark) -> float:
        if self._event is None:
            return mark
        mark.synchronize()
        return self.start + self._event.elapsed_time(mark) / 1e3
