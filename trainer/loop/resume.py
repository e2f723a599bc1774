"""What of a trainer a checkpoint holds, and a new trainer takes up."""

from dataclasses import asdict
from pathlib import Path

import torch

from cohort.base.errors import CohortError
from cohort.spec import files
from cohort.trainer.loop.epoch import RunningEpoch
from cohort.trainer.report.recorder import Recorder


def state_of(trainer) -> dict:
    """The members of a checkpoint, less its identity; all ranks call it, after the same step."""
    running = trainer.running
    own = {
        "random": random_states(trainer.device),
        "report": asdict(running.report),
        "loss_sum": trainer.step.loss_sum.item(),
        "num_labelled": trainer.step.num_labelled.item(),
        "sample_seconds_an_edge": trainer.floor.sample_seconds_an_edge,
    }
    return {
        "epoch": running.epoch,
        "step": running.step,
        "model": trainer.model.state_dict(),
        "optimizer": trainer.optimizer.state_dict(),
        "best_model": trainer.best_model,
        "report": trainer.report.members(),
        "ranks": trainer.ranks.gather(own),
    }


def take_up(trainer, state: dict, path: Path) -> None:
    """Puts a new trainer where the state's was.

    Args:
        path: of the checkpoint that the state comes from.

    Raises:
        CohortError: the state is none of such a trainer.
    """
    try:
        _take_up(trainer, state)
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        hint = "the file is damaged or foreign: start the run anew, without --resume"
        raise CohortError(str(path), "the state of such a run", f"{type(error).__name__}: {error}", hint) from error


def _take_up(trainer, state: dict) -> None:
    own = state["ranks"][trainer.ranks.rank]
    epoch, step = state["epoch"], state["step"]
    trainer.model.load_state_dict(state["model"])
    trainer.optimizer.load_state_dict(state["optimizer"])
    best = state["best_model"]
    trainer.best_model = best and {name: values.to(trainer.device) for name, values in best.items()}
    trainer.running = RunningEpoch(epoch, trainer.device, step, own["report"])
    trainer.step.reset(own["loss_sum"], own["num_labelled"])
    trainer.report.take_up(state["report"])
    for done in trainer.report.epochs:
        trainer.reads.add(done)
    if trainer.report.cache:
        trainer.report.cache["measured"] = trainer.reads.shares()
    trainer.floor.sample_seconds_an_edge = own["sample_seconds_an_edge"]
    first = None if (trainer.out / files.TIMELINE).exists() else epoch + (step > 0)
    options, rank = trainer.options, trainer.ranks.rank
    trainer.recorder = Recorder(trainer.device, options.epochs, options.profile, first, rank)
    set_random_states(own["random"], trainer.device)


def random_states(device: torch.device) -> dict:
    """The states of the generators that a trainer draws from: uint8 [...] of the CPU's and of its GPU's, or None."""
    on_gpu = device.type == "cuda"
    return {"cpu": torch.get_rng_state(), "device": torch.cuda.get_rng_state(device) if on_gpu else None}


def set_random_states(states: dict, device: torch.device) -> None:
    """Puts the generators back."""
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states["device"], device)
