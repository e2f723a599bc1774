"""What profilers show of a trainer beside its kernels: NVTX ranges, for example in Nsight Systems."""

import torch


class ProfilerRanges:
    """Ranges of the host's thread, one after the other: "wait" between steps, the task's name around each.

    They say when the host put the work on its stream; a profiler projects them on the GPU. Next to nothing when none
    listens.

    Args:
        wanted: without, nothing happens.
    """

    def __init__(self, wanted: bool):
        self._wanted = wanted
        self._task = ""  # of the pass that runs; none: nothing is open

    def pass_begins(self, task: str) -> None:
        """A pass to "train" or "validate" begins, with the wait for its first batch; the one before ends."""
        self.pass_ends()
        if self._wanted:
            self._task = task
            torch.cuda.nvtx.range_push("wait")

    def step_begins(self) -> None:
        self._next(self._task)

    def step_ended(self) -> None:
        self._next("wait")

    def pass_ends(self) -> None:
        """No range is open then."""
        if self._task:
            torch.cuda.nvtx.range_pop()
        self._task = ""

    def _next(self, name: str) -> None:
        if self._task:
            torch.cuda.nvtx.range_pop()
            torch.cuda.nvtx.range_push(name)
