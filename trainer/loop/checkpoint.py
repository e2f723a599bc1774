"""RUN/checkpoint.pt: all that a run needs to go on where it was.

A file of ``torch.save`` that ``torch.load(..., weights_only=True)`` reads: tensors, numbers, text, lists and dicts. Its
members are those of MEMBERS.
"""

import io
import zipfile
from pathlib import Path

import torch

from cohort_gnn.base.errors import CohortError, why_not_loaded
from cohort_gnn.base.files import write_whole
from cohort_gnn.dataset.inert_torch import load_inert
from cohort_gnn.spec.options import Affects, names_that_affect
from cohort_gnn.spec.run import RunSpec

FORMAT, VERSION = "cohort checkpoint", 5
MEMBERS: dict[str, type | tuple[type, ...]] = {
    "identity": dict,  # of the run, see identity_of
    "epoch": int,  # that is under way; the number of epochs when all are done
    "step": int,  # of its steps (a batch a rank), how many are done
    "model": dict,  # parameters by name
    "optimizer": dict,  # Adam's state_dict
    "rows": (dict, type(None)),  # the state of RowAdam, where the model has learnable rows
    "best_model": (dict, type(None)),  # the parameters of the epoch that did best in validation
    "report": dict,  # members of summary.json, the epochs done as lines of metrics.jsonl, best accuracy so far
    "ranks": list,  # a dict a rank: random states, sums and counts of the epoch under way, states of callbacks
}
DAMAGED = "the file is damaged or not a checkpoint: without it, --resume starts the run from the beginning"
OTHER_RUN = "it belongs to another run: without it, --resume starts this run from the beginning"


def identity_of(run: dict) -> dict:
    """All that determines the batches and losses of a run: options of run.json, and its members about the data set."""
    names = names_that_affect(RunSpec, Affects.BATCHES | Affects.LOSS) - {"device"}
    options = {name: run["trainer"][name] for name in sorted(names)}
    if options["seed_order"] != "shuffle":
        options["seed_order"] = "a file"  # wherever it is: the data set's members have its digest
    parts = run["trainer"]["parts"]
    ranks = run.get("machines", run["sampler"])["num_ranks"]
    sampler = {"device": run["sampler"]["device"], "num_ranks": ranks}
    weights = {"weights_of_classes": run["trainer"].get("weights_of_classes")}
    return options | sampler | weights | {"cliques": parts and parts["cliques"], "data": run.get("data")}


class CheckpointFile:
    """The checkpoint of a run.

    Args:
        path: the file.
        identity: of the run, see identity_of.
    """

    def __init__(self, path: Path, identity: dict):
        self.path, self.identity = path, identity

    def write(self, state: dict) -> None:
        """Replaces the file in one step.

        Args:
            state: MEMBERS, less the identity, see on_cpu.

        Raises:
            OSError: it cannot be written; the one before is still there.
        """
        data = io.BytesIO()
        torch.save({"format": FORMAT, "version": VERSION, "identity": self.identity} | state, data)
        write_whole(self.path, data.getbuffer())

    def read(self) -> dict | None:
        """MEMBERS of the file, on the CPU; None when there is none.

        Raises:
            CohortError: it is damaged, or of another run.
        """
        if not self.path.exists():
            return None
        state = load_checkpoint(self.path)
        names = self.identity.keys() | state["identity"].keys()
        for name in sorted(names - {"class_weights"}):  # a file may have moved: weights_of_classes has its numbers
            expected = self.identity.get(name)
            actual = state["identity"].get(name, getattr(RunSpec, name, None))  # an option that came later
            if expected != actual:
                raise CohortError(f"{self.path}: {name}", repr(expected), repr(actual), OTHER_RUN)
        return state


def load_checkpoint(path: Path) -> dict:
    """MEMBERS of a checkpoint, on the CPU. Nothing in the file is executed.

    Raises:
        CohortError: it is not there, damaged, no checkpoint or one of another version.
    """
    try:
        data = io.BytesIO(path.read_bytes())
        with zipfile.ZipFile(data) as archive:  # torch.load does not look at the checksums
            spoiled = archive.testzip()
        if spoiled:
            raise ValueError(f"a wrong checksum of {spoiled}")
        data.seek(0)
        state = load_inert(data)
    except CohortError:
        raise
    except Exception as error:  # noqa: BLE001 (bytes from outside: torch raises whatever its parsers meet)
        raise CohortError(str(path), "a checkpoint of cohort train", why_not_loaded(error), DAMAGED) from error
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise CohortError(str(path), f"a file that says {FORMAT!r}", type(state).__name__, DAMAGED)
    if state.get("version") != VERSION:
        hint = "continue with the version of cohort that wrote it, or start a new run without --resume"
        raise CohortError(f"{path}: version", str(VERSION), repr(state.get("version")), hint)
    for name, kind in MEMBERS.items():
        if not isinstance(state.get(name), kind):
            raise CohortError(f"{path}: {name}", f"a member of {kind}", repr(state.get(name))[:200], DAMAGED)
    return state


def on_cpu(value):
    """The same nest of dicts and lists with every tensor copied to the CPU, which no step changes any more."""
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().clone()
    if isinstance(value, dict):
        return {name: on_cpu(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(on_cpu(member) for member in value)
    return value
