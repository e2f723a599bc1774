"""The kernels and copies of a trainer, from torch.profiler, on the clock of time.monotonic()."""

import json
import tempfile
import time
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from cohort.base.errors import CohortError
from cohort.trainer.report.step_log import Span

ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")  # categories of events
NUM_MARKS = 10
MARK = "cohort clock"


class KernelTrace:
    """A stretch of this process's work on its GPU.

    Args:
        device: its GPU. (With the CPU there are no kernels, but events of other categories.)
    """

    def __init__(self, device: torch.device):
        self._device = device
        activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device.type == "cuda")
        self._profiler = profile(activities=activities)
        self._marks: dict[str, Span] = {}

    def start(self) -> None:
        """Begins the stretch."""
        self._profiler.start()
        for i in range(NUM_MARKS):
            name = f"{MARK} {i}"
            before = time.monotonic()
            with record_function(name):
                pass
            self._marks[name] = before, time.monotonic()

    def stop(self) -> None:
        """Ends it, when the GPU has done its work; takes a while."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        self._profiler.stop()

    def events(self, categories: tuple[str, ...] = ON_GPU) -> list[dict]:
        """What ran, as {"name", "stream", "span", "args"}, once the stretch has ended.

        Raises:
            CohortError: the profiler's clock cannot be compared with ours.
        """
        with tempfile.TemporaryDirectory(prefix="cohort-profile-") as folder:
            path = Path(folder) / "trace.json"
            self._profiler.export_chrome_trace(str(path))
            return events_of(json.loads(path.read_text())["traceEvents"], self._marks, categories)


def events_of(found: list[dict], marks: dict[str, Span], categories: tuple[str, ...]) -> list[dict]:
    """The events of some categories in a trace of torch.profiler, as KernelTrace.events has them.

    Args:
        found: the trace's events; times are microseconds since an unknown moment.
        marks: names of events in it that must lie in these spans of our clock.
    """
    shift = _seconds_to_add(found, marks)
    events = [event for event in found if event.get("cat") in categories and "dur" in event]
    return [
        {
            "name": event["name"],
            "stream": event["args"].get("stream", 0),
            "span": (event["ts"] / 1e6 + shift, (event["ts"] + event["dur"]) / 1e6 + shift),
            "args": {name: event["args"][name] for name in ("grid", "block", "bytes") if name in event["args"]},
        }
        for event in sorted(events, key=lambda event: event["ts"])
    ]


def _seconds_to_add(found: list[dict], marks: dict[str, Span]) -> float:
    """What brings the trace's times to our clock: the middle of a mark is that of its span, the shortest of all."""
    seen = [event for event in found if event.get("name") in marks and event.get("cat") == "user_annotation"]
    if not seen:
        hint = "leave out --profile, and tell us the version of torch"
        raise CohortError("torch.profiler's trace", f"an event {MARK!r}", f"none in {len(found)} events", hint)
    best = min(seen, key=lambda event: marks[event["name"]][1] - marks[event["name"]][0])
    before, after = marks[best["name"]]
    return (before + after) / 2 - (best["ts"] + best["dur"] / 2) / 1e6
