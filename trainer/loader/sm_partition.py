"""Divides the SMs of a GPU between the trainer and the sampler."""

import functools

import torch

from cohort_gnn.trainer.loader import _native
from cohort_gnn.trainer.loader.source import BatchSource


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


@functools.cache  # for good: PyTorch's current stream may be one of them, and slots are given back on them
def _rest_stream(gpu: int, sampler_sms: int) -> "_native.RestStream":
    return _native.RestStream(gpu, sampler_sms)
