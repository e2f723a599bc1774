"""The trainers of one run: how many there are, and what they add up between them."""

import collections
import contextlib
import datetime
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from cohort_gnn.nn.row_optimizers import gather_rows
from cohort_gnn.trainer.loader.machine import ProcessRank
from cohort_gnn.trainer.loader.step_clock import StepClock
from cohort_gnn.trainer.loop.stop import StopRequest
from cohort_gnn.trainer.report.messages import OtherRanksError

COME_SECONDS = 3600.0  # between the first rank and the last: the largest host tables take minutes to be opened
STEPS_LATE = 8  # more than a GPU is ever behind its host: the slots, by default 4, are the bound


@contextlib.contextmanager
def _together() -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:  # of torch.distributed, whose classes depend on the backend
        raise OtherRanksError(str(error)) from error


@torch.no_grad()
def _spread(values: Tensor) -> None:
    """Gives the `values` of every rank rank 0's: their bytes, since neither backend takes all dtypes, from a contiguous
    copy. NCCL refuses other strides, and gloo sends what is in memory from the first value on, between them too."""
    if values.layout != torch.strided:
        values.copy_(_from_first(values.cpu()))
        return
    whole = values.contiguous()
    dist.broadcast(whole.view(-1).view(torch.uint8), 0)
    if not values.is_contiguous():
        values.copy_(whole)


def _from_first(value: Any) -> Any:
    """Rank 0's value, which can be pickled."""
    values = [value]
    dist.broadcast_object_list(values, 0)
    return values[0]


class Ranks:
    """What the trainers of a run do together. With one trainer every method returns its argument.

    Args:
        process_rank: which of them this is.
        device: where its tensors are: NCCL joins GPUs, gloo CPUs.
        store: by which they find each other: a file in a folder that is new to the run, or, of several machines, the
            "host" and "port" of a store of torch.distributed, a "prefix" of keys that is new to the run, and the
            "seconds" that ranks wait for each other in a step.

    Attributes:
        clock: gets the times of the all-reduces, where there is one.
    """

    def __init__(self, process_rank: ProcessRank, device: torch.device, store: Path | dict[str, Any]):
        self.rank, self.size, self.local_rank = process_rank.rank, process_rank.size, process_rank.local_rank
        self.clock: StepClock | None = None
        if self.size > 1:
            on_gpu = device.type == "cuda"
            limit = None if isinstance(store, Path) else datetime.timedelta(seconds=store["seconds"])
            with _together():
                dist.init_process_group(
                    "nccl" if on_gpu else "gloo",
                    store=_joined(store, self.size),
                    timeout=limit,
                    rank=self.rank,
                    world_size=self.size,
                    device_id=device if on_gpu else None,
                )

    @_together()
    def spread(self, model: torch.nn.Module) -> None:
        """Gives the model of every rank the parameters, buffers and extra state of rank 0's."""
        if self.size > 1:
            for values in (*model.parameters(), *model.buffers()):
                _spread(values)
            extra = {name: state.cpu() for name, state in model.state_dict().items() if name.endswith("_extra_state")}
            if extra:  # of get_extra_state
                model.load_state_dict(_from_first(extra), strict=False)

    @_together()
    def spread_buffers(self, model: torch.nn.Module) -> None:
        """Gives the model of every rank the buffers of rank 0's, such as the means of batches."""
        if self.size > 1:
            for values in model.buffers():
                _spread(values)

    @_together()
    def sum(self, values: Tensor) -> Tensor:
        """The sum of every rank's ``values``, in place."""
        if self.size > 1:
            with self.clock.all_reduce() if self.clock else contextlib.nullcontext():
                dist.all_reduce(values)
        return values

    @_together()
    def gather_rows(self, values: Tensor) -> Tensor:
        """The rows of every rank's ``values`` [any number, ...], by rank."""
        if self.size == 1:
            return values
        with self.clock.all_reduce() if self.clock else contextlib.nullcontext():
            return gather_rows(values)

    @_together()
    def gather(self, value) -> list:
        """Every rank's ``value`` (anything that can be pickled), by rank."""
        if self.size == 1:
            return [value]
        values = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    @_together()
    def share(self, value, rank: int):
        """The ``value`` (anything that can be pickled) of a rank, to all."""
        if self.size == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, rank)
        return values[0]

    def leave(self) -> None:
        """Ends what joins the ranks, when all are done."""
        if self.size > 1:
            dist.destroy_process_group()


def _joined(store: Path | dict[str, Any], size: int) -> dist.Store:
    """The store, once all ranks have come to it. If one has ended, the launcher ends the others, which wait."""
    if isinstance(store, Path):
        return dist.FileStore(str(store), size)
    limit = datetime.timedelta(seconds=COME_SECONDS)
    shared_store = dist.TCPStore(store["host"], store["port"], is_master=False, wait_for_workers=False, timeout=limit)
    own = dist.PrefixStore(store["prefix"], shared_store)
    if own.add("come", 1) == size:
        own.set("all", "")
    own.wait(["all"], limit)
    return own


class Agreement:
    """Has all ranks end after the same step when one of them is told to stop.

    The word is a number that goes along with the sums of each step. A GPU's answer is looked at some steps later, so
    that its host does not wait for it.

    Args:
        device: where the sums are.
        stop: the request to stop this rank.
    """

    def __init__(self, device: torch.device, stop: StopRequest):
        self._stop = stop
        self._late = STEPS_LATE if device.type == "cuda" else 0
        self._answers: collections.deque[tuple[Tensor, torch.cuda.Event | None]] = collections.deque()

    def speak(self, word: Tensor) -> None:
        """Before the sum; ``word`` [] is 0 so far."""
        if self._stop.asked:
            word.fill_(1)

    def listen(self, word: Tensor) -> None:
        """After the sum."""
        answer = word.to("cpu", non_blocking=True, copy=True)
        self._answers.append((answer, torch.cuda.current_stream().record_event() if word.is_cuda else None))

    def stops(self) -> bool:
        """Whether this step is the last, for all ranks."""
        while len(self._answers) > self._late:
            answer, event = self._answers.popleft()
            if event:
                event.synchronize()
            if answer.item() > 0:
                return True
        return False


class StepSums:
    """What the ranks add up in each step, all at once: their gradients, which parameters they used, the labels they
    have, and a word.

    A rank's gradients are those of its labels' summed loss; the sums are divided by the labels of all. A parameter that
    no rank used keeps the gradient None, so that optimizers leave it as it is. Only a rank that left some unused asks
    whether others used them, and its host then waits for a GPU. CUDA graphs replay what is before and after the sum:
    the buffer stays where it is.

    Args:
        parameters: of the model; all of one dtype, and on one device. Those that are not trained are left out.
        add_up: makes a tensor that of every rank added up, in place.
        agreement: whose word goes along; None: nobody's.

    Attributes:
        labelled: [] of the parameters' dtype: after the sum, the labels of all ranks.
        zeros_for_unused: for steps in CUDA graphs, in which no host can ask: a parameter that no rank used has a
            gradient of zeros.
    """

    def __init__(
        self,
        parameters: list[torch.nn.Parameter],
        add_up: Callable[[Tensor], Tensor],
        agreement: Agreement | None = None,
    ):
        parameters = [values for values in parameters if values.requires_grad]
        self._parameters, self._add_up, self._agreement = parameters, add_up, agreement
        sizes = [values.numel() for values in parameters]
        self._flat = parameters[0].new_zeros(sum(sizes) + len(sizes) + 2)
        self._gradients, self._users, labelled, word = self._flat.split([sum(sizes), len(sizes), 1, 1])
        parts = self._gradients.split(sizes)
        self._views = [part.view_as(values) for part, values in zip(parts, parameters, strict=True)]
        self.labelled, self._word = labelled[0], word[0]
        self._no_word = self._flat.new_zeros(1)
        self.zeros_for_unused = False
        self._unused: list[int] = []  # by this rank, in the step under way: numbers of parameters
        self._all_used = self._flat.new_ones(len(sizes))

    def take(self, labelled: Tensor) -> None:
        """After the backward pass: keeps this rank's gradients, and how many labels [] they are of."""
        gradients = [
            (torch.zeros_like(values) if values.grad is None else values.grad).flatten() for values in self._parameters
        ]
        self._unused = []
        if not self.zeros_for_unused:
            self._unused = [number for number, values in enumerate(self._parameters) if values.grad is None]
        labels = labelled.view(1).to(self._flat.dtype)
        torch.cat([*gradients, self._uses_without(self._unused), labels, self._no_word], out=self._flat)

    def _uses_without(self, unused: list[int]) -> Tensor:
        """[parameters]: 0 for the unused ones, 1 for others."""
        if not unused:
            return self._all_used
        uses = torch.ones(len(self._parameters), dtype=self._flat.dtype)
        uses[unused] = 0
        return uses.to(self._flat.device)

    def add_up(self) -> None:
        """With the other ranks, which do so in the same step."""
        if self._agreement:
            self._agreement.speak(self._word)
        self._add_up(self._flat)
        if self._agreement:
            self._agreement.listen(self._word)

    def give(self) -> None:
        """Makes the gradients of the parameters those of the loss of all ranks, the mean over their labels."""
        self._gradients.div_(self.labelled.clamp(min=1))
        for values, sums in zip(self._parameters, self._views, strict=True):
            values.grad = sums
        if self._unused:
            users = self._users.tolist()
            for number in self._unused:
                if users[number] == 0:
                    self._parameters[number].grad = None
