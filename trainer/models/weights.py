"""The weights that a run keeps: RUN/model.pt, a state_dict."""

import io
from pathlib import Path

import torch

from cohort_gnn.base.errors import CohortError, why_not_loaded
from cohort_gnn.base.files import write_whole
from cohort_gnn.dataset.inert_torch import load_inert
from cohort_gnn.spec import files


def save_model(run: Path, weights: dict[str, torch.Tensor]) -> None:
    """Replaces the run's weights (on the CPU) in one step.

    Raises:
        OSError: the file cannot be written; the previous one stays.
    """
    data = io.BytesIO()
    torch.save(weights, data)
    write_whole(run / files.MODEL, data.getbuffer())


def load_weights(run: Path, model: torch.nn.Module) -> None:
    """Loads the weights that a run kept into a model; only tensors are loaded from the file.

    Raises:
        CohortError: there are none, the file is damaged, or they are of another model.
    """
    path = run / files.MODEL
    cure = "cohort train writes it after each epoch with the best validation score so far"
    try:
        weights = load_inert(path)
    except CohortError:
        raise
    except FileNotFoundError as error:
        raise CohortError(str(path), "the weights of a run", "none", cure) from error
    except Exception as error:  # noqa: BLE001 (what torch raises for a damaged file is of many types)
        raise CohortError(str(path), "the weights of a run, a dict of tensors", why_not_loaded(error), cure) from error
    try:
        model.load_state_dict(weights)
    except Exception as error:  # noqa: BLE001 (as above)
        actual = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise CohortError(str(path), "weights of the model that run.json describes", actual, cure) from error
