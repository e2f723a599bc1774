"""Which SMs of a GPU train, and which are the sampler's."""

import time
from collections.abc import Iterator, Sequence

import torch

from cohort.trainer import _native
from cohort.trainer.loop.step import TrainStep
from cohort.trainer.source import BatchSource

CANDIDATES = (0, 8, 16, 24, 32, 48)  # SMs of the sampler that are tried; 0: all are shared
WARM_UP_STEPS, MOST_WARM_UP_STEPS = 6, 128  # in which the graphs of most steps (graphs.py) are made
TIMED_STEPS = 16
TIE = 1.02  # times within so much of the least count as equal to it

# By (GPU, SMs of the sampler). For good: PyTorch's current stream may be one of them, and slots are given back on them.
_rest_streams: dict[tuple[int, int], "_native.RestStream"] = {}


def divide_gpu(source: BatchSource, sampler_sms: int) -> None:
    """Keeps the work of this process off the SMs of the sampler.

    Both sides take their part as streams of a green context, so that the parts can change while both run: kernels on
    PyTorch's current stream, which is another one afterwards, run on the trainer's SMs alone, those of passes asked for
    from then on on the sampler's. Waits for the work of this process on the GPU.

    Args:
        source: where batches come from; its device is a GPU.
        sampler_sms: the first so many SMs are the sampler's, rounded up to what the GPU can split off; 0: all are
            shared.

    Raises:
        CohortError: nothing would be left for the trainer, or the driver knows no green contexts.
    """
    if sampler_sms == source.sampler_sms:
        return
    device = source.device
    torch.cuda.synchronize(device)
    rest = _rest_stream(device.index, sampler_sms) if sampler_sms else None
    stream = torch.cuda.ExternalStream(rest.handle, device) if rest else torch.cuda.default_stream(device)
    torch.cuda.set_stream(stream)
    torch.cuda.empty_cache()  # what is kept of memory is of the stream before
    source.sampler_sms = sampler_sms


def _rest_stream(gpu: int, sampler_sms: int) -> "_native.RestStream":
    key = gpu, sampler_sms
    if key not in _rest_streams:
        _rest_streams[key] = _native.RestStream(*key)
    return _rest_streams[key]


def candidates(device: torch.device) -> list[int]:
    """Those of CANDIDATES that leave half of the GPU to the trainer."""
    half = torch.cuda.get_device_properties(device).multi_processor_count // 2
    return [sms for sms in CANDIDATES if sms <= half]


def seconds_a_step(taken: Iterator, step: TrainStep, num_steps: int, most_warm_up: int, device: torch.device) -> float:
    """Wall-clock seconds of a step on each of ``num_steps`` batches, waiting included, after some others: until
    WARM_UP_STEPS in a row were such as the run's will be.

    Args:
        taken: slots, as BatchSource gives them.
        most_warm_up: steps that are not timed, at most.
    """
    in_row = 0
    for _ in range(most_warm_up):
        step(next(taken))
        in_row = in_row + 1 if step.is_settled else 0
        if in_row == WARM_UP_STEPS:
            break
    torch.cuda.synchronize(device)
    start = time.perf_counter()
    for _ in range(num_steps):
        step(next(taken))
    torch.cuda.synchronize(device)
    return (time.perf_counter() - start) / num_steps


def fewest_of_the_best(seconds: Sequence[float], tried: Sequence[int]) -> int:
    """The one tried with the least seconds; of those within TIE of it the one with the fewest SMs, 0 last."""
    least = min(seconds)
    good = [sms for sms, needed in zip(tried, seconds, strict=True) if needed <= TIE * least]
    return min(good, key=lambda sms: sms or float("inf"))


def describe_choice(chosen: int, seconds: Sequence[float], tried: Sequence[int]) -> str:
    """ "--sampler-sms auto: 16 (milliseconds a step: shared 7.10, 8 6.95, 16 6.40)" """
    names = {0: "shared"}
    each = ", ".join(f"{names.get(sms, sms)} {1e3 * needed:.2f}" for sms, needed in zip(tried, seconds, strict=True))
    return f"--sampler-sms auto: {names.get(chosen, chosen)} (milliseconds a step: {each})"
