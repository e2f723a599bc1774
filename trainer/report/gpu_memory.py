"""What a run takes of a GPU's memory beside its slots."""

import torch

from cohort_gnn.spec.results import RunReport
from cohort_gnn.trainer.report.callback import Callback


def peak_beside_slots(device: torch.device, slots_bytes: int) -> int:
    """Bytes in use on the GPU, the slots apart, when PyTorch had reserved the most.

    It is asked of the device, not of this process, so that all is in it for which a cache must leave room: PyTorch's
    memory, the CUDA contexts of both programs, the labels and working memory of the sampler (and the graph's topology
    where that is in GPU memory), and what other users of the GPU have at the moment.

    Args:
        device: this process's GPU; its work is waited for.
        slots_bytes: memory of the run's slots there.
    """
    torch.cuda.synchronize(device)
    free_bytes, total_bytes = torch.cuda.mem_get_info(device)
    given_back = torch.cuda.max_memory_reserved(device) - torch.cuda.memory_reserved(device)
    return total_bytes - free_bytes + given_back - slots_bytes


class MemoryPeak(Callback):
    """On a GPU ``trainer_peak_bytes`` of a run without a cache: of all ranks the most."""

    def run_ended(self, trainer, report: RunReport) -> None:
        if trainer.device.type == "cuda" and report.cache is None:
            own = peak_beside_slots(trainer.device, trainer.source.slots_bytes)
            report.trainer_peak_bytes = max(trainer.ranks.gather(own))
