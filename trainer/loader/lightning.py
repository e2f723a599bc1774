"""Support for trainers of PyTorch Lightning by a loader that is not a DataLoader of PyTorch."""

import sys

from cohort_gnn.base.errors import warn_user

LOOPS = ("lightning.pytorch.loops", "pytorch_lightning.loops")


def keeps_order() -> bool:
    """Whether a Lightning trainer iterates and has ``overfit_batches``, which is warned of.

    Each epoch must have the same batches then. For that, Lightning replaces the sampler of a DataLoader. It does not
    inform other loaders, so this function looks for the trainer among its callers.
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
