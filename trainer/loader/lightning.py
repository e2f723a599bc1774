"""What a trainer of PyTorch Lightning wants of a loader that is no DataLoader of PyTorch."""

import sys

from cohort_gnn.base.errors import warn_user

LOOPS = ("lightning.pytorch.loops", "pytorch_lightning.loops")


def keeps_order() -> bool:
    """Whether the trainer of Lightning that iterates, if there is one, has ``overfit_batches``; warns if it has.

    Each epoch is to have the same batches then. Lightning replaces the sampler of a DataLoader for that; it tells
    other loaders nothing, so the trainer is looked for among the callers.
    """
    frame = sys._getframe(1) if any(name in sys.modules for name in LOOPS) else None
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(LOOPS):
            trainer = getattr(frame.f_locals.get("self"), "trainer", None)
            if getattr(trainer, "overfit_batches", 0):
                warn_user("overfit_batches: shuffle is off, so that each epoch has the same seeds")
                return True
        frame = frame.f_back
    return False
