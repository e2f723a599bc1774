"""The trainers of one run: how many there are, and what they add up between them."""

import collections
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from cohort.base.errors import CohortError
from cohort.trainer.metrics import StepClock
from cohort.trainer.stop import StopRequest

STEPS_LATE = 8  # more than a GPU is ever behind its host: the slots, by default 3, are the bound


@dataclass(frozen=True)
class Place:
    """Which of the run's trainers this process is, as torchrun counts them.

    Attributes:
        rank, size: among all trainers of the run; batch b of a pass is for rank b mod size.
        local_rank, local_size: among those on this machine, which share one sampler.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1


def place_from_environment() -> Place:
    """The place that torchrun or ``cohort`` gave to this process; the only one when neither started it.

    Raises:
        CohortError: a variable is no number.
    """
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    found = [os.environ.get(name) for name in names]
    if None in found:
        return Place()
    try:
        return Place(*map(int, found))
    except ValueError as error:
        raise CohortError(", ".join(names), "integers, as torchrun sets them", str(found)) from error


class Ranks:
    """What the trainers of a run do together. With one trainer every method returns its argument.

    Args:
        place: which of them this is.
        device: where its tensors are: NCCL joins GPUs, gloo CPUs.
        store: a file in a folder that is new to the run, by which they find each other.

    Attributes:
        clock: gets the times of the all-reduces, where there is one.
    """

    def __init__(self, place: Place, device: torch.device, store: Path):
        self.rank, self.size = place.rank, place.size
        self.clock: StepClock | None = None
        if self.size > 1:
            on_gpu = device.type == "cuda"
            dist.init_process_group(
                "nccl" if on_gpu else "gloo",
                init_method=f"file://{store}",
                rank=self.rank,
                world_size=self.size,
                device_id=device if on_gpu else None,
            )

    def spread(self, model: torch.nn.Module) -> None:
        """Gives the model of every rank the parameters and buffers of rank 0's."""
        if self.size > 1:
            for values in model.state_dict().values():
                dist.broadcast(values, 0)

    def sum(self, values: Tensor) -> Tensor:
        """The sum of every rank's ``values``, in place."""
        if self.size > 1:
            if self.clock:
                self.clock.all_reduce_begins()
            dist.all_reduce(values)
            if self.clock:
                self.clock.all_reduce_ended()
        return values

    def gather(self, value) -> list:
        """Every rank's ``value`` (anything that can be pickled), by rank."""
        if self.size == 1:
            return [value]
        values = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def leave(self) -> None:
        """Ends what joins the ranks, when all are done."""
        if self.size > 1:
            dist.destroy_process_group()


class StepSums:
    """What the ranks add up in each step: the labels they have, and their gradients, all at once.

    What a CUDA graph replays uses tensors that stay where they are: ``labelled``, and the buffer of the gradients.

    Args:
        parameters: of the model; all of one dtype, and on one device.
        sum_labelled, sum_gradients: of every rank's tensor; the latter in place.

    Attributes:
        labelled: int64 [], of the step that is under way.
    """

    def __init__(
        self,
        parameters: list[torch.nn.Parameter],
        sum_labelled: Callable[[Tensor], Tensor],
        sum_gradients: Callable[[Tensor], Tensor],
    ):
        self._parameters = parameters
        self._sum_labelled, self._sum_gradients = sum_labelled, sum_gradients
        self._flat = torch.cat([torch.zeros_like(values).flatten() for values in parameters])
        parts = self._flat.split([values.numel() for values in parameters])
        self._views = [part.view_as(values) for part, values in zip(parts, parameters, strict=True)]
        self.labelled = torch.zeros((), dtype=torch.int64, device=self._flat.device)

    def count(self, labelled: Tensor) -> None:
        """Before the step: adds up this rank's int64 []."""
        self.labelled.copy_(self._sum_labelled(labelled))

    def take_gradients(self) -> None:
        """After the backward pass: keeps this rank's."""
        torch.cat([values.grad.flatten() for values in self._parameters], out=self._flat)

    def give_gradients(self) -> None:
        """Makes the gradients of the parameters those of all ranks, added up."""
        self._sum_gradients(self._flat)
        for values, sums in zip(self._parameters, self._views, strict=True):
            values.grad = sums


class Agreement:
    """Has all ranks end after the same step when one of them is told to stop.

    The word goes along with a sum that each step makes anyway. A GPU's answer is looked at some steps later, so that
    its host does not wait for it.

    Args:
        ranks: those that are to agree.
        device: where their sums are.
    """

    def __init__(self, ranks: Ranks, device: torch.device):
        self._ranks = ranks
        self._late = STEPS_LATE if device.type == "cuda" else 0
        self._answers: collections.deque[tuple[Tensor, torch.cuda.Event | None]] = collections.deque()

    def sum(self, value: Tensor, stop: StopRequest) -> Tensor:
        """The sum of every rank's ``value``, an integer []; once in each step."""
        if self._ranks.size == 1:
            return value
        total, asked = self._ranks.sum(torch.stack([value, value.new_full((), int(stop.asked))]))
        answer = asked.to("cpu", non_blocking=True)
        event = None
        if asked.is_cuda:
            event = torch.cuda.Event()
            event.record()
        self._answers.append((answer, event))
        return total

    def stops(self, stop: StopRequest) -> bool:
        """Whether this step is the last, for all ranks."""
        if self._ranks.size == 1:
            return stop.asked
        while len(self._answers) > self._late:
            answer, event = self._answers.popleft()
            if event:
                event.synchronize()
            if answer.item() > 0:
                return True
        return False
