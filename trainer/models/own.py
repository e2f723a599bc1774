"""The model of a run: a built-in one, or a class that the user names."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from cohort_gnn.base.errors import CohortError
from cohort_gnn.base.importing import imported
from cohort_gnn.spec import files
from cohort_gnn.spec.run import TrainerSpec, from_json
from cohort_gnn.spec.run_file import read_run_json
from cohort_gnn.trainer.models.links import LinkDecoder
from cohort_gnn.trainer.models.sampled import SampledGNN
from cohort_gnn.trainer.models.targets import Targets, targets_of
from cohort_gnn.trainer.models.weights import load_weights

TRIMS = {"num_sampled_nodes_per_hop": 0, "num_sampled_edges_per_hop": 1}  # arguments of PyG's models, by place


def model_of(options: TrainerSpec) -> nn.Module:
    """A new model, on the CPU. One that predicts links makes rows of --hidden columns, and its ``link_decoder`` scores
    of them.

    Raises:
        CohortError: the class that --model names cannot be imported, made, or is no module of torch.
    """
    model = _model_of_rows(options)
    if options.targets == "link":
        model.link_decoder = LinkDecoder(options.decoder, options.num_classes)
    return model


def _model_of_rows(options: TrainerSpec) -> nn.Module:
    shape: dict[str, Any] = {"norm": options.norm, "residual": options.residual, "heads": options.heads}
    arguments = options.hidden, options.num_classes, len(options.fanout), options.dropout, options.layers
    if options.model_kind.several_types:
        from cohort_gnn.trainer.models.typed import TypedGNN  # and PyG, which runs with one node type need not wait for

        return TypedGNN(options.model, options.graph, *arguments, **shape, featureless=options.featureless)
    if not options.has_own_model:
        edge_dim = options.edge_dim if options.model_kind.takes_edge_features else 0
        return SampledGNN(
            options.model, options.feature_dim, *arguments, options.weighs_edges, edge_dim=edge_dim, **shape
        )
    place = f"--model {options.model}"
    sizes = {
        "in_channels": options.feature_dim,
        "hidden_channels": options.hidden,
        "num_layers": len(options.fanout),
        "out_channels": options.num_classes,
        "dropout": options.dropout,
    }
    try:
        model = imported("--model", options.model)(**sizes)
    except TypeError as error:
        raise CohortError(place, f"a class that takes {', '.join(sizes)}", str(error)) from error
    if not isinstance(model, nn.Module):
        raise CohortError(place, "a torch.nn.Module", type(model).__name__)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise CohortError(place, "parameters with gradients, to train them", "none")
    _demand_weights(place, model)
    if options.weighs_edges and "edge_weight" not in inspect.signature(model.forward).parameters:
        flag = "--use-edge-weights" if options.use_edge_weights else "--importance-sampling"
        hint = f"name the parameter, or leave {flag} out"
        raise CohortError(place, "a forward() that takes edge_weight", "one that does not", hint)
    if options.weighs_edges and not getattr(model, "supports_edge_weight", True):  # PyG's models leave it out, silently
        raise CohortError(place, "layers that take edge_weight", "supports_edge_weight = False", "take another model")
    return model


def _demand_weights(place: str, model: nn.Module) -> None:
    """That the weights of a run can be kept, and loaded again."""
    for name, values in model.state_dict().items():
        if not isinstance(values, Tensor):
            hint = "make it a buffer (register_buffer), or a tensor that get_extra_state returns"
            raise CohortError(f"{place}: state_dict()[{name!r}]", "a tensor, to keep it", type(values).__name__, hint)
        if not is_lazy(values) and values.layout == torch.strided and 0 in values.stride() and values.numel() > 1:
            actual = f"an expanded one, shape {list(values.shape)}, strides {list(values.stride())}"
            raise CohortError(f"{place}: {name}", "a tensor that can be loaded", actual, "add .clone()")


def callable_of(model: nn.Module, num_columns: int) -> Callable:
    """A function that calls the user's model, and takes the arguments of SampledGNN: (x, edge_index, num_sampled_nodes,
    num_sampled_edges, edge_weight, edge_attr).

    The model gets x and edge_index, and what else its ``forward`` names of PyG's: the sizes by hop, so that layers
    leave out what no seed needs any more, ``edge_weight`` and ``edge_attr``. A call raises CohortError if the model
    returns anything but rows of this number of columns, one at least for each seed.
    """
    takes = inspect.signature(model.forward).parameters

    def call(x, edge_index, *others):
        named = {name: others[place] for name, place in TRIMS.items() if name in takes and len(others) > place}
        edge_values = zip(("edge_weight", "edge_attr"), others[2:], strict=False)
        named |= {name: values for name, values in edge_values if values is not None and name in takes}
        scores = model(x, edge_index, **named)
        if not isinstance(scores, Tensor) or scores.ndim != 2 or scores.shape[1] != num_columns:
            actual = f"shape {list(scores.shape)}" if isinstance(scores, Tensor) else type(scores).__name__
            hint = "the last layer has out_channels columns"
            raise CohortError(f"{type(model).__name__}.forward", f"a tensor [nodes, {num_columns}]", actual, hint)
        num_seeds = others[0][0] if others else 0
        if len(scores) < num_seeds:
            expected, hint = f"a row for each of {num_seeds} seeds", "row i belongs to row i of x; seeds come first"
            raise CohortError(f"{type(model).__name__}.forward", expected, f"shape {list(scores.shape)}", hint)
        return scores

    return call


def load_model(run: str | Path, *, model: str | None = None, layers: str = "cohort") -> nn.Module:
    """The model of a run of ``cohort train``, with the weights of the best epoch, on the CPU and in eval mode.

    ``model(x, edge_index)`` maps float32 features to scores, float32 [rows of x, classes]. For a ``Batch``, the first
    ``batch.batch_size`` rows are the scores of the seeds; for a whole graph, the rows are the scores of all nodes. A
    built-in model has Cohort's layers even if the run used PyG's; the weights are the same.

    Args:
        run: folder of the run.
        layers: "cohort", or "pyg" for PyG's own layers, which need nothing of Cohort; the weights are the same.
        model: of a run with a class of your own, its name again: "package.module:Class". What a folder names does not
            run by itself.

    Examples:
        >>> model = cohort.load_model("runs/first")
        >>> own = cohort.load_model("runs/own", model="own:Net")

    Raises:
        CohortError: the folder is not a run, has no model, or has one of another class than ``model``.
    """
    made, _, _ = model_described(Path(run), model, layers)
    load_weights(Path(run), made)
    return made.eval()


def model_described(run: Path, own: str | None = None, layers: str = "cohort") -> tuple[nn.Module, Targets, dict]:
    """A model as a run's, without its weights; what it learned; the member "trainer" of run.json.

    Args:
        own: the class of the user's that may run, if it is the run's.

    Raises:
        CohortError: it is no run, or one of another class.
    """
    members = read_run_json(run, "trainer", expected="a run of cohort train")["trainer"]
    options = from_json(members, TrainerSpec, str(run / files.RUN))
    if own != (options.model if options.has_own_model else None):
        cure = f'cohort.load_model("{run}", model="{options.model}") runs it; give it batches of cohort.NeighborLoader'
        hint = cure if options.has_own_model else "leave model out"
        raise CohortError(f"{run / files.RUN}: model", own or "a built-in model", options.model, hint)
    try:
        return model_of(replace(options, layers=layers, dropout=0.0)), targets_of(options.targets), members
    except CohortError:
        raise
    except Exception as error:  # noqa: BLE001 (torch raises whatever it meets where a size is none)
        raise CohortError(str(run / files.RUN), "a run of cohort train", f"{error!r:.200}") from error
