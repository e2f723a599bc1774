"""The weights that a run keeps: RUN/model.pt, a state_dict."""

import io
from pathlib import Path

import torch

from cohort_gnn.base.errors import CohortError, why_not_loaded
from cohort_gnn.base.files import write_whole
from cohort_gnn.dataset.inert_torch import load_inert
from cohort_gnn.spec import files

WRITTEN = "cohort train writes it after each epoch with the best validation score so far"


def save_model(run: Path, weights: dict[str, torch.Tensor]) -> None:
    """Replaces the run's weights (on the CPU) in one step.

    Raises:
        OSError: the file cannot be written; the previous one stays.
    """
    data = io.BytesIO()
    torch.save(weights, data)
    write_whole(run / files.MODEL, data.getbuffer())


def read_weights(run: Path) -> dict[str, torch.Tensor]:
    """The weights that a run kept, on the CPU; only tensors are loaded from the file.

    Raises:
        CohortError: there are none, or the file is damaged.
    """
    path, expected = run / files.MODEL, "the weights of a run, a dict of tensors"
    try:
        weights = load_inert(path)
    except CohortError:
        raise
    except FileNotFoundError as error:
        raise CohortError(str(path), "the weights of a run", "none", WRITTEN) from error
    except Exception as error:  # noqa: BLE001 (what torch raises for a damaged file is of many types)
        raise CohortError(str(path), expected, why_not_loaded(error), WRITTEN) from error
    if not isinstance(weights, dict) or not all(isinstance(values, torch.Tensor) for values in weights.values()):
        raise CohortError(str(path), expected, type(weights).__name__, WRITTEN)
    return weights


def load_weights(run: Path, model: torch.nn.Module) -> None:
    """Loads the weights that a run kept into a model.

    Raises:
        CohortError: there are none, the file is damaged, or they are of another model.
    """
    weights = read_weights(run)
    try:
        model.load_state_dict(weights)
    except Exception as error:  # noqa: BLE001 (as above)
        actual = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise CohortError(
            str(run / files.MODEL), "weights of the model that run.json describes", actual, WRITTEN
        ) from error


def start_from(run: Path, model: torch.nn.Module) -> tuple[str, bool]:
    """Loads those of a run's weights that fit a model, which has them under the same name in the same shape.

    Returns:
        (what was loaded and what was not, by name; whether all weights of the model were loaded).

    Raises:
        CohortError: the run has no weights, or none fits.
    """
    theirs, own = read_weights(run), model.state_dict()
    fitting = {name: values for name, values in theirs.items() if name in own and own[name].shape == values.shape}
    lacking = [f"{name} {list(values.shape)}" + _instead(theirs.get(name)) for name, values in own.items()]
    lacking = [text for text, name in zip(lacking, own, strict=True) if name not in fitting]
    if not any(name in fitting for name, _ in model.named_parameters()):
        hint = "the same --model, --hidden and --fanout as the run's, and as many features in the data set"
        actual = f"other ones: {', '.join(lacking)}"
        raise CohortError(f"--init {run}", "weights of the names and shapes of this model", actual, hint)
    model.load_state_dict(fitting, strict=False)
    text = f"weights of {run}: {len(fitting)} of {len(own)} loaded"
    unused = [name for name in theirs if name not in own]
    text += f"; not loaded, so they start anew: {', '.join(lacking)}" if lacking else ""
    return text + (f"; not used: {', '.join(unused)}" if unused else ""), not lacking


def _instead(values: torch.Tensor | None) -> str:
    return ", which is not there" if values is None else f", there {list(values.shape)}"
