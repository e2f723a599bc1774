"""Which loss the options of a run name."""

from cohort_gnn.spec.run import TrainerSpec

FOCAL_GAMMA = 2.0  # of the paper, see trainer/models/targets.py
OF_TASK = {"classification": "cross entropy", "multilabel": "binary cross entropy", "regression": "squared error"}
OF_LINKS = {"bce": "binary cross entropy", "softmax": "cross entropy among negatives", "margin": "hinge loss"}


def gamma_of(options: TrainerSpec) -> float | None:
    """That of the focal loss; None: it is another loss."""
    if options.loss != "focal":
        return None
    return FOCAL_GAMMA if options.focal_gamma is None else options.focal_gamma


def loss_name(options: TrainerSpec) -> str:
    """Which loss is reported, in words."""
    if ":" in options.loss:
        return options.loss
    gamma = gamma_of(options)
    name = OF_LINKS[options.loss] if options.targets == "link" else OF_TASK[options.targets]
    name = name if gamma is None else f"focal loss, gamma {gamma:g}"
    return name if options.class_weights is None else f"{name}, class weights {options.class_weights}"
